"""The study `over-parameterization`: students with 1 to 50 times the teacher's nodes (Tian et al. 2019, fig. 12)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.lab.options import (
    Among,
    Count,
    Distinct,
    Positive,
    Positives,
    Sizes,
    validate_batch,
    validate_widths,
)
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.luck.shared import OnGaussianInputs

Kind = Literal["fc", "cnn"]
NAMES = {"fc": "fully connected", "cnn": "convolutional, BatchNorm"}


@dataclass(frozen=True)
class OverParameterization(OnGaussianInputs, TrainingStudy):
    """Whether wider students match their teacher better, more steadily and sooner, and up to which width.

    Teachers are those of the released code: few values, rows of every layer scaled to length 1. Students are
    initialised as by torch's Linear and Conv2d; convolutional students have BatchNorm after each ReLU.
    """

    name: ClassVar[str] = "over-parameterization"
    summary: ClassVar[str] = (
        "how well, how reliably and how soon students of 1 to 50 times the nodes match their teacher"
    )
    figures: ClassVar[str] = "S2 fig. 12"
    decides: ClassVar[str] = "D9"

    networks: Annotated[tuple[Kind, ...], Among(get_args(Kind)), Distinct()] = ("fc",)
    """Kinds of networks: fully connected (left panel of the figure), or convolutional with BatchNorm (right), which
    takes about 700 times the work per step."""
    teacher_layers: Sizes = (10, 15, 20, 25)
    """Hidden nodes, or channels, of the teacher, layer by layer from the lowest."""
    multiple: Positives = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    """Over-realizations: student nodes, or channels, per node of the teacher in every hidden layer."""
    lr: Positive = 0.01
    """Learning rate of plain SGD on the squared error averaged over batch and outputs (2/C of it on ½‖f*−f‖²), as in
    the released code."""
    cnn_lr: Positive = 0.02
    """Learning rate of convolutional networks, limited by the thousands of features of the widest."""
    train: Count = 100_000
    """Training samples of each network in an epoch; every epoch draws new ones."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=5, multiple=(1.0, 2.0, 5.0, 10.0), epochs=12, steps=250, lr=0.02, train=16_000, evaluation=500)

    def validate(self) -> None:
        validate_widths(self.teacher_layers, self.multiple)
        validate_batch(self.train, self.batch)
        if "cnn" in self.networks:
            self.validate_convolutions()
            self.validate_norm("--networks cnn")

    def layers(self, kind: str) -> tuple[int, ...]:
        return self.teacher_layers

    def source(self, kind: str) -> us.data.Source:
        """The source of inputs of a kind of network."""
        return self.gaussian(kind, self.train, fresh=True)

    def teacher(self, kind: str) -> us.Population:
        """One teacher per seed, with rows of length 1 in every layer.

        Convolutional teachers have no BatchNorm: with the initial statistics of the released code it is the identity.
        """
        plain = us.teachers.distinct_rows(
            self.sizes(kind),
            seeds=self.seed_names,
            image=self.image_size(kind),
            bias_spread=0.5,
            dtype=self.torch_dtype,
        )
        *hidden, (weight, bias) = plain.layers
        return replace(plain, layers=(*hidden, us.nets.Layer(weight / weight.norm(dim=2, keepdim=True), bias)))

    def experiment(self, *runs: us.Run) -> Experiment:
        groups = []
        for kind in self.networks:
            self.require_memory(kind, self.multiple, self.seeds)
            source, teacher = self.source(kind), self.teacher(kind)
            norm: us.students.BatchNorm = None if kind == "fc" else "after"
            lr = self.lr if kind == "fc" else self.cnn_lr
            for k in self.multiple:
                students = us.students.like_linear(teacher, multiple=k, norm=norm)
                group = us.training.Group(students, teacher, source)
                groups.append(({"networks": kind, "multiple": float(k)}, group, lr))
        return self.training(groups)
