"""Commands in forks of one process that has imported everything: 0.1 s each, with a limit of memory and of time.

A command that asks for too much memory fails in its fork, instead of taking the machine.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from support.commands import ENVIRONMENT

_MEMORY = 8 << 30
_IGNORED = re.compile(r"Exception ignored in: .*?\nKeyboardInterrupt: *\n", re.DOTALL)
_PATIENCE = 6.0
"""Seconds that an interrupted command has to end before it is killed."""


class Ended(NamedTuple):
    """How a command ended: its status is None if it was killed, since it did not end soon after an interruption."""

    status: int | None
    out: str
    err: str
    written: list[str]

    def require_clean(self) -> None:
        """Require one of the promised ends: done, refused by one line without a trace, or interrupted.

        Where Ctrl-C arrives while Python frees an object, Python prints that it ignores it, and it takes another one.
        """
        assert "Traceback" not in _IGNORED.sub("", self.err), self.err
        assert "an error in understudy itself" not in self.err, self.err
        assert self.status in (0, 2, 130, None), self
        if self.status == 2:
            assert re.search(r"--[a-z]|network -?\d+ does not exist", self.err), f"no option is named: {self.err}"
            assert not self.written, f"{self.written} left by: {self.err}"
            assert not self.out


class ForkedCommands:
    """A process that runs commands, each in a fork and in an empty folder of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.forked_commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        )

    def run(self, *words: str, seconds: float = 1.0) -> Ended:
        """Run a command; it is interrupted after some seconds, as by Ctrl-C."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([words, seconds]) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve() -> None:
    import torch

    import understudy.cli.run
    import understudy.lab.execute
    import understudy.report.pool as pool
    import understudy.training.kernels.cpu  # noqa: F401, so that no fork imports it again

    torch.set_num_threads(1)
    pool._MOST = 0
    with os.fdopen(os.dup(1), "w") as answers:
        for line in sys.stdin:
            words, seconds = json.loads(line)
            answers.write(json.dumps(_run(words, seconds)) + "\n")
            answers.flush()


def _run(words: list[str], seconds: float) -> tuple[int | None, str, str, list[str]]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        work = folder / "work"
        work.mkdir()
        child = os.fork()
        if child == 0:
            _become(words, folder)
        status = _wait(child, seconds)
        written = sorted(str(path.relative_to(work)) for path in work.rglob("*"))
        out, err = ((folder / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        shutil.rmtree(work, ignore_errors=True)
    return status, out, err[-2000:], written


def _wait(child: int, seconds: float) -> int | None:
    for until, then in ((seconds, signal.SIGINT), (seconds + _PATIENCE, signal.SIGKILL)):
        start = time.monotonic()
        while time.monotonic() - start < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, then)
    os.waitpid(child, 0)
    return None


def _become(words: list[str], folder: Path) -> None:
    """Run the command in this fork, and end it."""
    status = 99
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number, name in ((1, "out"), (2, "err")):
            opened = os.open(folder / name, os.O_CREAT | os.O_WRONLY)
            os.dup2(opened, number)
        os.chdir(folder / "work")
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        sys.argv = ["understudy", *words]
        from understudy.cli import main

        try:
            status = main()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 0
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


if __name__ == "__main__":
    _serve()
