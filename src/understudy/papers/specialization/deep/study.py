"""The study `deep`: teachers with several hidden layers, fresh inputs every epoch (Tian 2019, figs 4, 12)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import understudy as us
from understudy.lab.options import Count, Positive, Positives, Sizes, validate_batch, validate_widths
from understudy.lab.study import Dtype, Experiment, Study, TrainingStudy, ranked

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population
    from understudy.store import Run
    from understudy.training import Group

_ENTRIES = tuple(i / 4 for i in range(-4, 5))
"""Values of the teacher's weights, before each row is scaled to length 1."""


@dataclass(frozen=True)
class DeepTeachers(Study):
    """Options and teachers of studies of deep networks.

    Biases are set so that every node is active on half of the evaluation inputs of the teacher's seed, and outputs are
    standardised on them. Students are initialised as by torch's Linear.
    """

    seeds: Count = 8
    """Number of seeds, counted from 1: each is a teacher, its data and its students' initial weights."""
    teacher_layers: Sizes = (50, 75, 100, 125)
    """Hidden nodes of the teacher, layer by layer from the lowest."""
    dim: Count = 100
    """Number of inputs d."""
    outputs: Count = 50
    """Number of outputs C."""
    inputs: Literal["uniform", "gaussian"] = "uniform"
    """Distribution of each input."""
    half_width: Positive = 15.0
    """Half the width of the interval of uniform inputs."""
    input_std: Positive = 10.0
    """Standard deviation of Gaussian inputs."""
    epochs: Count = 100
    """Number of epochs; networks are probed after each."""
    steps: Count = 1_000
    """Steps per epoch."""
    batch: Count = 64
    """Samples per step, drawn with replacement."""
    lr: Positive = 0.2
    """Learning rate of plain SGD on the squared error averaged over batch and outputs (2/C of it on ½‖f*−f‖²)."""
    halve_after: Count = 20
    """Epochs after which the learning rate is halved."""
    evaluation: Count = 10_000
    """Evaluation samples of each network, on which losses and correlations are measured."""

    @property
    def rate(self) -> float:
        """Learning rate on ½‖f*−f‖², whose gradient is C/2 times that of the squared error averaged over outputs."""
        return self.lr * 2 / self.outputs

    @property
    def inputs_words(self) -> str:
        """The distribution of the inputs in words."""
        return f"uniform ±{self.half_width:g}" if self.inputs == "uniform" else f"Gaussian, std {self.input_std:g}"

    def source(self, train: int, fresh: bool) -> Source:
        """The source of inputs with this many training samples."""
        std = self.half_width / math.sqrt(3.0) if self.inputs == "uniform" else self.input_std
        kind = us.data.Uniform if self.inputs == "uniform" else us.data.Gaussian
        return kind(self.dim, std, train, self.evaluation, fresh)

    def teacher(self, source: Source) -> Population:
        """One teacher per seed."""
        import torch

        def teacher(seed: int) -> Population:
            plain = us.teachers.separated(
                (self.dim, *self.teacher_layers, self.outputs), seeds=seed, choices=_ENTRIES, dtype=self.torch_dtype
            )
            x = source.evaluating(seed, dtype=torch.float64)
            return us.teachers.standardised(us.teachers.half_active(plain, x), x)

        return us.nets.stack([teacher(seed) for seed in self.seed_names])

    def require_memory(self, multiples: Iterable[float]) -> None:
        """Check that students of these over-realizations fit in memory, before they and their teachers are built."""
        from understudy.training.plan import require_memory

        sizes = (self.dim, *self.teacher_layers, self.outputs)
        students = [(self.dim, *us.students.hidden_sizes(sizes, k), self.outputs) for k in multiples]
        require_memory([(us.nets.Shape(each), self.seeds) for each in students], self.torch_dtype)

    def training(
        self,
        groups: Iterable[tuple[dict[str, Any], Group]],
        rates: Iterable[float] | None = None,
        ranks: Iterable[int] = (),
    ) -> Experiment:
        """The experiment of groups with one student per seed, each with its parameters and, if they differ, rates."""
        parameters, each = zip(*groups, strict=True)
        lr = self.rate if rates is None else tuple(rate for rate in rates for _ in self.seed_names)
        return Experiment(
            groups=each,
            parameters=tuple({**one, "seed": seed} for one in parameters for seed in self.seed_names),
            optimiser=us.SGD(lr=lr, batch=self.batch, schedule=((self.halve_after + 1, 0.5),)),
            epochs=self.epochs,
            steps=self.steps,
            ranks=frozenset(ranks),
        )


@dataclass(frozen=True)
class Deep(DeepTeachers, TrainingStudy):
    """Which layer of a deep student learns its teacher's nodes first, and whether every layer does in the end."""

    name: ClassVar[str] = "deep"
    summary: ClassVar[str] = "every layer of a deep student learns its teacher's nodes, the lowest first"
    figures: ClassVar[str] = "S1 figs 4, 12"
    decides: ClassVar[str] = "D1 D2"

    dtype: Dtype = "tf32"
    """Training precision. tf32: float32 with TF32 matrix products on the GPU (faster, 11-bit mantissa)."""
    multiple: Positives = (10.0,)
    """Over-realizations: student nodes per teacher node in every hidden layer."""
    steps: Count = 1_562
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
        for nodes in self.teacher_layers:
            validate_widths(nodes, self.multiple)
        validate_batch(self.train, self.batch)

    def experiment(self, *runs: Run) -> Experiment:
        self.require_memory(self.multiple)
        source = self.source(self.train, fresh=True)
        teacher = self.teacher(source)
        return self.training(
            [
                (
                    {"multiple": float(k)},
                    us.training.Group(us.students.like_linear(teacher, multiple=k), teacher, source),
                )
                for k in self.multiple
            ],
            ranks=ranked(self.epochs),
        )
