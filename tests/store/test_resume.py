"""A run that is killed, interrupted or out of disk space resumes where it stopped and ends with the same files."""

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from json import loads
from pathlib import Path

import pytest
from safetensors import safe_open

from support.commands import COMMAND, ENVIRONMENT, TINY, contents, may_mount, understudy

RUN = ("run", "two-layer", *TINY)
LONG = ("run", "two-layer", *TINY, "--epochs", "150", "--json")


class KilledRuns:
    """Runs that are killed just before their n-th change of the disk: see killing.py."""

    def __init__(self) -> None:
        script = str(Path(__file__).parents[1] / "support" / "killing.py")
        self.server = subprocess.Popen(
            [sys.executable, script],
            env=ENVIRONMENT,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.server.stdout and self.server.stdout.readline() == "ready\n"

    def run(self, here: Path, killed_before: int) -> dict:
        assert self.server.stdin and self.server.stdout
        print(killed_before, here, *RUN, file=self.server.stdin)
        result = loads(self.server.stdout.readline())
        killed = killed_before and result["changes"] + 1 == killed_before
        # A worker that is just starting when its parent is killed reports that.
        assert killed or "Traceback" not in result["stderr"], result["stderr"]
        assert result["status"] == (-9 if killed else 0), result["stderr"]
        return result


@pytest.fixture(scope="module")
def killed_runs():
    runs = KilledRuns()
    yield runs
    runs.server.communicate()


@pytest.fixture(scope="module")
def uninterrupted(killed_runs, tmp_path_factory):
    """The files of an uninterrupted run made in the same way, and the number of its changes of the disk."""
    here = tmp_path_factory.mktemp("uninterrupted")
    result = killed_runs.run(here, 0)
    return contents(_only_run(here)), result["changes"]


def _only_run(here: Path) -> Path:
    (folder,) = here.glob("runs/two-layer/*")
    return folder


def _saved_epoch(here: Path) -> int:
    """The epoch of the state on disk; 0 if there is none."""
    states = sorted(here.glob("runs/two-layer/*/progress/state-*.safetensors"))
    if not states:
        return 0
    with safe_open(states[-1], "pt") as file:
        return int(file.get_tensor("epoch"))


def _last_epoch_reported(text: str) -> int:
    return max(map(int, re.findall(r"^epoch +(\d+)/", text, re.MULTILINE)), default=0)


def _resumed_after(text: str) -> int:
    found = re.search(r"resumed after epoch (\d+) of 3\n", text)
    return int(found[1]) if found else 0


def test_uninterrupted_runs_of_two_processes_are_equal(uninterrupted, tiny):
    assert uninterrupted[0] == contents(tiny[1])


def test_a_run_that_is_killed_repeatedly_resumes_and_ends_with_the_same_files(killed_runs, uninterrupted, tmp_path):
    moments = random.Random(1)
    kills, expected = 0, 0
    while True:
        # Few changes at first, so that it is killed in every epoch, then enough to get through tables and figures.
        result = killed_runs.run(tmp_path, moments.randint(1, 10) + 14 * kills)
        assert _resumed_after(result["stderr"]) == expected
        if result["status"] == 0:
            break
        kills, expected = kills + 1, _saved_epoch(tmp_path)
        assert expected >= _last_epoch_reported(result["stderr"])
    assert kills >= 4
    assert contents(_only_run(tmp_path)) == uninterrupted[0]


def _resume_after_kill(killed_runs: KilledRuns, here: Path, moment: int) -> dict[str, bytes]:
    assert killed_runs.run(here, moment)["status"] == -9
    killed_runs.run(here, 0)
    return contents(_only_run(here))


@pytest.mark.parametrize("part", [pytest.param(0, marks=pytest.mark.deep), 1])
def test_a_run_killed_at_a_random_moment_ends_with_the_same_files(killed_runs, uninterrupted, tmp_path, part):
    files, changes = uninterrupted
    moment = random.Random(part).randint(part * changes // 2 + 1, (part + 1) * changes // 2)
    assert _resume_after_kill(killed_runs, tmp_path, moment) == files


def test_a_killed_run_whose_last_state_is_damaged_goes_on_from_the_one_before(killed_runs, uninterrupted, tmp_path):
    assert killed_runs.run(tmp_path, 50)["status"] == -9
    saved = _saved_epoch(tmp_path)
    assert saved >= 1
    (state,) = tmp_path.glob(f"runs/two-layer/*/progress/state-{saved:06}.safetensors")
    content = bytearray(state.read_bytes())
    content[-5] ^= 16
    state.write_bytes(content)
    stderr = killed_runs.run(tmp_path, 0)["stderr"]
    damage = f"{state.relative_to(tmp_path)}: the saved state cannot be read (its contents do not match its checksum)"
    assert f"{damage}: going on from epoch {saved - 1}\n" in stderr
    assert contents(_only_run(tmp_path)) == uninterrupted[0]


@pytest.mark.deep
def test_a_run_killed_at_any_moment_ends_with_the_same_files(killed_runs, uninterrupted, tmp_path):
    files, changes = uninterrupted
    for moment in range(1, changes + 1):
        here = tmp_path / str(moment)
        here.mkdir()
        assert _resume_after_kill(killed_runs, here, moment) == files, moment
        shutil.rmtree(here)


def _start(here: Path, until: str) -> subprocess.Popen[str]:
    """Start a run, and wait until it has printed these words."""
    process = subprocess.Popen([*COMMAND, *LONG], cwd=here, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE)
    assert process.stderr
    process.printed = ""  # type: ignore[attr-defined]
    while until not in process.printed:  # type: ignore[attr-defined]
        line = process.stderr.readline()
        assert line, "the run ended too soon"
        process.printed += line  # type: ignore[attr-defined]
    return process


def _wait(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, rest = process.communicate(timeout=60)
    return process.returncode, process.printed + rest  # type: ignore[attr-defined]


@pytest.mark.usefixtures("sigint_enabled")
def test_a_second_process_is_refused_and_sigkill_and_sigint_lose_at_most_one_epoch(tmp_path):
    first = _start(tmp_path, "epoch    2/150")
    first.send_signal(signal.SIGSTOP)
    refused = understudy(*LONG, cwd=tmp_path, status=2)
    folder = f"runs/two-layer/{_only_run(tmp_path).name}"
    assert refused.stderr == (
        f"understudy: {folder}: another process is working on this run; wait for it, or choose another --out\n"
    )
    assert refused.stdout == ""
    first.kill()
    status, printed = _wait(first)
    assert status == -9
    saved = _saved_epoch(tmp_path)
    assert saved >= _last_epoch_reported(printed) >= 2

    second = _start(tmp_path, f"resumed after epoch {saved} of 150")
    time.sleep(random.Random(2).random() / 10)
    second.send_signal(signal.SIGINT)
    status, printed = _wait(second)
    assert status == 130
    assert printed.endswith("\nunderstudy: interrupted; the same command resumes where it stopped\n")
    assert "Traceback" not in printed
    saved = _saved_epoch(tmp_path)
    assert saved >= _last_epoch_reported(printed)

    third = understudy(*LONG, cwd=tmp_path)
    assert f"resumed after epoch {saved} of 150" in third.stderr
    assert f"epoch {saved + 1:>4}/150" in third.stderr
    assert not list(_only_run(tmp_path).glob(".*"))


_FULL = """
set -e
mount -t tmpfs -o size=64m tmpfs "$PWD"
cd "$PWD"
"$@" &
run=$!
until [ "$(ls runs/*/*/progress 2>/dev/null | grep -c ^metrics)" -ge 3 ]; do sleep 0.02; done
dd if=/dev/zero of=filler bs=64k status=none 2>/dev/null || true
wait $run && status=0 || status=$?
echo "first $status"
rm filler
"$@" >/dev/null && status=0 || status=$?
echo "second $status"
"""


@pytest.mark.skipif(not may_mount(), reason="needs root and unshare, to mount a small disk")
def test_a_full_disk_ends_a_run_with_a_message_and_the_run_resumes_once_there_is_space(tmp_path):
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _FULL, "sh", *COMMAND, *LONG],
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert "first 2\n" in done.stdout, done.stderr
    assert "second 0\n" in done.stdout, done.stderr
    assert ": the disk is full; free some space, and the same command goes on where it stopped\n" in done.stderr
    assert "resumed after epoch" in done.stderr
    assert "Traceback" not in done.stderr
