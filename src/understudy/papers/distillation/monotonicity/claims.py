"""Claim K5: monotonicity and risk of learners are negatively correlated (Phuong 2021, fig. 5.5)."""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, number
from understudy.papers.distillation.monotonicity.study import DESCENT, DISTILLATION, LIMIT, Monotonicity
from understudy.papers.distillation.shared import estimate_words, estimates, mean_difference, read_settings
from understudy.store import Run
from understudy.store.units import read_units, unit_array

_RESAMPLED = 2_000
_RANGE = (0.025, 0.975)
STANDARD_ERRORS = 4.0
"""Standard errors, of the difference of two runs of as many sets, within which values of an earlier run are found."""
EARLIER = {DISTILLATION: (0.005, 1.0), DESCENT: (0.020, 0.69), "δ = 1": (0.027, 0.54)}
"""Risk and index that an earlier run had, by learner."""
_DIGITS = (0.001, 0.01)
"""The last digits in which they are known."""

claims = Claims(free="seeds device longest probes", least={"seeds": 1_000})


class Correlation(NamedTuple):
    """Pearson's r over learners, and the interval that contains 95% of it over resampled transfer sets."""

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


def correlation(sets: xr.Dataset, without: tuple[str, ...] = ()) -> Correlation:
    """Pearson's r of risks and indices, one point per learner; NaN where all of either are equal."""
    risk, nearer = (sets[name].drop_sel(learner=list(without)).to_numpy() for name in ("risk", "nearer"))
    count = risk.shape[1]
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _RESAMPLED) / count
    again = _pearson(drawn @ risk.T, drawn @ nearer.T)
    low, high = np.quantile(again[np.isfinite(again)], _RANGE) if np.isfinite(again).any() else (np.nan, np.nan)
    return Correlation(float(_pearson(risk.mean(1), nearer.mean(1))), float(low), float(high))


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
    "negatively correlated: Pearson's r, and 95% of it over resampled transfer sets, are below 0",
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
    statement="distillation has the lowest expected risk of all learners: that of each other learner is higher on the "
    "same sets, by a difference whose 95% interval is above 0",
    paper="distillation is best",
    values_are="mean difference, per other learner",
)
def lowest_risk(study: Monotonicity, run: Run) -> Verdict:
    found = read_learners(study, run)
    risk = found.sets["risk"]
    beyond = (risk - risk.sel(learner=DISTILLATION)).drop_sel(learner=DISTILLATION)
    others = {each["learner"].item(): mean_difference(each.to_numpy()) for each in beyond}
    nearest = min(others, key=lambda name: others[name][0])
    mean, low, high = others[nearest]
    words = (
        f"{estimate_words(found.risk.sel(learner=DISTILLATION))}; next {nearest}, higher by {mean:.2g} ({low:.2g} to "
        f"{high:.2g}); {_hard_targets(found.risk)}"
    )
    holds = all(low > 0 for _, low, _ in others.values())
    return Verdict(holds, words, beyond.sizes["seed"]).show([mean for mean, _, _ in others.values()], low=0.0)


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


@claims.claim(
    "K5",
    "values",
    statement=f"risk and index of distillation, hard targets by descent and δ = 1 are those of an earlier run within "
    f"{STANDARD_ERRORS:g} standard errors of the difference and half of a last digit",
    paper="no numbers; earlier run: " + "; ".join(f"{name} {r:.3f} and {m:.2g}" for name, (r, m) in EARLIER.items()),
    values_are="distance beyond half of a last digit, in standard errors",
)
def earlier_values(study: Monotonicity, run: Run) -> Verdict:
    found = read_learners(study, run)
    n = found.sets.sizes["seed"]
    off, words = [], []
    for name, wanted in EARLIER.items():
        means = tuple(each["mean"].sel(learner=name).item() for each in (found.risk, found.monotonicity))
        for column, mean, value, digit in zip(("risk", "nearer"), means, wanted, _DIGITS, strict=True):
            error = float(found.sets[column].sel(learner=name).to_numpy().std(ddof=1)) * math.sqrt(2 / n)
            beyond = max(0.0, abs(mean - value) - digit / 2)
            off.append(0.0 if not beyond else beyond / error if error else math.inf)
        words.append(f"{name} {means[0]:.4f} and {means[1]:.3f}")
    measured = f"{'; '.join(words)}; farthest {max(off):.1f} standard errors"
    return Verdict(max(off) <= STANDARD_ERRORS, measured, n).show(off, high=STANDARD_ERRORS)
