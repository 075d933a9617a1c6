"""Inputs at which two networks differ most, and how much of a difference may be rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

SAMPLES = 1_024
"""Number of inputs drawn from the box; half as many corners are added."""
_STARTS, _ROUNDS, _HALVINGS = 24, 12, 10
"""Inputs from which a difference is increased, how often, and how often the longest step is halved."""
_MORE, _NUMBERS = 1 << 16, 1 << 23
"""Inputs drawn where nothing was found at first, and the most numbers that they may have together."""
_UNITS = 64
"""Largest number of units whose folds are searched."""
_ROUNDING = np.finfo(np.float64).eps / 2
_RESOLVED = 1e-9
"""Share of an output's scale from which differences of several outputs are compared with each other."""


@dataclass(frozen=True, eq=False)
class OutputDifference:
    """The largest difference of two networks' outputs that a search found.

    Attributes:
        x: The input.
        a: Outputs of the first network there.
        b: Outputs of the second.
        scale: Standard deviation of every output on the box, the larger one of both networks; of constant outputs
            their largest value, or 1.
        rounding: Bound on the part of every output's difference that float64 arithmetic may have caused.
        inputs: Number of inputs at which both were evaluated.
    """

    x: Float[np.ndarray, "in"]
    a: Float[np.ndarray, "out"]
    b: Float[np.ndarray, "out"]
    scale: Float[np.ndarray, "out"]
    rounding: Float[np.ndarray, "out"]
    inputs: int

    @property
    def output(self) -> int:
        """Index of the output that differs most, relative to its scale or, where this is larger, to its rounding."""
        units = np.maximum(_RESOLVED * self.scale, self.rounding)
        return int((np.abs(self.a - self.b) / units).argmax())

    @property
    def difference(self) -> float:
        """Difference of the output that differs most."""
        return float(np.abs(self.a - self.b)[self.output])

    @property
    def relative(self) -> float:
        """Difference of the output that differs most, relative to its scale."""
        return self.difference / float(self.scale[self.output])

    def exceeds(self, tolerance: float) -> bool:
        """Whether an output differs by more than rounding and by more than a share of its scale."""
        return bool((np.abs(self.a - self.b) > np.maximum(self.rounding, tolerance * self.scale)).any())

    def exceeds_rounding(self, factor: float) -> bool:
        """Whether an output differs by more than so many times its bound on rounding."""
        return bool((np.abs(self.a - self.b) > factor * self.rounding).any())


