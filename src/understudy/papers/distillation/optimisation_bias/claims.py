"""Claim K4: the further from the solution of gradient descent, the higher the risk (Phuong 2021, fig. 5.4)."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict
from understudy.papers.distillation.optimisation_bias.study import OptimisationBias
from understudy.papers.distillation.shared import estimate_words, estimates, mean_difference, read_settings
from understudy.store import Run
from understudy.store.units import read_units, unit_array

claims = Claims(
    fixed="digits inputs train",
    least={"seeds": 20},  # the thesis does not state how many it had
    when=lambda study: not study.own and sorted(study.deltas) == sorted(type(study)().deltas),
    tuned_on="a trial, whose transfer sets are not recorded",
)


class Step(NamedTuple):
    """The increase of the risk on the same sets from one δ to the next, with its 95% interval."""

    first: float
    second: float
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2g} ({self.low:.2g} to {self.high:.2g}) from δ = {self.first:g} to {self.second:g}"


def risk_steps(risk: xr.DataArray) -> list[Step]:
    """The increases of risks [delta, seed] from each δ to the next."""
    deltas = risk["delta"].to_numpy().tolist()
    return [
        Step(*both, *mean_difference(increase))
        for both, increase in zip(pairwise(deltas), np.diff(risk.to_numpy(), axis=0), strict=True)
    ]


@claims.claim(
    "K4",
    statement="the expected risk grows with δ: from each of δ = 0, 10, …, 90 to the next it is higher on the same "
    "transfer sets, by a difference whose 95% interval is above 0",
    paper="learners more strongly guided by the gradient-descent bias generally achieve lower transfer risk",
    values_are="mean difference, per step of δ",
)
def risk_grows(study: OptimisationBias, run: Run) -> Verdict:
    found = estimates(read_settings(run), "risk", "delta")
    risk = unit_array(read_units(run, "sets"), "risk", "delta seed")
    steps = risk_steps(risk)
    least = min(steps, key=lambda step: step.mean)
    words = (
        f"from {estimate_words(found.isel(delta=0))} at δ = 0 to {estimate_words(found.isel(delta=-1))} at 90; least "
        f"rise {least}"
    )
    verdict = Verdict(all(step.low > 0 for step in steps), words, risk.sizes["seed"])
    return verdict.show([step.mean for step in steps], low=0.0)
