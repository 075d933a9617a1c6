"""The output layer, and the active sides of the last hidden layer, by least squares.

With the folds u_k = 0 known, the function is Σ c_k |u_k(x)| plus a linear function of the layer below. ReLU units of
active sides s_k have the linear part Σ s_k c_k u_k; what is left over belongs to units that never fold on the box.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from understudy.papers.equivalence.theory.recovery.known import KnownLayers
from understudy.papers.equivalence.theory.recovery.oracle import Oracle
from understudy.papers.equivalence.theory.recovery.sampling import redraw, sample_points
from understudy.papers.equivalence.theory.recovery.unit import Unit

EXPLAINED = 1e-7
"""Difference, as a share of the outputs' scale, up to which a linear part is explained."""
_ROUNDED = 1e-6
"""Relative error up to which factors of all units agree, so that they are the slope of leaky ReLU."""
_MOST_SIGNS = 20
"""Most units whose active sides are found by trying all combinations."""
_MOST_PARTIAL = 6
"""Most units with unknown weights for which both sides are tried."""
_HIDDEN = 1e-9
"""Relative size from which a feature counts as present at a point."""
_DEPENDENT = 1e-11
"""Singular value of the normalised columns, relative to the largest, below which they are linearly dependent."""
_PART = 1e-3
"""Least coefficient of a column in such a dependency."""
_REDRAWS = 4
"""How often points are drawn again for units whose |u| is linearly dependent on the other columns."""


@dataclass(eq=False)
class Output:
    """Output layer of a recovered network.

    Attributes:
        weight: Weights from the last hidden layer.
        bias: Biases.
        remainder: Linear function of the layer below that no unit explains, with its constant last.
        size: Largest value of the remainder, as a share of the outputs' scale.
        undecided: Units whose active side is not determined.
        hidden: Units of which some weights have no influence on the box: the unit is inactive wherever they matter.
        dependent: Units whose weights to the outputs are not determined: at all points drawn, |u| of their folds is a
            linear combination of that of other units and of a linear function of the layer below.
    """

    weight: np.ndarray
    bias: np.ndarray
    remainder: np.ndarray
    size: float
    undecided: np.ndarray
    hidden: list[int] = field(default_factory=list)
    dependent: list[int] = field(default_factory=list)


def fit_output(oracle: Oracle, known: KnownLayers, units: list[Unit], random: np.random.Generator) -> Output:
    """Fit the output layer and decide the active sides of the last hidden layer, which `known` contains last.

    Args:
        oracle: The function.
        known: All hidden layers; the rows of the last are turned to their active sides.
        units: Units of the last hidden layer.
        random: Generator for the points of the fit.

    Returns:
        The output layer.
    """
    below = known.below()
    weight, bias = known.weights[-1], known.biases[-1]
    partial = [j for j, unit in enumerate(units) if not unit.visible]
    columns = len(bias) + len(below.features(np.zeros((1, oracle.inputs)))[0])
    z = sample_points(known, units, (5 if partial else 3) * columns, random)
    for _ in range(_REDRAWS):
        h = below.features(z)
        u = h[:, :-1] @ weight.T + bias
        again = _dependent(np.c_[np.abs(u), h], len(units))
        if not len(again):
            break
        redraw(known, units, z, again, random)
    f, h = oracle(z), below.features(z)
    u = h[:, :-1] @ weight.T + bias
    fitted, sides, design = _fit_folds(u, h, f, [(j, _hides(units[j], h)) for j in partial])
    absolute, linear = fitted[: len(bias)], h @ fitted[len(bias) :]
    hidden = [_complement(units[j].basis) for j in partial]
    seen = np.concatenate([np.zeros((len(h), 0)), *(h @ each for each in hidden)], axis=1)
    signs, undecided = _signs(known, u, absolute, linear, seen)
    known.orient(np.arange(len(bias)), signs)
    ratio = (1 + known.slope) / (1 - known.slope)
    left = linear - ratio * (u * signs) @ absolute
    found = Output(2 / (1 - known.slope) * absolute.T, np.zeros(f.shape[1]), np.zeros(0), 0.0, undecided)
    found.dependent = _dependent(design, len(bias)).tolist()
    if partial and not len(undecided):
        part = _least_squares(np.c_[seen, np.ones(len(h))], left)[:-1]
        left, at = left - seen @ part, 0
        for j, side, directions in zip(partial, sides, hidden, strict=True):
            below_part, at = part[at : at + directions.shape[1]], at + directions.shape[1]
            if not _fill(known, j, (side * signs[j], ratio, absolute[j]), directions @ below_part, h):
                found.hidden.append(j)
    found.bias = left.mean(0)
    left = left - found.bias
    found.remainder, found.size = _least_squares(h, left), float(np.abs(left).max(initial=0.0))
    return found


def _dependent(design: np.ndarray, units: int) -> np.ndarray:
    """Units, the first columns, that are linearly dependent on each other and on the other columns."""
    size = np.linalg.norm(design, axis=0)
    size[size == 0] = 1.0
    _, values, right = np.linalg.svd(design / size, full_matrices=False)
    null = right[values <= _DEPENDENT * values[0]]
    return np.flatnonzero((np.abs(null[:, :units]) > _PART).any(axis=0))


def _complement(basis: np.ndarray) -> np.ndarray:
    """Orthonormal basis of the features of which nothing is visible."""
    return np.asarray(np.linalg.svd(basis)[0][:, basis.shape[1] :])


