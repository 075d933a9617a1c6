"""Comparison of a converted network with the original."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from understudy._devices import allow_tf32
from understudy._errors import UserError
from understudy.nets.graphs.graph import OTHERWISE
from understudy.nets.population import Population

TOLERANCE = 1e-5
"""Largest difference of outputs from the original's, relative to the largest output."""


def noise(*size: int, seed: int = 0) -> Tensor:
    """Random inputs, the same each time."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def enough(size: Sequence[int]) -> int:
    """How many random samples of this size to compare: 8, or fewer large ones."""
    return max(1, min(8, 10**6 // math.prod(size)))


def require_equal(
    population: Population, original: Callable[[Tensor], Tensor], batches: Sequence[Tensor], name: str
) -> None:
    """Compare outputs with the original's.

    Args:
        population: The converted network.
        original: Computes the outputs of a batch, [sample, output].
        batches: Inputs in the shape that the original takes.
        name: Name of the original, for the error.

    Raises:
        UserError: The outputs differ by more than rounding.
    """
    for inputs in batches:
        with allow_tf32(False):
            wanted = original(inputs)
        if not isinstance(wanted, Tensor):
            raise UserError(f"{name} returns a {type(wanted).__name__}; wrap it in a module that returns one tensor")
        with allow_tf32(False):
            found = population(inputs.flatten(1).to(population.dtype))[0].to(wanted.dtype)
        wanted = wanted.unsqueeze(1) if wanted.ndim == 1 and found.shape[1] == 1 else wanted
        if found.shape != wanted.shape:
            raise UserError(
                f"the converted network has outputs of shape {list(found.shape)}, but {name} of {list(wanted.shape)}; "
                "only outputs [sample, output] are supported"
            )
        scale, largest = float(wanted.abs().max()), float((found - wanted).abs().max())
        if not largest <= max(TOLERANCE, 20 * torch.finfo(wanted.dtype).eps) * scale:
            raise UserError(
                f"the converted network differs from {name} by {largest:.2g}, with outputs up to {scale:.2g}, so it "
                f"depends on more than its inputs and cannot be converted; {OTHERWISE}"
            )
