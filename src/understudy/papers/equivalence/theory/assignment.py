"""Matching the hidden units of two networks, layer by layer, as an assignment problem.

Units are matched, not sorted: where two units of a layer are nearly equal, those that they pass on to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from understudy.papers.equivalence.theory.canonical import canonical_form, permuted, unit_rows
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

_ROUNDS = 10
"""Largest number of times that all layers are matched again, given the layers below and above."""
_WEIGHTS = 16
"""Number of weights that are named where two networks differ."""


@dataclass(frozen=True, eq=False)
class Matching:
    """A bijection of the units of two networks, and how much the parameters of matched units differ.

    Attributes:
        permutations: For every hidden layer and every unit of the first network, the unit of the second; −1 for none.
        scalings: Diagonals of M_l of Phuong & Lampert (2020), eq. 2.5; NaN where a unit has no partner.
        distances: For every layer, the outputs last, and every unit of the first network, the distance between its
            canonical row (length 1) and that of its partner; 1 without a partner.
        unmatched: Units of the second network without a partner, one vector per hidden layer.
        largest: Largest difference of two parameters, relative to the length of their row.
        weights: Weights of the first network between hidden units that differ most from their counterparts, most
            first: layers, counted from 1, and indices of the units that they lead to and come from.
    """

    permutations: tuple[Int[np.ndarray, "_unit"], ...]
    scalings: tuple[Float[np.ndarray, "_unit"], ...]
    distances: tuple[Float[np.ndarray, "_unit"], ...]
    unmatched: tuple[Int[np.ndarray, "_unit"], ...]
    largest: float
    weights: tuple[tuple[int, int, int], ...]

    @property
    def distance(self) -> float:
        """Distance of all canonical parameters together, over the square root of the number of rows."""
        rows = np.concatenate([*self.distances, *(np.ones(len(each)) for each in self.unmatched)])
        return float(np.sqrt(np.mean(rows**2)))


def match_units(a: ReluNetwork, b: ReluNetwork) -> Matching:
    """Match the hidden units of two networks by their canonical parameters.

    Layers are matched from the inputs upwards by their incoming weights, then again by incoming and outgoing weights
    until nothing changes. For two networks that are permuted and rescaled from one another this finds the maps of
    eq. 2.5; for others it is a good matching, not always the best one. A layer with fewer units in one network is
    filled up with units of zeros.

    Args:
        a: The first network.
        b: The second, with as many layers, inputs and outputs.

    Returns:
        The matching.
    """
    ours, theirs = canonical_form(a), canonical_form(b)
    widths = [max(pair) for pair in zip(a.sizes, b.sizes, strict=True)]
    rows = unit_rows(_padded(ours.network, widths))
    other = _padded(theirs.network, widths)
    order = _match_upwards(rows, unit_rows(other), widths)
    order = _match_both_ways(rows, unit_rows(other), order)
    differences = [x - y for x, y in zip(rows, unit_rows(permuted(other, order[1:-1])), strict=True)]
    permutations, scalings, unmatched = [], [], []
    for mine, scale, their_scale, found in zip(ours.scales, ours.scales, theirs.scales, order[1:-1], strict=True):
        own, rest = found[: len(mine)], found[len(mine) :]
        partner = np.where(own < len(their_scale), own, -1)
        permutations.append(partner)
        scalings.append(np.where(partner >= 0, scale / their_scale[partner], np.nan))
        unmatched.append(np.sort(rest[rest < len(their_scale)]))
    return Matching(
        tuple(permutations),
        tuple(scalings),
        tuple(
            np.linalg.norm(each[:size], axis=1)
            for each, size in zip(differences, [*a.hidden, a.sizes[-1]], strict=True)
        ),
        tuple(unmatched),
        max(float(np.abs(each).max(initial=0.0)) for each in differences),
        _most_different(differences, a),
    )


def _most_different(differences: list[np.ndarray], network: ReluNetwork) -> tuple[tuple[int, int, int], ...]:
    """The weights between hidden units that differ most, but not those that are equal."""
    found = []
    for layer, (below, above) in enumerate(pairwise(network.hidden), 2):
        sizes = np.abs(differences[layer - 1][:above, :below])
        for place in np.argsort(-sizes, axis=None, kind="stable")[:_WEIGHTS].tolist():
            out, into = divmod(place, below)
            found.append((float(sizes[out, into]), layer, out, into))
    found.sort(key=lambda each: -each[0])
    return tuple((layer, out, into) for size, layer, out, into in found[:_WEIGHTS] if size > 0)


def _match_upwards(rows: list[np.ndarray], others: list[np.ndarray], widths: list[int]) -> list[np.ndarray]:
    order = [np.arange(widths[0])]
    for mine, theirs in zip(rows[:-1], others[:-1], strict=True):
        order.append(_assign(mine, _reorder_columns(theirs, order[-1])))
    return [*order, np.arange(widths[-1])]


def _match_both_ways(rows: list[np.ndarray], others: list[np.ndarray], order: list[np.ndarray]) -> list[np.ndarray]:
    """Match every layer given its neighbours, until nothing changes; return the best matching met on the way."""
    best, least = order, _total(rows, others, order)
    for _ in range(_ROUNDS):
        before, order = order, list(order)
        for i in range(len(rows) - 1):
            mine = np.hstack((rows[i], rows[i + 1][:, :-1].T))
            theirs = np.hstack((_reorder_columns(others[i], order[i]), others[i + 1][order[i + 2], :-1].T))
            order[i + 1] = _assign(mine, theirs)
        total = _total(rows, others, order)
        if total < least:
            best, least = order, total
        if all(np.array_equal(x, y) for x, y in zip(before, order, strict=True)):
            break
    return best


def _total(rows: list[np.ndarray], others: list[np.ndarray], order: list[np.ndarray]) -> float:
    """Sum of squared differences of all parameters."""
    return sum(
        float(np.square(mine - _reorder_columns(theirs, below)[above]).sum())
        for mine, theirs, (below, above) in zip(rows, others, pairwise(order), strict=True)
    )


def _assign(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The assignment of rows with the least sum of distances; differences, not products, keep near-ties apart."""
    found: np.ndarray = linear_sum_assignment(cdist(mine, theirs))[1]
    return found


def _reorder_columns(rows: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Reorder weights by the units of the layer below; the bias stays last."""
    found: np.ndarray = rows[:, np.append(below, rows.shape[1] - 1)]
    return found


def _padded(network: ReluNetwork, widths: list[int]) -> ReluNetwork:
    """Fill layers up with units of zeros, which leaves the function as it is."""
    if list(network.sizes) == widths:
        return network
    weights = tuple(
        np.pad(weight, ((0, above - weight.shape[0]), (0, below - weight.shape[1])))
        for weight, (below, above) in zip(network.weights, pairwise(widths), strict=True)
    )
    biases = tuple(np.pad(bias, (0, above - len(bias))) for bias, above in zip(network.biases, widths[1:], strict=True))
    return ReluNetwork(weights, biases, network.slope)
