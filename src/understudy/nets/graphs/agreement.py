"""Comparison of a converted network with the original."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from understudy._devices import allow_tf32
from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets.graphs.graph import OTHERWISE
from understudy.nets.population import Population

TOLERANCE = 1e-5
"""Largest difference of outputs from the original's, relative to the largest output."""
SCALES = (-1.0, 0.1, 0.0, 10.0, 100.0)
"""Multiples of the inputs on which outputs are compared besides."""


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
        wanted, found = _outputs(population, original, inputs, name)
        scale, largest = float(wanted.abs().max()), float((found - wanted).abs().max())
        if not largest <= _tolerance(wanted) * scale:
            raise UserError(
                f"the converted network differs from {name} by {number(largest, '.2g')}, with outputs up to "
                f"{number(scale, '.2g')}, so it depends on more than its inputs and cannot be converted; {OTHERWISE}"
            )


def require_equal_at_scales(
    population: Population, original: Callable[[Tensor], Tensor], inputs: Tensor, name: str
) -> None:
    """Compare outputs with the original's on multiples of inputs, on which code with a branch may compute others.

    Args:
        population: The converted network.
        original: Computes the outputs of a batch, [sample, output].
        inputs: Inputs in the shape that the original takes.
        name: Name of the original, for the error.

    Raises:
        UserError: The outputs differ by more than rounding.
    """
    # At 0 outputs may cancel: rounding is measured by the outputs on the inputs themselves.
    unit = float(_outputs(population, original, inputs, name)[0].abs().max())
    for factor in SCALES:
        wanted, found = _outputs(population, original, factor * inputs, name)
        if factor and not wanted.isfinite().all():
            continue  # the original overflows, as with float16
        scale, largest = max(unit, float(wanted.abs().max())), float((found - wanted).abs().max())
        if not largest <= _tolerance(wanted) * scale:
            raise depends_on_data(
                name,
                f"with inputs times {number(factor, 'g')}, its outputs differ by {number(largest, '.2g')} from those "
                "of the same layers",
            )


def depends_on_data(name: str, how: str) -> UserError:
    """Refuse a network whose code takes another branch on other data.

    Args:
        name: Name of the network.
        how: How this was found.

    Returns:
        The error.
    """
    return UserError(
        f"the outputs of {name} depend on the data by a branch, as in `if x.max() > 10:` ({how}), so it cannot be "
        f"converted; {OTHERWISE}"
    )


def _tolerance(outputs: Tensor) -> float:
    return max(TOLERANCE, 20 * torch.finfo(outputs.dtype).eps)


def _outputs(
    population: Population, original: Callable[[Tensor], Tensor], inputs: Tensor, name: str
) -> tuple[Tensor, Tensor]:
    """Outputs of the original and of the converted network, of one shape."""
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
    return wanted, found
