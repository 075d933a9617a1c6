"""Wide students of trained teachers on CIFAR-10, with BatchNorm and without: S2 fig 9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.lab.cifar import TaughtOnCifar, check_layers, check_words
from understudy.lab.options import check, validate_widths
from understudy.lab.study import Experiment, Study, TrainingStudy, ranked
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, ended

if TYPE_CHECKING:
    from understudy.store import Run

Kind = Literal["fc", "cnn"]
StudentNorm = Literal["none", "after"]


@dataclass(frozen=True)
class CifarLuck(TaughtOnCifar, TrainingStudy):
    """Whether the students that match a teacher's nodes in the end led from the first, on images.

    Teachers have learned the labels and have BatchNorm after each ReLU (`cifar-teacher`, made first where they are not
    there yet); students see their outputs alone.
    """

    name: ClassVar[str] = "cifar-luck"
    summary: ClassVar[str] = "how early final winners lead on CIFAR-10, and how students do against their teacher"
    figures: ClassVar[str] = "S2 fig 9"
    decides: ClassVar[str] = "D6"

    networks: tuple[Kind, ...] = ("fc", "cnn")
    """Kinds of networks: fully connected, convolutional."""
    norm: tuple[StudentNorm, ...] = ("none", "after")
    """Students' BatchNorm: nowhere, or after each ReLU."""
    fc_layers: tuple[int, ...] = (50, 75, 100, 125)
    """Nodes of each hidden layer of the fully connected teacher, the lowest first."""
    cnn_layers: tuple[int, ...] = (64, 64, 64)
    """Channels of each of the convolutional teacher's convolutions, the lowest first."""
    over_realization: float = 10.0
    """How many times as many nodes or channels each hidden layer of a student has."""
    epochs: int = 18
    """Epochs; networks are looked at after each."""
    lr: float = 0.0003
    """Learning rate of fully connected students at its highest (SGD's is of the squared error averaged over batch and
    outputs): it rises for three tenths of the epochs, then falls to nothing."""
    cnn_lr: float = 0.0003
    """The same of convolutional students without BatchNorm."""
    cnn_norm_lr: float = 0.0003
    """And of those with it, whose top layer adds up several hundred thousand features of variance 1."""
    teacher_lr: float = 0.001
    """Learning rate of the fully connected teacher at its highest, on cross-entropy averaged over the batch."""
    cnn_teacher_lr: float = 0.002
    """The same of the convolutional teacher."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            fc_layers=(10, 15, 20),
            cnn_layers=(4, 4),
            over_realization=5.0,
            cnn_norm_lr=0.002,
            train=2_000,
            evaluation=500,
            images="plain",
            batch=50,
            teacher_epochs=8,
            epochs=8,
        )

    def validate(self) -> None:
        super().validate()
        check_words("networks", self.networks, get_args(Kind))
        check_words("norm", self.norm, get_args(StudentNorm))
        for field in ("over_realization", "cnn_lr", "cnn_norm_lr", "cnn_teacher_lr"):
            check(self, field, above=0)
        for kind in get_args(Kind):
            check_layers(self, f"{kind}_layers", kind == "cnn")
            for nodes in self.layers(kind):
                validate_widths(nodes, (self.over_realization,), "--over-realization")
        self.check_norm("after")  # which teachers have

    def layers(self, kind: str) -> tuple[int, ...]:
        """Of a kind of teacher."""
        return self.fc_layers if kind == "fc" else self.cnn_layers

    @property
    def depth(self) -> int:
        """Hidden layers of the deepest networks of this run."""
        return max(len(self.layers(kind)) for kind in self.networks)

    def depends_on(self) -> tuple[Study, ...]:
        of = self.of_the_teacher()
        rates = {"fc": self.teacher_lr, "cnn": self.cnn_teacher_lr}
        return tuple(
            CifarTeacher(**(of | {"network": kind, "layers": self.layers(kind), "lr": rates[kind]}))
            for kind in self.networks
        )

    def experiment(self, *runs: Run) -> Experiment:
        data = self.source()
        rates = dict.fromkeys((("fc", "none"), ("fc", "after")), self.lr)
        rates |= {("cnn", "none"): self.cnn_lr, ("cnn", "after"): self.cnn_norm_lr}
        return self.training(
            [
                (
                    {"network_kind": kind, "norm": norm},
                    us.training.Group(
                        us.students.like_linear(
                            teacher, multiple=self.over_realization, norm=None if norm == "none" else norm
                        ),
                        teacher,
                        data,
                    ),
                )
                for kind, teacher in zip(self.networks, map(ended, runs), strict=True)
                for norm in self.norm
            ],
            [self.rate(rates[kind, norm]) for kind in self.networks for norm in self.norm],
            self.epochs,
            ranks=ranked(self.epochs),
        )
