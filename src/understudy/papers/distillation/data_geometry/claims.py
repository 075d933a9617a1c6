"""Claim K3: the risk of a student falls as inputs are better aligned with its teacher (Phuong 2021, fig. 5.3)."""

import math

import numpy as np

from understudy.claims import Claims, Verdict, every
from understudy.papers.distillation.data_geometry.study import DataGeometry
from understudy.papers.distillation.shared import read_settings
from understudy.store import Run
from understudy.store.units import read_units, unit_array

ERRORS = 2.0
"""Standard errors by which the mean risk must fall from each κ to the next."""

claims = Claims(fixed="dim inputs kappa confidence", least={"seeds": 1_000}, tuned_on="")


@claims.claim(
    "K3",
    "falls",
    statement="the mean risk falls from each κ to the next, on independent transfer sets, by more than "
    f"{ERRORS:g} standard errors of the difference",
    paper="risk falls with κ: a clearly decreasing trend",
    values_are="fall in standard errors, per step of κ",
)
def risk_falls(study: DataGeometry, run: Run) -> Verdict:
    settings = read_settings(run)
    mean = unit_array(settings, "mean risk", "kappa")
    risk = unit_array(read_units(run, "sets"), "risk", "kappa seed").to_numpy()
    means, errors = risk.mean(1), risk.std(1, ddof=1) / math.sqrt(risk.shape[1])
    falls = -np.diff(means) / np.hypot(errors[:-1], errors[1:])
    bound = unit_array(settings, "bound", "kappa").to_numpy()
    kappas = ", ".join(f"{kappa:g}" for kappa in mean["kappa"].to_numpy())
    words = f"{', '.join(f'{each:.2g}' for each in means)} at κ = {kappas}; falls by {{range:.2g}} standard errors"
    verdict = every(falls, above=ERRORS, say=words, n=risk.shape[1])
    under = bool((means <= bound).all())
    bounds = f"bounds {', '.join(f'{each:.2g}' for each in bound)}, above every mean risk"
    theorem = Verdict(under, bounds if under else "a mean risk is above its bound", len(bound))
    return verdict.with_variants({"theorem 5.3": theorem})
