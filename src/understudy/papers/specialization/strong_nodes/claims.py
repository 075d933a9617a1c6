"""Claims L2 and L3: gradient when a teacher node is recovered, and its students (Tian 2020, sec. 6; 2019, sec. 5.3)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from understudy.claims import Claims, Verdict, every, mean_above, median
from understudy.lab.recovery import first_epochs, strengths
from understudy.measures import THRESHOLD
from understudy.papers.specialization.strong_nodes.study import StrongNodes
from understudy.store import Run
from understudy.store.arrays import Networks

CORRELATION = 0.8
"""Least rank correlation of the strength of teacher nodes and the gradient when they are recovered."""
LARGE = 10.0
"""Least ratio of a large to a small gradient."""
STRONGEST = 5
"""Number of strong teacher nodes, and of weak ones, that are compared."""
SEVERAL = 2
ERRORS = 2.0

claims = Claims(free="seeds dtype device", least={"seeds": 10}, tuned_on="seeds 101 and 102")


def sorted_strengths(networks: Networks) -> np.ndarray:
    """Norm of the fan-out of each teacher node, [network, teacher], the strongest first."""
    return -np.sort(-strengths(networks.run)[networks.index], axis=1)


def gradients(networks: Networks) -> np.ndarray:
    """Norm of the gradient when each teacher node is first recovered, the strongest first; NaN if it never is."""
    run = networks.run
    first = _strongest_first(networks, first_epochs(run)[networks.index])
    norm = run.series("gradient_norm")[networks.index]
    place = np.searchsorted(run.epochs, np.where(np.isfinite(first), first, run.epochs[0]))
    return np.where(np.isfinite(first), np.take_along_axis(norm, place, axis=1), np.nan)


def student_counts(networks: Networks) -> np.ndarray:
    """Number of students above 0.95 with each teacher node as their best, at the end, the strongest node first."""
    run, last = networks.run, int(networks.run.epochs[-1])
    best, rho = (run.matched("student", name, epoch=last)[networks.index] for name in ("teacher", "correlation"))
    teachers = strengths(run).shape[1]
    matched = [b[r > THRESHOLD].astype(int) for b, r in zip(best, rho, strict=True)]
    return _strongest_first(networks, np.stack([np.bincount(each, minlength=teachers) for each in matched]))


def _strongest_first(networks: Networks, values: np.ndarray) -> np.ndarray:
    order = np.argsort(-strengths(networks.run)[networks.index], axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1)


def rank_correlation(strength: np.ndarray, values: np.ndarray) -> float:
    """Rank correlation over the teacher nodes with a value; NaN with fewer than two."""
    from scipy.stats import spearmanr

    known = np.isfinite(values)
    return float(spearmanr(strength[known], values[known])[0]) if known.sum() > 1 else np.nan


def _slope(strength: np.ndarray, values: np.ndarray) -> float:
    known = np.isfinite(values)
    return float(np.polyfit(np.log(strength[known]), np.log(values[known]), 1)[0]) if known.sum() > 1 else np.nan


def _alive(run: Run, polarity: float, multiple: float) -> Networks:
    some = run.select(polarity=polarity, multiple=multiple)
    return Networks(run, some.index[some.alive])


def _cells(study: StrongNodes, run: Run) -> Iterator[dict[str, Any]]:
    """Every polarity and width with networks that did not diverge."""
    for polarity in study.polarity:
        for multiple in study.multiple:
            if len(some := _alive(run, polarity, multiple)):
                yield {"polarity": polarity, "multiple": multiple, "some": some}


@claims.claim(
    "L2",
    "p = {polarity:g}, {multiple:g}×, order",
    statement="rank correlation of the strength of a teacher node and the norm of the gradient when it is first "
    f"recovered, over the recovered nodes: median over seeds at least {CORRELATION:g}",
    paper="strong nodes specialise while the gradient is still large, others with small gradient",
    values_are="rank correlation, per seed",
    cases=_cells,
)
def stronger_at_larger_gradients(study: StrongNodes, run: Run, some: Networks, **_: Any) -> Verdict:
    strength, norm = sorted_strengths(some), gradients(some)
    each = [rank_correlation(*pair) for pair in zip(strength, norm, strict=True)]
    slopes = np.array([_slope(*pair) for pair in zip(strength, norm, strict=True)])
    nodes = np.isfinite(norm).sum(1).mean()
    words = (
        f"{{median:.2f}} (seeds {{range:.2f}}) over {nodes:.1f} nodes; the norm grows as the strength to the power "
        f"{np.nanmedian(slopes):.2f}"
    )
    return median(each, at_least=CORRELATION, say=words)


@claims.claim(
    "L2",
    "p = {polarity:g}, {multiple:g}×, size",
    statement="norm of the gradient when the strongest teacher node is first recovered, relative to that when the "
    f"weakest of the recovered nodes is: median over seeds at least {LARGE:g}",
    paper="large for strong nodes, small for others",
    values_are="ratio of norms, per seed",
    cases=_cells,
)
def large_against_small(study: StrongNodes, run: Run, some: Networks, **_: Any) -> Verdict:
    norm = gradients(some)
    ends = [np.flatnonzero(np.isfinite(row))[[0, -1]] for row in norm if np.isfinite(row).any()]
    known = norm[np.isfinite(norm).any(1)]
    ratio = [row[a] / row[b] for row, (a, b) in zip(known, ends, strict=True)]
    return median(ratio, at_least=LARGE, say="{median:.3g} (quartiles {quartiles:.3g})")


@claims.claim(
    "L3",
    "p = {polarity:g}, {multiple:g}×, strongest",
    statement=f"students above correlation {THRESHOLD:g} with the strongest teacher node at the end of training: at "
    f"least {SEVERAL} in every seed",
    paper="often covered by multiple students",
    values_are="students of the strongest teacher node, per seed",
    cases=_cells,
)
def strongest_is_learned_several_times(study: StrongNodes, run: Run, some: Networks, **_: Any) -> Verdict:
    return every(student_counts(some)[:, 0], at_least=SEVERAL, say="median {median:g} (seeds {range:g})")


@claims.claim(
    "L3",
    "p = {polarity:g}, {multiple:g}×, strong and weak",
    statement=f"students above correlation {THRESHOLD:g} at the end of training: mean of the {STRONGEST} strongest "
    f"recovered teacher nodes above that of the {STRONGEST} weakest recovered ones, mean over seeds more than "
    f"{ERRORS:g} standard errors",
    paper="strong teacher nodes are covered by multiple students",
    values_are="difference, per seed",
    cases=_cells,
)
def strong_nodes_have_more_students(study: StrongNodes, run: Run, some: Networks, **_: Any) -> Verdict:
    counts = student_counts(some)
    learned = [row[row > 0] for row in counts]
    strong, weak = (np.array([row[part].mean() if len(row) else np.nan for row in learned]) for part in _ENDS)
    found = mean_above(strong - weak, errors=ERRORS, say="{mean:.1f} more")
    return found.also(f"{np.nanmean(strong):.1f} and {np.nanmean(weak):.1f} students per node")


_ENDS = slice(STRONGEST), slice(-STRONGEST, None)
