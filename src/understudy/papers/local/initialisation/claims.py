"""Claim Z7: initial losses, estimated spans and descent from them (Zhou, Ge & Jin 2021, algorithms 1, 2, theorem 5)."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from understudy.claims import Claims, Verdict, every, mean_above
from understudy.papers.local.initialisation.study import ALGORITHMS, OTHERS, REACHED, Initialisation
from understudy.papers.local.shared import log_slope
from understudy.report.style import number
from understudy.store import Run
from understudy.store.units import read_units

SLOPE, WITHIN = -0.5, 0.1
"""Slope of the log of the median angle, or distance of moments, in log N, and its tolerance."""
ERRORS = 2.0
"""Standard errors by which the loss must fall faster in m than proved."""
DISTANCE, DELTA = 3.0, 0.1
"""Largest constant of lemma E.3, and the share δ of the estimates that may exceed it."""

_OTHERS = {"small": "small initial weights", "large": "large initial weights, with a smaller learning rate"}


class Descents(NamedTuple):
    """Descents from one kind of initial weights, one value per network."""

    steps: np.ndarray
    """Step of the first probe at a loss of 10⁻⁶ or less; infinite if there is none."""
    last: np.ndarray
    """Loss at the last step; infinite if descent diverged."""

    @property
    def arrived(self) -> int:
        """Number of networks that reach a loss of 10⁻⁶."""
        return int(np.isfinite(self.steps).sum())

    def verdict(self) -> Verdict:
        """Every network reaches a loss of 10⁻⁶."""
        there, total = self.steps[np.isfinite(self.steps)], len(self.steps)
        words = f"{self.arrived} of {total}"
        if len(there):
            words += f", after {np.median(there):,.0f} steps (median; at most {there.max():,.0f})"
        if len(there) < total:
            words += f", the median loss ends at {number(float(np.median(self.last)))}"
        shown = np.log10(self.last[np.isfinite(self.last)])
        return Verdict(len(there) == total, words, total).show(shown, high=float(np.log10(REACHED)))


def initial_losses(run: Run, nodes: int, dim: int) -> xr.DataArray:
    """Initial losses for teachers of one size, [by, students, seed]."""
    return run.array("loss", "by students seed", part="start", teacher_nodes=nodes, dim=dim)


def loss_exponents(run: Run, by: str, nodes: int, dim: int) -> np.ndarray:
    """Slope of the log of the initial loss in log m, [seed]."""
    losses = initial_losses(run, nodes, dim).sel(by=by).transpose("students", "seed")
    return np.array([log_slope(losses["students"], losses.sel(seed=seed)) for seed in losses["seed"]])


def span_units(study: Initialisation, run: Run, column: str = "angle") -> dict[tuple[int, int], pd.DataFrame]:
    """A column of the estimated spans, [samples, seed], by numbers of teacher nodes and inputs."""
    frame = read_units(run, "spans", part="span").to_pandas()
    if column not in frame:
        return {}
    sizes = frame.groupby(["teacher_nodes", "dim"])
    found = {size: rows.pivot(index="samples", columns="seed", values=column) for size, rows in sizes}
    return {size: found[size] for size in study.settings(study.dim) if size in found}


def sample_slopes(study: Initialisation, run: Run, column: str = "angle") -> dict[tuple[int, int], float]:
    """Slope of the log of the median of a column in log N, by numbers of teacher nodes and inputs."""
    found = span_units(study, run, column).items()
    return {size: log_slope(each.index, np.median(each, 1)) for size, each in found if len(each) > 1}


def descents(run: Run, by: str) -> Descents:
    """When descent from one kind of initial weights reaches a loss of 10⁻⁶, and where it ends."""
    loss = run.array("loss", "network epoch", part="descent", by=by)
    first = loss["epoch"].where(loss <= REACHED, np.inf).min("epoch")
    return Descents(first.to_numpy(), np.nan_to_num(loss.isel(epoch=-1), nan=np.inf))


def _enough_samples(study: Initialisation) -> bool:
    return study.span_samples >= Initialisation.span_samples


def _many_students(study: Initialisation) -> bool:
    """A factor of ten in all, and of two or more between neighbours: smaller steps are within random variation."""
    each = sorted(study.students)
    far = each[-1] >= 10 * each[0] and all(more >= 2 * less for less, more in pairwise(each))
    return study.seeds >= 20 and _enough_samples(study) and far


def _many_samples(study: Initialisation) -> bool:
    wide = max(study.samples) >= 100 * min(study.samples) and min(study.samples) >= 10_000
    return study.seeds >= 20 and wide


def _long_descents(study: Initialisation) -> bool:
    long = study.steps >= Initialisation.steps and study.descent_students >= Initialisation.descent_students
    return study.descents >= 10 and study.rate == Initialisation.rate and long and _enough_samples(study)


claims = Claims(
    when=lambda study: not study.teacher,  # one teacher decides nothing about others
    tuned_on="seeds 1 to 8 of some sizes, which decide it",
)


@claims.claim(
    "Z7",
    "loss by m",
    statement="median initial loss over {seeds} seeds, from {fewest} to {most} students, algorithms 1 (scattered) and "
    "2 (in the span): lower at every step",
    paper="falls with m",
    values_are="loss relative to that of the next smaller number of students",
    when=_many_students,
    cases=lambda study, run: [{"fewest": min(study.students), "most": max(study.students)}],
)
def loss_falls(study: Initialisation, run: Run, **sizes: int) -> Verdict:
    losses = [initial_losses(run, *size).median("seed") for size in study.settings(study.dim)]
    steps: list[float] = []
    words = []
    for by in ALGORITHMS:
        middle = [loss.sel(by=by).to_numpy() for loss in losses]
        steps += [step for each in middle for step in each[1:] / each[:-1]]
        factors = [each[0] / each[-1] for each in middle]
        words.append(f"{by} by a factor of {min(factors):.2g} to {max(factors):.2g} in all")
    return every(steps, below=1.0, n=study.seeds, say=f"{{count}} steps go down; {', '.join(words)}")


@claims.claim(
    "Z7",
    "exponent",
    statement="lemmas E.1 and E.5: initial losses from {fewest} to {most} students fall at least as fast as m^(−2/d) "
    "for algorithm 1 and as m^(−2/r) for algorithm 2: mean log-log slope over {seeds} seeds steeper by more than "
    f"{ERRORS:g} standard errors, for every size",
    paper="m = O((r w_max / √ε)^d r log(1/δ)); r in place of d in the span",
    values_are="slope relative to the proved one, per seed and size",
    when=_many_students,
    tuned_on="seeds 101 to 110",
    cases=lambda study, run: [{"fewest": min(study.students), "most": max(study.students)}],
)
def loss_falls_as_proved(study: Initialisation, run: Run, **sizes: int) -> Verdict:
    relative, each, words = [], [], []
    for by in ALGORITHMS:
        for nodes, dim in study.settings(study.dim):
            proved = -2 / (dim if by == "scattered" else nodes)
            slopes = loss_exponents(run, by, nodes, dim)
            each.append(mean_above(proved - slopes, errors=ERRORS).holds)
            relative.append(slopes / proved)
            words.append(f"{by}, r = {nodes}, d = {dim}: {slopes.mean():.2f} (proved {proved:.2f})")
    return Verdict(all(each), "; ".join(words), study.seeds).show(relative, low=1.0)


@claims.claim(
    "Z7",
    "span",
    statement="largest angle between the span estimated from N samples and the teacher's, N from {fewest:,} to "
    "{most:,}: log-log slope in N of its median over {seeds} seeds within −0.5 ± 0.1",
    paper="N^(−½)",
    when=_many_samples,
    cases=lambda study, run: [{"fewest": min(study.samples), "most": max(study.samples)}],
)
def span_converges(study: Initialisation, run: Run, **sizes: int) -> Verdict | None:
    return _decide_slopes(study, run, "angle")


def _decide_slopes(study: Initialisation, run: Run, column: str) -> Verdict | None:
    """Medians fall as N^(−½) for every size, up to the tolerance; None where no span was estimated."""
    found = sample_slopes(study, run, column)
    words = ", ".join(f"{round(value, 3):g} at r = {nodes}, d = {dim}" for (nodes, dim), value in found.items())
    inside = every(list(found.values()), at_least=SLOPE - WITHIN, at_most=SLOPE + WITHIN, n=study.seeds, say=words)
    return inside if found else None


@claims.claim(
    "Z7",
    "moment",
    statement="lemma E.3: ‖M̂ − M‖ of N samples, N from {fewest:,} to {most:,}: log-log slope in N of its median over "
    f"{{seeds}} seeds within −0.5 ± 0.1 for every size, and at most C r w_max √(d/N) in {1 - DELTA:.0%} of the "
    f"estimates, C ≤ {DISTANCE:g} (bounds ours)",
    paper="O(r w_max ε) from Õ(d/ε²) samples",
    when=_many_samples,
    tuned_on="seeds 101 to 110",
    cases=lambda study, run: [{"fewest": min(study.samples), "most": max(study.samples)}],
)
def moment_converges(study: Initialisation, run: Run, **sizes: int) -> Verdict | None:
    found = _decide_slopes(study, run, "distance")
    if found is None:
        return None
    return found & every([np.quantile(moment_constants(run), 1 - DELTA)], at_most=DISTANCE, say="C = {most:.2f}")


def moment_constants(run: Run) -> np.ndarray:
    """‖M̂ − M‖ / (r w_max √(d/N)) of every estimate."""
    rows = read_units(run, "spans").to_pandas()
    bound = rows["teacher_nodes"] * rows["longest"] * np.sqrt(rows["dim"] / rows["samples"])
    return (rows["distance"] / bound).to_numpy()


@claims.claim(
    "Z7",
    "descent",
    statement="gradient descent on the exact loss from both, {descent_students} students, rate {rate:g}: a loss of "
    "10⁻⁶ within {steps:,} steps, in every network",
    paper="reaches any ε",
    values_are="log₁₀ of the end loss, per network",
    when=_long_descents,
)
def descent_converges(study: Initialisation, run: Run) -> Verdict:
    found = {by: descents(run, by) for by in (*ALGORITHMS, *OTHERS)}
    both = Descents(*(np.concatenate([found[by][i] for by in ALGORITHMS]) for i in (0, 1)))
    words = "; ".join(f"{by} {found[by].verdict().measured}" for by in ALGORITHMS)
    return both.verdict().say(words).with_variants({_OTHERS[by]: found[by].verdict() for by in OTHERS})
