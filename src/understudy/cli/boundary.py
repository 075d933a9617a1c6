"""Where commands end: an exit status, and one line for every error.

What a user can cause ends with status 2 and a line that says what to do; anything else is an error in understudy, which
ends with status 1 and a line that names a crash report.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from understudy._errors import UserError, exhausts_memory, first_line
from understudy.cli.streams import ReaderEndedError, prepare_streams

_NAMED = ("understudy", "torch", "numpy", "tyro", "rich")
"""Packages whose versions a crash report states."""


def run_guarded(command: Callable[[], None], words: Sequence[str]) -> int:
    """Run a command and return its exit status; every error becomes one line on standard error.

    Args:
        command: The command.
        words: The words that were typed after `understudy`.

    Returns:
        0; 1 for an error in understudy; 2 for an error that the user can correct; 130 if interrupted; 141 if the
        program that reads standard output ended first.
    """
    try:
        prepare_streams()
        status = _run(command)
        sys.stdout.flush()
        return status
    except UserError as error:
        return _end(error.for_command)
    except KeyboardInterrupt:
        resumes = list(words[:1]) in (["run"], ["reproduce"]) or any(word.startswith("--checkpoint") for word in words)
        again = "resumes where it stopped" if resumes else "starts again"
        return _end(f"interrupted; the same command {again}", 130, before="\n")
    except ReaderEndedError:
        return 141
    except Exception as error:
        if exhausts_memory(error):
            return _end(f"memory is exhausted ({first_line(error)}); choose smaller sizes")
        if isinstance(error, OSError) and error.filename is not None:
            return _end(f"{os.fsdecode(error.filename)}: {error.strerror}; choose another file or folder")
        return _end(_report_crash(error, words), 1)


def _run(command: Callable[[], None]) -> int:
    """Run a command; tyro ends the process after its help and after an invalid option."""
    try:
        command()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise UserError(str(ended.code)) from None
        return ended.code or 0
    return 0


def _end(message: str, status: int = 2, before: str = "") -> int:
    line = " ".join(message.split("\n"))
    print(f"{before}understudy: {line}", file=sys.stderr)
    return status


def _report_crash(error: Exception, words: Sequence[str]) -> str:
    """Write a crash report, and return a sentence that names it."""
    what = f"an error in understudy itself ({type(error).__name__}: {first_line(error)})"
    lines = [
        time.strftime("%Y-%m-%d %H:%M:%S %z"),
        f"Python {platform.python_version()} on {platform.platform()}",
        *(f"{name} {_version(name)}" for name in _NAMED),
        f"command: understudy {' '.join(words)}",
        "",
        *traceback.format_exception(error),
    ]
    try:
        handle, path = tempfile.mkstemp(".txt", f"understudy-crash-{time.strftime('%Y%m%d-%H%M%S')}-", text=True)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines))
    except OSError as unwritten:
        return f"{what}; a crash report cannot be written ({unwritten.strerror})"
    return f"{what}; please report it with {path}, which has the details"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
