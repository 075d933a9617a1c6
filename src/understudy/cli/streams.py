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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
    if "write" not in vars(sys.stdout):
        for name in ("write", "flush"):
            setattr(sys.stdout, name, _naming_output(getattr(sys.stdout, name)))
    columns = shutil.get_terminal_size().columns
    if not NARROWEST <= columns <= WIDEST:
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


def _discard(stream: TextIO) -> None:
    """Discard what is left in a stream that cannot be written: Python would try again when it ends.

    Args:
        stream: The stream.
    """
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _naming_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let errors of standard output say that it is standard output."""

    def named(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BrokenPipeError:
            _discard(sys.stdout)
            raise ReaderEndedError from None
        except OSError as error:
            _discard(sys.stdout)
            raise UserError(
                f"standard output cannot be written ({error.strerror}); redirect it to another place"
            ) from error

    return named


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
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain or "?"
