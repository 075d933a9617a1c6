"""Claim K3: the risk of a student falls as inputs are better aligned with its teacher (Phuong 2021, fig. 5.3)."""

import numpy as np

from understudy.claims import Claims, Verdict
from understudy.papers.distillation.data_geometry.study import DataGeometry
from understudy.papers.distillation.shared import estimate_words, estimates, read_settings
from understudy.store import Run
from understudy.store.units import read_units, unit_array

EXPECTED = {0.5: (0.0165, 0.0175), 1.0: (0.00035, 0.00045), 2.0: (0.0, 0.00005)}
"""Expected risks by κ, 0.017, 0.0004 and 0, each as the interval of numbers that are rounded to it."""

claims = Claims(
    fixed="dim inputs confidence",
    least={"seeds": 1_000},
    when=lambda study: set(EXPECTED) <= set(study.kappa),
)


@claims.claim(
    "K3",
    "falls",
    statement="the mean risk over transfer sets falls from each κ to the next",
    paper="risk falls with κ: a clearly decreasing trend",
    values_are="mean risk, per κ",
)
def risk_falls(study: DataGeometry, run: Run) -> Verdict:
    settings = read_settings(run)
    found = estimates(settings, "risk", "kappa")
    mean, low, high = (found[end].to_numpy() for end in ("mean", "low", "high"))
    risk = unit_array(read_units(run, "sets"), "risk", "kappa seed").to_numpy()
    falling = int((np.diff(risk, axis=0) < 0).all(0).sum())
    bound = unit_array(settings, "bound", "kappa").to_numpy()
    under = bool((mean <= bound).all())
    bounds = "bounds " + ", ".join(f"{each:.2g}" for each in bound) + ", above every mean risk"
    kappas = ", ".join(f"{kappa:g}" for kappa in found["kappa"].to_numpy())
    words = (
        f"{', '.join(f'{each:.2g}' for each in mean)} at κ = {kappas}; intervals are disjoint at "
        f"{(high[1:] < low[:-1]).sum()} of {len(mean) - 1} steps; the risk falls at every step in {falling:,} of "
        f"{risk.shape[1]:,} sets"
    )
    theorem = Verdict(under, bounds if under else "a mean risk is above its bound", len(bound))
    verdict = Verdict(bool((np.diff(mean) < 0).all()), words, risk.shape[1], tuple(mean.tolist()))
    return verdict.with_variants({"theorem 5.3": theorem})


@claims.claim(
    "K3",
    "κ = {kappa:g}",
    statement="κ = {kappa:g}: the interval of the mean risk contains a number that is rounded to {value}",
    paper="{value} is expected; fig. 5.3 has no numbers",
    cases=lambda study, run: [
        {"kappa": kappa, "value": f"{(low + high) / 2:.2g}" if low else "0"} for kappa, (low, high) in EXPECTED.items()
    ],
)
def risk_is_expected(study: DataGeometry, run: Run, kappa: float, value: str) -> Verdict:
    low, high = EXPECTED[kappa]
    found = estimates(read_settings(run), "risk", "kappa").sel(kappa=kappa)
    sets = unit_array(read_units(run, "sets"), "risk", "kappa seed").sizes["seed"]
    holds = found["low"].item() < high and found["high"].item() >= low
    return Verdict(holds, estimate_words(found), sets).show(found["mean"], low=low or None, high=high)
