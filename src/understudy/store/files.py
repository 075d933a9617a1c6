"""Errors of the file system, reported with what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from understudy._errors import UserError


@contextmanager
def disk_errors(path: Path, remedy: str = "choose another folder with --out") -> Iterator[None]:
    """Re-raise errors of the file system as a `UserError` that names the path and a remedy."""
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
