"""The study `strong-nodes`: how many students learn a teacher node, and how large the gradient is when one does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from annotated_types import Ge

import understudy as us
from understudy.lab.options import Count, NonNegatives, Positives, Steps
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import OverRealized


@dataclass(frozen=True)
class StrongNodes(OverRealized, TrainingStudy):
    """Whether strong teacher nodes are learned by several students, and while the gradient is still large.

    Students as in `two-layer`, probed twice as often, with the norm of the gradient of ½‖f*−f‖² in all parameters on
    the evaluation samples.
    """

    name: ClassVar[str] = "strong-nodes"
    summary: ClassVar[str] = "strong teacher nodes are learned by several students, while the gradient is still large"
    figures: ClassVar[str] = "S0 sec. 6; S1 sec. 5.3, fig. 6"
    decides: ClassVar[str] = "L2 L3"

    teacher_nodes: Annotated[int, Ge(2)] = 20
    """Hidden nodes of the teacher."""
    polarity: NonNegatives = (1.0, 1.5, 2.0)
    multiple: Positives = (5.0, 10.0)
    epochs: Count = 200
    """Number of probes; an epoch here is the time between two probes."""
    steps: Steps = 500
    """Steps between two probes: two of these are one of the paper's epochs of 1,000 steps."""
    evaluation: Count = 2_000

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=3, teacher_nodes=10, polarity=(1.0,), multiple=(5.0,), epochs=40, train=5_000, evaluation=500)

    def experiment(self, *runs: us.Run) -> Experiment:
        return replace(self.training(self.groups()), record=frozenset({"gradient_norm"}))
