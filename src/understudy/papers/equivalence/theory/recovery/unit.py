"""Following the fold of one unit through the cells of the layers below it.

In the features φ of the layers below, the fold is a hyperplane v · φ(x) = 0. Every point on it is one equation for v.
A cell shows only the part of v in the span of the features there; crossing into another cell adds one dimension to
what is visible, and one fold point found there determines it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from understudy.papers.equivalence.theory.recovery.known import AffinePiece, KnownLayers
from understudy.papers.equivalence.theory.recovery.lines import locate
from understudy.papers.equivalence.theory.recovery.oracle import EDGE, Oracle

_HALVES = (1e-3, 1e-4, 1e-5)
"""Half-lengths of segments on which a fold is located, tried in this order."""
_OFFSET = 0.01
"""Distance between neighbouring fold points by which a normal is measured, as a share of the half-length."""
_SMALL = 1e-9
"""Relative size below which a direction counts as contained in a span."""
_HIT = 1e-6
"""Distance from the expected position within which a fold counts as the unit's."""
_CROSSINGS = 100
_REWEIGHTED = 6
_TARGETS = 8
_HIDDEN = 1e-7


class _Crossing(NamedTuple):
    """Where a walk meets a cell of which not all features are visible.

    Attributes:
        point: The point on the boundary.
        pattern: Pattern beyond it.
        direction: Direction of the walk.
        unit: Index of the unit whose fold is crossed.
        new: Direction of the features that becomes visible.
    """

    point: np.ndarray
    pattern: np.ndarray
    direction: np.ndarray
    unit: int
    new: np.ndarray


@dataclass(eq=False)
class Unit:
    """A unit whose fold is followed.

    Attributes:
        points: Points on its fold.
        basis: Orthonormal basis of the features visible in the cells visited.
        normal: v, as far as it is visible.
        bend: Size of the slope's jump where it was first met.
        hits: Expected fold points that were confirmed.
        tries: Fold points that were expected.
        failed: Crossings beyond which the fold was not found.
    """

    points: list[np.ndarray]
    basis: np.ndarray
    normal: np.ndarray
    bend: float
    hits: int = 0
    tries: int = 0
    failed: int = 0

    @property
    def confirmed(self) -> float:
        """Share of the expected fold points that were confirmed."""
        return self.hits / max(self.tries, 1)

    @property
    def visible(self) -> bool:
        """Whether all of v is determined."""
        return self.basis.shape[0] == self.basis.shape[1]


def span_of(piece: AffinePiece) -> np.ndarray:
    """Orthonormal basis of the features on a cell."""
    columns = np.concatenate([piece.features[:, None] / np.linalg.norm(piece.features), piece.jacobian], axis=1)
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, size > _SMALL * size[0]]


def solve(known: KnownLayers, points: list[np.ndarray], basis: np.ndarray) -> np.ndarray:
    """v of the visible features with v · φ = 0 at all points, of unit length.

    Occasionally a point belongs to another unit or is displaced by one nearby; such points get less weight if there are
    enough others.
    """
    rows = known.features(np.asarray(points)) @ basis
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = np.linalg.svd(rows, full_matrices=True)[2][-1]
    if len(rows) >= 1.3 * rows.shape[1]:
        for _ in range(_REWEIGHTED):
            weight = 1 / (np.abs(rows @ found) + 1e-14)
            found = np.linalg.svd(rows * (weight / weight.max())[:, None], full_matrices=False)[2][-1]
    return np.asarray(basis @ found)


