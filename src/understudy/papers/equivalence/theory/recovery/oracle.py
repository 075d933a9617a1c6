"""A function that is only evaluated: on the unit cube, with every evaluated input counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from understudy.papers.equivalence.theory.domain import Box

Function = Callable[[np.ndarray], np.ndarray]
"""Outputs [sample, out] of inputs [sample, in], in float64."""

EDGE = 0.999
"""Half-width of the cube in which folds are searched: short segments around them stay within the box."""

MOST_ROUNDING = 1e-12
"""Rounding error, as a share of the outputs' scale, above which folds cannot be located precisely enough."""

_STEP = 1e-6


class ExhaustedError(Exception):
    """The next evaluations would exceed the number that is allowed.

    Attributes:
        needed: Number of inputs that were to be evaluated.
    """

    def __init__(self, needed: int) -> None:
        super().__init__(f"{needed:,} more evaluations are not allowed")
        self.needed = needed


class Oracle:
    """Evaluates a function on the cube [−1, 1]^d, with outputs of mean zero and scale one.

    Attributes:
        box: The box that the cube stands for.
        evaluations: Number of inputs evaluated until now, with those before the oracle was made.
        most: Number of inputs that may be evaluated.
        rounding: Typical rounding error of the scaled outputs.
    """

    def __init__(self, function: Function, box: Box, most: int, random: np.random.Generator, spent: int = 0) -> None:
        self._function, self.box, self.most, self.evaluations = function, box, most, spent
        self.shift, self.scale = np.zeros(1), np.ones(1)
        points = random.uniform(-1, 1, (64, box.inputs))
        values = self(points)
        self.shift, self.scale = values.mean(0), np.abs(values - values.mean(0)).max(0)
        largest = np.abs(values).max(0)
        # Outputs that are constant have no folds: they are kept as they are.
        self.scale = np.where(self.scale > 1e-13 * largest, self.scale, np.maximum(largest, 1.0))
        self.rounding = self._measure_rounding(points[:16], random)
        self.rounding = max(self.rounding, float(2.2e-16 * (largest / self.scale).max()))

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return self.box.inputs

    def __call__(self, z: Float[np.ndarray, "sample in"]) -> Float[np.ndarray, "sample out"]:
        """Evaluate the function at points of the cube."""
        if self.evaluations + len(z) > self.most:
            raise ExhaustedError(len(z))
        self.evaluations += len(z)
        found: np.ndarray = (self._function(self.box.centre + self.box.half * z) - self.shift) / self.scale
        return found

    def _measure_rounding(self, points: np.ndarray, random: np.random.Generator) -> float:
        """Median of second differences over steps so short that the function is affine on most of them."""
        step = _STEP * random.normal(size=points.shape)
        middle = (1 - 10 * _STEP) * points
        second = self(middle + step) + self(middle - step) - 2 * self(middle)
        return float(np.median(np.abs(second).max(1)))
