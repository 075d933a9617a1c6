"""Pairs of networks: one function in other parameters, and the same with one weight changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.canonical import permuted, rescaled
from understudy.papers.equivalence.theory.comparison import FunctionComparison, compare_networks
from understudy.papers.equivalence.theory.domain import Box, as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

WIDEST = 10
"""Largest number of inputs and of units of a layer."""
SHARE = 1e-3
"""Smallest share of the box on each side of every unit's fold, and on which a changed weight acts."""
_SAMPLES = 8_192
_DRAWS = 10_000


@dataclass(frozen=True, eq=False)
class Pair:
    """Two networks, and the maps of Phuong & Lampert (2020), eq. 2.5, between them.

    Attributes:
        a: The first network.
        b: The second: the first permuted and rescaled, and for some pairs with one weight changed.
        box: The domain.
        permutations: P_l as index vectors.
        scalings: Diagonals of M_l.
        weight: Layer, output and input of the changed weight; None where none is changed.
    """

    a: ReluNetwork
    b: ReluNetwork
    box: Box
    permutations: list[np.ndarray]
    scalings: list[np.ndarray]
    weight: tuple[int, int, int] | None = None

    def compare(self, tolerance: float) -> FunctionComparison:
        """Compare both networks."""
        return compare_networks(self.a, self.b, self.box, tolerance)

    def map_error(self, found: FunctionComparison) -> float:
        """Largest relative error of the scalings that were found; infinite where a permutation is wrong."""
        if found.permutations is None or found.scalings is None:
            return math.inf
        if not all(np.array_equal(*each) for each in zip(found.permutations, self.permutations, strict=True)):
            return math.inf
        return max(
            float(np.abs(ours / theirs - 1).max()) for ours, theirs in zip(found.scalings, self.scalings, strict=True)
        )


def equal_pair(seed: int, layers: int, magnitudes: float = 6.0) -> Pair:
    """Draw a network, and the same function in other parameters.

    Args:
        seed: Seed of everything.
        layers: Number of layers of weights, L.
        magnitudes: Orders of magnitude over which units are rescaled.

    Returns:
        The pair.
    """
    random = generator(seed, Stream.COMPARISON, 10 + layers)
    sizes = [*sorted(random.integers(2, WIDEST + 1, layers).tolist(), reverse=True), 1]
    box = as_box(None, sizes[0])
    a = folding_network(sizes, box, random)
    orders = [random.permutation(width) for width in a.hidden]
    factors = [10.0 ** random.uniform(-magnitudes / 2, magnitudes / 2, width) for width in a.hidden]
    back = [np.argsort(order) for order in orders]
    scalings = [1 / factor[order] for factor, order in zip(factors, back, strict=True)]
    return Pair(a, rescaled(permuted(a, orders), factors), box, back, scalings)


def changed_pair(seed: int, layers: int, change: float = 1e-4, magnitudes: float = 6.0) -> Pair:
    """Draw a pair of one function, and change one weight of the second that acts on at least 1/1000 of the box.

    A weight acts where the units that it joins are active and pass something on to the output; one that acts nowhere
    is no part of the function.

    Args:
        seed: Seed of everything; the pair is that of `equal_pair` before the change.
        layers: Number of layers of weights, L.
        change: Relative change of the weight.
        magnitudes: Orders of magnitude over which units are rescaled.

    Returns:
        The pair.
    """
    pair = equal_pair(seed, layers, magnitudes)
    random = generator(seed, Stream.COMPARISON, 20 + layers)
    shares = acting_shares(pair.b, pair.box.draw(random, _SAMPLES))
    places = [(i, out, into) for i, share in enumerate(shares) for out, into in np.argwhere(share >= SHARE).tolist()]
    layer, out, into = places[int(random.integers(len(places)))]
    weights = [weight.copy() for weight in pair.b.weights]
    weights[layer][out, into] *= 1 + change
    changed = ReluNetwork(tuple(weights), pair.b.biases)
    return Pair(pair.a, changed, pair.box, pair.permutations, pair.scalings, (layer + 1, out, into))


def acting_shares(network: ReluNetwork, x: np.ndarray) -> list[np.ndarray]:
    """Share of the inputs at which each weight has a gradient that is not zero, one matrix per layer."""
    values = network.preactivations(x)
    below = [np.ones(x.shape, bool), *(value > 0 for value in values[:-1])]
    slope = np.ones((len(x), 1))
    shares = []
    for weight, active in zip(reversed(network.weights), reversed(below), strict=True):
        shares.append((slope != 0).T.astype(float) @ active.astype(float) / len(x))
        slope = (slope @ weight) * active
    return shares[::-1]


def folding_network(sizes: Sequence[int], box: Box, random: np.random.Generator) -> ReluNetwork:
    """Draw a network each of whose units has at least 1/1000 of the box on each side of its fold.

    Weights are N(0, 2 / fan-in) and biases N(1, 0.5²); units with less on a side are drawn again, layer by layer.
    """
    x = box.draw(random, _SAMPLES)
    weights, biases, h = [], [], x
    for layer, out in enumerate(sizes[1:], 1):
        rows: list[np.ndarray] = []
        for _ in range(_DRAWS):
            weight = random.normal(0.0, math.sqrt(2 / sizes[layer - 1]), sizes[layer - 1])
            row = np.append(weight, random.normal(1.0, 0.5))
            active = float((h @ weight + row[-1] > 0).mean())
            if layer == len(sizes) - 1 or SHARE <= active <= 1 - SHARE:
                rows.append(row)
            if len(rows) == out:
                break
        else:
            return folding_network(sizes, box, random)
        weights.append(np.array(rows)[:, :-1])
        biases.append(np.array(rows)[:, -1])
        h = np.maximum(h @ weights[-1].T + biases[-1], 0.0)
    return ReluNetwork(tuple(weights), tuple(biases))
