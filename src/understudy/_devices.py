"""The device that `auto` means here."""

from __future__ import annotations

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
    except (RuntimeError, TypeError):
        raise UserError(f"must be auto, cpu or cuda, got {device!r}", "device") from None
    if found.type == "cuda" and not available:
        raise UserError(f"{device} needs a CUDA GPU, but torch sees none here; use auto or cpu", "device")
    return found