def _hides(unit: Unit, h: np.ndarray) -> np.ndarray:
    """Whether features are present at each point of which the unit's fold shows nothing."""
    rest = h - (h @ unit.basis) @ unit.basis.T
    found: np.ndarray = np.linalg.norm(rest, axis=1) > _HIDDEN * np.linalg.norm(h, axis=1)
    return found


def _fit_folds(
    u: np.ndarray, h: np.ndarray, f: np.ndarray, partial: list[tuple[int, np.ndarray]]
) -> tuple[np.ndarray, tuple[float, ...], np.ndarray]:
    """Fit Σ c_k |u_k| plus a linear function of the features.

    Where features are present that a unit's fold never meets, the unit does not fold: it is on one side there, and
    both are tried.

    Returns:
        Coefficients of |u_k| and of the features, the side of every such unit, and the columns that were fitted.
    """
    best: tuple[float, np.ndarray, tuple[float, ...], np.ndarray] | None = None
    for sides in product((1.0, -1.0), repeat=min(len(partial), _MOST_PARTIAL)):
        absolute = np.abs(u)
        for side, (j, at) in zip(sides, partial, strict=False):
            absolute[at, j] = side * u[at, j]
        design = np.c_[absolute, h]
        fitted = _least_squares(design, f)
        error = float(np.abs(design @ fitted - f).max())
        if best is None or error < best[0]:
            best = error, fitted, sides + (1.0,) * (len(partial) - len(sides)), design
    assert best is not None
    return best[1:]


def _fill(known: KnownLayers, j: int, unit: tuple[float, float, np.ndarray], part: np.ndarray, h: np.ndarray) -> bool:
    """Set the weights of a unit that its fold does not show, from the linear part that is left over.

    Args:
        known: All hidden layers, turned to their active sides.
        j: The unit.
        unit: 1 if it is active where these features are present, else −1; ratio of the coefficients of u and |u|; its
            coefficients of |u|.
        part: Linear function of the features that is left over, for every output.
        h: Features of points.

    Returns:
        False if the unit is inactive there, so that the weights have no influence.
    """
    active, ratio, absolute = unit
    weight, bias = known.weights[-1], known.biases[-1]
    if active + ratio > 1e-6:
        change = part @ absolute / (absolute @ absolute) / (active + ratio)
        weight[j] += change[:-1]
        bias[j] += change[-1]
        return True
    size = np.linalg.norm(part, axis=1)
    if not size.any():
        return False
    # Any weights with which the unit stays inactive where the features are present are the same function.
    features = h[:, :-1]
    lower = np.flatnonzero(size[:-1] > 1e-3 * size.max())
    for k in lower:
        at = features[:, k] > 0
        u = features[at] @ weight[j] + bias[j]
        weight[j, k] -= max(float((u / features[at, k]).max(initial=0.0)), 0.0)
    return False


def _least_squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Least squares with columns of one length; columns of zeros have coefficient zero."""
    size = np.linalg.norm(a, axis=0)
    size[size == 0] = 1.0
    found: np.ndarray = np.linalg.lstsq(a / size, b, rcond=1e-12)[0] / size[:, None]
    return found


def _signs(
    known: KnownLayers, u: np.ndarray, absolute: np.ndarray, linear: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Active sides that explain the linear part up to `free` functions, and the units for which none are found."""
    samples, hidden, outputs = len(u), u.shape[1], absolute.shape[1]
    if not hidden:
        return np.zeros(0), np.zeros(0, int)
    centred = u - u.mean(0)
    design, target = centred[:, None, :] * absolute.T[None], linear - linear.mean(0)
    if free.shape[1]:
        basis = np.linalg.qr(free - free.mean(0))[0]
        design = design - np.tensordot(basis, np.tensordot(basis, design, (0, 0)), (1, 0))
        target = target - basis @ (basis.T @ target)
    design, target = design.reshape(samples * outputs, hidden), target.reshape(-1)
    size = np.linalg.norm(design, axis=0)
    size[size == 0] = 1.0
    found, _, rank, _ = np.linalg.lstsq(design / size, target, rcond=1e-9)
    found = found / size
    if rank < hidden:
        return _search_signs(design, target)
    if len(known.weights) == 1 and hidden > 1:
        # Leaky ReLU makes all of them differ from ±1 by one factor.
        ratio = float(np.median(np.abs(found)))
        slope = (ratio - 1) / (ratio + 1)
        if 1e-6 < slope < 1 and np.abs(np.abs(found) / ratio - 1).max() < _ROUNDED:
            known.slope = slope
    ratio = (1 + known.slope) / (1 - known.slope)
    signs = np.where(found < 0, -1.0, 1.0)
    explained = np.abs(design @ (ratio * signs) - target).max() <= EXPLAINED
    return signs, np.zeros(0, int) if explained else np.arange(hidden)


def _search_signs(design: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Try all combinations of signs, where there are more units than linear functions to tell them apart by."""
    hidden = design.shape[1]
    if hidden > _MOST_SIGNS:
        return np.ones(hidden), np.arange(hidden)
    reduced = np.linalg.qr(np.c_[design, target])[1]
    half = hidden // 2
    first = np.array(list(product((-1.0, 1.0), repeat=half))).reshape(-1, half)
    second = np.array(list(product((-1.0, 1.0), repeat=hidden - half)))
    a = first @ reduced[:, :half].T
    b = reduced[:, hidden] - second @ reduced[:, half:hidden].T
    distance = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    i, j = np.unravel_index(int(np.argmin(distance)), distance.shape)
    unique = (distance < 1e-12 * max(1.0, float((target**2).sum()))).sum() == 1
    return np.r_[first[i], second[j]], np.zeros(0, int) if unique else np.arange(hidden)
