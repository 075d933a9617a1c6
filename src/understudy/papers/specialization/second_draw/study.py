"""Second students of the two-layer teachers, from other first weights: what `prune-and-connect` joins the first to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import understudy as us
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import OverRealized

if TYPE_CHECKING:
    from understudy.store import Run

_OTHER_DRAW = 1 << 56
"""Between the seeds of first weights: no other study's students begin with one that is this far off."""


@dataclass(frozen=True)
class SecondDraw(OverRealized, TrainingStudy):
    """The students of `two-layer` once more: the same teachers, samples and batches, but other first weights."""

    name: ClassVar[str] = "second-draw"
    summary: ClassVar[str] = "students of the two-layer teachers from other first weights, for prune-and-connect"
    figures: ClassVar[str] = "the second students of S0 fig 13"
    decides: ClassVar[str] = ""

    teacher_nodes: int = 20
    """Hidden nodes of the teacher."""
    polarity: tuple[float, ...] = (1.0,)
    """Teacher polarities p: node j's fan-out is divided by j^p (S0 eqn 10)."""
    multiple: tuple[float, ...] = (5.0, 10.0)
    """Over-realizations: how many times as many hidden nodes the students have."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=4, teacher_nodes=5, dim=20, outputs=10, multiple=(5.0,), epochs=25, evaluation=2_000)

    def experiment(self, *runs: Run) -> Experiment:
        source = us.data.Gaussian(self.dim, self.input_std, self.train, self.evaluation)
        return self.training([(apart, _redrawn(group, apart["multiple"])) for apart, group in self.groups(source)])


def _redrawn(group: us.training.Group, multiple: float) -> us.training.Group:
    """The same teachers, inputs and order of batches, which students take from their seeds."""
    others = [seed + _OTHER_DRAW for seed in group.students.seeds.tolist()]
    students = us.students.gaussian(group.teacher, multiple=multiple, seeds=others)
    return replace(group, students=replace(students, seeds=group.students.seeds))
