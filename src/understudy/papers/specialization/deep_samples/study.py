"""The study `deep-samples`: deep students with few and many samples, by two losses (Tian 2020, fig. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, get_args

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Among, Counts, Distinct, Positive, validate_widths
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.deep.study import DeepTeachers

Loss = Literal["mse", "cross-entropy"]


@dataclass(frozen=True)
class DeepSamples(DeepTeachers, TrainingStudy):
    """How many samples each layer of a deep student needs, if it learns the teacher's outputs or its classes."""

    name: ClassVar[str] = "deep-samples"
    summary: ClassVar[str] = "how well every layer matches its teacher with few and many samples"
    figures: ClassVar[str] = "S0 fig. 6"
    decides: ClassVar[str] = "D3"

    inputs: Literal["uniform", "gaussian"] = "gaussian"
    loss: Annotated[tuple[Loss, ...], Among(get_args(Loss)), Distinct()] = ("mse", "cross-entropy")
    """Training losses: squared error, or cross-entropy with the teacher's largest output as the class."""
    samples: Counts = (10_000, 20_000, 50_000, 100_000, 200_000)
    """Training samples of each network. The number of steps does not depend on it."""
    over_realization: Positive = 2.0
    """Student nodes per teacher node in every hidden layer."""
    ce_lr: Positive = 0.05
    """Learning rate for cross-entropy averaged over the batch (the papers give none); halved like the other."""

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
        validate_widths(self.teacher_layers, (self.over_realization,), "--over-realization")
        if (least := min(self.samples)) < self.batch:
            raise UserError(f"--samples must be at least the batch size ({self.batch}), got {least}")
        if "cross-entropy" in self.loss and self.outputs == 1:
            raise UserError("--outputs must be at least 2 with --loss cross-entropy, got 1")

    @property
    def samples_words(self) -> str:
        """The range of the numbers of samples in words."""
        return f"{min(self.samples):,} to {max(self.samples):,} samples"

    def experiment(self, *runs: us.Run) -> Experiment:
        cells = [(loss, n) for loss in self.loss for n in self.samples]
        self.require_memory([(self.sizes, self.over_realization)] * len(cells))
        sources = {n: self.source(n, fresh=False) for n in self.samples}
        teacher = self.teacher(sources[self.samples[0]])
        students = us.students.like_linear(teacher, multiple=self.over_realization)
        objectives: dict[Loss, us.training.Objective] = {"mse": us.SquaredError(), "cross-entropy": us.CrossEntropy()}
        groups = [
            ({"loss": loss, "samples": n}, us.training.Group(students, teacher, sources[n], objective=objectives[loss]))
            for loss, n in cells
        ]
        return self.deep_training(groups, [self.rate if loss == "mse" else self.ce_lr for loss, _ in cells])