class Follower:
    """Follows folds of units of the layer above those known."""

    def __init__(self, oracle: Oracle, known: KnownLayers, random: np.random.Generator) -> None:
        self.oracle, self.known, self.random = oracle, known, random

    def begin(self, point: np.ndarray, direction: np.ndarray) -> Unit | None:
        """Measure the normal of a fold at one of its points, found on a line of this direction."""
        for half in _HALVES:
            first = locate(self.oracle, point[None], direction[None], half)
            if not first.found[0]:
                continue
            point = first.points[0]
            piece = self.known.piece(point, self.known.pattern(point))
            tangents = self._tangents(piece, direction)
            slopes = first.before, first.after
            points = [point]
            for offset in (_OFFSET * half, _OFFSET * half / 20):
                if not len(tangents):
                    break
                near = locate(
                    self.oracle, point + offset * tangents, np.tile(direction, (len(tangents), 1)), half, slopes
                )
                points += list(near.points[near.found])
                tangents = tangents[~near.found]
            if len(tangents):
                continue
            basis = span_of(piece)
            bend = float(np.abs(first.after - first.before).max())
            return Unit(points, basis, solve(self.known, points, basis), bend)
        return None

    def straight(self, point: np.ndarray, direction: np.ndarray) -> bool:
        """Whether a fold goes on straight far from one of its points, in a random plane: units of the first layer."""
        tangent = self.random.uniform(-1, 1, len(point)) - point
        tangent -= (tangent @ direction) * direction
        size = np.linalg.norm(tangent)
        if len(point) == 1 or not size:
            return True
        tangent /= size
        for half in _HALVES:
            first = locate(self.oracle, point[None], direction[None], half)
            if not first.found[0]:
                continue
            slopes = first.before, first.after
            near = locate(self.oracle, first.points + _OFFSET * half * tangent, direction[None], half, slopes)
            if not near.found[0]:
                continue
            along = near.points[0] - first.points[0]
            along /= np.linalg.norm(along)
            ray = max((along, -along), key=lambda each: _exit(point, each))
            length = np.array([0.5, 0.7, 0.9]) * _exit(point, ray)
            far = locate(self.oracle, first.points + length[:, None] * ray, np.tile(direction, (3, 1)), half)
            return bool(far.found.any())
        return False

    def explore(self, unit: Unit, idle: int = 30) -> None:
        """Walk along the fold into cells that show more of v, until `idle` walks in a row show none."""
        without = 0
        while not unit.visible and without < idle and unit.failed < 3 * idle:
            base = unit.points[self.random.integers(len(unit.points))]
            grown = self._walk(unit, base, self.known.pattern(base), np.inf)[2]
            without = 0 if grown is not None and self._grow(unit, grown) else without + 1

    def confirm(self, unit: Unit, count: int, weak: bool = False) -> None:
        """Expect the fold at some points far from each other, and use those that are confirmed to refine v.

        Args:
            unit: The unit.
            count: Number of points.
            weak: Walk towards points that determine the least determined part of v.
        """
        middles, directions, halves = [], [], []
        aim = self._weakest(unit) if weak else None
        for _ in range(count):
            base = unit.points[self.random.integers(len(unit.points))]
            length = 2 * np.sqrt(len(base)) * self.random.uniform()
            z, pattern, _ = self._walk(unit, base, self.known.pattern(base), length, aim=aim)
            segment = self._segment(unit, z, pattern)
            if segment is not None:
                middles.append(z)
                directions.append(segment[0])
                halves.append(segment[1])
        if not middles:
            return
        middle, direction, half = np.array(middles), np.array(directions), np.array(halves)
        unit.tries += len(middles)
        error = self._error(unit)
        for _ in range(len(_HALVES)):
            found = locate(self.oracle, middle, direction, half)
            near = found.found & (np.linalg.norm(found.points - middle, axis=1) <= error)
            unit.hits += int(near.sum())
            unit.points += list(found.points[near])
            # Other folds may be near: shorter segments miss them.
            middle, direction, half = middle[~near], direction[~near], 0.1 * half[~near]
            if not len(middle):
                break
        unit.normal = solve(self.known, unit.points, unit.basis)

    def precision(self, unit: Unit) -> float:
        """How well the points determine v: the second smallest singular value of their equations, relative."""
        size = np.linalg.svd(self._rows(unit), compute_uv=False)
        return float(size[-2] / size[0]) if len(size) > 1 else 1.0

    def _rows(self, unit: Unit) -> np.ndarray:
        rows = self.known.features(np.asarray(unit.points)) @ unit.basis
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))

    def _weakest(self, unit: Unit) -> np.ndarray | None:
        right = np.linalg.svd(self._rows(unit))[2]
        return unit.basis @ right[-2] if len(right) > 1 else None

    def refit(self, unit: Unit) -> None:
        """Compute v anew after the features have changed."""
        piece = [span_of(self.known.piece(z, self.known.pattern(z))) for z in unit.points]
        left, size, _ = np.linalg.svd(np.concatenate(piece, axis=1), full_matrices=False)
        unit.basis = left[:, size > 1e-8 * size[0]]
        unit.normal = solve(self.known, unit.points, unit.basis)

    def _error(self, unit: Unit) -> float:
        """Distance at which an expected fold may be met, from the rounding of the function."""
        return max(_HIT, min(1e-4, 1e6 * self.oracle.rounding / unit.bend))

    @staticmethod
    def _tangents(piece: AffinePiece, direction: np.ndarray) -> np.ndarray:
        """Directions that change the features in a cell, orthogonal to a given one."""
        _, size, right = np.linalg.svd(piece.jacobian, full_matrices=False)
        rows = right[size > _SMALL * size[0]]
        along = rows @ direction
        return np.asarray(np.linalg.svd(along[None])[2][1:] @ rows)

    def _segment(self, unit: Unit, z: np.ndarray, pattern: np.ndarray) -> tuple[np.ndarray, float] | None:
        """Direction across the fold, and half-length of a segment that meets no other known fold."""
        piece = self.known.piece(z, pattern)
        normal = piece.jacobian.T @ unit.normal
        size = np.linalg.norm(normal)
        if size < _SMALL:
            return None
        normal /= size
        half = min(_HALVES[0], 0.5 * _first(np.abs(piece.values), piece.gradients @ normal))
        return (normal, half) if half > 1e-6 else None

    def _walk(
        self, unit: Unit, z: np.ndarray, pattern: np.ndarray, length: float, aim: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, _Crossing | None]:
        """Walk along the fold towards a random point, through cells whose features are visible.

        Returns:
            The end; its pattern; and the crossing into a cell of which not all features are visible, if it ended there.
        """
        t = self._target(unit, len(z), aim) - z
        last: int | None = None
        piece = self.known.piece(z, pattern)
        for _ in range(_CROSSINGS):
            normal = piece.jacobian.T @ unit.normal
            size = normal @ normal
            if size < _SMALL**2:
                break
            t = t - (t @ normal) / size * normal
            norm = np.linalg.norm(t)
            if norm < _SMALL:
                break
            t = t / norm
            if last is not None and (piece.gradients[last] @ t) * pattern[last] < 0:
                # In this cell the fold turns the direction back to where it came from: reflect it.
                away = piece.gradients[last] - (piece.gradients[last] @ normal) / size * normal
                t = t - 2 * (t @ away) / (away @ away) * away
            speed = piece.gradients @ t
            with np.errstate(divide="ignore", invalid="ignore"):
                time = np.where(speed * pattern < 0, -piece.values / speed, np.inf)
            if last is not None:
                time[last] = np.inf
            crossed = int(np.argmin(time)) if len(time) else -1
            reach = max(float(time[crossed]), 0.0) if len(time) else np.inf
            leave = _exit(z, t)
            if min(leave, length) <= reach:
                step = leave * self.random.uniform(0.3, 1.0) if leave <= length else length
                return z + step * t, pattern, None
            beyond = pattern.copy()
            beyond[crossed] *= -1
            end = z + reach * t
            following = self.known.piece(end, beyond)
            new = None if unit.visible else _added(unit, piece, following, crossed)
            if new is not None:
                return z + self.random.uniform(0.3, 0.9) * reach * t, pattern, _Crossing(end, beyond, t, crossed, new)
            z, pattern, piece, length, last = end, beyond, following, length - reach, crossed
        return z, pattern, None

    def _target(self, unit: Unit, inputs: int, aim: np.ndarray | None) -> np.ndarray:
        """Point of the cube to walk towards: one of a few that shows much of `aim`, or of what is not yet visible.

        From a corner, most random directions would leave the cube at once.
        """
        targets = self.random.uniform(-1, 1, (1 if unit.visible and aim is None else _TARGETS, inputs))
        if len(targets) == 1:
            return np.asarray(targets[0])
        features = self.known.features(targets)
        if aim is not None:
            return np.asarray(targets[np.argmax(np.abs(features @ aim))])
        hidden = features - (features @ unit.basis) @ unit.basis.T
        return np.asarray(targets[np.argmax(np.linalg.norm(hidden, axis=1))])

    def _grow(self, unit: Unit, crossing: _Crossing) -> bool:
        """Find the fold just beyond a crossing, and add what it shows of v; False where it is not found."""
        z, pattern, t, crossed, new = crossing
        piece = self.known.piece(z, pattern)
        gradient = piece.gradients[crossed]
        across = piece.jacobian.T @ unit.normal
        across = across - (across @ gradient) / (gradient @ gradient) * gradient
        size = np.linalg.norm(across)
        if size < 1e-6:
            unit.failed += 1
            return False
        across /= size
        others = np.arange(len(piece.values)) != crossed
        distance = np.abs(piece.values[others])
        half = min(_HALVES[0], 0.5 * _first(distance, piece.gradients[others] @ across))
        free = _first(distance, piece.gradients[others] @ t)
        offset = min(0.03 * half, 0.3 * free)
        found = locate(self.oracle, (z + offset * t)[None], across[None], half) if offset > 1e-8 else None
        if found is None or not found.found[0]:
            unit.failed += 1
            return False
        saved = unit.basis, unit.normal, unit.points
        unit.basis, unit.points = np.c_[unit.basis, new], [*unit.points, found.points[0]]
        unit.normal = solve(self.known, unit.points, unit.basis)
        # A second point, deeper in the cell, confirms the first and determines the new part of v more precisely.
        for _ in range(3):
            length = self.random.uniform(0.3, 0.8) * max(free, 0.1)
            far, where, _ = self._walk(unit, found.points[0], pattern, length)
            segment = self._segment(unit, far, where)
            if segment is None:
                continue
            second = locate(self.oracle, far[None], segment[0][None], segment[1])
            if second.found[0] and np.linalg.norm(second.points[0] - far) <= 10 * self._error(unit):
                unit.points = [*unit.points, second.points[0]]
                unit.normal = solve(self.known, unit.points, unit.basis)
                return True
        unit.basis, unit.normal, unit.points = saved
        unit.failed += 1
        return False


def _first(distance: np.ndarray, speed: np.ndarray) -> float:
    """Length after which the first of several folds is met, at these distances and speeds towards them."""
    return float(np.min(distance / np.maximum(np.abs(speed), 1e-300), initial=np.inf))


def _added(unit: Unit, before: AffinePiece, after: AffinePiece, crossed: int) -> np.ndarray | None:
    """Direction of the features beyond a crossing that was not visible until now, or None.

    The derivatives of the features change by a matrix of rank one, along the gradient of the unit crossed.
    """
    gradient = before.gradients[crossed]
    change = (after.jacobian - before.jacobian) @ gradient
    size = np.linalg.norm(change)
    if size <= _SMALL * (gradient @ gradient):
        return None
    change /= size
    rest = change - unit.basis @ (unit.basis.T @ change)
    rest -= unit.basis @ (unit.basis.T @ rest)
    left = np.linalg.norm(rest)
    return np.asarray(rest / left) if left > _HIDDEN else None


def _exit(z: np.ndarray, t: np.ndarray) -> float:
    """Distance from a point to the boundary of the cube along a direction."""
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.where(t > 0, (EDGE - z) / t, np.where(t < 0, (-EDGE - z) / t, np.inf))
    return max(float(away.min()), 0.0)
