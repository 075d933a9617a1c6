"""What a run of warm-up decides: Z5."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.local.warm_up.study import STUDENTS
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.local.warm_up.study import WarmUp

FROM, TO = 1e-6, 0.1
"""Radians between which slopes are taken."""
ORDERS = dict(zip(STUDENTS, (2.0, 3.0), strict=True))
"""The power of δ that the loss goes as."""
WITHIN = 0.05
FEWEST = 20


class Approach(NamedTuple):
    """What one or two students give, angle by angle."""

    students: int
    deltas: np.ndarray
    loss: np.ndarray
    gradient: np.ndarray
    """‖∇L‖."""
    places: np.ndarray
    """[angle, student, 2]."""
    network: int

    @property
    def squared_ratio(self) -> np.ndarray:
        return self.gradient**2 / self.loss

    @property
    def ratio(self) -> np.ndarray:
        return self.gradient / self.loss

    def slope(self, values: np.ndarray) -> float:
        """In log δ, by least squares over all δ up to the largest that counts."""
        used = self.deltas <= TO * (1 + 1e-9)
        if used.sum() < 2:
            return float("nan")
        return float(np.polyfit(np.log(self.deltas[used]), np.log(values[used]), 1)[0])

    def constant(self, order: float) -> float:
        """The loss over δ^order at the least δ."""
        return float(self.loss[0] / self.deltas[0] ** order)


def approaches(run: Run) -> list[Approach]:
    delta, loss, gradient = (run.series(name) for name in ("delta", "loss", "gradient_norm"))
    x, y = (run.matched("student", name) for name in ("x", "y"))
    found = []
    for count in STUDENTS:
        network = int(np.flatnonzero(run.column("students") == count)[0])
        places = np.stack([x[network], y[network]], -1)[:, :count]
        found.append(Approach(count, delta[network], loss[network], gradient[network], places, network))
    return found


def power(slope: float) -> str:
    """In two digits, with a true minus, and none before zero."""
    return f"{round(slope, 2) + 0.0:.2f}".replace("-", "−")


def claims(study: WarmUp, run: Run) -> list[Claim]:
    """Decided on angles from 1e-6 to 0.1, however many from 20."""
    if study.least > FROM or study.most < TO or study.angles < FEWEST:
        return []
    return [_order(approach) for approach in approaches(run)]


def _order(approach: Approach) -> Claim:
    order = ORDERS[approach.students]
    slope = approach.slope(approach.loss)
    used = int((approach.deltas <= TO * (1 + 1e-9)).sum())
    who = "one student at the angle δ" if approach.students == 1 else "two students at ±δ that make up for each other"
    return Claim(
        id="Z5",
        statement=f"{who}: slope of log loss in log δ, by least squares over δ from {FROM:g} to {TO:g}, within {WITHIN:g} of "
        f"{order:g}",
        paper=f"Θ(δ{'²' if order == 2 else '³'})",
        measured=f"{slope:.4f}; loss/δ^{order:g} = {approach.constant(order):.4f} at δ = {approach.deltas[0]:.0e}; ‖∇L‖²/L goes "
        f"as δ^{power(approach.slope(approach.squared_ratio))}, ‖∇L‖/L as δ^{power(approach.slope(approach.ratio))}",
        n=used,
        holds=abs(slope - order) <= WITHIN,
        part=f"m = {approach.students}, r = 1",
        values=(slope,),
        low=order - WITHIN,
        high=order + WITHIN,
    )
