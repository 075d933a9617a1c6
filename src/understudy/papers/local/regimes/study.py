"""Twenty students and three teacher nodes in the plane, from a large, a small and a near start: S4 fig 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import ExactStudy, Piece
from understudy.papers.local.shared import endpoints, measure, node_rows, rate_warning

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.store import Run

LAZY, MEAN_FIELD, LOCAL, LARGE = "lazy", "mean field", "local", "large"
REGIMES = (LAZY, MEAN_FIELD, LOCAL, LARGE)
"""Large is the start of lazy training with nothing taken off: it stands beside the three of the figure."""
_TOGETHER = 2
"""Seeds in a piece of work."""


class Problem(NamedTuple):
    """What is descended on: students from a start, and whom they learn."""

    students: Float[Tensor, "net student 2"]
    target: Float[Tensor, "net target 2"]
    """The teacher's nodes, and for lazy training those of the start: f(W) − f(W₀) then learns f*."""
    teachers: Float[Tensor, "net teacher 2"]
    rates: Float[Tensor, "net"]


@dataclass(frozen=True)
class Regimes(ExactStudy):
    """Where students go in the plane: lazy ones stay, from a small start or near the teacher they turn to its nodes.

    Gradient descent on the exact loss of f(x) = Σ ‖w‖ |wᵀx|. Lazy is the centred model f(W) − f(W₀) of Chizat et al.
    from a large W₀; without it a large start has first to lose its output, and turns meanwhile.
    """

    name: ClassVar[str] = "regimes"
    summary: ClassVar[str] = "students in the plane: lazy ones stay, the others turn to a teacher node"
    figures: ClassVar[str] = "S4 fig 1"
    decides: ClassVar[str] = "Z6"

    students: int = 20
    """Student nodes m."""
    teacher_nodes: int = 3
    """Teacher nodes r, of length 1, in random directions."""
    separation: float = 0.5
    """Δ: the least angle between two teacher nodes, up to sign, in radians."""
    large: float = 10.0
    """Standard deviation of the first weights of lazy students, and of those with nothing taken off."""
    small: float = 0.01
    """Standard deviation of the first weights in the mean field."""
    angle: float = 0.3
    """Largest angle between a local student and its teacher node at the start, in radians; those of one node are
    spread evenly up to it."""
    rate: float = 0.05
    """Learning rate; where students start with a larger Σ ‖w‖² than the teacher's Σ ‖w*‖, as much smaller."""
    steps: int = 200_000
    """Steps of gradient descent."""
    looks: int = 80
    """How often networks are looked at, about evenly on a logarithmic axis."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, steps=20_000, looks=60)

    def validate(self) -> None:
        super().validate()
        check(self, "teacher_nodes", least=1)
        for field in ("large", "small", "angle", "rate", "separation"):
            check(self, field, above=0)
        check(self, "steps", least=1)
        check(self, "looks", least=2)
        if self.students < self.teacher_nodes:
            raise UserError(
                f"--students: {self.students} was given; allowed is a whole number from {self.teacher_nodes}, the "
                "teacher nodes"
            )
        most = np.pi / max(2, self.teacher_nodes)
        if self.separation > most:
            raise UserError(
                f"--separation: {self.separation:g} was given; {self.teacher_nodes} lines in the plane are at most "
                f"{most:.4g} apart"
            )
        if self.angle > np.pi / 2:
            raise UserError(f"--angle: {self.angle:g} was given; allowed is a number above 0 and up to π/2")

    def warnings(self) -> tuple[str, ...]:
        from understudy.papers.local.theory.descent import rate_bound

        bound = float(rate_bound(self._teachers(range(1, self.seeds + 1))).min())
        return (rate_warning(self.rate, bound),) if self.rate > bound else ()

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for regime in REGIMES:
            for first in range(1, self.seeds + 1, _TOGETHER):
                seeds = range(first, min(first + _TOGETHER, self.seeds + 1))
                name = f"{regime}, seeds {seeds[0]} to {seeds[-1]}"
                yield Piece(name, len(seeds), partial(self._part, regime, seeds))

    def problem(self, regime: str, seeds: Sequence[int]) -> Problem:
        import torch

        from understudy.papers.local.theory.starts import stable_rate

        teachers = self._teachers(seeds)
        students = self._start(regime, teachers, seeds)
        target = teachers
        if regime == LAZY:
            # ‖w‖|wᵀx| is |(‖w‖w)ᵀx|: the start as nodes of a teacher, whose output comes on top of the other's.
            target = torch.cat([teachers, students.norm(dim=-1, keepdim=True) * students], 1)
        return Problem(students, target, teachers, stable_rate(self.rate, students, teachers))

    def _teachers(self, seeds: Sequence[int]) -> Tensor:
        from understudy.papers.local.theory.teachers import random_teachers

        return random_teachers(self.teacher_nodes, 2, seeds, separation=self.separation)

    def _start(self, regime: str, teachers: Tensor, seeds: Sequence[int]) -> Tensor:
        import torch

        from understudy.papers.local.theory import starts

        if regime != LOCAL:
            scale = self.small if regime == MEAN_FIELD else self.large
            return starts.draw_normal(teachers, self.students, scale, seeds).students
        most = -(-self.students // self.teacher_nodes)
        rings = [
            starts.place_near(teachers, self.students, self.angle * k / most, seeds).students
            for k in range(1, most + 1)
        ]
        return torch.stack([rings[j // self.teacher_nodes][:, j] for j in range(self.students)], 1)

    def _part(self, regime: str, seeds: Sequence[int], first: int) -> Tables:
        """Of lazy students T_i, masses and averages are of the nodes that are learned, r of the teacher and then m of
        the start: rows of the role `target`. Their `teacher` and `angle` are with the teacher's own, as everywhere, and
        `target` and `target_angle` with all; of the teacher's own there is only where they are. One that has
        no student within δ_max, as is so with these, leaves lemma 7 without a direction.
        """
        from understudy.papers.local.theory.descent import descend
        from understudy.papers.local.theory.starts import nearest

        probes = log_probes(self.steps, self.looks - 1)
        made = Problem(*map(self.to_device, self.problem(regime, seeds)))
        path = descend(made.students, made.target, made.rates, self.steps, probes)
        found = measure(path, made.target, made.rates)
        of_students, of_targets = _places(path), _places(made.target)
        if regime != LAZY:
            rows = node_rows(first, probes, found, of_students, of_targets)
        else:
            learned = {"target": found.nodes["assignment"], "target_angle": found.nodes["angles"]}
            which, angle = (part.double().cpu().numpy() for part in nearest(path, made.teachers))
            own = {"teacher": which, "angle": np.where(np.isnan(learned["target_angle"]), np.nan, angle)}
            rows = node_rows(first, probes, found, of_students | learned | own, of_targets, "target")
            both = pa.concat_tables([pa.table(rows), _standing(first, made.teachers)], promote_options="default")
            rows = {name: both[name] for name in both.column_names}
        return network_tables(first, seeds, {"regime": regime}, probes, found.values, rows, endpoints(path, made.teachers, seeds))


def _places(nodes: Tensor) -> dict[str, np.ndarray]:
    """Columns of nodes: where in the plane."""
    x, y = nodes.unbind(-1)
    return {"x": x.cpu().numpy(), "y": y.cpu().numpy()}


def _standing(first: int, teachers: Tensor) -> pa.Table:
    """Rows of teacher nodes that say where they are, and no more."""
    net, node = np.indices(teachers.shape[:2])
    columns = {"network": (first + net).astype(np.int32), "epoch": np.zeros(net.shape, np.int32)}
    columns |= {"layer": np.zeros(net.shape, np.int16), "teacher": node.astype(np.int32), **_places(teachers)}
    return pa.table({"role": ["teacher"] * net.size, **{name: part.ravel() for name, part in columns.items()}})
