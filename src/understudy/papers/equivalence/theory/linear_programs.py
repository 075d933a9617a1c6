"""Small linear programs over convex polytopes in the box [−1, 1]^n, by a compiled dual simplex.

A polytope is given by rows of length 1 and bounds, {u | rows u ≤ bounds}, of which the first 2 n are those of the box.
A corner of the box is optimal for the box alone; the method adds one violated row after the other, so that its value
only decreases: the first value is the interval bound of the function on the box, and most programs end there. What it
leaves unresolved is given to HiGHS (scipy).
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from scipy.optimize import linprog

FEASIBLE = 1e-11
"""Largest violation of a row at a solution."""
_STEPS = 50
"""Pivots, per row, after which a program is given to HiGHS."""
_OPTIMAL, _BELOW, _EMPTY, _UNRESOLVED = 0, 1, 2, 3


def box_rows(inputs: int) -> tuple[Float[np.ndarray, "row in"], Float[np.ndarray, "row"]]:
    """Rows and bounds of the box [−1, 1]^n: u_i ≤ 1 for every input, then −u_i ≤ 1."""
    identity = np.eye(inputs)
    return np.vstack([identity, -identity]), np.ones(2 * inputs)


class Maximum(NamedTuple):
    """Largest value of a linear function on a polytope, and a point where it is reached."""

    value: float
    point: Float[np.ndarray, "in"]


def chebyshev_centre(rows: Float[np.ndarray, "row in"], bounds: Float[np.ndarray, "row"]) -> Maximum | None:
    """Centre and radius of a largest ball in a polytope.

    Args:
        rows: Rows of length 1; the first 2 n are those of the box.
        bounds: Bounds of the rows.

    Returns:
        The radius as the value and the centre as the point; None if the polytope is empty.
    """
    point = np.empty(rows.shape[1] + 1)
    status = _centre(rows, bounds, point)
    if status == _UNRESOLVED:
        wide = np.hstack([rows, np.ones((len(rows), 1))])
        found = by_highs(wide, bounds, np.eye(wide.shape[1])[-1])
        if found is None:
            return None
        point = found.point
    elif status == _EMPTY:
        return None
    return Maximum(float(point[-1]), point[:-1]) if point[-1] >= 0 else None


def by_highs(
    rows: Float[np.ndarray, "row in"], bounds: Float[np.ndarray, "row"], objective: Float[np.ndarray, "in"]
) -> Maximum | None:
    """Maximise objective·u subject to rows u ≤ bounds with HiGHS; None if there is no such u."""
    found = linprog(-objective, rows, bounds, bounds=(None, None), method="highs")
    if found.status == 2:
        return None
    if found.status != 0:
        raise ArithmeticError(f"HiGHS did not solve a program of {len(rows)} rows: {found.message}")
    return Maximum(float(-found.fun), found.x)


@njit
@no_type_check
def _solve(rows, bounds, objective, basis, inverse, stop, point):
    """Dual simplex from a basis whose inverse is given and which is optimal for its own rows."""
    n, exact = len(objective), True
    chosen = bounds[basis]
    for step in range(_STEPS * len(rows)):
        point[:] = inverse @ chosen
        if objective @ point < stop:
            return _BELOW
        worst, enter = FEASIBLE, -1
        for i in range(len(rows)):
            violation = -bounds[i]
            for j in range(n):
                violation += rows[i, j] * point[j]
            if violation > worst:
                worst, enter = violation, i
                if step > 10 * len(rows):  # the first, so that no cycle can go on
                    break
        if enter < 0 and exact:
            return _OPTIMAL
        leave, smallest, largest = -1, np.inf, 0.0
        if enter >= 0:
            share, dual = rows[enter] @ inverse, objective @ inverse
            for k in range(n):
                if share[k] > FEASIBLE:
                    ratio = max(dual[k], 0.0) / share[k]
                    if ratio < smallest - 1e-14 or (ratio <= smallest + 1e-14 and share[k] > largest):
                        leave, smallest, largest = k, ratio, share[k]
            if leave < 0 and exact:
                return _EMPTY
        if leave < 0 or step % 20 == 19:
            if leave >= 0:
                basis[leave], chosen[leave] = enter, bounds[enter]
            matrix = rows[basis]
            if abs(np.linalg.det(matrix)) < 1e-250:
                return _UNRESOLVED
            inverse[:] = np.linalg.inv(matrix)
            exact = True
            continue
        share[leave] -= 1.0
        column = inverse[:, leave] / largest
        for i in range(n):
            for j in range(n):
                inverse[i, j] -= column[i] * share[j]
        basis[leave], chosen[leave] = enter, bounds[enter]
        exact = False
    return _UNRESOLVED


@no_type_check
def _maximum_of(rows, bounds, objective, stop, point):
    """Maximise over a polytope, or stop once the maximum is known to be below `stop`."""
    n = len(objective)
    basis, inverse = np.arange(n), np.zeros((n, n))
    for i in range(n):
        up = objective[i] >= 0
        basis[i] = i if up else n + i
        inverse[i, i] = 1.0 if up else -1.0
    return _solve(rows, bounds, objective, basis, inverse, stop, point)


@no_type_check
def _centre_of(rows, bounds, point):
    """Maximise the radius r with rows u + r ≤ bounds, from the centre of the box."""
    n = rows.shape[1]
    wide = np.ones((len(rows), n + 1))
    wide[:, :n] = rows
    basis, objective = np.arange(n + 1), np.zeros(n + 1)
    basis[n], objective[n] = n, 1.0  # u_1 ≤ 1 − r and −u_1 ≤ 1 − r alone have r ≤ 1
    return _solve(wide, bounds, objective, basis, np.linalg.inv(wide[basis]), -np.inf, point)


@no_type_check
def _crossing_of(rows, bounds, point, weights, biases, slack):
    """Code of every function on a polytope: 0 one sign, 1 zero beyond `slack` on both sides, 3 unresolved.

    `point` is in the interior. Functions have weights of length 1, or 0 where they are constant.
    """
    found, corner = np.zeros(len(biases), np.int64), np.empty(len(point))
    for k in range(len(biases)):
        if not weights[k].any():
            continue
        sign = -1.0 if weights[k] @ point + biases[k] >= 0 else 1.0
        status = _maximum(rows, bounds, sign * weights[k], slack - sign * biases[k], corner)
        found[k] = 1 if status == _OPTIMAL else _UNRESOLVED if status == _UNRESOLVED else 0
    return found


try:
    _maximum = njit(cache=True)(_maximum_of)
    _centre, _crossing = njit(cache=True)(_centre_of), njit(cache=True)(_crossing_of)
except RuntimeError:  # no writable folder to cache compiled code
    _maximum, _centre, _crossing = njit()(_maximum_of), njit()(_centre_of), njit()(_crossing_of)


def crossing(
    rows: Float[np.ndarray, "row in"],
    bounds: Float[np.ndarray, "row"],
    inside: Float[np.ndarray, "in"],
    weights: Float[np.ndarray, "unit in"],
    biases: Float[np.ndarray, "unit"],
    slack: float,
) -> np.ndarray:
    """Whether each of several affine functions has, in a polytope, values of the other sign than inside it.

    Args:
        rows: Rows of length 1; the first 2 n are those of the box.
        bounds: Bounds of the rows.
        inside: A point in the interior.
        weights: Weights of the functions, of length 1 or 0.
        biases: Biases of the functions.
        slack: Values up to this size count as zero.

    Returns:
        One flag per function.
    """
    found = _crossing(rows, bounds, inside, weights, biases, slack)
    for k in np.flatnonzero(found == _UNRESOLVED):
        sign = -1.0 if weights[k] @ inside + biases[k] >= 0 else 1.0
        best = by_highs(rows, bounds, sign * weights[k])
        found[k] = best is not None and best.value + sign * biases[k] >= slack
    return found == 1
