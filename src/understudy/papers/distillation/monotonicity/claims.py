"""What a run of monotonicity decides: K5."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.distillation.monotonicity.study import DESCENT, DISTILLATION, LIMIT
from understudy.papers.distillation.shared import Cell, cells, difference, risk_words
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.distillation.monotonicity.study import Monotonicity

SETS = 1_000
_FREE = ("seeds", "device", "longest", "looks")
"""Options that K5 leaves open; of seeds it asks for 1,000 or more."""
_RESAMPLED = 2_000
_RANGE = (0.025, 0.975)
ERRORS = 4.0
"""Standard errors, of two runs of as many sets, within which an earlier run's values count as found again."""
EARLIER = {DISTILLATION: (0.005, 1.0), DESCENT: (0.020, 0.69), "δ = 1": (0.027, 0.54)}
"""Risk and index."""
_DIGITS = (0.001, 0.01)
"""What their last digits stand for."""


class Correlation(NamedTuple):
    """Pearson's over learners, and where 95% of it lies when transfer sets are drawn again from those there are."""

    value: float
    low: float
    high: float

    @property
    def negative(self) -> bool:
        return self.value < 0 and self.high < 0

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "none, as all of either are equal"
        return f"r = {self.value:.2f} ({self.low:.2f} to {self.high:.2f})".replace("-", "−")


def learners(run: Run) -> dict[str, Cell]:
    """By name, in the order of the study: of each set its `risk`, its angles and whether one input more was nearer."""
    values = ("risk", "angle", "angle with one more", "nearer")
    found = {cell.parameters["learner"]: cell for cell in cells(run, values, ("risk", "index"))}
    return {name: cell for name, cell in found.items() if np.isfinite(cell.means["index"].mean)}


def correlation(some: list[Cell]) -> Correlation:
    """Of risks and indices, a point a learner; NaN where all of either are equal."""
    risk, nearer = (np.stack([cell.values[name] for cell in some]) for name in ("risk", "nearer"))
    sets = risk.shape[1]
    drawn = np.random.default_rng(0).multinomial(sets, np.full(sets, 1 / sets), _RESAMPLED) / sets
    again = _pearson(drawn @ risk.T, drawn @ nearer.T)
    low, high = np.quantile(again[np.isfinite(again)], _RANGE) if np.isfinite(again).any() else (np.nan, np.nan)
    return Correlation(float(_pearson(risk.mean(1), nearer.mean(1))), float(low), float(high))


def _pearson(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    one, other = (v - v.mean(-1, keepdims=True) for v in (one, other))
    with np.errstate(invalid="ignore"):
        return (one * other).sum(-1) / np.sqrt((one**2).sum(-1) * (other**2).sum(-1))


def claims(study: Monotonicity, run: Run) -> list[Claim]:
    """Decided on the settings of fig 5.5, from 1,000 transfer sets on."""
    plain = type(study)()
    other = any(getattr(study, f.name) != getattr(plain, f.name) for f in fields(study) if f.name not in _FREE)
    if other or study.seeds < SETS:
        return []
    found = learners(run)
    return [_correlated(found), _least_risk(found), _greatest_index(found), _earlier(found)]


def _correlated(found: dict[str, Cell]) -> Claim:
    by_descent = correlation([cell for name, cell in found.items() if name != LIMIT])
    in_the_limit = correlation([cell for name, cell in found.items() if name != DESCENT])
    biased = correlation([cell for name, cell in found.items() if name not in (DESCENT, LIMIT)])
    return Claim(
        id="K5",
        statement="over distillation, hard targets by descent and five w_δ, expected risk and monotonicity index are negatively "
        "correlated: Pearson's r below 0, and 95% of it over transfer sets drawn again",
        paper="negative correlation between monotonicity and transfer risk",
        measured=str(by_descent),
        n=len(next(iter(found.values())).networks),
        holds=by_descent.negative,
        part="correlation",
        values=(by_descent.value,),
        low=None,
        high=0.0,
        variants=(
            Variant("hard targets as the max-margin limit", str(in_the_limit), in_the_limit.negative),
            Variant("no hard targets", str(biased), biased.negative),
        ),
    )


def _least_risk(found: dict[str, Cell]) -> Claim:
    best = found[DISTILLATION]
    others = {name: cell for name, cell in found.items() if name != DISTILLATION}
    beyond = {name: difference(cell.values["risk"] - best.values["risk"]) for name, cell in others.items()}
    nearest = min(beyond, key=lambda name: beyond[name][0])
    mean, low, high = beyond[nearest]
    return Claim(
        id="K5",
        statement="distillation has the lowest expected risk of all learners: each other's is higher on the same sets, by a "
        "difference whose 95% interval is above 0",
        paper="distillation is best",
        measured=f"{risk_words(best.means['risk'])}; next {nearest}, higher by {mean:.2g} ({low:.2g} to {high:.2g}); hard "
        f"targets by descent {risk_words(found[DESCENT].means['risk'])}, their max-margin limit "
        f"{risk_words(found[LIMIT].means['risk'])}",
        n=len(best.networks),
        holds=all(low > 0 for _, low, _ in beyond.values()),
        part="lowest risk",
        values=tuple(mean for mean, _, _ in beyond.values()),
        low=0.0,
    )


def _greatest_index(found: dict[str, Cell]) -> Claim:
    best = found[DISTILLATION].means["index"]
    others = {name: cell.means["index"] for name, cell in found.items() if name != DISTILLATION}
    nearest = max(others, key=lambda name: others[name].mean)
    return Claim(
        id="K5",
        statement="distillation has the highest monotonicity index of all learners: 1, as in lemma 5.1, and above every other's",
        paper="distillation is best; 1 by lemma 5.1",
        measured=f"{best.mean:.3f} ({best.low:.3f} to {best.high:.3f}); next {nearest}, {risk_words(others[nearest])}; hard "
        f"targets by descent {risk_words(others[DESCENT])}, their max-margin limit {risk_words(others[LIMIT])}",
        n=best.sets,
        holds=best.mean == 1 and all(other.high < best.low for other in others.values()),
        part="highest index",
        values=tuple(other.mean for other in others.values()),
        low=None,
        high=1.0,
    )


def _earlier(found: dict[str, Cell]) -> Claim:
    """Values that an earlier run has given, in as many digits as were kept of them."""
    off, words = [], []
    for name, wanted in EARLIER.items():
        cell = found[name]
        means = tuple(cell.means[what].mean for what in ("risk", "index"))
        for what, mean, value, digit in zip(("risk", "nearer"), means, wanted, _DIGITS, strict=True):
            error = float(cell.values[what].std(ddof=1)) * math.sqrt(2 / len(cell.networks))
            beyond = max(0.0, abs(mean - value) - digit / 2)
            off.append(0.0 if not beyond else beyond / error if error else math.inf)
        words.append(f"{name} {means[0]:.4f} and {means[1]:.3f}")
    return Claim(
        id="K5",
        statement=f"risk and index of distillation, hard targets by descent and δ = 1 are those of an earlier run within "
        f"{ERRORS:g} standard errors of the difference and half of a last digit (below: how far each is beyond that "
        "half, in standard errors)",
        paper="no numbers; earlier run: " + "; ".join(f"{name} {r:.3f} and {m:.2g}" for name, (r, m) in EARLIER.items()),
        measured=f"{'; '.join(words)}; farthest {max(off):.1f} standard errors",
        n=len(found[DISTILLATION].networks),
        holds=max(off) <= ERRORS,
        part="values",
        values=tuple(one for one in off if math.isfinite(one)),
        low=None,
        high=ERRORS,
    )
