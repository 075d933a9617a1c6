"""Evaluate a user's module and restore its state."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


@contextmanager
def evaluated(name: str, model: nn.Module, stacklevel: int = 4) -> Iterator[None]:
    """Put a module in evaluation mode without gradients, and every part of it back to the mode it was in.

    Warns if a BatchNorm or dropout was in training mode.

    Args:
        name: Name of the module, with which the warning begins.
        model: The module.
        stacklevel: Frames from here to the caller that the warning names; 4 is the caller of the function that uses
            this.
    """
    training = [part for part in model.modules() if part.training]
    kinds = sorted({type(part).__name__ for part in training if isinstance(part, _BatchNorm | _DropoutNd)})
    if kinds:
        warnings.warn(
            f"{name} is in training mode with {' and '.join(kinds)}; it is evaluated in evaluation mode and put back "
            "into training mode",
            stacklevel=stacklevel,
        )
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True
