"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from understudy.errors import UserError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a name to write to; what was written takes the place of `path` at the end, even if power fails."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
        _sync_folder(path.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_bytes(path: Path, data: bytes) -> None:
    with whole(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def disk_errors(path: Path, remedy: str = "choose another folder with --out") -> Iterator[None]:
    """Turns what the disk refuses into words that say what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        # safetensors says what the disk said in words alone.
        reason = getattr(error, "strerror", None) or str(error)
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "code: 28" in reason:
            raise UserError(
                f"{path}: the disk is full; free some space, and the same command goes on where it stopped"
            ) from error
        raise UserError(f"{path}: cannot be written ({reason}); {remedy}") from error
