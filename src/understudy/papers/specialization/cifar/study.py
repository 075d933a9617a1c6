"""The study `cifar`: students of a pruned convolutional teacher on CIFAR-10 (Tian 2020, fig. 10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import understudy as us
from understudy.lab.cifar import Kept, Norm, TaughtCifarOptions, kept_sizes, validate_convolutions, validate_kept
from understudy.lab.options import Count, NonNegative, Positive, Positives, Sizes, Steps, validate_widths
from understudy.lab.study import Experiment, Study, TrainingStudy, ranked
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, trained_networks


@dataclass(frozen=True)
class Cifar(TaughtCifarOptions, TrainingStudy):
    """Whether wider students match a convolutional teacher better, and classify better, on CIFAR-10.

    The teacher learns the labels, is pruned and is trained further (runs of `cifar-teacher`, which are made first if
    they do not exist). Students learn the teacher outputs and see no labels.
    """

    name: ClassVar[str] = "cifar"
    summary: ClassVar[str] = "how well wider and narrower students match each layer of a pruned teacher on CIFAR-10"
    figures: ClassVar[str] = "S0 fig. 10, S1 fig. 8"
    decides: ClassVar[str] = "D4"

    seeds: Count = 4
    first_seed: Steps = 3
    """First seed; settings were chosen on seeds 1 and 2."""
    epochs: Count = 100
    teacher_layers: Sizes = (64, 64, 64, 64)
    """Channels of each of the teacher's convolutions before pruning, from the lowest."""
    norm: Norm = "after"
    """BatchNorm of teacher and students: after each ReLU, before each ReLU, or none."""
    keep: Kept = (0.5,)
    """Share of the teacher's channels that are kept, one for all layers or one per layer."""
    tune_epochs: Count = 25
    """Epochs in which the pruned teacher is trained further."""
    tune_lr: Positive = 0.002
    """Peak learning rate of the pruned teacher."""
    teacher_decay: NonNegative = 0.2
    """Weight decay of the teacher, before and after pruning: decoupled with Adam, in the gradient with SGD."""
    multiple: Positives = (1.0, 2.0, 5.0)
    """Over-realizations: student channels per channel of the pruned teacher in every layer."""
    lr: Positive = 0.0003
    """Peak learning rate of students (for SGD, on the squared error averaged over batch and outputs). It rises for 30%
    of the epochs, then falls to nearly 0."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=2,
            first_seed=1,
            teacher_layers=(8, 8, 8),
            train=2_000,
            evaluation=500,
            images="plain",
            batch=50,
            teacher_epochs=10,
            tune_epochs=4,
            epochs=8,
            lr=0.003,
        )

    def validate(self) -> None:
        super().validate()
        validate_convolutions(self, "teacher_layers")
        validate_kept(self.keep, self.teacher_layers)
        validate_widths(self.kept, self.multiple)
        self.validate_norm(self.norm)

    @property
    def seed_names(self) -> range:
        """The seeds, from `first_seed` on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def kept(self) -> tuple[int, ...]:
        """Channels of the pruned teacher."""
        return kept_sizes(self.keep, self.teacher_layers)

    def depends_on(self) -> tuple[Study, ...]:
        same = {name: getattr(self, name) for name in ("first_seed", "norm", "keep", "tune_epochs", "tune_lr")}
        return (CifarTeacher(**self.teacher_options(), layers=self.teacher_layers, **same),)

    def experiment(self, *runs: us.Run) -> Experiment:
        data, teacher = self.source(), trained_networks(*runs)
        groups = [
            ({"multiple": float(k)}, us.training.Group(us.students.like_linear(teacher, multiple=k), teacher, data))
            for k in self.multiple
        ]
        return self.training(groups, self.rate(self.lr), self.epochs, ranks=ranked(self.epochs))
