"""The study `two-layer`: students of several widths, teachers of several sizes and polarities.

Tian 2020, figs 5, 7, 8; Tian 2019, figs 3, 5, 7, 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import understudy as us
from understudy.lab.options import Counts
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import OverRealized

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.store import Run


@dataclass(frozen=True)
class TwoLayer(OverRealized, TrainingStudy):
    """Which student node learns which teacher node in two layers, and how over-realization and strength decide it."""

    name: ClassVar[str] = "two-layer"
    summary: ClassVar[str] = "over-realization and teacher strength decide which nodes are learned, and when"
    figures: ClassVar[str] = "S0 figs 5, 7, 8; S1 figs 3, 5, 7, 11"
    decides: ClassVar[str] = "T1 T2 T3 T4 T5 T6 T10"

    teacher_nodes: Counts = (5, 10, 20)
    """Hidden nodes of the teacher: 10 in Tian 2020, fig. 5, 20 in figs 7 and 8."""
    inputs: Literal["gaussian", "uniform"] = "gaussian"
    """Distribution of each input; uniform is U[−a, a] with a = √3 times the standard deviation."""
    leaky: float = 0.0
    """Slope of the activation below zero, for teacher and student: 0 is ReLU."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=6, teacher_nodes=(20,), polarity=(1.0, 2.0), multiple=(1.0, 5.0), epochs=25, evaluation=2_000)

    @property
    def variant_words(self) -> str:
        """What differs from ReLU on the Gaussian inputs of the papers' figures."""
        from understudy.papers.specialization.two_layer.claims import FIGURES_STD

        inputs = f"std {self.input_std:g}" if self.input_std != FIGURES_STD else ""
        if self.inputs == "uniform":
            inputs = f"uniform ±{math.sqrt(3) * self.input_std:.2g}"
        return ", ".join(part for part in (f"leaky {self.leaky:g}" if self.leaky else "", inputs) if part)

    def source(self) -> Source:
        kind = us.data.Gaussian if self.inputs == "gaussian" else us.data.Uniform
        return kind(self.dim, self.input_std, self.train, self.evaluation)

    def experiment(self, *runs: Run) -> Experiment:
        return self.training(self.groups(self.leaky))
