"""The study `deep`: teachers with several hidden layers, fresh inputs every epoch (Tian 2019, figs 4, 12)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Ge, Le

import understudy as us
from understudy.lab.options import Count, Positive, Positives, Sizes, Steps, validate_batch, validate_widths
from understudy.lab.study import Dtype, Experiment, TrainingStudy, ranked
from understudy.papers.specialization.shared import TrainedStudents

_ENTRIES = tuple(i / 4 for i in range(-4, 5))
"""Values of the teacher's weights, before each row is scaled to length 1."""


@dataclass(frozen=True)
class DeepTeachers(TrainedStudents):
    """Options and teachers of studies of deep networks.

    Biases are set so that every node is active on half of the evaluation inputs of the teacher's seed, and outputs are
    standardised on them. Students are initialised as by torch's Linear.
    """

    seeds: Count = 8
    batch: Count = 64
    lr: Positive = 0.2
    """Learning rate of plain SGD on the squared error averaged over batch and outputs (2/C of it on ½‖f*−f‖²)."""
    teacher_layers: Sizes = (50, 75, 100, 125)
    """Hidden nodes of the teacher, layer by layer from the lowest."""
    dim: Count = 100
    """Number of inputs d."""
    inputs: Literal["uniform", "gaussian"] = "uniform"
    """Distribution of each input."""
    half_width: Positive = 15.0
    """Half the width of the interval of uniform inputs."""
    input_std: Positive = 10.0
    """Standard deviation of Gaussian inputs."""
    halve_after: Steps = 20
    """Epochs after which the learning rate is halved."""
    leaky: Annotated[float, Ge(0), Le(1)] = 0.0
    """Slope of the activation of teachers and students below zero: 0 is ReLU, 1 makes them linear."""

    @property
    def rate(self) -> float:
        """Learning rate on ½‖f*−f‖², whose gradient is C/2 times that of the squared error averaged over outputs."""
        return self.lr * 2 / self.outputs

    @property
    def inputs_words(self) -> str:
        """The distribution of the inputs in words."""
        return f"uniform ±{self.half_width:g}" if self.inputs == "uniform" else f"Gaussian, std {self.input_std:g}"

    def source(self, train: int, fresh: bool) -> us.data.Source:
        """The source of inputs with this many training samples."""
        std = self.half_width / math.sqrt(3.0) if self.inputs == "uniform" else self.input_std
        kind = us.data.Uniform if self.inputs == "uniform" else us.data.Gaussian
        return kind(self.dim, std, train, self.evaluation, fresh)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the teacher's layers, including inputs and outputs."""
        return self.dim, *self.teacher_layers, self.outputs

    def teacher(self, source: us.data.Source) -> us.Population:
        """One teacher per seed."""
        import torch

        def teacher(seed: int) -> us.Population:
            plain = us.teachers.distinct_rows(
                self.sizes, seeds=seed, choices=_ENTRIES, slope=self.leaky, dtype=self.torch_dtype
            )
            x = source.evaluating(seed, dtype=torch.float64)
            return us.teachers.standardised(us.teachers.half_active(plain, x), x)

        return us.nets.stack([teacher(seed) for seed in self.seed_names])

    def deep_training(
        self, groups: Iterable[tuple[dict[str, Any], us.training.Group]], rates: Iterable[float]
    ) -> Experiment:
        """The experiment of groups, each with its parameters and its learning rate, which is halved once."""
        lr = tuple(rate for rate in rates for _ in self.seed_names)
        halved = us.SGD(lr=lr, batch=self.batch, schedule=((self.halve_after + 1, 0.5),))
        return self.training(groups, halved, ranks=frozenset(ranked(self.epochs)))


@dataclass(frozen=True)
class Deep(DeepTeachers, TrainingStudy):
    """Which layer of a deep student learns its teacher's nodes first, and whether every layer does in the end."""

    name: ClassVar[str] = "deep"
    summary: ClassVar[str] = "every layer of a deep student learns its teacher's nodes, the lowest first"
    figures: ClassVar[str] = "S1 figs. 4, 12, S0 sec. 4"
    decides: ClassVar[str] = "D1 D2 P1 P2"

    dtype: Dtype = "tf32"
    multiple: Positives = (10.0,)
    """Over-realizations: student nodes per teacher node in every hidden layer."""
    steps: Steps = 1_562
    """Steps per epoch: with batches of 64, as many samples as the training set has."""
    train: Count = 100_000
    """Training samples of each network in an epoch; every epoch draws new ones."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=3,
            teacher_layers=(10, 15, 20),
            dim=20,
            lr=0.4,
            epochs=24,
            steps=300,
            halve_after=16,
            train=10_000,
            evaluation=1_000,
        )

    def validate(self) -> None:
        validate_widths(self.teacher_layers, self.multiple)
        validate_batch(self.train, self.batch)

    def experiment(self, *runs: us.Run) -> Experiment:
        self.require_memory((self.sizes, k) for k in self.multiple)
        source = self.source(self.train, fresh=True)
        teacher = self.teacher(source)
        groups = [
            ({"multiple": float(k)}, us.training.Group(us.students.like_linear(teacher, multiple=k), teacher, source))
            for k in self.multiple
        ]
        return self.deep_training(groups, [self.rate] * len(groups))
