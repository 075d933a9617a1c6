"""The study `focus-shift`: students follow a strong teacher node first and end on a weaker one (Tian 2019, fig. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from annotated_types import Ge

import understudy as us
from understudy.lab.options import Count, NonNegatives, Positives, Steps
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import OverRealized


@dataclass(frozen=True)
class FocusShifting(OverRealized, TrainingStudy):
    """Which students leave a strong teacher node for a weaker one, probed often enough to see it happen."""

    name: ClassVar[str] = "focus-shift"
    summary: ClassVar[str] = "students follow the strongest teacher node, then turn to weaker ones"
    figures: ClassVar[str] = "S1 fig. 6"
    decides: ClassVar[str] = "T7"

    seeds: Count = 8
    teacher_nodes: Annotated[int, Ge(2)] = 5
    polarity: NonNegatives = (1.0,)
    """Teacher polarities p: the fan-out of node j is divided by j^p (Tian 2019, eq. 9)."""
    multiple: Positives = (2.0, 5.0)
    epochs: Count = 200
    """Number of probes; an epoch here is the time between two probes."""
    steps: Steps = 200
    """Steps between two probes: five of these are one of the paper's epochs of 1,000 steps."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=3, epochs=100, train=5_000, evaluation=1_000)

    def experiment(self, *runs: us.Run) -> Experiment:
        return self.training(self.groups(), pairs=True)
