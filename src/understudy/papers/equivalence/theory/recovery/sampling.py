"""Points at which the output layer is fitted: all over the cube, and on both sides of the fold of every unit."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from understudy.papers.equivalence.theory.recovery.known import KnownLayers
from understudy.papers.equivalence.theory.recovery.oracle import EDGE
from understudy.papers.equivalence.theory.recovery.unit import Unit

AROUND = 8
"""Points drawn for each unit by default: around points of its fold, or half of them on either side of it."""
_SPREAD = 0.2
"""Standard deviation of points around a fold point."""
_BESIDE = 1e-9
"""Least value of a unit, as a share of its largest, at a point that is on one side of its fold."""
_SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
"""Shares of the way from a fold point towards a corner at which a point on one side is searched, in this order."""


def points_to_determine(known: KnownLayers) -> int:
    """Number of points for each unit, half on either side of its fold, at which all its parameters have an effect."""
    return 4 * (max(known.inputs, *map(len, known.biases), 0) + 2)


def sample_points(
    known: KnownLayers, units: list[Unit], count: int, random: np.random.Generator, each: int = AROUND
) -> Float[np.ndarray, "sample in"]:
    """Draw points all over the cube, in its corners, and around folds, so that every unit has points on both sides.

    Points around the fold of a unit that cuts off a corner of the cube are all on one side, where |u| is linear: then
    points between the fold and the corners on either side are drawn instead.

    Args:
        known: The layers that the units belong to.
        units: Units of `known`, the last ones.
        count: Number of points all over the cube; half as many are in corners.
        random: Generator for the points.
        each: Number of points that belong to each unit, an even one.

    Returns:
        The points.
    """
    inputs = known.inputs
    inside = EDGE * random.uniform(-1, 1, (count, inputs))
    corners = EDGE * random.choice((-1.0, 1.0), (count // 2, inputs))
    near = [np.asarray(unit.points)[random.integers(len(unit.points), size=each)] for unit in units]
    around = np.concatenate([np.zeros((0, inputs)), *near])
    around = around + _SPREAD * random.normal(size=around.shape)
    z = np.asarray(np.clip(np.concatenate([inside, corners, around]), -EDGE, EDGE))
    if units:
        # Corners do not count: of a unit that cuts off one of them they are one point, drawn many times.
        values = known.values(np.delete(z, slice(count, count + count // 2), axis=0))[:, -len(units) :]
        redraw(known, units, z, one_sided(values, each // 2 - 1), random, each)
    return z


def one_sided(values: Float[np.ndarray, "sample unit"], fewest: int) -> np.ndarray:
    """Indices of the units of whose folds one side has fewer points than this."""
    least = _BESIDE * np.abs(values).max(axis=0, initial=0.0)
    found: np.ndarray = np.minimum((values > least).sum(axis=0), (values < -least).sum(axis=0))
    return np.flatnonzero(found < fewest)


def redraw(
    known: KnownLayers,
    units: list[Unit],
    z: np.ndarray,
    which: np.ndarray,
    random: np.random.Generator,
    each: int = AROUND,
) -> None:
    """Replace the points of some units, the last ones of `z`, by points on both sides of their folds.

    Args:
        known: The layers that the units belong to.
        units: Units of `known`, the last ones.
        z: Points that `sample_points` drew.
        which: Indices of the units whose points are replaced.
        random: Generator for the points.
        each: Number of points that belong to each unit.
    """
    first = sum(map(len, known.biases)) - len(units)
    for j in which.tolist():
        start = len(z) - each * (len(units) - j)
        for side, at in ((1.0, start), (-1.0, start + each // 2)):
            bases = np.asarray(units[j].points)[random.integers(len(units[j].points), size=each // 2)]
            z[at : at + each // 2] = _beside(known, bases, first + j, side, random)


def _beside(known: KnownLayers, bases: np.ndarray, column: int, side: float, random: np.random.Generator) -> np.ndarray:
    """Draw points on one side of a unit's fold, on the way from points of it to the corners of that side."""
    found = []
    for base in bases:
        gradient = side * known.piece(base, known.pattern(base)).gradients[column]
        corner = EDGE * np.where(gradient != 0, np.sign(gradient), random.choice((-1.0, 1.0), len(base)))
        way = random.uniform(0, 1, len(base)) * (corner - base)
        # Behind a fold of a lower layer the unit may change its sign again: take the farthest point that is right.
        inside = _farthest(known, base + np.array(_SHARES)[:, None] * way, column, side)
        # Fold points of a corner may all be on its edges: spread the points in all directions.
        spread = random.uniform(-1, 1, len(base))
        found.append(_farthest(known, inside + np.array(_SHARES)[:, None] * spread, column, side, inside))
    return np.asarray(found)


def _farthest(
    known: KnownLayers, points: np.ndarray, column: int, side: float, otherwise: np.ndarray | None = None
) -> np.ndarray:
    """Return the first of several points, moved into the cube, that is on one side of a unit's fold."""
    points = np.clip(points, -EDGE, EDGE)
    right = side * known.values(points)[:, column] > 0
    if not right.any() and otherwise is not None:
        return otherwise
    return np.asarray(points[int(np.argmax(right))])
