"""The study `initialisation`: from which initial weights descent finds the teacher, and what samples reveal of them.

Zhou, Ge & Jin 2021, algorithms 1, 2, theorem 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from understudy._errors import UserError
from understudy.lab.options import Angle, Count, Counts, Positive, Steps, option
from understudy.lab.pieces import blocks, log_probes, network_tables, unit_table
from understudy.lab.study import Piece
from understudy.papers.local.shared import FileTeacherStudy, endpoints, measure, node_rows, rate_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.papers.local.theory.starts import InitialStudents, StartMethod
    from understudy.store import Run

ALGORITHMS: tuple[StartMethod, ...] = ("scattered", "subspace")
"""Algorithms 1 and 2."""
OTHERS: tuple[StartMethod, ...] = ("small", "large")
"""Normal initial weights, for comparison."""
REACHED = 1e-6
"""Loss that descent has to reach."""
_SEEDS_PER_PIECE, _PROBES = 5, 120


@dataclass(frozen=True)
class Initialisation(FileTeacherStudy):
    """Initial losses of algorithms 1 and 2 by the number of students, the span estimated from samples, and descent."""

    name: ClassVar[str] = "initialisation"
    summary: ClassVar[str] = (
        "initial students scattered or in the teacher's span, lengths fitted, and descent from them"
    )
    figures: ClassVar[str] = "S4 algorithms 1, 2, theorem 5, lemmas E.1, E.3, E.5"
    decides: ClassVar[str] = "Z7"
    arrays: ClassVar[tuple[str, ...]] = (
        "students dim",
        "seeds students students",
        "span_samples dim",
        "samples dim",
        "descents descent_students descent_dim",
        "descent_students descent_students",
    )

    seeds: Count = 20
    """Number of seeds, counted from 1: each is a teacher, its samples and its students' initial weights."""
    teacher_nodes: Counts = (3, 5)
    """Numbers of teacher nodes; with --teacher those of the file."""
    dim: Counts = (5, 10, 20)
    """Numbers of inputs, each with every number of nodes that is no larger; with --teacher those of the file."""
    separation: Angle = 0.5
    """Least angle between teacher nodes, up to sign, in rad."""
    students: Counts = (10, 20, 50, 100, 200)
    """Numbers of students."""
    samples: Counts = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    """Numbers of samples from which the teacher's span is estimated."""
    span_samples: Count = 300_000
    """Number of samples for students that start in the span."""
    descents: Count = 10
    """Number of seeds with gradient descent."""
    descent_dim: Counts = (5, 10)
    """Numbers of inputs for descent."""
    descent_students: Count = 30
    """Number of students for descent."""
    small: Positive = 0.001
    """Σ ‖w‖² of small initial weights, relative to the teacher's Σ ‖w*‖."""
    large: Positive = 10.0
    """Σ ‖w‖² of large initial weights, relative to the teacher's Σ ‖w*‖; their learning rate is divided by it."""
    rate: Positive = 0.05
    """Learning rate of gradient descent on the exact loss."""
    steps: Steps = 40_000
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
        if self.teacher:
            return
        self._validate_students(max(self.teacher_nodes))
        for name in ("dim", "descent_dim"):
            if min(getattr(self, name)) < min(self.teacher_nodes):
                raise UserError(
                    f"{option(name)} must be at least the smallest number of teacher nodes "
                    f"({min(self.teacher_nodes)}), got {min(getattr(self, name))}"
                )

    def validate_files(self) -> None:
        if self.teacher:
            self._validate_students(self.file_teacher().shape[1])

    def _validate_students(self, nodes: int) -> None:
        for name, given in (("students", min(self.students)), ("descent_students", self.descent_students)):
            if given < nodes:
                raise UserError(f"{option(name)} must be at least the number of teacher nodes ({nodes}), got {given}")

    def settings(self, dims: tuple[int, ...]) -> list[tuple[int, int]]:
        """Numbers of teacher nodes and inputs: all pairs, or those of the teacher in the file."""
        if self.teacher:
            shape = self.file_teacher().shape
            return [(shape[1], shape[2])]
        return [(nodes, dim) for nodes in self.teacher_nodes for dim in dims if nodes <= dim]

    def teachers(self, nodes: int, dim: int, seeds: Sequence[int]) -> Tensor:
        """One teacher per seed."""
        from understudy.papers.local.theory.teachers import random_teachers

        if self.teacher:
            return self.file_teacher().expand(len(seeds), nodes, dim)
        return random_teachers(nodes, dim, seeds, self.separation)

    def warnings(self) -> tuple[str, ...]:
        seeds = range(1, self.descents + 1)
        return rate_warnings(self.rate, (self.teachers(*size, seeds) for size in self.settings(self.descent_dim)))

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for nodes, dim in self.settings(self.dim):
            size = f"r = {nodes}, d = {dim}"
            for by in ALGORITHMS:
                for students in self.students:
                    name = f"{by}, {size}, m = {students}"
                    yield Piece(name, self.seeds, partial(self._start, by, nodes, dim, students))
            if nodes < dim:
                for samples in self.samples:
                    yield Piece(f"span from {samples:,} samples, {size}", 0, partial(self._span, nodes, dim, samples))
        for nodes, dim in self.settings(self.descent_dim):
            for by in (*ALGORITHMS, *OTHERS):
                for seeds in blocks(range(1, self.descents + 1), _SEEDS_PER_PIECE):
                    name = f"descent, {by}, r = {nodes}, d = {dim}, seeds {seeds[0]} to {seeds[-1]}"
                    yield Piece(name, len(seeds), partial(self._descent, by, nodes, dim, seeds))

    def _start(self, by: StartMethod, nodes: int, dim: int, students: int, first: int) -> Tables:
        """Initial losses."""
        from understudy.papers.local.theory import gaussian
        from understudy.papers.local.theory.starts import initialise

        seeds = self.seed_names
        teachers = self.teachers(nodes, dim, seeds)
        initial = initialise(by, teachers, students, seeds, self.span_samples, 1.0)
        loss = gaussian.loss(self.to_device(initial.students), self.to_device(teachers))
        values = {"loss": loss.cpu().numpy()[None], **_fit_counts(initial, 1)}
        swept = {"part": "start", "by": by, "students": students, "teacher_nodes": nodes, "dim": dim}
        return network_tables(first, seeds, swept, (0,), values)

    def _span(self, nodes: int, dim: int, samples: int, first: int) -> Tables:
        """Angles of estimated spans, and the distance ‖M̂ − M‖ of the estimated moment, in the spectral norm."""
        import torch

        from understudy.papers.local.theory import starts

        teachers = self.to_device(self.teachers(nodes, dim, self.seed_names))
        moment = starts.estimate_moment(teachers, samples, self.seed_names)
        angle = starts.subspace_angle(starts.leading_span(moment, nodes), teachers).cpu().numpy()
        distance = torch.linalg.matrix_norm(moment - starts.teacher_moment(teachers), 2).cpu().numpy()
        longest = teachers.norm(dim=-1).amax(-1).cpu().numpy()
        swept = {"samples": samples, "teacher_nodes": nodes, "dim": dim, "longest": longest}
        return {"spans": unit_table(seed=self.seed_names, **swept, angle=angle, distance=distance)}

    def _descent(self, by: StartMethod, nodes: int, dim: int, seeds: Sequence[int], first: int) -> Tables:
        """Gradient descent, measured at every probe."""
        from understudy.papers.local.theory.descent import descend
        from understudy.papers.local.theory.starts import initialise, stable_rate

        teachers, probes = self.teachers(nodes, dim, seeds), log_probes(self.steps, _PROBES)
        mass = self.large if by == "large" else self.small
        initial = initialise(by, teachers, self.descent_students, seeds, self.span_samples, mass)
        students, teachers = self.to_device(initial.students), self.to_device(teachers)
        rates = stable_rate(self.rate, students, teachers)
        path = descend(students, teachers, rates, self.steps, probes)
        found = measure(path, teachers, rates)
        values = found.values | _fit_counts(initial, len(probes))
        swept = {"part": "descent", "by": by, "students": self.descent_students, "teacher_nodes": nodes, "dim": dim}
        rows, weights = node_rows(first, probes, found), endpoints(path, teachers, seeds)
        return network_tables(first, seeds, swept, probes, values, rows, weights)


def _fit_counts(initial: InitialStudents, probes: int) -> dict[str, np.ndarray]:
    """Per network, at the first probe: dimensions that least squares left out, and students of length 0."""
    if not initial.singular:
        return {}
    found = {}
    for name, count in {"singular": initial.singular, "idle": (initial.students == 0).all(-1).sum(-1)}.items():
        found[name] = np.full((probes, len(count)), np.nan)
        found[name][0] = count
    return found
