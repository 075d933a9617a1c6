"""The study `hyperplanes`: two inputs, two teacher nodes, six students (Tian 2020, fig. 3; Tian 2019, fig. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
from annotated_types import Ge, Gt, Lt

import understudy as us
from understudy.lab.options import Count, Positive, Positives, Steps, validate_batch
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import TrainedStudents

_FRAMES = 60
START = 5e-3
"""Scale of the initial weights in Tian 2019, fig. 2: its legend starts at 0.03 to 0.04, √50 outputs times this."""


@dataclass(frozen=True)
class MovingHyperplanes(TrainedStudents, TrainingStudy):
    """Students' boundaries settle on the teacher's, and the fan-out of the other students vanishes."""

    name: ClassVar[str] = "hyperplanes"
    summary: ClassVar[str] = "students' boundaries move onto the teacher's; the other students fall silent"
    figures: ClassVar[str] = "S0 fig. 3, S1 fig. 2"
    decides: ClassVar[str] = "T8"

    epochs: Count = 1_000
    steps: Steps = 100
    lr: Positive = 0.05
    evaluation: Count = 2_000
    students: Annotated[int, Ge(2)] = 6
    """Hidden nodes of a student network; the teacher has 2."""
    scale: Positives = (START, 1e-4, 1e-6)
    """Standard deviations of the students' initial weights; claims are decided on 0.005."""
    angle: Annotated[float, Gt(0), Lt(180)] = 120.0
    """Angle between the weights of the two teacher nodes, in degrees."""
    bias: float = -0.1
    """Bias of both teacher nodes, whose weights have length 1: the distance of their boundaries from the origin."""
    train: Count = 10_000
    """Training samples of each network."""
    input_std: Positive = 1.5
    """Standard deviation of each of the two inputs, which are Gaussian."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=5, scale=(START, 1e-6), epochs=80, evaluation=500)

    def validate(self) -> None:
        validate_batch(self.train, self.batch)

    def source(self) -> us.data.Source:
        """The source of inputs."""
        return us.data.Gaussian(2, self.input_std, self.train, self.evaluation)

    def experiment(self, *runs: us.Run) -> Experiment:
        teacher = us.teachers.crossing(
            self.seed_names, outputs=self.outputs, angle=self.angle, bias=self.bias, dtype=self.torch_dtype
        )
        source = self.source()
        students = {
            scale: us.students.gaussian(teacher, multiple=self.students / 2, scale=scale) for scale in self.scale
        }
        groups = [({"scale": float(k)}, us.training.Group(each, teacher, source)) for k, each in students.items()]
        return self.training(groups, keep=frozenset(self.frames()))

    def frames(self) -> list[int]:
        """Epochs of the film, evenly spaced in the logarithm of time, as the movement is."""
        spread = np.geomspace(1, self.epochs, _FRAMES).round().astype(int) if self.epochs > 1 else [1]
        return [0, *sorted({int(epoch) for epoch in spread})]
