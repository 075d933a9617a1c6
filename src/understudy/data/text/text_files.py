"""Text files: lines in UTF-8."""

from __future__ import annotations

import codecs
import os

from understudy._errors import UserError
from understudy.nets.files.io import existing_file

_MOST_BYTES = 2**29
_NEEDED = "a text file with a sentence a line is needed"
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Read the lines of a text file in UTF-8, with or without a byte order mark, whatever ends them.

    Args:
        path: The file; at most 512 MiB.

    Raises:
        UserError: A file that is absent, empty, too large, not a regular file, or not text in UTF-8; the message states
            the line and the byte.
    """
    file = existing_file(path, _NEEDED)
    size = file.stat().st_size
    if size > _MOST_BYTES:
        raise UserError(f"{file}: the file has {size:,} bytes, at most {_MOST_BYTES:,} are read; split it")
    with open(file, "rb") as source:
        data = source.read(size)
    if data.startswith(_WIDE):
        raise UserError(f"{file}: the text is in UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    if (zero := data.find(0)) >= 0:
        raise UserError(f"{file}: this is not text: {_place(data, zero)} is 0; {_NEEDED}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}: this is not text in UTF-8: {_place(data, error.start)} is 0x{data[error.start]:02x}; if it is "
            "text in another encoding, convert it, for example with iconv -f ISO-8859-1 -t UTF-8"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _place(data: bytes, at: int) -> str:
    """A byte by its line and its place there, both counted from 1."""
    start, line = data.rfind(b"\n", 0, at) + 1, data.count(b"\n", 0, at) + 1
    return f"byte {at - start + 1:,} of line {line:,}"
