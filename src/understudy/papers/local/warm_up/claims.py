"""Claim Z5: the order of the loss in the angle between students and a teacher node (Zhou, Ge & Jin 2021, claim 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.claims import Claims, Verdict, every, number
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.warm_up.study import WarmUp

FROM, TO = 1e-6, 0.1
"""Smallest and largest angle, in rad, of the fit of slopes."""
WITHIN = 0.05
"""Tolerance of a fitted slope."""
_FEWEST = 20
"""Least number of angles on which the claim is decided."""


class Approach(NamedTuple):
    """Losses and gradients of one or two students, one value per angle."""

    students: int
    network: int
    deltas: np.ndarray
    loss: np.ndarray
    gradient: np.ndarray
    """‖∇L‖."""

    @property
    def order(self) -> int:
        """The power of δ that the loss is proved to be proportional to."""
        return self.students + 1

    @property
    def squared_ratio(self) -> np.ndarray:
        """‖∇L‖²/L."""
        return self.gradient**2 / self.loss

    @property
    def ratio(self) -> np.ndarray:
        """‖∇L‖/L."""
        return self.gradient / self.loss

    @property
    def fitted(self) -> np.ndarray:
        """Angles that slopes are fitted on."""
        return self.deltas <= TO * (1 + 1e-9)

    def slope(self, values: np.ndarray) -> float:
        """Slope of log values in log δ, by least squares; NaN with fewer than two angles."""
        if self.fitted.sum() < 2:
            return float("nan")
        return float(np.polyfit(np.log(self.deltas[self.fitted]), np.log(values[self.fitted]), 1)[0])


def approach(run: Run, students: int) -> Approach:
    """What a run measured for one or for two students; all seeds are equal."""
    network = run.select(students=students).index[0]
    return Approach(students, int(network), *(run.series(name)[network] for name in ("delta", "loss", "gradient_norm")))


def power(slope: float) -> str:
    """A slope with two digits, without a sign before zero."""
    return number(round(slope, 2) + 0.0, ".2f")


claims = Claims(when=lambda study: study.least <= FROM and study.most >= TO and study.angles >= _FEWEST)


@claims.claim(
    "Z5",
    "m = {students}, r = 1",
    statement=f"{{who}}: slope of log loss in log δ, by least squares over δ from {number(FROM, 'g')} to {TO:g}, "
    f"within {WITHIN:g} of {{order}}",
    paper="Θ(δ{sign})",
    cases=lambda study, run: [
        {"students": 1, "who": "one student at the angle δ", "order": 2, "sign": "²"},
        {"students": 2, "who": "two students at ±δ with Σ ‖w‖w = w*", "order": 3, "sign": "³"},
    ],
)
def order_of_the_loss(study: WarmUp, run: Run, students: int, order: int, **words: str) -> Verdict:
    found = approach(run, students)
    constant = found.loss[0] / found.deltas[0] ** order
    slope = found.slope(found.loss)
    return every(
        [slope],
        at_least=order - WITHIN,
        at_most=order + WITHIN,
        n=int(found.fitted.sum()),
        say=f"{slope:.4f}; loss/δ^{order} = {constant:.4f} at δ = {number(found.deltas[0], '.0e')}; ‖∇L‖²/L is "
        f"proportional to δ^{power(found.slope(found.squared_ratio))}, ‖∇L‖/L to δ^{power(found.slope(found.ratio))}",
    )
