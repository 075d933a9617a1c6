"""Matching the hidden units of two networks, layer by layer, as an assignment problem.

Units are matched, not sorted: where two units of a layer are nearly equal, those that they pass on to decide.
Parameters are compared in canonical form and, where a box is given, in its coordinates, so that a difference is judged
by what it changes on the box.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from understudy.papers.equivalence.theory.box_coordinates import bias_rounding, in_box_coordinates
from understudy.papers.equivalence.theory.canonical import canonical_form, permuted, unit_rows
from understudy.papers.equivalence.theory.degenerate import Reduction
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

_ROUNDS = 10
"""Largest number of times that all layers are matched again, given the layers below and above."""
_WEIGHTS = 16
"""Number of weights that are named where two networks differ."""
_MOST_ROUNDING = 1e-3
"""Largest part of a difference, relative to the length of a row, that is believed to be rounding."""


@dataclass(frozen=True, eq=False)
class Matching:
    """A bijection of the units of two networks, and how much the parameters of matched units differ.

    Attributes:
        permutations: For every hidden layer and every unit of the first network, the unit of the second; −1 for none.
        scalings: Diagonals of M_l of Phuong & Lampert (2020), eq. 2.5; NaN where a unit has no partner.
        distances: For every layer, the outputs last, and every unit of the first network, the distance between its
            canonical row (length 1) and that of its partner; 1 without a partner.
        unmatched: Units of the second network without a partner, one vector per hidden layer.
        largest: Largest difference of two parameters, relative to the length of their row: in the coordinates of the
            box or in the given ones, where it is larger.
        excess: Largest part of such a difference that rounding does not explain.
        weights: Weights of the first network between hidden units that differ most from their counterparts, most
            first: layers, counted from 1, and indices of the units that they lead to and come from.
    """

    permutations: tuple[Int[np.ndarray, "_unit"], ...]
    scalings: tuple[Float[np.ndarray, "_unit"], ...]
    distances: tuple[Float[np.ndarray, "_unit"], ...]
    unmatched: tuple[Int[np.ndarray, "_unit"], ...]
    largest: float
    excess: float
    weights: tuple[tuple[int, int, int], ...]

    @property
    def distance(self) -> float:
        """Distance of all canonical parameters together, over the square root of the number of rows."""
        rows = np.concatenate([*self.distances, *(np.ones(len(each)) for each in self.unmatched)])
        return float(np.sqrt(np.mean(rows**2)))


def match_units(a: ReluNetwork, b: ReluNetwork, box: Box | None = None) -> Matching:
    """Match the hidden units of two networks by their canonical parameters.

    Layers are matched from the inputs upwards by their incoming weights, then again by incoming and outgoing weights
    until nothing changes. For two networks that are permuted and rescaled from one another this finds the maps of
    eq. 2.5; for others it is a good matching, not always the best one. A layer with fewer units in one network is
    filled up with units of zeros.

    Args:
        a: The first network.
        b: The second, with as many layers, inputs and outputs.
        box: The inputs in whose coordinates units are matched and parameters compared, beside the given ones; None
            compares them in the given coordinates only.

    Returns:
        The matching. Permutations and scalings are those of the given parameters.
    """
    ours, theirs = canonical_form(a), canonical_form(b)
    given = ours.network, theirs.network
    if box is None:
        return _matching(given, (ours.scales, theirs.scales))
    moved = tuple(canonical_form(in_box_coordinates(each, box)).network for each in (a, b))
    rounding = bias_rounding(a, box), bias_rounding(b, box)
    return _matching((moved[0], moved[1]), (ours.scales, theirs.scales), rounding, given)


def match_reduced(a: Reduction, b: Reduction) -> Matching:
    """Match the units that are left of two networks on a box, in its coordinates.

    Args:
        a: The first network.
        b: The second, with as many layers, inputs and outputs.

    Returns:
        The matching. Scalings are those of the given parameters of the units that are left.
    """
    return _matching((a.network, b.network), (a.scales, b.scales), (a.rounding, b.rounding))


def _matching(
    networks: tuple[ReluNetwork, ReluNetwork],
    scales: tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]],
    rounding: tuple[np.ndarray, np.ndarray] | None = None,
    also: tuple[ReluNetwork, ReluNetwork] | None = None,
) -> Matching:
    """Match networks in canonical form, and compare others of the same units in the same order."""
    a, b = networks
    widths = [max(pair) for pair in zip(a.sizes, b.sizes, strict=True)]
    rows, other = unit_rows(_padded(a, widths)), unit_rows(_padded(b, widths))
    order = _match_upwards(rows, other, widths)
    order = _match_both_ways(rows, other, order)

    def differences(ours: ReluNetwork, theirs: ReluNetwork) -> list[np.ndarray]:
        others = unit_rows(permuted(_padded(theirs, widths), order[1:-1]))
        return [x - y for x, y in zip(unit_rows(_padded(ours, widths)), others, strict=True)]

    found = differences(a, b)
    allowed = [np.zeros_like(each) for each in found] if rounding is None else _allowed(rows, rounding, order)
    excess = [np.abs(each) - most for each, most in zip(found, allowed, strict=True)]
    if also is not None:
        given = differences(*also)
        excess += [np.abs(each) for each in given]
        found = [np.where(np.abs(x) > np.abs(y), x, y) for x, y in zip(found, given, strict=True)]
    permutations, scalings, unmatched = [], [], []
    for mine, theirs, layer in zip(*scales, order[1:-1], strict=True):
        own, rest = layer[: len(mine)], layer[len(mine) :]
        partner = np.where(own < len(theirs), own, -1)
        permutations.append(partner)
        scalings.append(np.where(partner >= 0, mine / theirs[partner], np.nan))
        unmatched.append(np.sort(rest[rest < len(theirs)]))
    return Matching(
        tuple(permutations),
        tuple(scalings),
        tuple(np.linalg.norm(each[:size], axis=1) for each, size in zip(found, a.sizes[1:], strict=True)),
        tuple(unmatched),
        max(float(np.abs(each).max(initial=0.0)) for each in found),
        max(float(each.max(initial=0.0)) for each in excess),
        _most_different(found, a),
    )


def _allowed(
    rows: list[np.ndarray], rounding: tuple[np.ndarray, np.ndarray], order: list[np.ndarray]
) -> list[np.ndarray]:
    """Differences of canonical parameters that rounding of the first layer's biases explains.

    A relative error ε of a bias changes the length of its row by at most ε. Lengths are pushed into the layer above,
    whose rows have a length with a relative error that is at most the largest of those below, and so on.
    """
    width = len(rows[0])
    ours, theirs = (np.minimum(np.pad(each, (0, width - len(each))), _MOST_ROUNDING) for each in rounding)
    first = ours + theirs[order[1]]
    allowed = [first[:, None] * np.abs(rows[0])]
    allowed[0][:, -1] += first
    return allowed + [2 * float(first.max(initial=0.0)) * np.abs(each) for each in rows[1:]]


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
