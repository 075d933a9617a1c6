"""Bounded domains: boxes of inputs on which two networks are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from understudy._errors import UserError
from understudy._numbers import number

LOWER, UPPER = -2.0, 2.0
"""The box that is used where none is given, the same interval for every input."""

LARGEST = 1e300
"""Largest end of a box, so that its edges are finite in float64."""

Bounds = tuple[float | Sequence[float] | np.ndarray, float | Sequence[float] | np.ndarray]
"""Lower and upper ends of a box: one number for all inputs, or one for each."""


@dataclass(frozen=True, eq=False)
class Box:
    """A box of inputs: theorem 2.1 of Phuong & Lampert (2020) is about bounded domains.

    Attributes:
        lower: Lower end for every input.
        upper: Upper end for every input.
    """

    lower: Float[np.ndarray, "in"]
    upper: Float[np.ndarray, "in"]

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.lower)

    @property
    def centre(self) -> Float[np.ndarray, "in"]:
        """The middle of the box."""
        return self.lower / 2 + self.upper / 2

    @property
    def half(self) -> Float[np.ndarray, "in"]:
        """Half of the length of each edge."""
        return self.upper / 2 - self.lower / 2

    def draw(self, random: np.random.Generator, samples: int) -> Float[np.ndarray, "sample in"]:
        """Draw points from the uniform distribution on the box."""
        return random.uniform(self.lower, self.upper, (samples, self.inputs))

    def __str__(self) -> str:
        pairs = {(low, high) for low, high in zip(self.lower.tolist(), self.upper.tolist(), strict=True)}
        if len(pairs) > 1:
            low, high = _distinct(float(self.lower.min()), float(self.upper.max()))
            return f"a box of {self.inputs} inputs, from {low} to {high}"
        low, high = _distinct(*next(iter(pairs)))
        power = str(self.inputs).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"[{low}, {high}]{power if self.inputs > 1 else ''}"


def _distinct(low: float, high: float) -> tuple[str, str]:
    """Both ends of an interval for people, with as many digits as they differ in."""
    for digits in range(3, 17):
        shown = number(low, f".{digits}g"), number(high, f".{digits}g")
        if abs(float(f"{high:.{digits}g}") - float(f"{low:.{digits}g}") - (high - low)) <= 0.01 * (high - low):
            break
    return shown


def as_box(domain: Box | Bounds | None, inputs: int) -> Box:
    """Build the box that a user describes.

    Args:
        domain: A box, or its lower and upper ends, each one number or one for every input; None for [−2, 2] everywhere.
        inputs: Number of inputs of the network.

    Returns:
        The box.

    Raises:
        UserError: Something else, ends that are not finite, a box of zero volume, or another number of inputs.
    """
    if isinstance(domain, Box):
        if domain.inputs != inputs:
            raise UserError(f"must have one interval for each of the {inputs} inputs, got {domain.inputs}", "domain")
        return domain
    if domain is None:
        domain = (LOWER, UPPER)
    try:
        low, high = domain
        lower, upper = (np.broadcast_to(np.asarray(end, dtype=np.float64), (inputs,)).copy() for end in (low, high))
    except (TypeError, ValueError):
        raise UserError(
            f"must be its lower and upper end, each one number or one for each of the {inputs} inputs, got {domain!r}",
            "domain",
        ) from None
    if not (np.abs(np.concatenate((lower, upper))) <= LARGEST).all():
        raise UserError(f"must be bounded: its ends must be finite numbers up to {number(LARGEST, 'g')}", "domain")
    if not (lower < upper).all():
        i = int(np.argmin(upper - lower))
        raise UserError(
            f"must have its lower ends below its upper ends, got {number(lower[i])} and {number(upper[i])} for input "
            f"{i + 1}",
            "domain",
        )
    return Box(lower, upper)
