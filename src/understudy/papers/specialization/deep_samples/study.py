"""Deep students of few samples and of many, by squared error and by cross-entropy: S0 fig 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check, validate_widths
from understudy.lab.study import Experiment, TrainingStudy, ranked
from understudy.papers.specialization.deep.study import DeepTeachers

if TYPE_CHECKING:
    from understudy.store import Run
    from understudy.training import Objective

Loss = Literal["mse", "cross-entropy"]


@dataclass(frozen=True)
class DeepSamples(DeepTeachers, TrainingStudy):
    """How many samples each layer of a deep student needs, when it learns outputs and when it learns answers."""

    name: ClassVar[str] = "deep-samples"
    summary: ClassVar[str] = "how well every layer matches its teacher with few and many samples"
    figures: ClassVar[str] = "S0 fig 6"
    decides: ClassVar[str] = "D3"

    inputs: Literal["uniform", "gaussian"] = "gaussian"
    """Distribution of each input."""
    loss: tuple[Loss, ...] = ("mse", "cross-entropy")
    """What students descend: the squared error, or the cross-entropy with the teacher's largest output as answer."""
    samples: tuple[int, ...] = (10_000, 20_000, 50_000, 100_000, 200_000)
    """Training samples of each network. Networks take as many steps whatever their number."""
    over_realization: float = 2.0
    """How many times as many nodes each hidden layer of the student has."""
    ce_lr: float = 0.05
    """Learning rate for cross-entropy averaged over the batch, of which the papers give none; halved like the other."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=3,
            teacher_layers=(10, 15, 20),
            dim=20,
            outputs=20,
            samples=(300, 1_000, 5_000),
            lr=0.4,
            ce_lr=0.1,
            epochs=12,
            steps=750,
            halve_after=6,
            evaluation=2_000,
        )

    def validate(self) -> None:
        super().validate()
        check(self, "samples", least=1, distinct=True)
        for field in ("over_realization", "ce_lr"):
            check(self, field, above=0)
        for nodes in self.teacher_layers:
            validate_widths(nodes, (self.over_realization,), "--over-realization")
        if (least := min(self.samples)) < self.batch:
            raise UserError(
                f"--samples: {least} was given; allowed is a whole number from the samples of a batch, {self.batch}"
            )
        allowed = get_args(Loss)
        if not self.loss:
            raise UserError(f"--loss: no value was given; give one or more of {', '.join(allowed)}")
        for kind in self.loss:
            if kind not in allowed:
                raise UserError(f"--loss: {kind} was given; allowed are {', '.join(allowed)}")
        if len(set(self.loss)) < len(self.loss):
            raise UserError(f"--loss: {' '.join(self.loss)} was given; name each value once")
        if "cross-entropy" in self.loss and self.outputs == 1:
            raise UserError("--outputs: 1 was given; allowed with --loss cross-entropy is a whole number from 2")

    def experiment(self, *runs: Run) -> Experiment:
        cells = [(loss, n) for loss in self.loss for n in self.samples]
        self.require_memory([self.over_realization] * len(cells))
        sources = {n: self.source(n, fresh=False) for n in self.samples}
        teacher = self.teacher(sources[self.samples[0]])
        students = us.students.like_linear(teacher, multiple=self.over_realization)
        objectives: dict[Loss, Objective] = {"mse": us.SquaredError(), "cross-entropy": us.CrossEntropy()}
        return self.training(
            [
                (
                    {"loss": loss, "samples": n},
                    us.training.Group(students, teacher, sources[n], objective=objectives[loss]),
                )
                for loss, n in cells
            ],
            [self.rate if loss == "mse" else self.ce_lr for loss, _ in cells],
            ranked(self.epochs),
        )
