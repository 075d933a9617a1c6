"""Standard output and standard error: closed, full, narrow, or in an encoding without our characters."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, TextIO

from understudy._errors import UserError

NARROWEST, WIDEST = 40, 400
"""Columns for which tables and help are laid out; a narrower terminal breaks the lines by itself."""
_ERRORS = "understudy"
_PLAIN = {
    "×": "x",
    "·": "*",
    "−": "-",
    "–": "-",
    "—": "-",
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "≈": "~",
    "±": "+/-",
    "∓": "-/+",
    "→": "->",
    "°": " degrees",
    "∞": "inf",
    "√": "sqrt ",
    "‖": "||",
    "∂": "d",
    "∇": "grad ",
    "Σ": "sum ",
    "─": "-",
    "━": "-",
    "│": "|",
    "•": "*",
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
}


class ReaderEndedError(Exception):
    """The program that reads standard output ended before everything was written."""


def prepare_streams() -> None:
    """Make standard output and standard error ready for any text, and the width of the terminal one for tables.

    Standard error that cannot be written, such as on a full disk, is ignored: results are on standard output.

    Raises:
        UserError: Standard output is closed.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, as long as the process lives
    if sys.stdout is None:
        # Without it the next file that is opened would take its place, and receive what is printed.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, as long as the process lives
        raise UserError("standard output is closed; redirect it to a file, or to /dev/null")
    codecs.register_error(_ERRORS, replace_characters)
    for stream, failed in ((sys.stdout, _report_output), (sys.stderr, _ignore)):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
        if "write" not in vars(stream):
            for name in ("write", "flush"):
                setattr(stream, name, _guarded(stream, getattr(stream, name), failed))
    columns = shutil.get_terminal_size().columns
    if "COLUMNS" in os.environ or not NARROWEST <= columns <= WIDEST:
        os.environ["COLUMNS"] = str(min(max(columns, NARROWEST), WIDEST))


def replace_characters(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding has not by similar ones of ASCII, as an error handler of `codecs`.

    Args:
        error: What could not be encoded.

    Returns:
        The replacement, and the place after what it replaces.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    shown, previous = "", ""
    for character in error.object[error.start : error.end]:
        shown += _plain(character, previous)
        previous = character
    return shown, error.end


def encodes_unicode(stream: TextIO) -> bool:
    """Whether all characters can be written to a stream.

    Args:
        stream: The stream.
    """
    return (getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def _guarded(stream: TextIO, function: Callable[..., Any], failed: Callable[[OSError], None]) -> Callable[..., Any]:
    """A function of a stream, with what to do when it fails; what is left in the stream is then discarded."""

    def guarded(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except OSError as error:
            _discard(stream)
            return failed(error)

    return guarded


def _report_output(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise ReaderEndedError from None
    raise UserError(f"standard output cannot be written ({error.strerror}); redirect it to another place") from error


def _ignore(error: OSError) -> None:
    """Go on without standard error."""


def _discard(stream: TextIO) -> None:
    """Discard what is left in a stream that cannot be written: Python would try again when it ends."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _plain(character: str, previous: str) -> str:
    """One character in ASCII; a raised number after its power sign."""
    if character in _PLAIN:
        return _PLAIN[character]
    kind, _, code = unicodedata.decomposition(character).partition(" ")
    if kind in ("<super>", "<sub>"):
        raised = unicodedata.decomposition(previous).startswith(kind) if previous else False
        plain = "".join(
            _plain(chr(int(each, 16)), "") if int(each, 16) > 127 else chr(int(each, 16)) for each in code.split()
        )
        return plain if raised else f"{'^' if kind == '<super>' else '_'}{plain}"
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        word = name.split(" WITH ")[0].split()[-1]
        return word.capitalize() if "CAPITAL" in name else word.lower()
    plain = unicodedata.normalize("NFKD", character).replace("⁄", "/").encode("ascii", "ignore").decode()
    return plain or "?"
