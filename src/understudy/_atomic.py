"""Atomic writes: a file appears complete under its name, or not at all; errors of the disk with what to do."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy._errors import UserError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on a normal exit it is synced to disk and renamed to `path`.

    After an exception the temporary file is removed and `path` is left as it was.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
        if os.name == "posix":
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, which must not exist or be empty; on a normal exit it is renamed to it.

    After an exception the temporary folder is removed and `path` is left as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write text atomically, in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a value atomically as indented JSON."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def disk_errors(path: Path, remedy: str = "choose another folder with --out") -> Iterator[None]:
    """Re-raise errors of the file system as a `UserError` that names the path and a remedy."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        # safetensors reports the operating system's error as text only.
        reason = getattr(error, "strerror", None) or str(error)
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "code: 28" in reason:
            raise UserError(
                f"{path}: the disk is full; free some space, and the same command goes on where it stopped"
            ) from error
        raise UserError(f"{path}: cannot be written ({reason}); {remedy}") from error
