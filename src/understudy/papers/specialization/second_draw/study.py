"""The study `second-draw`: students of the two-layer teachers from other initial weights, for `prune-and-connect`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import understudy as us
from understudy.lab.options import Count, NonNegatives, Positives
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import OverRealized

_OTHER_DRAW = 1 << 56
"""Seed offset of the second initial weights, so large that no other study uses these seeds."""


@dataclass(frozen=True)
class SecondDraw(OverRealized, TrainingStudy):
    """The students of `two-layer` again: the same teachers, samples and batches, but other initial weights."""

    name: ClassVar[str] = "second-draw"
    summary: ClassVar[str] = "students of the two-layer teachers from other initial weights, for prune-and-connect"
    figures: ClassVar[str] = "the second students of S0 fig. 13"

    teacher_nodes: Count = 20
    polarity: NonNegatives = (1.0,)
    multiple: Positives = (5.0, 10.0)

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=4, teacher_nodes=5, dim=20, outputs=10, multiple=(5.0,), epochs=25, evaluation=2_000)

    def experiment(self, *runs: us.Run) -> Experiment:
        return self.training([(cell, _redraw(group, cell["multiple"])) for cell, group in self.groups()])


def _redraw(group: us.training.Group, multiple: float) -> us.training.Group:
    """The group with new initial weights; teachers, inputs and the order of batches follow from the same seeds."""
    others = [seed + _OTHER_DRAW for seed in group.students.seeds.tolist()]
    students = us.students.gaussian(group.teacher, multiple=multiple, seeds=others)
    return replace(group, students=replace(students, seeds=group.students.seeds))
