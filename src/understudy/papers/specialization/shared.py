"""Options, teachers and training that studies of students under SGD share (Tian 2020, sec. 5 and app. F)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge

import understudy as us
from understudy.lab.options import (
    Count,
    Distinct,
    NonNegatives,
    Positive,
    Positives,
    Steps,
    validate_batch,
    validate_widths,
)
from understudy.lab.study import Experiment, Study

SEEN = (0.02, 0.98)
"""Shares of the inputs on which a student is active whose boundary they see (Tian 2020, assumption 3). A student active
on fewer is silent, one active on more is linear, and theorem 2 is about neither."""


def seen(active: np.ndarray) -> np.ndarray:
    """Whether the inputs see the boundary of each student.

    Args:
        active: Share of the inputs on which it is active.
    """
    return (active >= SEEN[0]) & (active <= SEEN[1])


@dataclass(frozen=True)
class TrainedStudents(Study):
    """Students trained by SGD, one per teacher in each group."""

    epochs: Count = 100
    """Number of epochs; networks are probed after each."""
    steps: Steps = 1_000
    """Steps per epoch."""
    batch: Count = 16
    """Samples per step, drawn with replacement."""
    lr: Positive = 0.01
    """Learning rate of plain SGD on ½‖f*−f‖² averaged over the batch."""
    outputs: Count = 50
    """Number of outputs C."""
    evaluation: Count = 10_000
    """Evaluation samples of each network, on which losses and correlations are measured."""

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Parameters of each teacher."""
        return [{"seed": seed} for seed in self.seed_names]

    def require_memory(self, groups: Iterable[tuple[tuple[int, ...], float]]) -> None:
        """Check that students fit in memory before they are built, given teacher sizes and multiples of groups."""
        from understudy.training.plan import require_memory

        students = [(sizes[0], *us.students.hidden_sizes(sizes, k), sizes[-1]) for sizes, k in groups]
        networks = self.seeds * len(getattr(self, "polarity", (0.0,)))  # counted, not listed: there may be too many
        require_memory([(us.nets.Shape(sizes), networks) for sizes in students], self.torch_dtype)

    def training(
        self,
        groups: Iterable[tuple[dict[str, Any], us.training.Group]],
        optimiser: us.training.Optimiser | None = None,
        **more: Any,
    ) -> Experiment:
        """The experiment of groups, each with its parameters."""
        parameters, each = zip(*groups, strict=True)
        return Experiment(
            groups=each,
            parameters=tuple(one | cell for one in parameters for cell in self.cells),
            optimiser=optimiser or us.SGD(lr=self.lr, batch=self.batch),
            epochs=self.epochs,
            steps=self.steps,
            **more,
        )


@dataclass(frozen=True)
class SeparatedTeachers(TrainedStudents):
    """Two-layer teachers of several polarities, and students trained on them by plain SGD."""

    teacher_nodes: Annotated[int | tuple[int, ...], Ge(1), Distinct()] = 20
    """Hidden nodes of the teacher."""
    polarity: NonNegatives = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
    """Teacher polarities p: the fan-out of node j is divided by j^p (Tian 2020, eq. 10)."""
    dim: Count = 100
    """Number of inputs d."""
    input_std: Positive = 1.5
    """Standard deviation of each input."""

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Polarity and seed of each teacher. Networks of one seed are next to each other: they share their samples."""
        return [{"polarity": p, "seed": seed} for seed in self.seed_names for p in self.polarity]

    def teachers(self, nodes: int, slope: float = 0.0) -> us.Population:
        """One teacher with this many nodes per polarity and seed."""
        return us.teachers.distinct_rows(
            (self.dim, nodes, self.outputs),
            polarity=[cell["polarity"] for cell in self.cells],
            seeds=[cell["seed"] for cell in self.cells],
            slope=slope,
            dtype=self.torch_dtype,
        )


@dataclass(frozen=True)
class OverRealized(SeparatedTeachers):
    """Separated teachers of one or several sizes, and students of several widths."""

    multiple: Positives = (1.0, 2.0, 5.0, 10.0)
    """Over-realizations: student nodes per teacher node."""
    train: Count = 10_000
    """Training samples of each network."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """All numbers of teacher nodes, whether the study takes one or several."""
        return self.teacher_nodes if isinstance(self.teacher_nodes, tuple) else (self.teacher_nodes,)

    def validate(self) -> None:
        validate_widths(self.sizes, self.multiple)
        validate_batch(self.train, self.batch)

    def source(self) -> us.data.Source:
        """The source of inputs."""
        return us.data.Gaussian(self.dim, self.input_std, self.train, self.evaluation)

    def groups(self, slope: float = 0.0) -> list[tuple[dict[str, Any], us.training.Group]]:
        """One group per teacher size and student width."""
        self.require_memory(((self.dim, m, self.outputs), k) for m in self.sizes for k in self.multiple)
        source = self.source()
        return [
            (
                {"teacher_nodes": nodes, "multiple": float(k)},
                us.training.Group(us.students.gaussian(teacher, multiple=k), teacher, source),
            )
            for nodes in self.sizes
            for teacher in (self.teachers(nodes, slope),)
            for k in self.multiple
        ]
