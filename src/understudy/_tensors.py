"""Validation of a user's tensors and arrays: finite numbers, of the dtype and on the device of a module."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy._errors import UserError


def require_finite(name: str, value: Tensor | np.ndarray) -> None:
    """Refuse values that are not finite numbers.

    Args:
        name: Name of the value, for errors.
        value: The tensor or array.

    Raises:
        UserError: NaN, infinity, values that are not numbers, or a tensor on the device meta, which has none.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
        raise UserError(f"{name} is an array of {value.dtype}, not of numbers; convert it")
    if isinstance(value, Tensor) and value.is_meta:
        raise UserError(f"{name} is on the device meta, which has no numbers; give a tensor with numbers")
    if not (value.is_floating_point() if isinstance(value, Tensor) else value.dtype.kind == "f"):
        return
    bad = ~(value.isfinite() if isinstance(value, Tensor) else np.isfinite(value))
    if bad.any():
        where = [int(i) for i in (bad.nonzero()[0] if isinstance(bad, Tensor) else np.argwhere(bad)[0])]
        raise UserError(f"{name} contains NaN or infinity, first at {where}; remove or replace such samples")


def placed(value: Any, name: str, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Copy a tensor or array to a module's device; anything else stays as it is.

    Args:
        value: The tensor or array. A floating-point array takes the dtype, a tensor must have it.
        name: Name of the value, for errors.
        device: Device of the module's parameters; None if it has none.
        dtype: Floating-point type of the module's parameters; None if it has none.

    Raises:
        UserError: A tensor of another dtype or device.
    """
    if isinstance(value, np.ndarray):
        try:
            tensor = torch.from_numpy(np.require(value, requirements=("C", "W")))
        except (TypeError, ValueError) as error:
            raise UserError(f"{name}: torch cannot take an array of {value.dtype} ({error}); convert it") from error
        return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
    if not isinstance(value, Tensor):
        return value
    if device is not None and value.device.type != "cpu" and value.device != device:
        raise UserError(f"{name} is on {value.device}, and the module on {device}; move one of them with .to(…)")
    if dtype is not None and value.is_floating_point() and value.dtype != dtype:
        raise UserError(f"{name} is {value.dtype}, and the module's parameters are {dtype}; convert one with .to(…)")
    return value.to(device=device)
