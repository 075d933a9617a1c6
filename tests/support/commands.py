"""The command line as a user has it, in a folder of its own."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

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


def understudy(*words: object, cwd: Path, status: int = 0, process: bool = False) -> subprocess.CompletedProcess[str]:
    """What a command prints and returns, by a call of the console script's `main`, which saves a start of Python and
    torch each time; or by a `process` of its own."""
    run = _by_itself if process else _here
    done = run([SCRIPT, *map(str, words)], cwd)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done.stderr
    return done


def _by_itself(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=cwd, env=ENVIRONMENT, text=True, capture_output=True, timeout=300, check=False)


def _here(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    from understudy.cli import main

    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, ENVIRONMENT, clear=True),
        patch.object(sys, "argv", words),
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(),
        chdir(cwd),
    ):
        warnings.simplefilter("error", RuntimeWarning)
        try:
            status = main()
        except SystemExit as left:
            status = left.code or 0
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


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
