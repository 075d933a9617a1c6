"""Run commands as a user does, each in its own folder."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

COMMAND = [sys.executable, "-m", "understudy.cli"]
"""The command, also where no console script is installed."""
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
    "GIT_DIR": "/nowhere",  # so that no run records a commit, which may change during the tests
    "PYTHONWARNINGS": "error::RuntimeWarning",
}


def understudy(*words: object, cwd: Path, status: int = 0, process: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output and status.

    It runs in this process, which saves the start of Python and torch, or in its own `process`.
    """
    run = _run_process if process else _run_here
    done = run([*map(str, words)], cwd)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done.stderr
    return done


def _run_process(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=ENVIRONMENT, text=True, capture_output=True, timeout=300, check=False
    )


def _run_here(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    from understudy.cli import main

    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, ENVIRONMENT, clear=True),
        patch.object(sys, "argv", ["understudy", *words]),
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
    """Whether tests may mount a file system that no other process sees."""
    if not shutil.which("unshare") or os.getuid() != 0:
        return False
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def flat(text: str) -> str:
    """Text of a printed box as one line."""
    return " ".join(re.sub("[╭─╮│╰╯|]|-{3,}", " ", text).split())


def contents(folder: Path) -> dict[str, bytes]:
    """Contents of every file of a run, hidden files included, without timings."""
    return {
        str(path.relative_to(folder)): _without_timings(path.name, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _without_timings(name: str, data: bytes) -> bytes:
    if name == "environment.json":
        return json.dumps({k: v for k, v in json.loads(data).items() if k != "seconds"}).encode()
    if name == "report.html":
        data, found = re.subn(rb"(<dt>(?:to train|seconds)</dt><dd>)[^<]*(</dd>)", rb"\1\2", data)
        assert found == 2
    return data


class Said:
    """A watcher of a run that records the messages it receives."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def start(self, folder: Path, epoch: int, epochs: int) -> None: ...

    def epoch(self, progress: object) -> None: ...

    def say(self, what: str) -> None:
        self.words.append(what)
