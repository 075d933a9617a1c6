"""Devices: the one that `auto` means here, and how exactly a GPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from understudy._errors import UserError

if TYPE_CHECKING:
    import torch


def resolve_device(device: torch.device | str) -> torch.device:
    """The device of this name; `auto` is a CUDA GPU if there is one, and the CPU otherwise.

    Raises:
        UserError: There is no such device here.
    """
    import torch

    available = torch.cuda.is_available()
    try:
        found = torch.device(("cuda" if available else "cpu") if device == "auto" else device)
        if found.type not in ("cpu", "cuda"):
            raise TypeError(device)
    except (RuntimeError, TypeError):
        raise UserError(f"must be auto, cpu or cuda, got {device!r}", "device") from None
    if found.type == "cuda" and not available:
        raise UserError(f"{device} needs a CUDA GPU, but torch sees none here; use auto or cpu", "device")
    return found


@contextmanager
def allow_tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in float32 matrix products and convolutions on a GPU, in the block."""
    import torch

    matrices, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matrices.allow_tf32, convolutions.allow_tf32
    matrices.allow_tf32 = convolutions.allow_tf32 = allowed
    try:
        yield
    finally:
        matrices.allow_tf32, convolutions.allow_tf32 = before
