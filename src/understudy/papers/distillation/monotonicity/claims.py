"""Claim K5: monotonicity and risk of learners are negatively correlated (Phuong 2021, fig. 5.5)."""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.distillation.monotonicity.study import DESCENT, DISTILLATION, LIMIT, Monotonicity
from understudy.papers.distillation.shared import estimate_words, estimates, read_settings
from understudy.store import Run
from understudy.store.units import read_units, unit_array

_REDRAWN = 2_000
_RANGE = (0.025, 0.975)
ERRORS = 2.0
"""Standard errors of a difference of two learners by which one must be lower."""

claims = Claims(
    free="seeds device longest probes",
    least={"seeds": 1_000},
    tuned_on="an earlier run of seeds 1 to 1,000, in which all learners had the sets that only distillation has now",
)


class RiskCorrelation(NamedTuple):
    """Pearson's r over learners, and the interval of 95% that follows from the errors of their means."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "undefined, as all risks or all indices are equal"
        value, low, high = (number(each, ".2f") for each in self)
        return f"r = {value} ({low} to {high})"

    def verdict(self, n: int) -> Verdict:
        return Verdict(self.value < 0 and self.high < 0, str(self), n, (self.value,), None, 0.0)


class Learners(NamedTuple):
    """Values of all learners, in the order of the study."""

    sets: xr.Dataset
    """By learner and seed: `risk`, `angle`, `angle with one more`, and `nearer`, whether another input was nearer."""
    risk: xr.Dataset
    """Expected risk by learner."""
    monotonicity: xr.Dataset
    """Monotonicity index by learner."""


def read_learners(study: Monotonicity, run: Run) -> Learners:
    """The values of every learner on every transfer set, and their means."""
    where = {"learner": list(study.learners)}
    sets, settings = read_units(run, "sets", **where), read_settings(run, **where)
    names = ("risk", "angle", "angle with one more", "nearer")
    return Learners(
        xr.Dataset({name: unit_array(sets, name, "learner seed") for name in names}),
        estimates(settings, "risk", "learner"),
        estimates(settings, "index", "learner"),
    )


def correlation(sets: xr.Dataset, without: tuple[str, ...] = ()) -> RiskCorrelation:
    """Pearson's r of risks and indices, one point per learner; NaN where all of either are equal."""
    both = [sets[name].drop_sel(learner=list(without)).to_numpy() for name in ("risk", "nearer")]
    values = np.stack(both, -1)
    means, (learners, count, _) = values.mean(1), values.shape
    rng = np.random.default_rng(0)
    # Means over many sets are nearly normal; those of different learners are independent.
    again = np.stack(
        [
            rng.multivariate_normal(means[i], np.cov(values[i].T) / count, _REDRAWN, method="eigh")
            if count > 1
            else np.repeat(means[i : i + 1], _REDRAWN, 0)
            for i in range(learners)
        ],
        1,
    )
    found = _pearson(again[..., 0], again[..., 1])
    low, high = np.quantile(found[np.isfinite(found)], _RANGE) if np.isfinite(found).any() else (np.nan, np.nan)
    return RiskCorrelation(float(_pearson(means[:, 0], means[:, 1])), float(low), float(high))


def _pearson(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Pearson's r over the last axis."""
    one, other = (v - v.mean(-1, keepdims=True) for v in (one, other))
    with np.errstate(invalid="ignore"):
        return (one * other).sum(-1) / np.sqrt((one**2).sum(-1) * (other**2).sum(-1))


def _hard_targets(found: xr.Dataset) -> str:
    descent, limit = (estimate_words(found.sel(learner=name)) for name in (DESCENT, LIMIT))
    return f"hard targets by descent {descent}, their max-margin limit {limit}"


@claims.claim(
    "K5",
    "correlation",
    statement="over distillation, hard targets by descent and five w_δ, expected risk and monotonicity index are "
    "negatively correlated: Pearson's r, and its interval of 95% by the errors of the means, are below 0",
    paper="negative correlation between monotonicity and transfer risk",
)
def negatively_correlated(study: Monotonicity, run: Run) -> Verdict:
    sets = read_learners(study, run).sets
    n = sets.sizes["seed"]
    beside = {"hard targets as the max-margin limit": (DESCENT,), "no hard targets": (DESCENT, LIMIT)}
    others = {words: correlation(sets, without).verdict(n) for words, without in beside.items()}
    return correlation(sets, (LIMIT,)).verdict(n).with_variants(others)


@claims.claim(
    "K5",
    "lowest risk",
    statement="distillation has the lowest expected risk of all learners: that of each other learner, on independent "
    f"transfer sets, is higher by more than {ERRORS:g} standard errors of the difference",
    paper="distillation is best",
    values_are="difference in standard errors, per other learner",
)
def lowest_risk(study: Monotonicity, run: Run) -> Verdict:
    found = read_learners(study, run)
    risk = found.sets["risk"]
    means, count = risk.mean("seed"), risk.sizes["seed"]
    errors = risk.std("seed", ddof=1) / math.sqrt(count)
    best, other = means.sel(learner=DISTILLATION), means.drop_sel(learner=DISTILLATION)
    beyond = (other - best) / np.hypot(errors.drop_sel(learner=DISTILLATION), errors.sel(learner=DISTILLATION))
    nearest = other.isel(learner=int(beyond.to_numpy().argmin()))
    words = (
        f"{estimate_words(found.risk.sel(learner=DISTILLATION))}; next {nearest['learner'].item()}, "
        f"{nearest.item():.3g}; higher by {{range:.2g}} standard errors; {_hard_targets(found.risk)}"
    )
    verdict = every(beyond.to_numpy(), above=ERRORS, say=words, n=count)
    clear = float(beyond.min()) > ERRORS or float(beyond.min()) < -ERRORS
    return verdict.provided(clear, "more transfer sets, as two learners are within the errors")


@claims.claim(
    "K5",
    "highest index",
    statement="distillation has the highest monotonicity index of all learners: 1, as in lemma 5.1, and above that of "
    "every other learner",
    paper="distillation is best; 1 by lemma 5.1",
    values_are="index, per other learner",
)
def highest_index(study: Monotonicity, run: Run) -> Verdict:
    found = read_learners(study, run)
    best = found.monotonicity.sel(learner=DISTILLATION)
    others = found.monotonicity.drop_sel(learner=DISTILLATION)
    mean, low, high = (best[end].item() for end in ("mean", "low", "high"))
    nearest = others.isel(learner=int(others["mean"].to_numpy().argmax()))
    words = (
        f"{mean:.3f} ({low:.3f} to {high:.3f}); next {nearest['learner'].item()}, {estimate_words(nearest)}; "
        f"{_hard_targets(found.monotonicity)}"
    )
    holds = mean == 1 and bool((others["high"] < low).all())
    return Verdict(holds, words, found.sets.sizes["seed"]).show(others["mean"], high=1.0)
