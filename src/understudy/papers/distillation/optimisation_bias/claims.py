"""What a run of optimisation-bias decides: K4."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from understudy.papers.distillation.shared import Cell, cells, difference, risk_words
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.distillation.optimisation_bias.study import OptimisationBias

DIGITS, INPUTS, DELTAS = (0, 1), 100, tuple(10.0 * k for k in range(10))
"""Of fig 5.4."""
SETS = 20
"""Transfer sets from which on it is decided: the thesis does not say how many it had."""


class Step(NamedTuple):
    """From one δ to the next: by how much the risk on the same sets is higher, with its 95% interval."""

    first: float
    second: float
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2g} ({self.low:.2g} to {self.high:.2g}) from δ = {self.first:g} to {self.second:g}"


def learners(run: Run) -> list[Cell]:
    """One for every δ, from the least on."""
    found = cells(run, ("risk", "angle"), once=("pool", "held out", "right"))
    return sorted(found, key=lambda cell: cell.parameters["delta"])


def steps(found: list[Cell]) -> list[Step]:
    return [
        Step(a.parameters["delta"], b.parameters["delta"], *difference(b.values["risk"] - a.values["risk"]))
        for a, b in pairwise(found)
    ]


def claims(study: OptimisationBias, run: Run) -> list[Claim]:
    """Decided on the digits 0 and 1 of MNIST with n = 100 and δ = 0, 10, …, 90, from 20 transfer sets on."""
    asked = (tuple(study.digits), study.inputs, tuple(sorted(study.deltas))) == (DIGITS, INPUTS, DELTAS)
    if study.own or study.train or not asked or study.seeds < SETS:
        return []
    found = learners(run)
    rises = steps(found)
    least = min(rises, key=lambda step: step.mean)
    return [
        Claim(
            id="K4",
            statement="the expected risk grows with δ: from each of δ = 0, 10, …, 90 to the next it is higher on the same "
            "transfer sets, by a difference whose 95% interval is above 0 (below: these differences)",
            paper="learners more strongly guided by the gradient-descent bias generally achieve lower transfer risk",
            measured=f"from {risk_words(found[0].means['risk'])} at δ = 0 to {risk_words(found[-1].means['risk'])} at 90; least "
            f"rise {least}",
            n=len(found[0].networks),
            holds=all(step.low > 0 for step in rises),
            part="",
            values=tuple(step.mean for step in rises),
            low=0.0,
        )
    ]
