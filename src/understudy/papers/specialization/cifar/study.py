"""Students of a pruned convolutional teacher on CIFAR-10: S0 fig 10."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import understudy as us
from understudy.lab.cifar import Norm, TaughtOnCifar, check_keep, check_layers, kept_sizes
from understudy.lab.options import check, validate_widths
from understudy.lab.study import Experiment, Study, TrainingStudy, ranked
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, ended

if TYPE_CHECKING:
    from understudy.store import Run


@dataclass(frozen=True)
class Cifar(TaughtOnCifar, TrainingStudy):
    """Whether wider students match a convolutional teacher better, and do better by the labels, on CIFAR-10.

    The teacher learns the labels, loses its weaker channels and learns on (`cifar-teacher`, made first where it is not
    there yet). Students see its outputs alone.
    """

    name: ClassVar[str] = "cifar"
    summary: ClassVar[str] = "how well wider and narrower students match each layer of a pruned teacher on CIFAR-10"
    figures: ClassVar[str] = "S0 fig 10"
    decides: ClassVar[str] = "D4"

    teacher_layers: tuple[int, ...] = (64, 64, 64, 64)
    """Channels of each of the teacher's convolutions before it is pruned, the lowest first."""
    norm: Norm = "after"
    """Where BatchNorm stands in teacher and students: after each ReLU, before it, or nowhere."""
    keep: tuple[float, ...] = (0.5,)
    """Share of the teacher's channels that stay, one for all layers or one each."""
    tune_epochs: int = 25
    """Epochs in which the pruned teacher learns on."""
    tune_lr: float = 0.002
    """Learning rate of the pruned teacher at its highest."""
    teacher_decay: float = 0.2
    """Weight decay of the teacher, before it is pruned and after: Adam's stands beside its step, SGD's in its
    gradient."""
    multiple: tuple[float, ...] = (1.0, 2.0, 5.0)
    """Over-realizations: how many times as many channels as the pruned teacher's each layer of a student has."""
    lr: float = 0.0003
    """Learning rate of students at its highest (SGD's is of the squared error averaged over batch and outputs): it
    rises for three tenths of the epochs, then falls to nothing."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=2,
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
        check_layers(self, "teacher_layers", image=True)
        check_keep(self.keep, self.teacher_layers)
        check(self, "tune_epochs", least=1)
        check(self, "tune_lr", above=0)
        check(self, "multiple", above=0, distinct=True)
        for nodes in self.kept:
            validate_widths(nodes, self.multiple)
        self.check_norm(self.norm)

    @property
    def kept(self) -> tuple[int, ...]:
        """Channels of the pruned teacher."""
        return kept_sizes(self.keep, self.teacher_layers)

    def depends_on(self) -> tuple[Study, ...]:
        return (
            CifarTeacher(
                **self.of_the_teacher(),
                layers=self.teacher_layers,
                norm=self.norm,
                keep=self.keep,
                tune_epochs=self.tune_epochs,
                tune_lr=self.tune_lr,
            ),
        )

    def experiment(self, *runs: Run) -> Experiment:
        data, teacher = self.source(), ended(*runs)
        return self.training(
            [
                (
                    {"multiple": float(k)},
                    us.training.Group(us.students.like_linear(teacher, multiple=k), teacher, data),
                )
                for k in self.multiple
            ],
            self.rate(self.lr),
            self.epochs,
            ranks=ranked(self.epochs),
        )
