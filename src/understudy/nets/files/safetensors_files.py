"""Files of safetensors: named tensors and texts, whose header is compared with the size of the file as it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from understudy._errors import UserError, first_line

_MOST_TENSORS = 10**5
"""Tensors of one file: each costs about a kilobyte of memory, even without numbers."""


def read_safetensors(file: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a file, and the texts of its metadata.

    Args:
        file: An existing file.
        remedy: What to do about a damaged file.

    Returns:
        Tensors on the CPU by name, and metadata by key.

    Raises:
        UserError: The file is truncated or damaged, or has more than 100,000 tensors.
    """
    with opened(file, remedy) as source:
        names = list(source.keys())
        if len(names) > _MOST_TENSORS:
            raise ValueError(f"{len(names):,} tensors, at most {_MOST_TENSORS:,} are read")
        return {name: source.get_tensor(name) for name in names}, dict(source.metadata() or {})


def read_metadata(file: Path, remedy: str) -> dict[str, str]:
    """Read the metadata of a file, as `read_safetensors` does, without its tensors."""
    with opened(file, remedy) as source:
        return dict(source.metadata() or {})


def count_tensors(file: Path, remedy: str) -> int:
    """Count the tensors of a file, as `read_safetensors` does, without reading them."""
    with opened(file, remedy) as source:
        return len(source.keys())


@contextmanager
def opened(file: Path, remedy: str) -> Iterator[Any]:
    """Open a file; whatever goes wrong with it while it is open is a `UserError` that names it.

    Args:
        file: The file.
        remedy: What to do about a damaged file.

    Raises:
        UserError: The file is truncated or damaged.
    """
    try:
        with safetensors.safe_open(file, framework="pt") as source:
            yield source
    except UserError:
        raise
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: the safetensors file is truncated or damaged ({first_line(error)}); {remedy}"
        ) from error
