"""A run that is killed, interrupted or starved of disk goes on where it stopped and ends as if nothing had happened."""

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

from support.commands import ENVIRONMENT, SCRIPT, TINY, contents, may_mount, understudy

RUN = ("run", "two-layer", *TINY)
LONG = ("run", "two-layer", *TINY, "--epochs", "400", "--json")


class Mortal:
    """Processes that die just before their n-th change of the disk: see killing.py."""

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

    def run(self, here: Path, dies_before: int) -> dict:
        assert self.server.stdin and self.server.stdout
        print(dies_before, here, *RUN, file=self.server.stdin)
        answer = loads(self.server.stdout.readline())
        assert "Traceback" not in answer["said"], answer["said"]
        assert answer["status"] == (-9 if dies_before and answer["changes"] + 1 == dies_before else 0), answer["said"]
        return answer


@pytest.fixture(scope="module")
def mortal():
    made = Mortal()
    yield made
    made.server.communicate()


@pytest.fixture(scope="module")
def uninterrupted(mortal, tmp_path_factory):
    """A run made at one go by the same means: its files, and how many changes of the disk it took."""
    here = tmp_path_factory.mktemp("uninterrupted")
    answer = mortal.run(here, 0)
    return contents(_only_run(here)), answer["changes"]


def _only_run(here: Path) -> Path:
    (folder,) = here.glob("runs/two-layer/*")
    return folder


def _saved_epoch(here: Path) -> int:
    """The epoch of the state on disk; 0 where there is none."""
    states = list(here.glob("runs/two-layer/*/progress/state.safetensors"))
    if not states:
        return 0
    with safe_open(states[0], "pt") as file:
        return int(file.get_tensor("epoch"))


def _last_epoch_said(text: str) -> int:
    return max(map(int, re.findall(r"^epoch +(\d+)/", text, re.MULTILINE)), default=0)


def _taken_up_after(text: str) -> int:
    found = re.search(r"resumed after epoch (\d+) of 3\n", text)
    return int(found[1]) if found else 0


def test_a_run_made_at_one_go_is_the_same_from_one_process_to_another(uninterrupted, tiny):
    assert uninterrupted[0] == contents(tiny[1])


def test_killed_again_and_again_a_run_goes_on_from_its_last_epoch_and_ends_the_same(mortal, uninterrupted, tmp_path):
    moments = random.Random(1)
    deaths, expected = 0, 0
    while True:
        # Few changes at first, so that it dies in every epoch, then enough to get through tables and figures.
        answer = mortal.run(tmp_path, moments.randint(1, 10) + 14 * deaths)
        assert _taken_up_after(answer["said"]) == expected
        if answer["status"] == 0:
            break
        deaths, expected = deaths + 1, _saved_epoch(tmp_path)
        assert expected >= _last_epoch_said(answer["said"])
    assert deaths >= 4
    assert contents(_only_run(tmp_path)) == uninterrupted[0]


def _killed_at(mortal: Mortal, here: Path, moment: int) -> dict[str, bytes]:
    assert mortal.run(here, moment)["status"] == -9
    mortal.run(here, 0)
    return contents(_only_run(here))


@pytest.mark.parametrize("part", range(2))
def test_killed_at_some_moment_a_run_ends_the_same(mortal, uninterrupted, tmp_path, part):
    files, changes = uninterrupted
    moment = random.Random(part).randint(part * changes // 2 + 1, (part + 1) * changes // 2)
    assert _killed_at(mortal, tmp_path, moment) == files


@pytest.mark.deep
def test_killed_at_any_moment_a_run_ends_the_same(mortal, uninterrupted, tmp_path):
    files, changes = uninterrupted
    for moment in range(1, changes + 1):
        here = tmp_path / str(moment)
        here.mkdir()
        assert _killed_at(mortal, here, moment) == files, moment
        shutil.rmtree(here)


def _started(here: Path, until: str) -> subprocess.Popen[str]:
    """A run under way that has said the words."""
    process = subprocess.Popen([SCRIPT, *LONG], cwd=here, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE)
    assert process.stderr
    process.said = ""  # type: ignore[attr-defined]
    while until not in process.said:  # type: ignore[attr-defined]
        line = process.stderr.readline()
        assert line, "it ended too soon"
        process.said += line  # type: ignore[attr-defined]
    return process


def _ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, rest = process.communicate(timeout=60)
    return process.returncode, process.said + rest  # type: ignore[attr-defined]


@pytest.fixture
def ctrl_c_heard():
    """What was started in the background ignores Ctrl-C, and so would its children: listen while the test goes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_heard")
def test_a_second_process_is_refused_kill_9_and_ctrl_c_lose_at_most_an_epoch(tmp_path):
    first = _started(tmp_path, "epoch    2/400")
    first.send_signal(signal.SIGSTOP)
    refused = understudy(*LONG, cwd=tmp_path, status=2)
    folder = f"runs/two-layer/{_only_run(tmp_path).name}"
    assert refused.stderr == (
        f"understudy: {folder}: another process is at work on this run; wait for it, or choose another --out\n"
    )
    assert refused.stdout == ""
    first.kill()
    status, said = _ended(first)
    assert status == -9
    saved = _saved_epoch(tmp_path)
    assert saved >= _last_epoch_said(said) >= 2

    second = _started(tmp_path, f"resumed after epoch {saved} of 400")
    time.sleep(random.Random(2).random() / 10)
    second.send_signal(signal.SIGINT)
    status, said = _ended(second)
    assert status == 130
    assert said.endswith("\nunderstudy: interrupted; the same command resumes where it stopped\n")
    assert "Traceback" not in said
    saved = _saved_epoch(tmp_path)
    assert saved >= _last_epoch_said(said)

    third = understudy(*LONG, cwd=tmp_path)
    assert f"resumed after epoch {saved} of 400" in third.stderr
    assert f"epoch {saved + 1:>4}/400" in third.stderr
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
def test_a_disk_that_fills_up_ends_a_run_with_words_and_it_goes_on_once_there_is_room(tmp_path):
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _FULL, "sh", SCRIPT, *LONG],
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
