"""Claims Z2, Z3, Z4, Z8, Z10: convergence near a teacher (Zhou, Ge & Jin 2021, theorems 3, 4, 6 and their lemmas)."""

import math
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.local.local_rate.study import CLAIMED, DELTA, FROM, LEVELS, TO, LocalRate
from understudy.papers.local.shared import log_slope
from understudy.papers.local.theory.geometry import LEMMA_8_CONSTANT
from understudy.report.style import number as power_of_ten
from understudy.store import Run
from understudy.store.arrays import Networks
from understudy.store.units import read_units

SLOPE = -1.0
"""Largest slope of log loss in log steps."""
CONSTANT = 6**-0.5
"""C of theorem 3, κ = C / √(r w_max): the proof has ‖g‖² ≤ 2 Σ ‖w_j‖² + 4 Σ ‖w*_i‖, about 6 r w_max near zero."""
STEEP = 1.0
"""Least ‖∇L‖²/L, relative to w_min, of one student of one teacher neuron; at a solution it is 2."""
FALLS = 0.1
"""Power of the loss above which ‖∇L‖²/L counts as falling with it."""
LEMMAS = {"lemma 8": 1 / 3, "lemma 9": 3 / 8, "lemma 11": 3 / 4, "lemma C.3": 0.0, "lemma C.4": 1 / 2}
"""The power of the loss that each lemma proves."""
RIGHT = {
    "lemma 8": "r w_max w_min^(−5/3) L^(1/3)",
    "lemma 9": "r^(11/4) w_max^(1/4) Δ^(−3/2) L^(3/8)",
    "lemma 11": "r^(5/2) w_max^(1/2) L^(3/4)",
    "lemma C.3": "r w_max",
    "lemma C.4": "L^(1/2)",
}
"""Right side of each lemma without its constant C, as `geometry.sides` computes it."""
BELOW, LARGEST = 0.05, 4.0
"""Tolerance of a fitted exponent below the proved one, and the largest constant of a lemma."""
FACTOR = 1.2
"""Largest factor between the end losses of the largest mini-batches and of the exact loss."""
ROUNDING = 1e-20
"""Losses up to this are rounding errors."""
POWER, WITHIN = -0.5, 0.05
"""Slope of the log of ‖∇L̂ − ∇L‖ in log N, and its tolerance."""
SPREAD = 1.0
"""Largest constant of lemma F.1."""
TIME = 3e-4
"""C of theorem 6: mini-batches must reach the loss ε = C r w_max / (η T) by step T."""
NOISE = 2.0
"""Standard errors by which a share may be below that of the next smaller batch."""
MULTIPLES, SEEDS, BATCH_SEEDS, BATCH_STEPS, ATTEMPTS = (1, 2, 5, 20), 10, 40, 2_000, 4
"""m / r that claims for all m are decided on, and the least number of seeds, of seeds with mini-batches, of steps with
these, and of starts of a search."""
_FEW, _SPAN = 5, 10.0
"""Least number of probes for fitting an exponent, and the least factor between their losses."""
_ROUNDED = 1e-9
"""Relative rounding error of a loss that is exactly at the threshold."""
BINS, _CROWD = 4, 10
"""Bins per decade of the loss, and the least number of runs in a bin of an envelope."""


def label(multiple: int) -> str:
    """A number of students in words: `m = 2r`."""
    return "m = r" if multiple == 1 else f"m = {multiple}r"


def below(run: Run) -> np.ndarray:
    """Whether the loss, [network, probe], is at most that at which the angle of lemma 8 is the teacher's separation.

    With our constant of lemma 8, 4, this is the loss `theory.smallest_gradient.threshold`; the paper's own threshold,
    which the proof of lemma 7 needs, is one that no descent reaches.
    """
    with np.errstate(invalid="ignore"):
        near = LEMMA_8_CONSTANT * run.series("lemma 8 right") <= run.column("delta")[:, None] * (1 + _ROUNDED)
        return near & (run.series("loss") > ROUNDING)


def loss_slopes(networks: Networks, start: int, end: int) -> xr.DataArray:
    """Slope of log loss in log steps, [network]; a loss that is a rounding error counts as 10⁻³⁰."""
    one, other = (networks.array("loss", "network", epoch=step).clip(min=1e-30) for step in (start, end))
    return one.copy(data=np.log(other / one) / math.log(end / start))


def lojasiewicz(run: Run) -> np.ndarray:
    """‖∇L‖/L √(r w_max), [network, probe], w_max the length of the longest neuron, below the threshold; else NaN."""
    scale = np.sqrt(run.column("r") * run.column("longest"))
    return np.where(below(run), run.series("ratio") * scale[:, None], np.nan)