class DifferenceSearch:
    """Searches a box for inputs at which two networks differ.

    Args:
        a: The first network.
        b: The second.
        box: The inputs to search.
        seed: Seed of the drawn inputs.
    """

    def __init__(self, a: ReluNetwork, b: ReluNetwork, box: Box, seed: int = 1) -> None:
        self._a, self._b, self._box = a, b, box
        self._random = generator(seed, Stream.COMPARISON)
        self._evaluated = 0
        inside = box.draw(self._random, SAMPLES)
        corners = np.where(self._random.random((SAMPLES // 2, box.inputs)) < 0.5, box.lower, box.upper)
        ours, theirs = a(inside), b(inside)
        self.scale = output_scales(np.stack((ours, theirs)))
        rounding = (rounding_bound(a, inside) + rounding_bound(b, inside)).max(axis=0)
        self._units = np.maximum(_RESOLVED * self.scale, rounding)
        self._best = np.concatenate((inside, corners, box.centre[None]))
        self._keep(self._best)

    def found(self) -> OutputDifference:
        """The largest difference so far."""
        x = self._best[:1]
        rounding = rounding_bound(self._a, x)[0] + rounding_bound(self._b, x)[0]
        return OutputDifference(x[0], self._a(x)[0], self._b(x)[0], self.scale, rounding, self._evaluated)

    def ascend(self) -> OutputDifference:
        """Increase the difference from the best inputs, along the gradient on each linear region."""

        def gradient(x: np.ndarray) -> np.ndarray:
            difference = (self._a(x) - self._b(x)) / self._units
            chosen = np.abs(difference).argmax(axis=1)
            direction = np.zeros_like(difference)
            rows = np.arange(len(x))
            direction[rows, chosen] = np.sign(difference[rows, chosen]) / self._units[chosen]
            return gradients(self._a, x, direction) - gradients(self._b, x, direction)

        self._keep(ascend(self._values, gradient, self._best[:_STARTS], self._box))
        return self.found()

    def at(self, x: Float[np.ndarray, "sample in"]) -> OutputDifference:
        """Evaluate given inputs, then increase the difference."""
        self._keep(x)
        return self.ascend()

    def around_folds(self, units: list[tuple[int, int]], of: ReluNetwork) -> OutputDifference:
        """Evaluate inputs at which units are most and least active, and both sides of their folds.

        Args:
            units: Layers, counted from 1, and indices of the units.
            of: The network that they are of.

        Returns:
            The largest difference so far.
        """
        starts = self._best[:_STARTS]
        for layer, unit in units[:_UNITS]:
            part = ReluNetwork(of.weights[:layer], of.biases[:layer], of.slope)
            high, low = (extreme_inputs(part, unit, starts, self._box, sign) for sign in (1.0, -1.0))
            self._keep(np.concatenate((high, low, _fold_points(part, unit, low, high))))
        return self.found()

    def at_more(self) -> OutputDifference:
        """Evaluate many more drawn inputs."""
        for _ in range(8):
            self._keep(self._box.draw(self._random, min(_MORE, _NUMBERS // self._box.inputs) // 8 or 1))
        return self.found()

    def around_weights(self, weights: Sequence[tuple[int, int, int]], of: ReluNetwork) -> OutputDifference:
        """Evaluate inputs at which both units that a weight joins are active.

        Args:
            weights: Layers, counted from 1, and indices of the units that weights lead to and come from.
            of: The network that they are of.

        Returns:
            The largest difference so far.
        """
        starts = np.concatenate((self._best[:_STARTS], self._box.draw(self._random, _STARTS)))
        for layer, out, into in weights:
            parts = [ReluNetwork(of.weights[:i], of.biases[:i], of.slope) for i in (layer, layer - 1)]
            self._keep(jointly_active_inputs(parts[0], out, parts[1], into, starts, self._box))
        return self.found()

    def _values(self, x: np.ndarray) -> np.ndarray:
        self._evaluated += len(x)
        found: np.ndarray = (np.abs(self._a(x) - self._b(x)) / self._units).max(axis=1)
        return found

    def _keep(self, x: np.ndarray) -> None:
        """Keep the best inputs of these and those kept before, best first."""
        x = np.concatenate((self._best[:_STARTS], x))
        self._best = x[np.argsort(-self._values(x), kind="stable")[: 2 * _STARTS]]


def ascend(
    value: Callable[[np.ndarray], np.ndarray],
    gradient: Callable[[np.ndarray], np.ndarray],
    x: Float[np.ndarray, "sample in"],
    box: Box,
) -> Float[np.ndarray, "sample in"]:
    """Increase a piecewise linear function inside a box, from several inputs.

    Each step goes towards the corner that the gradient points to, by the best of several lengths.
    """
    best = value(x)
    lengths = np.append(2.0 ** -np.arange(_HALVINGS), 0.0)[:, None, None]
    for _ in range(_ROUNDS):
        slope = gradient(x)
        corner = np.where(slope > 0, box.upper, np.where(slope < 0, box.lower, x))
        steps = x + lengths * (corner - x)
        values = value(steps.reshape(-1, x.shape[1])).reshape(len(lengths), len(x))
        chosen = values.argmax(axis=0)
        reached = values[chosen, np.arange(len(x))]
        x, gained = steps[chosen, np.arange(len(x))], (reached > best).any()
        best = reached
        if not gained:
            break
    return x


def extreme_inputs(
    part: ReluNetwork, unit: int, x: Float[np.ndarray, "sample in"], box: Box, sign: float
) -> Float[np.ndarray, "sample in"]:
    """Inputs at which an output of a network is large (sign 1) or small (sign −1), by ascent from several inputs."""
    direction = np.zeros((1, part.sizes[-1]))
    direction[0, unit] = sign

    def gradient(at: np.ndarray) -> np.ndarray:
        return gradients(part, at, np.broadcast_to(direction, (len(at), part.sizes[-1])))

    return ascend(lambda at: sign * part(at)[:, unit], gradient, x, box)


def jointly_active_inputs(
    part: ReluNetwork, unit: int, other: ReluNetwork, other_unit: int, x: Float[np.ndarray, "sample in"], box: Box
) -> Float[np.ndarray, "sample in"]:
    """Inputs at which the smaller one of two networks' outputs is large, each in its typical size."""
    ends = (part, unit), (other, other_unit)
    sizes = [float(np.abs(network(x)[:, i]).mean()) or 1.0 for network, i in ends]

    def values(at: np.ndarray) -> np.ndarray:
        return np.stack([network(at)[:, i] / size for (network, i), size in zip(ends, sizes, strict=True)])

    def gradient(at: np.ndarray) -> np.ndarray:
        slopes = []
        for (network, i), size in zip(ends, sizes, strict=True):
            direction = np.zeros((len(at), network.sizes[-1]))
            direction[:, i] = 1 / size
            slopes.append(gradients(network, at, direction))
        smaller = values(at).argmin(axis=0)
        found: np.ndarray = np.where(smaller[:, None] == 0, slopes[0], slopes[1])
        return found

    return ascend(lambda at: values(at).min(axis=0), gradient, x, box)


def _fold_points(part: ReluNetwork, unit: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Inputs on both sides of a unit's fold, between inputs where it is inactive and active."""
    fold = (part(low)[:, unit] < 0) & (part(high)[:, unit] > 0)
    low, high = low[fold], high[fold]
    for _ in range(40):
        middle = (low + high) / 2
        active = (part(middle)[:, unit] > 0)[:, None]
        low, high = np.where(active, low, middle), np.where(active, middle, high)
    return np.concatenate((low, high))


def gradients(
    network: ReluNetwork, x: Float[np.ndarray, "sample in"], direction: Float[np.ndarray, "sample out"]
) -> Float[np.ndarray, "sample in"]:
    """Gradient in the inputs of the outputs' product with a direction; on a fold, that of the inactive side."""
    values = network.preactivations(x)[:-1]
    found = direction @ network.weights[-1]
    for weight, value in zip(network.weights[-2::-1], reversed(values), strict=True):
        found = (found * np.where(value > 0, 1.0, network.slope)) @ weight
    return found


def rounding_bound(network: ReluNetwork, x: Float[np.ndarray, "sample in"]) -> Float[np.ndarray, "sample out"]:
    """Bound on the error of the outputs as computed in float64, for these parameters taken as exact.

    It sums the bounds n u (|W| |h| + |b|) of every layer's sums of n terms, in any order, and carries them upwards.
    """
    error, h = np.zeros_like(x), x
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        if i:
            h = network.activate(h)
            error = error + _ROUNDING * np.abs(h)
        terms = (weight.shape[1] + 3) * _ROUNDING
        error = error @ np.abs(weight).T + 1.01 * terms * (np.abs(h) @ np.abs(weight).T + np.abs(bias))
        h = h @ weight.T + bias
    return error


def output_scales(outputs: Float[np.ndarray, "net sample out"]) -> Float[np.ndarray, "out"]:
    """Standard deviation of every output, the largest of all networks; of constant outputs the largest value, or 1."""
    largest = np.abs(outputs).max(axis=(0, 1))
    safe = np.where(largest > 0, largest, 1.0)
    spread = safe * (outputs / safe).std(axis=1).max(axis=0)
    found: np.ndarray = np.where(spread > 1e-12 * largest, spread, safe)
    return found
