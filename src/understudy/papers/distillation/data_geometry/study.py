"""The study `data-geometry`: risk of students by the angles of inputs to the teacher (Phuong 2021, sec. 5.4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from annotated_types import Ge

from understudy.lab.options import Count, Positives
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import TransferStudy, set_tables

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.store import Run


@dataclass(frozen=True)
class DataGeometry(TransferStudy):
    """Transfer risk of linear students on tasks with P[angle ≥ θ] = (1 − 2θ/π)^κ: the larger κ, the smaller the angles.

    Students are ŵ, where gradient flow ends, and their risks are exact; sets of different κ are independent.
    """

    name: ClassVar[str] = "data-geometry"
    summary: ClassVar[str] = "the risk of a linear student falls as inputs are better aligned with its teacher"
    figures: ClassVar[str] = "S3 fig. 5.3"
    decides: ClassVar[str] = "K3"
    arrays: ClassVar[tuple[str, ...]] = ("inputs dim", "seeds inputs")

    seeds: Count = 10_000
    """Number of transfer sets for every κ, counted from 1."""
    dim: Annotated[int, Ge(2)] = 1_000
    """Dimension d of the inputs."""
    inputs: Count = 20
    """Inputs per transfer set, n."""
    kappa: Positives = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
    """κ of the tasks: at 1 angles are uniform; above 1 fewer inputs are near the teacher's boundary, below 1 more."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=1_000)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for draw, kappa in enumerate(sorted(self.kappa)):
            yield Piece(f"κ = {kappa:g}", 0, partial(self._measure, kappa, draw))

    def _measure(self, kappa: float, draw: int, first: int) -> Tables:
        from understudy.papers.distillation.theory.risk import measured_risk, polynomial_bound, risk_bound
        from understudy.papers.distillation.theory.soft_labels import angle, solution
        from understudy.papers.distillation.theory.tasks import AngleTask

        task = AngleTask(self.dim, kappa, draw=draw)
        x = task.compact(self.seed_names, self.inputs)
        teacher = task.teacher[: x.shape[-1]]
        learned = solution(x, teacher)
        risks, mean = measured_risk(task, learned, self.confidence)
        once = {
            "bound": risk_bound(task.p, self.inputs, self.dim),
            "printed bound": risk_bound(task.p, self.inputs, self.dim, printed=True),
            "corollary": polynomial_bound(kappa, self.inputs),
        }
        values = {"risk": risks, "angle": angle(learned, teacher)}
        return set_tables(self.seed_names, {"kappa": kappa}, values, {"risk": mean}, once)
