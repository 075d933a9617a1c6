"""What a run of data-geometry decides: K3."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.distillation.data_geometry.study import BOUNDS
from understudy.papers.distillation.shared import Cell, cells, risk_words
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.distillation.data_geometry.study import DataGeometry

COUNT = {0.5: (0.0165, 0.0175), 1.0: (0.00035, 0.00045), 2.0: (0.0, 0.00005)}
"""Risks that count, .017, .0004 and 0, as the numbers that are rounded to them."""
DIM, SAMPLES = 1_000, 20
SETS = 1_000


def tasks(run: Run) -> list[Cell]:
    """A cell for every κ, in their order."""
    return cells(run, values=("risk", "angle"), once=tuple(BOUNDS))


def claims(study: DataGeometry, run: Run) -> list[Claim]:
    """Decided with fig 5.3's numbers of dimensions and inputs, the κ that count, 1,000 sets or more and intervals of
    95%."""
    settings = (study.dim, study.inputs, study.confidence)
    if settings != (DIM, SAMPLES, 0.95) or not set(COUNT) <= set(study.kappa) or study.seeds < SETS:
        return []
    found = tasks(run)
    return [_falls(found), *(_counts(cell) for cell in found if cell.parameters["kappa"] in COUNT)]


def _falls(found: list[Cell]) -> Claim:
    means = [cell.means["risk"] for cell in found]
    every = np.stack([cell.values["risk"] for cell in found])
    falling = int((np.diff(every, axis=0) < 0).all(0).sum())
    apart = sum(after.high < before.low for before, after in pairwise(means))
    under = all(cell.means["risk"].mean <= cell.once["bound"] for cell in found)
    return Claim(
        id="K3",
        statement="the mean risk over transfer sets falls from each κ to the next (below: the means)",
        paper="risk falls with κ: a clearly decreasing trend",
        measured=f"{', '.join(f'{risk.mean:.2g}' for risk in means)} at κ = "
        f"{', '.join(format(cell.parameters['kappa'], 'g') for cell in found)}; intervals are apart at {apart} of "
        f"{len(means) - 1} steps; the risk falls at every step in {falling:,} of {every.shape[1]:,} sets",
        n=means[0].sets,
        holds=all(after.mean < before.mean for before, after in pairwise(means)),
        part="falls",
        values=tuple(risk.mean for risk in means),
        variants=(
            Variant(
                "theorem 5.3",
                "bounds " + ", ".join(f"{cell.once['bound']:.2g}" for cell in found) + ", above every mean risk"
                if under
                else "a mean risk is above its bound",
                under,
            ),
        ),
    )


def _counts(cell: Cell) -> Claim:
    kappa, risk = cell.parameters["kappa"], cell.means["risk"]
    low, high = COUNT[kappa]
    value = f"{(low + high) / 2:.2g}" if low else "0"
    return Claim(
        id="K3",
        statement=f"κ = {kappa:g}: the interval of the mean risk holds a number that is rounded to {value}",
        paper=f"{value} counts; fig 5.3 has no numbers",
        measured=risk_words(risk),
        n=risk.sets,
        holds=risk.low < high and risk.high >= low,
        part=f"κ = {kappa:g}",
        values=(risk.mean,),
        low=low or None,
        high=high,
    )
