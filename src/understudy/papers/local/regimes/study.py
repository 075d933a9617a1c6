"""The study `regimes`: students in the plane from large, small and near initial weights.

Zhou, Ge & Jin 2021, fig. 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from understudy._errors import UserError
from understudy.lab.options import Angle, Count, Positive, Steps
from understudy.lab.pieces import blocks, log_probes, network_tables, table_rows
from understudy.lab.study import ExactStudy, Piece
from understudy.papers.local.shared import endpoints, measure, node_rows, rate_warnings

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.store import Run

LAZY, MEAN_FIELD, LOCAL, LARGE = "lazy", "mean field", "local", "large"
REGIMES = (LAZY, MEAN_FIELD, LOCAL, LARGE)
"""`large` has the initial weights of lazy training without centring; it is shown beside the three of the figure."""
_SEEDS_PER_PIECE = 2


class DescentProblem(NamedTuple):
    """A problem for gradient descent: initial students, and what they learn."""

    students: Float[Tensor, "net student 2"]
    target: Float[Tensor, "net target 2"]
    """The teacher's nodes, for lazy training also those of the initial students, so that f(W) − f(W₀) learns f*."""
    teachers: Float[Tensor, "net teacher 2"]
    rates: Float[Tensor, "net"]


@dataclass(frozen=True)
class Regimes(ExactStudy):
    """Trajectories of students in the plane: lazy students stay, others turn to teacher nodes.

    Gradient descent on the exact loss of f(x) = Σ ‖w‖ |wᵀx|. Lazy is the centred model f(W) − f(W₀) of Chizat et al.
    with large W₀; without centring, students with large initial weights first have to shrink, and turn meanwhile.
    """

    name: ClassVar[str] = "regimes"
    summary: ClassVar[str] = "students in the plane: lazy ones stay, the others turn to a teacher node"
    figures: ClassVar[str] = "S4 fig. 1"
    decides: ClassVar[str] = "Z6"

    renamed: ClassVar = {"looks": "probes"}
    arrays: ClassVar[tuple[str, ...]] = ("seeds students probes",)

    students: Count = 20
    """Student nodes m."""
    teacher_nodes: Count = 3
    """Teacher nodes r, of length 1, in random directions."""
    separation: Positive = 0.5
    """Δ: least angle between two teacher nodes, up to sign, in rad."""
    large: Positive = 10.0
    """Standard deviation of the initial weights of lazy students, and of large ones without centring."""
    small: Positive = 0.01
    """Standard deviation of the initial weights in the mean field."""
    angle: Angle = 0.3
    """Largest initial angle between a local student and its teacher node, in rad; the students of one node are spread
    evenly up to it."""
    rate: Positive = 0.05
    """Learning rate; divided by Σ ‖w‖² / Σ ‖w*‖ where students start with more than the teacher's Σ ‖w*‖."""
    steps: Steps = 200_000
    """Steps of gradient descent."""
    probes: Annotated[int, Ge(2)] = 80
    """Number of times that networks are probed, about evenly spaced on a logarithmic axis."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, steps=20_000, probes=60)

    def validate(self) -> None:
        if self.students < self.teacher_nodes:
            raise UserError(
                f"--students must be at least the number of teacher nodes ({self.teacher_nodes}), got {self.students}"
            )
        most = np.pi / max(2, self.teacher_nodes)
        if self.separation > most:
            raise UserError(
                f"--separation must be at most {most:.4g}, the largest for {self.teacher_nodes} lines in the plane, "
                f"got {self.separation:g}"
            )

    def warnings(self) -> tuple[str, ...]:
        return rate_warnings(self.rate, [self._teachers(self.seed_names)])

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for regime in REGIMES:
            for seeds in blocks(self.seed_names, _SEEDS_PER_PIECE):
                name = f"{regime}, seeds {seeds[0]} to {seeds[-1]}"
                yield Piece(name, len(seeds), partial(self._descend, regime, seeds))

    def problem(self, regime: str, seeds: Sequence[int]) -> DescentProblem:
        """Initial students, target, teacher and learning rates of some seeds in one regime."""
        import torch

        from understudy.papers.local.theory.starts import stable_rate

        teachers = self._teachers(seeds)
        students = self._start(regime, teachers, seeds)
        target = teachers
        if regime == LAZY:
            # ‖w‖|wᵀx| = |(‖w‖w)ᵀx|: the initial students as nodes of a teacher, whose output is added to the teacher's.
            target = torch.cat([teachers, students.norm(dim=-1, keepdim=True) * students], 1)
        return DescentProblem(students, target, teachers, stable_rate(self.rate, students, teachers))

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

    def _descend(self, regime: str, seeds: Sequence[int], first: int) -> Tables:
        """Descend from the initial students of a regime, and measure at every probe.

        For lazy students, T_i, masses and averages refer to the nodes of the target, r of the teacher and then m of the
        initial students: rows with the role `target`. Their `teacher` and `angle` refer to the teacher's own nodes, as
        everywhere, and `target` and `target_angle` to all; the teacher's own nodes have their places only. Some target
        nodes have no student within δ_max, so that the direction of lemma 7 is not defined.
        """
        from understudy.papers.local.theory.descent import descend
        from understudy.papers.local.theory.starts import nearest

        probes = log_probes(self.steps, self.probes - 1)
        made = DescentProblem(*map(self.to_device, self.problem(regime, seeds)))
        path = descend(made.students, made.target, made.rates, self.steps, probes)
        found = measure(path, made.target, made.rates)
        students, targets = _places(path), _places(made.target)
        if regime != LAZY:
            rows = node_rows(first, probes, found, students, targets)
        else:
            learned = {"target": found.nodes["assignment"], "target_angle": found.nodes["angles"]}
            which, angle = (part.double().cpu().numpy() for part in nearest(path, made.teachers))
            own = {"teacher": which, "angle": np.where(np.isnan(learned["target_angle"]), np.nan, angle)}
            places = [_place_rows(first, made.teachers)]
            rows = node_rows(first, probes, found, students | learned | own, targets, "target", places)
        weights = endpoints(path, made.teachers, seeds)
        return network_tables(first, seeds, {"regime": regime}, probes, found.values, rows, weights)


def _places(nodes: Tensor) -> dict[str, np.ndarray]:
    """Columns of coordinates in the plane."""
    x, y = nodes.unbind(-1)
    return {"x": x.cpu().numpy(), "y": y.cpu().numpy()}


def _place_rows(first: int, teachers: Tensor) -> pa.Table:
    """Rows of teacher nodes with their coordinates only."""
    net, node = (axis.ravel() for axis in np.indices(teachers.shape[:2], np.int32))
    places = {name: each.ravel() for name, each in _places(teachers).items()}
    return table_rows(first + net, 0, 0, role="teacher", teacher=node, **places)
