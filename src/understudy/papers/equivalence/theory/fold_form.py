"""Networks written by their folds: every unit as an affine function of the inputs and of |u| of the units below.

ρ(u) = ((1 + α) u + (1 − α) |u|) / 2 for slope α, so that linear parts join those of the inputs, and a unit counts only
by its fold: neither its sign, nor its scale, nor its layer, nor the slope of the activation matters. Linear units
disappear, and ρ(u) and ρ(−u) become one.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from understudy.papers.equivalence.theory.canonical import row_lengths
from understudy.papers.equivalence.theory.degenerate import Reduction

MOST_UNITS = 4_096
"""Largest number of hidden units of a network that is written by its folds."""


class FoldForm:
    """A network as n_j = c_j + B_j x + Σ_k A_jk |n_k| for its folds j, k < j, and its outputs in the same way.

    Attributes:
        folds: Rows (c_j, B_j, A_j) of length 1.
        outputs: Rows (c, B, A) of the outputs.
    """

    folds: Float[np.ndarray, "fold term"]
    outputs: Float[np.ndarray, "out term"]

    def __init__(self, reduction: Reduction, tolerance: float) -> None:
        network = reduction.network
        self.inputs = network.sizes[0]
        first = 1 + self.inputs
        size = first + sum(network.hidden)
        h, count = np.eye(self.inputs, size, 1), 0
        folds = np.zeros((size - first, size))
        for weight, bias, kinds in zip(network.weights, network.biases, reduction.activity, strict=False):
            u = weight @ h
            u[:, 0] += bias
            h = np.empty_like(u)
            for row, (value, kind) in enumerate(zip(u, kinds, strict=True)):
                if kind in ("active", "dead"):
                    h[row] = value * (1.0 if kind == "active" else network.slope)
                    continue
                length = float(row_lengths(value[None])[0])
                unit = value / length
                near = np.minimum(np.abs(folds[:count] - unit).max(1), np.abs(folds[:count] + unit).max(1))
                place = int(near.argmin()) if count and near.min() <= tolerance else count
                if place == count:
                    folds[count], count = unit, count + 1
                h[row] = (1 + network.slope) / 2 * value
                h[row, first + place] += (1 - network.slope) / 2 * length
        outputs = network.weights[-1] @ h
        outputs[:, 0] += network.biases[-1]
        self.folds, self.outputs = folds[:count, : first + count], outputs[:, : first + count]
        self._drop_unused(tolerance)

    def _drop_unused(self, tolerance: float) -> None:
        """Remove folds that neither an output nor a remaining fold depends on, from the last to the first."""
        first, lengths = 1 + self.inputs, row_lengths(self.outputs)[:, None]
        used: list[int] = []
        for fold in range(len(self.folds) - 1, -1, -1):
            column = np.append(self.outputs[:, first + fold] / lengths[:, 0], self.folds[used, first + fold])
            if np.abs(column).max() > tolerance:
                used.append(fold)
        used.reverse()
        terms = [*range(first), *(first + fold for fold in used)]
        self.folds, self.outputs = self.folds[np.ix_(used, terms)], self.outputs[:, terms]


def fold_form_difference(a: Reduction, b: Reduction, tolerance: float) -> float | None:
    """Largest difference of two networks that are written by their folds, relative to the length of a row.

    Args:
        a: The first network, without degenerate units.
        b: The second.
        tolerance: Relative difference up to which two folds are the same.

    Returns:
        The difference; None if the folds of one are not those of the other, or there are too many units.
    """
    if max(sum(each.network.hidden) for each in (a, b)) > MOST_UNITS:
        return None
    ours, theirs = FoldForm(a, tolerance), FoldForm(b, tolerance)
    if len(ours.folds) != len(theirs.folds):
        return None
    first, largest = 1 + ours.inputs, 0.0
    partner = np.full(len(ours.folds), -1)
    while (partner < 0).any():
        taken = set(partner[partner >= 0].tolist())
        own = [i for i in range(len(partner)) if partner[i] < 0]
        rest = [i for i in range(len(partner)) if i not in taken]
        # Terms of folds that have no partner yet are put aside, each in a column of its own.
        mine = np.hstack((_matched_terms(ours.folds[own], partner, first), np.zeros((len(own), len(rest)))))
        other = np.hstack(
            (theirs.folds[rest][:, _columns(partner, first)], theirs.folds[rest][:, first + np.array(rest)])
        )
        mine = np.hstack((mine, ours.folds[own][:, first + np.array(own)]))
        other = np.hstack((other, np.zeros((len(rest), len(own)))))
        distance = np.minimum(cdist(mine, other, "chebyshev"), cdist(mine, -other, "chebyshev"))
        rows, columns = linear_sum_assignment(distance)
        equal = distance[rows, columns] <= tolerance
        if not equal.any():
            return None
        for row, column in zip(rows[equal], columns[equal], strict=True):
            partner[own[row]] = rest[column]
            largest = max(largest, float(distance[row, column]))
    lengths = np.maximum(row_lengths(ours.outputs), row_lengths(theirs.outputs))[:, None]
    terms = [*range(first), *(first + partner)]
    return max(largest, float((np.abs(ours.outputs - theirs.outputs[:, terms]) / lengths).max()))


def _columns(partner: np.ndarray, first: int) -> list[int]:
    """Terms of the second network that correspond to those of the first which have a partner."""
    return [*range(first), *(first + int(each) for each in partner if each >= 0)]


def _matched_terms(rows: np.ndarray, partner: np.ndarray, first: int) -> np.ndarray:
    return rows[:, [*range(first), *(first + np.flatnonzero(partner >= 0))]]
