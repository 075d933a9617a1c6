"""Two inputs, two teacher nodes, six students: how the boundaries move (S0 fig 3, S1 fig 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

import understudy as us
from understudy.lab.options import check, validate_batch
from understudy.lab.study import Experiment, TrainingStudy

if TYPE_CHECKING:
    from understudy.store import Run

_LOOKS = 60


@dataclass(frozen=True)
class MovingHyperplanes(TrainingStudy):
    """Students' boundaries settle on the teacher's, and students that found none fall silent."""

    name: ClassVar[str] = "hyperplanes"
    summary: ClassVar[str] = "students' boundaries move onto the teacher's; the others fall silent"
    figures: ClassVar[str] = "S0 fig 3, S1 fig 2"
    decides: ClassVar[str] = "T8"

    seeds: int = 10
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    students: int = 6
    """Hidden nodes of a student network; the teacher has 2."""
    scale: tuple[float, ...] = (5e-3, 1e-4, 1e-6)
    """Standard deviations of the students' first weights; claims are decided on the smallest."""
    angle: float = 120.0
    """Degrees between the weights of the two teacher nodes."""
    bias: float = -0.1
    """Bias of both teacher nodes, their weights being of length 1: their boundaries pass that near to the origin."""
    epochs: int = 600
    """Epochs; networks are looked at after each."""
    steps: int = 50
    """Steps an epoch."""
    batch: int = 16
    """Samples a step, drawn with replacement."""
    lr: float = 0.03
    """Learning rate of plain SGD on ½‖f*−f‖² averaged over the batch."""
    outputs: int = 50
    """Outputs C."""
    train: int = 10_000
    """Training samples of each network."""
    evaluation: int = 2_000
    """Evaluation samples of each network: losses and correlations are measured on them."""
    input_std: float = 1.5
    """Standard deviation of each of the two inputs, which are Gaussian."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=5, scale=(5e-3, 1e-6), epochs=80, evaluation=500)

    def validate(self) -> None:
        for field in ("epochs", "steps", "batch", "outputs", "train", "evaluation"):
            check(self, field, least=1)
        check(self, "students", least=2)
        check(self, "scale", above=0, distinct=True)
        for field in ("lr", "input_std"):
            check(self, field, above=0)
        check(self, "bias")
        check_angle(self.angle)
        validate_batch(self.train, self.batch)

    def experiment(self, *runs: Run) -> Experiment:
        seeds = range(1, self.seeds + 1)
        teacher = us.teachers.crossing(
            seeds, outputs=self.outputs, angle=self.angle, bias=self.bias, dtype=self.torch_dtype
        )
        source = us.data.Gaussian(2, self.input_std, self.train, self.evaluation)
        students = [us.students.gaussian(teacher, multiple=self.students / 2, scale=scale) for scale in self.scale]
        return Experiment(
            groups=tuple(us.training.Group(population, teacher, source) for population in students),
            parameters=tuple({"scale": float(scale), "seed": seed} for scale in self.scale for seed in seeds),
            optimiser=us.SGD(lr=self.lr, batch=self.batch),
            epochs=self.epochs,
            steps=self.steps,
            keep=frozenset(self.looks()),
        )

    def looks(self) -> list[int]:
        """Epochs whose weights make the film: about evenly spread in the logarithm of time, as the movement is."""
        spread = np.geomspace(1, self.epochs, _LOOKS).round().astype(int) if self.epochs > 1 else [1]
        return [0, *sorted({int(epoch) for epoch in spread})]


def check_angle(angle: float) -> None:
    from understudy.errors import UserError

    if not 0 < angle < 180:
        raise UserError(f"--angle: {angle:g} was given; allowed is a number of degrees above 0 and below 180")
