"""How the angles between inputs and teacher decide what a few soft labels teach: S3 sec 5.4.1, fig 5.3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

from understudy.lab.options import check
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import OnTransfer, set_tables

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.store import Run

BOUNDS = {"bound": "theorem 5.3", "printed bound": "theorem 5.3 as printed", "corollary": "corollary 5.2"}


@dataclass(frozen=True)
class DataGeometry(OnTransfer):
    """Transfer risk of linear students on tasks P[angle ≥ θ] = (1 − 2θ/π)^κ: the larger κ, the nearer to the teacher.

    Students are what gradient flow ends in, ŵ, and their risks are exact; all κ share the sets' random numbers.
    """

    name: ClassVar[str] = "data-geometry"
    summary: ClassVar[str] = "a linear student's risk falls as inputs are better aligned with its teacher"
    figures: ClassVar[str] = "S3 fig 5.3"
    decides: ClassVar[str] = "K3"

    seeds: int = 10_000
    """How many transfer sets, counted from 1, for every κ."""
    dim: int = 1_000
    """Numbers of an input d."""
    inputs: int = 20
    """Inputs of a transfer set n."""
    kappa: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
    """κ: at 1 angles are uniform, above it fewer inputs are near the teacher's boundary, below it more."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=1_000)

    def validate(self) -> None:
        super().validate()
        check(self, "dim", least=2)
        check(self, "inputs", least=1)
        check(self, "kappa", above=0, distinct=True)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for kappa in sorted(self.kappa):
            yield Piece(f"κ = {kappa:g}", self.seeds, partial(self._sets, kappa))

    def _sets(self, kappa: float, first: int) -> Tables:
        from understudy.papers.distillation.theory.risk import measured_risk, polynomial_bound, risk_bound
        from understudy.papers.distillation.theory.soft_labels import angle, solution
        from understudy.papers.distillation.theory.tasks import AngleTask

        task, seeds = AngleTask(self.dim, kappa), range(1, self.seeds + 1)
        x = task.compact(seeds, self.inputs)
        teacher = task.teacher[: x.shape[-1]]
        learned = solution(x, teacher)
        risks, mean = measured_risk(task, learned, self.confidence)
        once = {
            "bound": float(risk_bound(task.p, [self.inputs], self.dim).risk),
            "printed bound": float(risk_bound(task.p, [self.inputs], self.dim, printed=True).risk),
            "corollary": float(polynomial_bound(kappa, [self.inputs])),
        }
        values = {"risk": risks.numpy(), "angle": angle(learned, teacher).numpy()}
        return set_tables(first, seeds, {"kappa": kappa}, values, {"risk": mean}, once=once)
