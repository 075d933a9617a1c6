"""Where students have to start for descent to find the teacher, and what a few samples say of that: S4 theorem 5."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import Piece
from understudy.papers.local.shared import FileTeacherStudy, endpoints, measure, node_rows, rate_warning

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.papers.local.theory.starts import InitialStudents, StartMethod
    from understudy.store import Run

ALGORITHMS: tuple[StartMethod, ...] = ("scattered", "subspace")
BESIDE: tuple[StartMethod, ...] = ("small", "large")
REACHED = 1e-6
"""The loss that descent has to reach."""
_BLOCK = 5
"""Seeds of a piece of descent."""


@dataclass(frozen=True)
class Initialisation(FileTeacherStudy):
    """Losses of algorithms 1 and 2 by the number of students, the span that samples show, and descent from both."""

    name: ClassVar[str] = "initialisation"
    summary: ClassVar[str] = "students scattered or in the teacher's span, with fitted lengths, and descent from them"
    figures: ClassVar[str] = "S4 algorithms 1, 2, theorem 5"
    decides: ClassVar[str] = "Z7"

    seeds: int = 20
    """How many seeds, counted from 1: each is a teacher, its samples and its students' first weights."""
    teacher_nodes: tuple[int, ...] = (3, 5)
    """Numbers of teacher nodes; with --teacher the file's."""
    dim: tuple[int, ...] = (5, 10, 20)
    """Numbers of inputs, each with every number of nodes that is no larger; with --teacher the file's."""
    separation: float = 0.5
    """Least angle between teacher nodes, up to sign, in radians."""
    students: tuple[int, ...] = (10, 20, 50, 100, 200)
    """Numbers of students."""
    samples: tuple[int, ...] = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    """Samples from which the teacher's span is estimated."""
    span_samples: int = 100_000
    """Those of the students that start in the span."""
    descents: int = 10
    """Seeds from which gradient descent goes on."""
    descent_dim: tuple[int, ...] = (5, 10)
    """Numbers of inputs for it."""
    descent_students: int = 30
    """Students of it."""
    small: float = 0.001
    """Σ ‖w‖² of small starts, over the teacher's Σ ‖w*‖."""
    large: float = 10.0
    """Σ ‖w‖² of large starts, over the teacher's Σ ‖w*‖; the learning rate is smaller by as much."""
    rate: float = 0.05
    """Learning rate of gradient descent on the exact loss."""
    steps: int = 40_000
    """Steps of gradient descent."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=6,
            teacher_nodes=(3,),
            dim=(5,),
            students=(10, 20, 50, 100),
            samples=(10_000, 30_000, 100_000),
            descents=2,
            descent_dim=(5,),
            descent_students=20,
            steps=20_000,
        )

    def validate(self) -> None:
        super().validate()
        for field in ("teacher_nodes", "dim", "students", "descent_dim"):
            check(self, field, least=1, distinct=True)
        check(self, "samples", least=1, distinct=True)
        for field in ("span_samples", "descents", "descent_students", "steps"):
            check(self, field, least=1)
        for field in ("separation", "small", "large", "rate"):
            check(self, field, above=0)
        if self.separation > math.pi / 2:
            raise UserError(f"--separation: {self.separation:g} was given; allowed is a number above 0 and up to π/2")
        if not self.teacher:
            self._enough(max(self.teacher_nodes))
            for field in ("dim", "descent_dim"):
                if min(getattr(self, field)) < min(self.teacher_nodes):
                    raise UserError(
                        f"--{field.replace('_', '-')}: {min(getattr(self, field))} was given; allowed is a whole "
                        f"number from {min(self.teacher_nodes)}, the least number of teacher nodes"
                    )

    def _enough(self, nodes: int) -> None:
        """There are as many students as teacher nodes."""
        for option, given in (("students", min(self.students)), ("descent-students", self.descent_students)):
            if given < nodes:
                raise UserError(
                    f"--{option}: {given} was given; allowed is a whole number from {nodes}, the nodes of the teacher"
                )

    def config(self) -> dict[str, Any]:
        plain = super().config()
        if self.teacher:
            self._enough(self.file_teacher().shape[1])
        return plain

    def settings(self, dims: tuple[int, ...]) -> list[tuple[int, int]]:
        """Numbers of teacher nodes and inputs: all pairs, or those of the user's own teacher."""
        if self.teacher:
            shape = self.file_teacher().shape
            return [(shape[1], shape[2])]
        return [(nodes, dim) for nodes in self.teacher_nodes for dim in dims if nodes <= dim]

    def teachers(self, nodes: int, dim: int, seeds: Sequence[int]) -> Tensor:
        from understudy.papers.local.theory.teachers import random_teachers

        if self.teacher:
            return self.file_teacher().expand(len(seeds), nodes, dim)
        return random_teachers(nodes, dim, seeds, self.separation)

    def warnings(self) -> tuple[str, ...]:
        from understudy.papers.local.theory.descent import rate_bound

        seeds = range(1, self.descents + 1)
        each = [float(rate_bound(self.teachers(*size, seeds)).min()) for size in self.settings(self.descent_dim)]
        return (rate_warning(self.rate, min(each)),) if self.rate > min(each) else ()

    def probes(self) -> tuple[int, ...]:
        return log_probes(self.steps, 120)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        seeds = range(1, self.seeds + 1)
        for nodes, dim in self.settings(self.dim):
            sizes = f"r = {nodes}, d = {dim}"
            for by in ALGORITHMS:
                for students in self.students:
                    made = partial(self._start, by, nodes, dim, students, seeds)
                    yield Piece(f"{by}, {sizes}, m = {students}", len(seeds), made)
            if nodes < dim:
                for samples in self.samples:
                    made = partial(self._span, nodes, dim, samples, seeds)
                    yield Piece(f"the span from {samples:,} samples, {sizes}", len(seeds), made)
        for nodes, dim in self.settings(self.descent_dim):
            for by in (*ALGORITHMS, *BESIDE):
                for first in range(1, self.descents + 1, _BLOCK):
                    some = range(first, min(first + _BLOCK, self.descents + 1))
                    name = f"descent, {by}, r = {nodes}, d = {dim}, seeds {some[0]} to {some[-1]}"
                    yield Piece(name, len(some), partial(self._descent, by, nodes, dim, some))

    def _start(self, by: StartMethod, nodes: int, dim: int, students: int, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.local.theory import gaussian
        from understudy.papers.local.theory.starts import initialise

        teachers = self.teachers(nodes, dim, seeds)
        begun = initialise(by, teachers, students, seeds, self.span_samples, 1.0)
        loss = gaussian.loss(self.to_device(begun.students), self.to_device(teachers))
        values = {"loss": loss.cpu().numpy()[None], **_said(begun, 1)}
        parameters = {"part": "start", "by": by, "students": students}
        return network_tables(first, seeds, parameters | {"teacher_nodes": nodes, "dim": dim}, (0,), values)

    def _span(self, nodes: int, dim: int, samples: int, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.local.theory.starts import estimate_span, subspace_angle

        teachers = self.to_device(self.teachers(nodes, dim, seeds))
        angle = subspace_angle(estimate_span(teachers, samples, seeds), teachers)
        parameters = {"part": "span", "samples": samples, "teacher_nodes": nodes, "dim": dim}
        return network_tables(first, seeds, parameters, (0,), {"angle": angle.cpu().numpy()[None]})

    def _descent(self, by: StartMethod, nodes: int, dim: int, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.local.theory.descent import descend
        from understudy.papers.local.theory.starts import initialise, stable_rate

        teachers, probes = self.teachers(nodes, dim, seeds), self.probes()
        mass = self.large if by == "large" else self.small
        begun = initialise(by, teachers, self.descent_students, seeds, self.span_samples, mass)
        students, teachers = self.to_device(begun.students), self.to_device(teachers)
        rates = stable_rate(self.rate, students, teachers)
        path = descend(students, teachers, rates, self.steps, probes)
        found = measure(path, teachers, rates)
        parameters = {"part": "descent", "by": by, "students": self.descent_students}
        parameters |= {"teacher_nodes": nodes, "dim": dim}
        values = found.values | _said(begun, len(probes))
        kept = endpoints(path, teachers, seeds)
        return network_tables(first, seeds, parameters, probes, values, node_rows(first, probes, found), kept)


def _said(begun: InitialStudents, probes: int) -> dict[str, np.ndarray]:
    """What least squares did, a network, at the first of the probes: dimensions it left out, students of length 0."""
    if not begun.singular:
        return {}
    counts = {"singular": begun.singular, "idle": (begun.students == 0).all(-1).sum(-1).tolist()}
    found = {name: np.full((probes, len(count)), np.nan) for name, count in counts.items()}
    for name, count in counts.items():
        found[name][0] = count
    return found
