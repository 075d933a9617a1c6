"""Students that chase a strong teacher node first and turn to a weaker one: S1 fig 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import understudy as us
from understudy.lab.options import check
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import OverRealized

if TYPE_CHECKING:
    from understudy.store import Run


@dataclass(frozen=True)
class FocusShifting(OverRealized, TrainingStudy):
    """Which students leave a strong teacher node for a weaker one, looked at often enough to see it happen."""

    name: ClassVar[str] = "focus-shift"
    summary: ClassVar[str] = "students chase the strongest teacher node, then turn to weaker ones"
    figures: ClassVar[str] = "S1 fig 6"
    decides: ClassVar[str] = "T7"

    seeds: int = 8
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    teacher_nodes: int = 5
    """Hidden nodes of the teacher."""
    polarity: tuple[float, ...] = (1.0,)
    """Teacher polarities p: node j's fan-out is divided by j^p (S1 eqn 9)."""
    multiple: tuple[float, ...] = (2.0, 5.0)
    """Over-realizations: how many times as many hidden nodes the student has."""
    epochs: int = 200
    """Looks; networks are looked at after each."""
    steps: int = 200
    """Steps between two looks: five looks are one of the paper's epochs of 1,000 steps."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=3, epochs=100, train=5_000, evaluation=1_000)

    def validate(self) -> None:
        super().validate()
        check(self, "teacher_nodes", least=2)

    def experiment(self, *runs: Run) -> Experiment:
        source = us.data.Gaussian(self.dim, self.input_std, self.train, self.evaluation)
        return self.training(self.groups(source), pairs=True)