def exponent(loss: np.ndarray, value: np.ndarray) -> float:
    """The power of the loss that values follow, by least squares of logarithms; NaN with too few of them."""
    there = np.isfinite(loss) & np.isfinite(value) & (loss > 0) & (value > 0)
    if there.sum() < _FEW or loss[there].max() < _SPAN * loss[there].min():
        return math.nan
    return log_slope(loss[there], value[there])


def exponents(run: Run, metric: str, networks: np.ndarray) -> np.ndarray:
    """Power of the loss that a metric follows below the threshold, [network]."""
    loss = np.where(below(run), run.series("loss"), np.nan)
    return np.array([exponent(loss[i], run.series(metric)[i]) for i in networks])


def constants(run: Run, name: str) -> np.ndarray:
    """Least C, [network, probe], with which a lemma holds in runs on the exact loss below the threshold; else NaN."""
    networks = run.select(part="exact").index
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(below(run), run.series(f"{name} left") / run.series(f"{name} right"), np.nan)
    return found[networks]


def envelope(study: LocalRate, run: Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Losses, in bins, and the largest left side of a lemma there over all runs.

    Left sides are divided by all factors of the right side but the power of the loss. Bins are those that enough
    over-parameterised runs with the largest number of inputs pass: others are far below the largest values at small
    losses, where m = r, or m > r with students in one place, as happens in the plane, converge linearly.
    """
    networks = run.select(part="exact")
    loss = run.series("loss")[networks.index]
    scaled = constants(run, name) * np.where(loss > 0, loss, np.nan) ** LEMMAS[name]
    there = ~np.isnan(scaled)
    place = np.full(loss.shape, np.iinfo(int).min)
    place[there] = np.floor(np.log10(loss[there]) * BINS)
    slow = (networks.column("multiple") > 1) & (networks.column("d") == max(s.d for s in study.settings()))
    bins = [one for one in np.unique(place[there]) if (place[slow] == one).any(axis=1).sum() >= _CROWD]
    most = np.array([scaled[place == one].max() for one in bins])
    return 10 ** ((np.array(bins, float) + 0.5) / BINS), most


def searched(run: Run, level: float) -> tuple[Networks, np.ndarray]:
    """Students that the search found below a multiple of the threshold, and their ‖∇L‖/L √(r w_max)."""
    some = run.select(part="search", level=level)
    return some, some.end("ratio") * np.sqrt(some.column("r") * some.column("longest"))


def end_ratios(study: LocalRate, run: Run) -> xr.DataArray:
    """End loss with mini-batches, [batch, seed], relative to that of descent on the exact loss."""
    ends = _batch_ends(study, run)
    return (ends / ends.sel(batch=0)).drop_sel(batch=0).drop_vars("network", errors="ignore")


def _all_multiples(study: LocalRate) -> bool:
    return set(study.multiple) >= set(MULTIPLES)


def _all_teachers(study: LocalRate) -> bool:
    return _all_multiples(study) and len(study.r) > 1 and len(study.lengths) > 1


def _one_neuron(study: LocalRate) -> bool:
    return 1 in study.r and {1, 2} <= set(study.multiple) and max(study.d) > 2


def _many_batches(study: LocalRate) -> bool:
    spread = max(study.batch) >= 64 * min(study.batch)
    long = study.batch_steps >= BATCH_STEPS and study.batch_seeds >= BATCH_SEEDS
    return long and study.batch_multiple > 1 and spread


claims = Claims(fixed="teacher by rate angle", when=lambda study: study.seeds >= SEEDS and study.steps >= TO)


@claims.claim(
    "Z2",
    statement=f"r = 3, d = 5, η = 0.05, initial students near the teacher: log-log slope of the loss over steps "
    f"{FROM:,} to {TO:,}, and to the end at {{steps:,}}, at most −1 in every run, for all m",
    paper="L = O(r w_max / ηt)",
    needs={"r": CLAIMED[0], "d": CLAIMED[1]},
    when=lambda study: _all_multiples(study) and (1.0, 1.0) in study.lengths,
    tuned_on="",
)
def rate_of_convergence(study: LocalRate, run: Run) -> Verdict:
    values, words = [], []
    for multiple in study.multiple:
        some = run.select(part="exact", r=CLAIMED[0], d=CLAIMED[1], multiple=multiple, w_min=1.0, w_max=1.0)
        early, late = loss_slopes(some, FROM, TO), loss_slopes(some, FROM, study.steps)
        values += [*early.values, *late.values]
        scaled = run.series("loss")[some.index] * (study.rate * run.epochs / CLAIMED[0])
        gone = int((some.end("loss") <= ROUNDING).sum())
        rounding = f", the end loss a rounding error in {gone} of {len(some)} runs" if gone else ""
        words.append(
            f"{label(multiple)} {_span(early)} and to the end {_span(late)}{rounding}, L η t / (r w_max) at most "
            f"{np.nanmax(scaled):.2g}"
        )
    return every(values, at_most=SLOPE, n=len(values) // 2, say="; ".join(words))


@claims.claim(
    "Z3",
    statement="students of a loss of at most ε₀ = (Δ / (4 r w_max))³ w_min⁵ (constant ours), m = r and 2r: the "
    "smallest ‖∇L‖/L that a search from {attempts} starts finds for each teacher is at least 1 / √(6 r w_max), with "
    "the constant of the proof",
    paper="‖∇L‖ ≥ κL, κ = Θ((r w_max)^−½)",
    values_are="smallest ‖∇L‖/L √(r w_max), per teacher and number of students",
    when=lambda study: _all_teachers(study) and study.attempts >= ATTEMPTS,
    tuned_on="seeds 101 to 103",
)
def gradient_lower_bound(study: LocalRate, run: Run) -> Verdict:
    beside = {f"losses of at most {level:g} ε₀": _decide_search(run, level) for level in LEVELS[1:]}
    along = lojasiewicz(run)[run.select(part="exact").index]
    there = np.isfinite(along).any(1)
    descents = every(
        np.nanmin(along[there], axis=1),
        at_least=CONSTANT,
        say=f"C = {{least:.2f}}, over {np.isfinite(along).sum():,} probes of {there.sum()} of {len(along)} runs",
    )
    beside["along all descents, at losses of at most ε₀"] = descents
    return _decide_search(run, LEVELS[0]).with_variants(beside)


def _decide_search(run: Run, level: float) -> Verdict:
    """All of the smallest ‖∇L‖/L that were found are at least C / √(r w_max)."""
    some, scaled = searched(run, level)
    ratio, sizes = some.end("ratio"), np.round(some.column("r") * some.column("w_max"), 6)
    each = ", ".join(f"{number(ratio[sizes == size].min())} at r w_max {size:g}" for size in np.unique(sizes))
    below = int((scaled < CONSTANT).sum())
    say = f"C = {{least:.2g}}; least ‖∇L‖/L {each}" + (f"; {below} of {len(scaled)} below" if below else "")
    return every(scaled, at_least=CONSTANT, say=say)


@claims.claim(
    "Z8",
    "{lemma}",
    statement=f"{{lemma}}, left side ≤ C {{right}}, over all runs below the threshold: C ≤ {LARGEST:g}, and the "
    f"largest left side over all runs at a given loss falls with an exponent of L ≥ proved − {BELOW:g} (tolerances "
    "ours)",
    paper="exponent {proved:.3g}",
    values_are="least C, per run",
    when=_all_teachers,
    tuned_on="seeds 101 to 103",
    cases=lambda study, run: [{"lemma": n, "right": RIGHT[n], "proved": power} for n, power in LEMMAS.items()],
)
def lemmas_hold(study: LocalRate, run: Run, lemma: str, **more: Any) -> Verdict:
    found = constants(run, lemma)
    per_run = np.nanmax(found[~np.isnan(found).all(axis=1)], axis=1)
    (loss, most), least = envelope(study, run, lemma), LEMMAS[lemma] - BELOW
    if len(loss) < _FEW:
        words = f"enough runs below the threshold: at least {_CROWD} with m > r, at {_FEW} losses"
        return Verdict(None, "too few runs below the threshold", len(per_run), would_decide=words)
    fine = np.isfinite(most) & (most > 0)
    power = log_slope(loss[fine], most[fine]) + 0.0
    infinite = int(np.isinf(per_run).sum())
    say = f"C = {number(float(np.max(per_run, where=np.isfinite(per_run), initial=0.0)))}; "
    say += f"exponent {number(power, '.2f')} over losses from {number(loss.min())} to {number(loss.max())}"
    if infinite:
        say += f"; in {infinite} runs no constant suffices: the left side is infinite at some probe"
    decided = Verdict(bool(power >= least and (per_run <= LARGEST).all()), say, len(per_run))
    return decided.show(per_run, high=LARGEST).with_variants({"each run by itself": _decide_each_run(run, lemma)})


def _decide_each_run(run: Run, name: str) -> Verdict:
    """The exponent fitted along every single run is at least the proved one, which the lemmas do not claim."""
    least = LEMMAS[name] - BELOW
    fitted = exponents(run, f"{name} left", run.select(part="exact").index)
    fitted = fitted[np.isfinite(fitted)]
    low = int((fitted < least).sum())
    return every(fitted, at_least=least, say=f"exponents {_span(fitted)}, {low} of {len(fitted)} too low")


def squared_ratios(run: Run) -> np.ndarray:
    """‖∇L‖²/L over the length of the shortest teacher neuron, [network, probe], below the threshold; else NaN."""
    return np.where(below(run), run.series("squared_ratio") / run.column("shortest")[:, None], np.nan)


@claims.claim(
    "Z4",
    "as many students",
    statement="m = r = 1: ‖∇L‖²/L relative to the length of the teacher neuron stays above a constant along all runs",
    paper="PL holds",
    values_are="least value, per run",
    when=_one_neuron,
    tuned_on="",
)
def pl_holds(study: LocalRate, run: Run) -> Verdict:
    steep = squared_ratios(run)[run.select(part="exact", r=1, multiple=1).index]
    least = np.where(np.isnan(steep), np.inf, steep).min(1)
    words = f"smallest {least.min():.3f}, down to losses of {power_of_ten(ROUNDING)}"
    return Verdict(bool((least >= STEEP).all()), words, len(least)).show(least, low=STEEP)


@claims.claim(
    "Z4",
    "over-parameterised",
    statement="m = 2, r = 1, d > 2: ‖∇L‖²/L converges to 0 with the loss, along all runs",
    paper="PL fails",
    values_are="power of the loss, per run",
    when=_one_neuron,
    tuned_on="seeds 1 to 10 from other starts, for what decides in the plane",
)
def pl_fails(study: LocalRate, run: Run) -> Verdict:
    """In the plane, two students at one angle from a neuron have two places only; in one place they stay equal."""
    two = run.select(part="exact", r=1, multiple=2)
    plane = two.column("d") == 2
    decided, flat = (_decide_falling(run, two.index[where]) for where in (~plane, plane))
    aside = "two students at one angle have two places there, and stay equal if both start in one"
    return decided.with_variants({"d = 2": flat.also(aside)} if plane.any() else {})


def _decide_falling(run: Run, networks: np.ndarray) -> Verdict:
    """‖∇L‖²/L falls with the loss, in all by a factor of ten."""
    if not len(networks):
        return Verdict(False, "no run", 0, low=FALLS)
    powers = exponents(run, "squared_ratio", networks)
    recorded = [row[np.isfinite(row)] for row in squared_ratios(run)[networks]]
    first, last = (np.array([row[k] for row in recorded]) for k in (0, -1))
    still = int((powers <= FALLS).sum())
    words = f"falls as the loss to the power {_span(powers)}: {_span(first)} initially, {_span(last)} at the end"
    words += f"; in {still} of {len(powers)} runs it does not" if still else ""
    return every(powers, above=FALLS, say=words) & every(last - first / 10, below=0, say="")


@claims.claim(
    "Z10",
    "end loss",
    statement="m = {batch_multiple}r, {batch_steps:,} steps with fresh mini-batches: with the largest, the end loss is "
    f"that of descent on the exact loss up to a factor of {FACTOR:g}, in every seed",
    paper="the same end loss once the batch is large enough",
    values_are="end loss relative to that of the exact loss, per seed",
    when=_many_batches,
    tuned_on="seeds 101 to 112",
)
def same_end_loss(study: LocalRate, run: Run) -> Verdict:
    ratios = end_ratios(study, run)
    distance = {"distance from the end loss of descent on the exact loss": _decide_distance(ratios)}
    factors, batches = np.exp(np.abs(np.log(ratios.to_numpy())).max(axis=1)), ratios["batch"].to_numpy().tolist()
    enough = [batch for i, batch in enumerate(batches) if (factors[i:] <= FACTOR).all()]
    largest, factor = batches[-1], float(factors[-1])
    words = f"within a factor of {factor:.3f} at {largest:,} samples"
    words += f", of {FACTOR:g} from {enough[0]:,} samples on" if enough else ""
    decided = Verdict(factor <= FACTOR, words, ratios.sizes["seed"]).show(ratios[-1], low=1 / FACTOR, high=FACTOR)
    return decided.with_variants(distance)


@claims.claim(
    "Z10",
    "gradients",
    statement="lemma F.1, initial students of {seeds} teachers of each kind, mini-batches of N samples: the median "
    f"root mean square of ‖∇L̂ − ∇L‖ falls as N to a power within −0.5 ± {WITHIN:g} for each kind, and 90% of the "
    "distances are at most C √(r³ w_max³ d² / (N δ)), δ = 0.1, with C ≤ 1 (bound ours)",
    paper="N = O(r³ w_max³ d² ε^(−2) δ^(−1))",
    values_are="power of N, per kind of teacher",
    when=lambda study: _all_teachers(study) and max(study.batch) >= 64 * min(study.batch),
    tuned_on="seeds 101 to 103",
)
def gradients_concentrate(study: LocalRate, run: Run) -> Verdict:
    found = gradient_errors(run)
    kinds = found.groupby(["r", "d", "separation", "w_min", "w_max"])
    slopes = []
    for _, rows in kinds:
        middle = rows.groupby("batch")["error"].median()
        slopes.append(log_slope(middle.index, middle))
    say = f"{{least:.3f}} to {{most:.3f}}; C = {number(float(found['constant'].max()))}"
    inside = every(slopes, at_least=POWER - WITHIN, at_most=POWER + WITHIN, n=len(found), say=say)
    return inside & every(found["constant"], at_most=SPREAD, say="")


def gradient_errors(run: Run) -> pd.DataFrame:
    """Distances of sampled gradients from ∇L, a row per teacher and batch size, with the constant of lemma F.1."""
    found = read_units(run, "gradients").to_pandas()
    scale = (found["r"] * found["longest"]) ** 3 * found["d"] ** 2 / (found["batch"] * DELTA)
    return found.assign(constant=found["quantile"] / np.sqrt(scale))


@claims.claim(
    "Z10",
    "share",
    statement="theorem 6, r = {r_batch}, d = {d_batch}, m = {batch_multiple}r, N fresh samples in each step: the share "
    "of runs with a loss of at most ε = C r w_max / (η T) at step T = {batch_steps:,}, "
    f"C = {TIME:g} (ours), does not fall with N by more than {NOISE:g} standard errors, and is at least 0.9 at the "
    "largest N",
    paper="1 − δ from N = O(r⁵ w_max⁵ d² / (η ε³ δ)) on",
    values_are="share of runs, per batch size",
    when=_many_batches,
    tuned_on="seeds 101 to 112",
    cases=lambda study, run: [{"r_batch": study.batch_setting().r, "d_batch": study.batch_setting().d}],
)
def mini_batches_arrive(study: LocalRate, run: Run, **sizes: int) -> Verdict:
    arrived = arrivals(study, run)
    exact, share = float(arrived.sel(batch=0).mean()), arrived.drop_sel(batch=0).mean("seed")
    shares, batches = share.to_numpy(), share["batch"].to_numpy()
    square = shares * (1 - shares) / arrived.sizes["seed"]
    steady = np.diff(shares) >= -NOISE * np.sqrt(square[1:] + square[:-1])
    words = ", ".join(f"{each:.0%} at N = {batch:,}" for each, batch in zip(shares, batches, strict=True))
    decided = Verdict(
        bool(steady.all() and shares[-1] >= 1 - DELTA),
        f"{words}; exact loss {exact:.0%}; ε = {number(target(study))}",
        arrived.size,
    ).show(shares, low=1 - DELTA)
    return decided.provided(exact == 1, "more steps, until descent on the exact loss reaches ε in every run")


def target(study: LocalRate) -> float:
    """ε that mini-batches must reach by their last step."""
    setting = study.batch_setting()
    return TIME * setting.r * setting.w_max / (study.rate * study.batch_steps)


def arrivals(study: LocalRate, run: Run) -> xr.DataArray:
    """Whether the loss is at most ε at the last step, 1 or 0, [batch, seed]; batch 0 is the exact loss."""
    return (_batch_ends(study, run) <= target(study)).astype(float)


def _batch_ends(study: LocalRate, run: Run) -> xr.DataArray:
    """End loss with mini-batches, [batch, seed]; batch 0 is the exact loss."""
    ends = run.array("loss", "batch seed", part="batch", epoch=study.batch_steps)
    return ends.assign_coords(batch=ends["batch"].astype(int))


def _decide_distance(ratios: xr.DataArray) -> Verdict:
    away, batch = abs(ratios - 1).median("seed").to_numpy(), ratios["batch"].to_numpy()
    falls = log_slope(batch, away)
    medians = ", ".join(f"{m:.2f} at {b:,}" for b, m in zip(batch, ratios.median("seed").to_numpy(), strict=True))
    words = f"end loss relative to the exact one {medians} (medians); distance ∝ batch^{number(falls, '.2f')}"
    return Verdict(bool(falls < 0 and away[-1] < away[0]), words, ratios.size)


def _span(values: Any) -> str:
    """Smallest and largest value in words."""
    low, high = (f"{float(f'{v:.2g}'):g}" for v in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"
