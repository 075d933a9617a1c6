"""One teacher node and one or two students at a small angle from it: S4 sec 4, claim 2, fig 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import network_tables
from understudy.lab.study import ExactStudy, Piece
from understudy.papers.local.shared import geometry, measured

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.store import Run

STUDENTS = (1, 2)


@dataclass(frozen=True)
class WarmUp(ExactStudy):
    """Exact losses of students at the angle δ from a teacher node: one gives δ², two that make up for each other δ³.

    For one, ‖∇L‖²/L stays above a constant (PL); for two it goes to zero with δ, while ‖∇L‖/L does not.
    """

    name: ClassVar[str] = "warm-up"
    summary: ClassVar[str] = "one teacher node, one student or two: losses of order δ² and δ³, and where PL fails"
    figures: ClassVar[str] = "S4 claim 2, fig 2"
    decides: ClassVar[str] = "Z5"

    seeds: int = 1
    """How many times it is done: nothing here is drawn by chance."""
    least: float = 1e-6
    """Smallest δ, in radians."""
    most: float = 0.3
    """Largest δ, in radians."""
    angles: int = 60
    """How many δ, evenly on a logarithmic axis."""

    @classmethod
    def quick(cls) -> Self:
        return cls(angles=24)

    def validate(self) -> None:
        super().validate()
        check(self, "least", least=1e-7)
        check(self, "angles", least=2)
        if not self.least < self.most < np.pi / 2:
            raise UserError(
                f"--most: {self.most:g} was given; allowed is a number above the least, {self.least:g}, and below π/2"
            )

    def deltas(self) -> np.ndarray:
        return np.geomspace(self.least, self.most, self.angles)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for count in STUDENTS:
            name = "one student" if count == 1 else "two students"
            yield Piece(name, self.seeds, partial(self._part, count))

    def _part(self, count: int, first: int) -> Tables:
        import torch

        from understudy.papers.local.theory.descent import rate_bound

        seeds = range(1, self.seeds + 1)
        deltas = self.deltas()
        probes = range(len(deltas))
        places = placed(count, deltas)[:, None]
        path = self.to_device(torch.from_numpy(places)).expand(-1, len(seeds), -1, -1)
        teacher = self.to_device(torch.tensor([[[1.0, 0.0]]], dtype=torch.float64))
        # Nothing is descended here: lemma 12 is of the step that theorem 4 allows.
        found = measured(path, teacher, float(rate_bound(teacher)))
        values = {"delta": np.repeat(deltas[:, None], len(seeds), axis=1), **found.values}
        nodes = geometry(first, probes, found, {"x": places[..., 0], "y": places[..., 1]})
        return network_tables(first, seeds, {"students": count}, probes, values, nodes)


def placed(count: int, deltas: np.ndarray) -> np.ndarray:
    """[δ, student, 2]: a student of length 1 at the angle δ from (1, 0), or one on either side with Σ ‖w‖w = (1, 0)."""
    turned = np.stack([np.cos(deltas), np.sin(deltas)], -1)[:, None]
    if count == 1:
        return turned
    mirrored = turned * np.array([1.0, -1.0])
    return np.concatenate([turned, mirrored], 1) / np.sqrt(2 * np.cos(deltas))[:, None, None]
