"""The study `warm-up`: one teacher node, and one or two students at a small angle from it.

Zhou, Ge & Jin 2021, sec. 4, claim 2, fig. 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np
from annotated_types import Ge

from understudy._errors import UserError
from understudy.lab.options import Count, Positive
from understudy.lab.pieces import network_tables
from understudy.lab.study import ExactStudy, Piece
from understudy.papers.local.shared import measure, node_rows

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.store import Run

STUDENTS = {1: "one student", 2: "two students"}
"""Numbers of students, with their names."""


@dataclass(frozen=True)
class WarmUp(ExactStudy):
    """Exact losses of one student at the angle δ from a teacher node, of order δ², and of two at ±δ, of order δ³.

    With one student ‖∇L‖²/L stays above a constant (the Polyak–Łojasiewicz inequality, PL); with two that balance each
    other it converges to zero with δ, while ‖∇L‖/L does not.
    """

    name: ClassVar[str] = "warm-up"
    summary: ClassVar[str] = "one teacher node, one student or two: losses of order δ² and δ³, and where PL fails"
    figures: ClassVar[str] = "S4 claim 2, fig. 2"
    decides: ClassVar[str] = "Z5"
    arrays: ClassVar[tuple[str, ...]] = ("seeds angles",)

    seeds: Count = 1
    """Number of repetitions, all equal: nothing is random here."""
    least: Annotated[float, Ge(1e-7)] = 1e-6
    """Smallest δ, in rad."""
    most: Positive = 0.3
    """Largest δ, in rad."""
    angles: Annotated[int, Ge(2)] = 60
    """Number of angles δ, evenly spaced on a logarithmic axis."""

    @classmethod
    def quick(cls) -> Self:
        return cls(angles=24)

    def validate(self) -> None:
        if not self.least < self.most < np.pi / 2:
            raise UserError(f"--most must be above --least ({self.least:g}) and below π/2, got {self.most:g}")

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for count, name in STUDENTS.items():
            yield Piece(name, self.seeds, partial(self._compute, count))

    def _compute(self, count: int, first: int) -> Tables:
        import torch

        from understudy.papers.local.theory.descent import rate_bound

        deltas = np.geomspace(self.least, self.most, self.angles)
        probes = range(len(deltas))
        places = place_students(count, deltas)[:, None]
        path = self.to_device(torch.from_numpy(places)).expand(-1, self.seeds, -1, -1)
        teacher = self.to_device(torch.tensor([[[1.0, 0.0]]], dtype=torch.float64))
        # There is no descent here: lemma 12 is measured for a step of the largest rate that theorem 4 allows.
        found = measure(path, teacher, float(rate_bound(teacher)))
        values = {"delta": np.repeat(deltas[:, None], self.seeds, axis=1), **found.values}
        nodes = node_rows(first, probes, found, {"x": places[..., 0], "y": places[..., 1]})
        return network_tables(first, self.seed_names, {"students": count}, probes, values, nodes)


def place_students(count: int, deltas: np.ndarray) -> np.ndarray:
    """Place one student of length 1 at the angle δ from (1, 0), or one on either side with Σ ‖w‖w = (1, 0).

    Returns:
        [δ, student, 2].
    """
    turned = np.stack([np.cos(deltas), np.sin(deltas)], -1)[:, None]
    if count == 1:
        return turned
    mirrored = turned * np.array([1.0, -1.0])
    return np.concatenate([turned, mirrored], 1) / np.sqrt(2 * np.cos(deltas))[:, None, None]
