"""The command line as a user has it: the console script beside this Python, in a folder of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = str(Path(sys.executable).with_name("understudy"))
TINY = [
    "--teacher-nodes",
    "3",
    "--dim",
    "6",
    "--outputs",
    "4",
    "--seeds",
    "2",
    "--polarity",
    "1",
    "--multiple",
    "1",
    "2",
    "--epochs",
    "3",
    "--steps",
    "20",
    "--train",
    "64",
    "--evaluation",
    "64",
]
ENVIRONMENT = {
    **os.environ,
    "COLUMNS": "200",
    "NO_COLOR": "1",
    "GIT_DIR": "/nowhere",  # so that no run records a commit, which may change while tests go
    "PYTHONWARNINGS": "error::RuntimeWarning",
}


def understudy(*words: object, cwd: Path, status: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [SCRIPT, *map(str, words)],
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
        **more,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done.stderr
    return done


def may_mount() -> bool:
    """Whether tests may mount a disk of their own, seen by no one else."""
    if not shutil.which("unshare") or os.getuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def flat(text: str) -> str:
    """What a box says, in one line."""
    return " ".join(re.sub("[╭─╮│╰╯|]|-{3,}", " ", text).split())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run, hidden ones too, but for the times that a machine and a day give it."""
    return {
        str(path.relative_to(folder)): _timeless(path.name, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _timeless(name: str, data: bytes) -> bytes:
    if name == "environment.json":
        return json.dumps({k: v for k, v in json.loads(data).items() if k != "seconds"}).encode()
    if name == "report.html":
        data, found = re.subn(rb"(<dt>(?:to train|seconds)</dt><dd>)[^<]*(</dd>)", rb"\1\2", data)
        assert found == 2
    return data


class Said:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def start(self, folder: Path, epoch: int, epochs: int) -> None: ...

    def epoch(self, progress: object) -> None: ...

    def say(self, what: str) -> None:
        self.words.append(what)
