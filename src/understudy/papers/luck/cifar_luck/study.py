"""The study `cifar-luck`: wide students of trained teachers on CIFAR-10 (Tian et al. 2019, fig. 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.lab.cifar import TaughtCifarOptions, validate_convolutions
from understudy.lab.options import Among, Count, Distinct, NonNegative, Positive, Sizes, validate_widths
from understudy.lab.study import Experiment, Study, TrainingStudy, ranked
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, trained_networks

Kind = Literal["fc", "cnn"]
StudentNorm = Literal["none", "after"]


@dataclass(frozen=True)
class CifarLuck(TaughtCifarOptions, TrainingStudy):
    """Whether the final winners lead early, on images, and how accurate students are.

    Teachers have learned the labels and have BatchNorm after each ReLU (runs of `cifar-teacher`, which are made first
    if they do not exist). Students learn the teacher outputs and see no labels.
    """

    name: ClassVar[str] = "cifar-luck"
    summary: ClassVar[str] = (
        "on CIFAR-10, how early the final winners lead, and how accurate students are compared with their teacher"
    )
    figures: ClassVar[str] = "S2 fig. 9"
    decides: ClassVar[str] = "D6"

    seeds: Count = 5
    """Number of seeds, counted from 1: each is a teacher, its students' initial weights and the order of the images."""
    networks: Annotated[tuple[Kind, ...], Among(get_args(Kind)), Distinct()] = ("fc", "cnn")
    """Kinds of networks: fully connected, convolutional."""
    norm: Annotated[tuple[StudentNorm, ...], Among(get_args(StudentNorm)), Distinct()] = ("none", "after")
    """BatchNorm of the students: none, or after each ReLU."""
    fc_layers: Sizes = (50, 75, 100, 125)
    """Hidden nodes of the fully connected teacher, layer by layer from the lowest."""
    cnn_layers: Sizes = (64, 64, 64)
    """Channels of the convolutional teacher, layer by layer from the lowest."""
    over_realization: Positive = 10.0
    """Student nodes, or channels, per node of the teacher in every hidden layer."""
    epochs: Count = 18
    lr: Positive = 0.0003
    """Peak learning rate of fully connected students (for SGD, on the squared error averaged over batch and outputs).
    It rises for 30% of the epochs, then falls to nearly 0."""
    cnn_lr: Positive = 0.0003
    """Peak learning rate of convolutional students without BatchNorm."""
    cnn_norm_lr: Positive = 0.0003
    """Peak learning rate of convolutional students with BatchNorm, whose top layer sums several hundred thousand
    features of variance 1."""
    teacher_epochs: Count = 100
    """Epochs in which the teacher learns the labels."""
    teacher_decay: NonNegative = 0.2
    """Weight decay of the teacher: decoupled with Adam, in the gradient with SGD."""
    teacher_lr: Positive = 0.002
    """Peak learning rate of the fully connected teacher, on cross-entropy averaged over the batch."""
    cnn_teacher_lr: Positive = 0.002
    """Peak learning rate of the convolutional teacher."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=2,
            fc_layers=(10, 15, 20),
            cnn_layers=(4, 4),
            over_realization=5.0,
            cnn_norm_lr=0.002,
            train=2_000,
            evaluation=500,
            images="plain",
            batch=50,
            teacher_epochs=8,
            teacher_decay=0.0,
            teacher_lr=0.001,
            epochs=8,
        )

    def validate(self) -> None:
        super().validate()
        validate_convolutions(self, "cnn_layers")
        validate_widths((*self.fc_layers, *self.cnn_layers), (self.over_realization,), "--over-realization")
        self.validate_norm("after")  # of the teachers

    def layers(self, kind: str) -> tuple[int, ...]:
        """Hidden nodes, or channels, of the teacher of a kind."""
        return self.fc_layers if kind == "fc" else self.cnn_layers

    def depends_on(self) -> tuple[Study, ...]:
        of = self.teacher_options()
        rates = {"fc": self.teacher_lr, "cnn": self.cnn_teacher_lr}
        return tuple(
            CifarTeacher(**(of | {"network": kind, "layers": self.layers(kind), "lr": rates[kind]}))
            for kind in self.networks
        )

    def experiment(self, *runs: us.Run) -> Experiment:
        data = self.source()
        groups, rates = [], []
        for kind, teacher in zip(self.networks, map(trained_networks, runs), strict=True):
            for norm in self.norm:
                students = us.students.like_linear(
                    teacher, multiple=self.over_realization, norm=None if norm == "none" else norm
                )
                groups.append(({"network_kind": kind, "norm": norm}, us.training.Group(students, teacher, data)))
                lr = self.lr if kind == "fc" else self.cnn_lr if norm == "none" else self.cnn_norm_lr
                rates.append(self.rate(lr))
        return self.training(groups, rates, self.epochs, ranks=ranked(self.epochs))
