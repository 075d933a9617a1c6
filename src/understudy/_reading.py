"""Files that others wrote: their kind and size are known before they are read, and their names are plain text.

Every reader begins with `existing_file`. What a file declares (shapes, counts, sizes after decompression) is compared
with its size on disk by `require_plausible` before anything of that size is allocated.
"""

from __future__ import annotations

import json
import os
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from understudy._errors import UserError, first_line

_MOST_TEXT = 2**26
"""Largest description that is parsed, in bytes: JSON, TOML, or the pickle that describes tensors."""
_MARKUP, _LONGEST = frozenset("<>$&"), 300
_RATIO, _SLACK = 64, 2**26
"""Contents may be this many times as large as their file, and so many bytes larger: compressed images are 50 times."""


def existing_file(path: str | os.PathLike[str], needed: str) -> Path:
    """Return the path of a readable, non-empty file, or raise a `UserError` that states what is `needed`."""
    file = Path(path)
    try:
        exists = file.exists()
        loops = not exists and file.is_symlink()
    except (OSError, ValueError) as error:  # a name that is too long
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{file}: the path cannot be used ({reason}); {needed}, so check the path.") from None
    if loops:
        raise UserError(f"{file}: this is a link to a file that does not exist; {needed}, so check the link.")
    if not exists:
        raise UserError(f"{file}: there is no such file; {needed}, so check the path.")
    if file.is_dir():
        raise UserError(f"{file}: this is a directory; {needed}, so name a file in it.")
    if not file.is_file():
        raise UserError(f"{file}: this is not a regular file; {needed}, so copy the contents to a regular file.")
    if not os.access(file, os.R_OK):
        raise UserError(f"{file}: no permission to read the file; {needed}, so change its permissions.")
    if not file.stat().st_size:
        raise UserError(f"{file}: the file is empty (0 bytes); {needed}, so write or download it again.")
    return file


def require_plain_names(file: Path, names: Iterable[str]) -> None:
    """Refuse names that a terminal, a figure or a page would not show as they are.

    Args:
        file: The file, for the error.
        names: Names of layers in it.

    Raises:
        UserError: Characters of HTML or formulas, others that cannot be printed, or more than 300 of them.
    """
    for name in names:
        if len(name) > _LONGEST or not name.isprintable() or not _MARKUP.isdisjoint(name):
            raise UserError(
                f"{file}: the name {name[:_LONGEST]!r} cannot be shown: it has one of {' '.join(sorted(_MARKUP))}, "
                f"characters that cannot be printed, or more than {_LONGEST}; rename the layer."
            )


def require_plausible(file: Path, declared: int, what: str, remedy: str) -> None:
    """Refuse contents that are far larger than their file, before they are allocated.

    Args:
        file: The file.
        declared: Bytes of the contents as the file declares them.
        what: What they are, for the error, as in "the array x".
        remedy: What to do.

    Raises:
        UserError: More than 64 times the size on disk and 64 MiB.
    """
    size = file.stat().st_size
    if not 0 <= declared <= _RATIO * size + _SLACK:
        shown = f"{declared:,}" if abs(declared) < 10**30 else "more than 10^30"
        raise UserError(
            f"{file}: {what} declares {shown} bytes, but the file has {size:,}, too few for that; the file is damaged, "
            f"so {remedy}"
        )


def require_text(file: Path, size: int, what: str, remedy: str) -> None:
    """Refuse a description that is too large to parse, such as JSON of more than 64 MiB.

    Args:
        file: The file.
        size: Bytes of the description.
        what: What it is, for the error.
        remedy: What to do.

    Raises:
        UserError: A larger one.
    """
    if size > _MOST_TEXT:
        raise UserError(f"{file}: {what} has {size:,} bytes, and at most {_MOST_TEXT:,} are read; {remedy}")


def require_records(file: Path, archive: zipfile.ZipFile, remedy: str, *, compressed: bool = False) -> None:
    """Compare the sizes that a zip archive declares with that of its file.

    Args:
        file: The file.
        archive: The archive in it.
        remedy: What to do.
        compressed: Whether records may be compressed.

    Raises:
        UserError: Records that are larger than the file allows, encrypted, or compressed in another way.
    """
    size, stored, whole = file.stat().st_size, 0, 0
    for info in archive.infolist():
        plain = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if info.flag_bits & 1 or not (plain or (compressed and info.compress_type == zipfile.ZIP_DEFLATED)):
            raise UserError(f"{file}: its record {info.filename} is compressed or encrypted in another way; {remedy}")
        stored, whole = stored + info.compress_size, whole + info.file_size
    if stored > size:
        raise UserError(
            f"{file}: its records declare {stored:,} bytes, but the file has {size:,}; it is damaged, so {remedy}"
        )
    require_plausible(file, whole, "the archive", remedy)


def parse_json(file: Path, text: str | bytes, remedy: str, what: str = "") -> Any:
    """Parse JSON of a file.

    Args:
        file: The file, for errors.
        text: The JSON.
        remedy: What to do about a damaged file.
        what: Which part of the file this is; empty if it is the whole file.

    Raises:
        UserError: No JSON, one that is nested too deep, or one of more than 64 MiB.
    """
    require_text(file, len(text), what or "the file", remedy)
    where = f"{file}: {what}" if what else f"{file}"
    try:
        return json.loads(text)
    except RecursionError:
        raise UserError(f"{where} is nested too deep for JSON; {remedy}") from None
    except ValueError as error:
        raise UserError(f"{where} is not JSON ({first_line(error)}); {remedy}") from None


def read_json(file: Path, remedy: str) -> Any:
    """Read a JSON file, which `parse_json` parses."""
    return parse_json(file, _read_description(file, remedy), remedy)


def read_toml(file: Path, remedy: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        file: The file.
        remedy: What to do about a damaged file.

    Raises:
        UserError: No such file, no TOML, or one that is nested too deep or has more than 64 MiB.
    """
    content = _read_description(file, remedy)
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise UserError(f"{file} is nested too deep for TOML; {remedy}") from None
    except ValueError as error:
        raise UserError(f"{file} is not valid TOML ({first_line(error)}); {remedy}") from None


def read_text(file: Path, remedy: str) -> str:
    """Read a short text in UTF-8."""
    try:
        return _read_description(file, remedy).decode()
    except UnicodeDecodeError:
        raise UserError(f"{file} is not text in UTF-8; {remedy}") from None


def _read_description(file: Path, remedy: str) -> bytes:
    existing_file(file, remedy)
    require_text(file, file.stat().st_size, "the file", remedy)
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); {remedy}") from None
