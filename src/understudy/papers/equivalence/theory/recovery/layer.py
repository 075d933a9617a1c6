"""All units of one layer, from fold points that the layers below do not explain."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from understudy.papers.equivalence.theory.recovery.known import KnownLayers
from understudy.papers.equivalence.theory.recovery.lines import draw_chords, folds_on_lines
from understudy.papers.equivalence.theory.recovery.oracle import Oracle
from understudy.papers.equivalence.theory.recovery.unit import Follower, Unit

LINES = 10
"""Lines searched for folds at a time."""
_ON_FOLD = 1e-6
"""Distance to a known fold below which a fold point is explained by it."""
_FEW, _MANY = 6, 12
"""Expected fold points that are looked up before a unit is rejected, and accepted."""
_SHARE = 0.7
"""Share of the expected fold points that must be confirmed: folds are hidden where the layers above are inactive."""
_SAME = 1e-9
"""Difference of the cosine of two units from ±1 below which they are the same."""
_IDLE = 800
"""Walks in a row that show nothing new of a unit before it is left as it is."""
_PRECISE, _WEAK = 3e-3, 10
"""Relative singular value up to which a unit is determined, and the most rounds of points for it."""
_DOUBT = 150
"""Fold points of every unit that are looked up again where the layer above is not found."""
_SURE, _USUAL = 60, 0.94
"""Fold points expected of a unit of which one was not confirmed; share of the usual rate that is asked for."""
_RATIO = 1e-4
"""Relative error of the ratio of the coefficients of u and |u| up to which the active side is decided."""


@dataclass(eq=False)
class PointPool:
    """Fold points met along lines, of any layer.

    Attributes:
        points: The points.
        directions: Direction of the line on which each was met.
        lines: Number of lines searched.
        tested: Number of points already tested as folds of the layer that is searched.
    """

    points: np.ndarray
    directions: np.ndarray
    lines: int = 0
    tested: int = 0

    def search(self, oracle: Oracle, random: np.random.Generator) -> None:
        """Search more lines."""
        found = folds_on_lines(oracle, *draw_chords(random, LINES, oracle.inputs), random)
        self.points = np.concatenate([self.points, found.points])
        self.directions = np.concatenate([self.directions, found.directions])
        self.lines += LINES


@dataclass(eq=False)
class LayerSearch:
    """Search for the units of the layer above those known.

    Attributes:
        oracle: The function.
        known: The layers below; the active sides of its last layer are decided here.
        random: Generator for walks.
        units: Units found.
        rejected: Units whose folds bend more often than those of the others: they belong to deeper layers.
    """

    oracle: Oracle
    known: KnownLayers
    random: np.random.Generator
    units: list[Unit] = field(default_factory=list)
    rejected: list[Unit] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Follow folds through the known layers."""
        self.follower = Follower(self.oracle, self.known, self.random)

    def test(self, pool: PointPool, most: int | None) -> None:
        """Test the fold points of a pool that are not tested yet, until there are `most` units."""
        while pool.tested < len(pool.points) and (most is None or len(self.units) < most):
            at = pool.tested
            pool.tested += 1
            if not self._explained(pool.points[at]):
                unit = self._follow(pool.points[at], pool.directions[at])
                if unit is not None:
                    self._accept(unit)

    def _explained(self, z: np.ndarray) -> bool:
        """Whether a point is on a fold that is known."""
        if self.known.nearest(z[None])[0] < _ON_FOLD:
            return True
        piece = self.known.piece(z, self.known.pattern(z))
        for unit in self.units:
            slope = np.linalg.norm(piece.jacobian.T @ unit.normal)
            if slope > 0 and abs(piece.features @ unit.normal) < _ON_FOLD * slope:
                return True
        return False

    def _follow(self, point: np.ndarray, direction: np.ndarray) -> Unit | None:
        """Follow the fold at a point; None if it bends where a unit of this layer does not."""
        if not self.known.weights and not self.follower.straight(point, direction):
            return None
        unit = self.follower.begin(point, direction)
        if unit is None:
            return None
        self.follower.explore(unit)
        self.follower.confirm(unit, _FEW)
        if unit.hits < _SHARE * unit.tries - 1 or (not unit.tries and self.oracle.inputs > 1):
            return None
        self.follower.confirm(unit, _MANY - _FEW)
        return unit if unit.hits >= _SHARE * unit.tries else None

    def _accept(self, unit: Unit) -> None:
        if self._same(unit, self.units + self.rejected):
            return
        self.units.append(unit)
        if not self.known.oriented.all():
            self._orient(unit)

    def _orient(self, unit: Unit) -> None:
        """Decide the active sides of units below from the coefficients of |u| and u in a unit of this layer."""
        below = len(self.known.oriented)
        unknown = np.flatnonzero(~self.known.oriented)
        absolute, linear = unit.normal[unknown], unit.normal[below : below + len(unknown)]
        hidden = 1 - (unit.basis**2).sum(1)
        seen = (hidden[unknown] < 1e-8) & (hidden[below : below + len(unknown)] < 1e-8) & (np.abs(absolute) > 1e-6)
        if not seen.any():
            return
        ratio = np.abs(linear[seen] / absolute[seen])
        middle = float(np.median(ratio))
        if not self.known.oriented.any() and len(self.known.weights) == 1:
            slope = (middle - 1) / (middle + 1)
            if not -1e-6 < slope < 1:
                return
            self.known.slope = slope if slope > 1e-6 else 0.0
        middle = (1 + self.known.slope) / (1 - self.known.slope)
        agree = np.abs(ratio / middle - 1) < _RATIO
        self.known.orient(unknown[seen][agree], np.sign(linear[seen] * absolute[seen])[agree])
        for each in self.units + self.rejected:
            self.follower.refit(each)

    def finish(self, reject: bool = True) -> None:
        """Determine all of every unit, to rounding; drop units that were met twice or bend as deeper ones do.

        Args:
            reject: Whether there may be deeper layers.
        """
        for unit in self.units:
            self.follower.explore(unit, _IDLE)
            if not self.known.oriented.all():
                self._orient(unit)
        kept: list[Unit] = []
        for unit in self.units:
            if not self._same(unit, kept):
                kept.append(unit)
        self.units = kept
        for i, unit in enumerate(self.units):
            size = unit.basis.shape[1]
            for _ in range(4):
                if len(unit.points) < 3 * size:
                    self.follower.confirm(unit, size)
            for _ in range(_WEAK):
                if self.follower.precision(unit) < _PRECISE:
                    self.follower.confirm(unit, 4, weak=True)
            if unit.hits < unit.tries:
                # Points may have been missed while the unit was not known precisely: count again.
                unit.hits = unit.tries = 0
                for _ in range(_SURE // _MANY):
                    self.follower.confirm(unit, _MANY)
            if unit.hits < unit.tries:
                self.units[i] = self._better(unit)
        if not reject:
            return
        usual = float(np.median([unit.confirmed for unit in self.units])) if self.units else 1.0
        self.rejected += [unit for unit in self.units if unit.confirmed < _USUAL * usual]
        self.units = [unit for unit in self.units if unit.confirmed >= _USUAL * usual]

    def _better(self, unit: Unit) -> Unit:
        """Follow a fold again from its first point: a point of another unit may have been taken for one of it."""
        point = unit.points[0]
        across = self.known.piece(point, self.known.pattern(point)).jacobian.T @ unit.normal
        again = self.follower.begin(point, across / max(float(np.linalg.norm(across)), 1e-300))
        if again is None:
            return unit
        self.follower.explore(again, _IDLE)
        for _ in range(_SURE // _MANY):
            self.follower.confirm(again, _MANY)
        return again if again.confirmed > unit.confirmed else unit

    def least_confirmed(self) -> Unit | None:
        """Look many points of every unit up again; return the unit with most misses, None if there are none."""
        for unit in self.units:
            unit.hits = unit.tries = 0
            self.follower.confirm(unit, _DOUBT)
        worst = min(self.units, key=lambda unit: unit.confirmed)
        return worst if worst.hits < worst.tries else None

    def reject(self, unit: Unit) -> None:
        """Drop a unit as one of a deeper layer."""
        self.units.remove(unit)
        self.rejected.append(unit)

    @staticmethod
    def _same(unit: Unit, others: list[Unit]) -> bool:
        return any(abs(abs(unit.normal @ other.normal) - 1) < _SAME for other in others)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights and biases of the units, of unit length together; which side is active is not decided."""
        found = np.array([unit.normal for unit in self.units]).reshape(len(self.units), -1)
        return found[:, :-1], found[:, -1]
