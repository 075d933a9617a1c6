"""Deep students of teachers of several hidden layers, on fresh inputs every epoch: S1 figs 4, 12."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import understudy as us
from understudy.lab.options import check, validate_batch, validate_widths
from understudy.lab.study import Experiment, Study, TrainingStudy, ranked

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population
    from understudy.store import Run
    from understudy.training import Group

_ENTRIES = tuple(i / 4 for i in range(-4, 5))
"""What teacher weights are made of, before each row is scaled to length 1."""


@dataclass(frozen=True)
class DeepTeachers(Study):
    """Teachers of several hidden layers, their nodes active on half of the inputs and their outputs standardised.

    Both are made so on the evaluation inputs of the teacher's seed. Students start as torch's Linear does.
    """

    seeds: int = 8
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    teacher_layers: tuple[int, ...] = (50, 75, 100, 125)
    """Hidden nodes of the teacher, layer by layer, the lowest first."""
    dim: int = 100
    """Inputs d."""
    outputs: int = 50
    """Outputs C."""
    inputs: Literal["uniform", "gaussian"] = "uniform"
    """Distribution of each input."""
    half_width: float = 15.0
    """Uniform inputs lie within ± this."""
    input_std: float = 10.0
    """Standard deviation of Gaussian inputs."""
    epochs: int = 100
    """Epochs; networks are looked at after each."""
    steps: int = 1_000
    """Steps an epoch."""
    batch: int = 64
    """Samples a step, drawn with replacement."""
    lr: float = 0.2
    """Learning rate of plain SGD on the squared error averaged over batch and outputs; 2/C of it on ½‖f*−f‖²."""
    halve_after: int = 20
    """Epochs after which the learning rate is halved."""
    evaluation: int = 10_000
    """Evaluation samples of each network: losses and correlations are measured on them."""

    def validate(self) -> None:
        for field in ("teacher_layers", "dim", "outputs", "epochs", "steps", "batch", "halve_after", "evaluation"):
            check(self, field, least=1)
        for field in ("half_width", "input_std", "lr"):
            check(self, field, above=0)

    @property
    def rate(self) -> float:
        """Of ½‖f*−f‖², whose gradient is C/2 times that of the squared error averaged over outputs."""
        return self.lr * 2 / self.outputs

    @property
    def seed_names(self) -> range:
        return range(1, self.seeds + 1)

    def source(self, train: int, fresh: bool) -> Source:
        std = self.half_width / math.sqrt(3.0) if self.inputs == "uniform" else self.input_std
        kind = us.data.Uniform if self.inputs == "uniform" else us.data.Gaussian
        return kind(self.dim, std, train, self.evaluation, fresh)

    def teacher(self, source: Source) -> Population:
        import torch

        def made(seed: int) -> Population:
            plain = us.teachers.separated(
                (self.dim, *self.teacher_layers, self.outputs), seeds=seed, choices=_ENTRIES, dtype=self.torch_dtype
            )
            x = source.evaluating(seed, dtype=torch.float64)
            return us.teachers.standardised(us.teachers.half_active(plain, x), x)

        return us.nets.stack([made(seed) for seed in self.seed_names])

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
        """Groups of one student a seed, each with the parameters that set it apart, and its rate where they differ."""
        apart, each = zip(*groups, strict=True)
        lr = self.rate if rates is None else tuple(rate for rate in rates for _ in self.seed_names)
        return Experiment(
            groups=each,
            parameters=tuple({**one, "seed": seed} for one in apart for seed in self.seed_names),
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

    dtype: Literal["float32", "tf32", "float64"] = "tf32"
    """Numbers to train with; tf32 is float32 whose products a card may round to 11 bits, which is faster."""
    multiple: tuple[float, ...] = (10.0,)
    """Over-realizations: how many times as many nodes each hidden layer of the student has."""
    steps: int = 1_562
    """Steps an epoch: with batches of 64, one for every training sample."""
    train: int = 100_000
    """Training samples of each network and epoch: every epoch draws new ones."""

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
        super().validate()
        check(self, "train", least=1)
        check(self, "multiple", above=0, distinct=True)
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
