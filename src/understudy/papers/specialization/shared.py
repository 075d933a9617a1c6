"""What studies of the papers' separated two-layer teachers share: their options, teachers and training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import understudy as us
from understudy.lab.options import check, validate_batch, validate_widths
from understudy.lab.study import Experiment, Study

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population
    from understudy.training import Group


@dataclass(frozen=True)
class SeparatedTeachers(Study):
    """Teachers of several polarities, students trained on them by plain SGD."""

    teacher_nodes: int | tuple[int, ...] = 20
    """Hidden nodes of the teacher."""
    polarity: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
    """Teacher polarities p: node j's fan-out is divided by j^p (S0 eqn 10)."""
    epochs: int = 100
    """Epochs; networks are looked at after each."""
    steps: int = 1_000
    """Steps an epoch."""
    batch: int = 16
    """Samples a step, drawn with replacement."""
    lr: float = 0.01
    """Learning rate of plain SGD on ½‖f*−f‖² averaged over the batch."""
    dim: int = 100
    """Inputs d."""
    outputs: int = 50
    """Outputs C."""
    evaluation: int = 10_000
    """Evaluation samples of each network: losses and correlations are measured on them."""
    input_std: float = 1.5
    """Standard deviation of each input."""

    def validate(self) -> None:
        for field in ("epochs", "steps", "batch", "dim", "outputs", "evaluation"):
            check(self, field, least=1)
        check(self, "teacher_nodes", least=1, distinct=True)
        check(self, "polarity", least=0, distinct=True)
        for field in ("lr", "input_std"):
            check(self, field, above=0)

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Polarity and seed of each teacher. Networks of one seed see the same samples: side by side, in cache."""
        return [{"polarity": p, "seed": seed} for seed in range(1, self.seeds + 1) for p in self.polarity]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every number of teacher nodes, of studies that take one and of those that sweep several."""
        return self.teacher_nodes if isinstance(self.teacher_nodes, tuple) else (self.teacher_nodes,)

    def teacher(self, nodes: int, slope: float = 0.0) -> Population:
        return us.teachers.separated(
            (self.dim, nodes, self.outputs),
            polarity=[cell["polarity"] for cell in self.cells],
            seeds=[cell["seed"] for cell in self.cells],
            slope=slope,
            dtype=self.torch_dtype,
        )

    def training(self, groups: Sequence[tuple[dict[str, Any], Group]], pairs: bool = False) -> Experiment:
        """Groups of one student a teacher, each with the parameters that set it apart."""
        return Experiment(
            groups=tuple(group for _, group in groups),
            parameters=tuple(apart | cell for apart, _ in groups for cell in self.cells),
            optimiser=us.SGD(lr=self.lr, batch=self.batch),
            epochs=self.epochs,
            steps=self.steps,
            pairs=pairs,
        )


@dataclass(frozen=True)
class OverRealized(SeparatedTeachers):
    """The same, with students of several widths."""

    multiple: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0)
    """Over-realizations: how many times as many hidden nodes the student has."""
    train: int = 10_000
    """Training samples of each network."""

    def validate(self) -> None:
        super().validate()
        check(self, "train", least=1)
        check(self, "multiple", above=0, distinct=True)
        for nodes in self.sizes:
            validate_widths(nodes, self.multiple)
        validate_batch(self.train, self.batch)

    def shapes(self, source: Source, slope: float = 0.0) -> list[tuple[dict[str, Any], Group]]:
        """Build one group per teacher size and student width, after checking that all fit in memory."""
        from understudy.training.plan import require_memory

        widths = [round(nodes * k) for nodes in self.sizes for k in self.multiple]
        networks = self.seeds * len(self.polarity)
        shapes = [(us.nets.Shape((self.dim, width, self.outputs)), networks) for width in widths]
        require_memory(shapes, self.torch_dtype)
        return [
            (
                {"teacher_nodes": nodes, "multiple": float(k)},
                us.training.Group(us.students.gaussian(teacher, multiple=k), teacher, source),
            )
            for nodes in self.sizes
            for teacher in (self.teacher(nodes, slope),)
            for k in self.multiple
        ]
