"""Claim Z7: initial losses, estimated spans and descent from them (Zhou, Ge & Jin 2021, algorithms 1, 2, theorem 5)."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from understudy.claims import Claims, Verdict, every
from understudy.papers.local.initialisation.study import ALGORITHMS, OTHERS, REACHED, Initialisation
from understudy.papers.local.shared import log_slope
from understudy.report.style import number
from understudy.store import Run
from understudy.store.units import read_units

SLOPE, WITHIN = -0.5, 0.1
"""Slope of the log of the median angle in log N, and its tolerance."""

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
    """[by, students, seed]: initial losses for teachers of one size."""
    return run.array("loss", "by students seed", part="start", teacher_nodes=nodes, dim=dim)


def span_angles(study: Initialisation, run: Run) -> dict[tuple[int, int], pd.DataFrame]:
    """Angles of estimated spans, [samples, seed], by numbers of teacher nodes and inputs."""
    frame = read_units(run, "spans", part="span").to_pandas()
    sizes = frame.groupby(["teacher_nodes", "dim"])
    found = {size: rows.pivot(index="samples", columns="seed", values="angle") for size, rows in sizes}
    return {size: found[size] for size in study.settings(study.dim) if size in found}


def angle_slopes(study: Initialisation, run: Run) -> dict[tuple[int, int], float]:
    """Slope of the log of the median angle in log N, by numbers of teacher nodes and inputs."""
    found = span_angles(study, run).items()
    return {size: log_slope(angles.index, np.median(angles, 1)) for size, angles in found if len(angles) > 1}


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


claims = Claims(when=lambda study: not study.teacher)  # one teacher decides nothing about others


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
    "span",
    statement="largest angle between the span estimated from N samples and the teacher's, N from {fewest:,} to "
    "{most:,}: log-log slope in N of its median over {seeds} seeds within −0.5 ± 0.1",
    paper="N^(−½)",
    when=_many_samples,
    cases=lambda study, run: [{"fewest": min(study.samples), "most": max(study.samples)}],
)
def span_converges(study: Initialisation, run: Run, **sizes: int) -> Verdict | None:
    found = angle_slopes(study, run)
    words = ", ".join(f"{round(value, 3):g} at r = {nodes}, d = {dim}" for (nodes, dim), value in found.items())
    inside = every(list(found.values()), at_least=SLOPE - WITHIN, at_most=SLOPE + WITHIN, n=study.seeds, say=words)
    return inside if found else None


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
