"""The dynamics of nodes in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from understudy.papers.specialization.dynamics.claims import ERRORS, Pulls, growth, leaving_slope, part, pulls
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.dynamics.study import NodeDynamics

_NAMES = {"along": "along w*", "across": "across it, towards w", "outside": "out of their plane"}
_LAWS = {
    "angle": "θ̇ = −(π − θ) sin θ",
    "both layers": "both layers, v = ‖w‖",
    "lower layer": "lower layer alone",
}
_FLOOR = 1e-15
"""Differences below this are rounding."""


def story(study: NodeDynamics, run: Run) -> Story:
    every = pulls(run)
    pairs = len(np.unique(every.network))
    figures = (
        Figure(
            "pull",
            "What a teacher node does to a student node depends on their angle alone",
            f"E[x z f*] in units of s²‖w*‖: grey the closed form, a point a pair with a Monte Carlo of "
            f"{study.samples:,} inputs, bars of a standard error. Opposite nodes are not moved at all.",
            "S1 theorem 6",
            _pull(study, every),
        ),
        Figure(
            "pull-errors",
            "The differences are chance",
            "All differences from the closed form in standard errors, in order, against those of a normal number: on "
            "the dashed line they are what sampling gives.",
            "S1 theorem 6, in numbers",
            _errors(study, every),
        ),
        Figure(
            "symmetry",
            "A little more of the target, and one node takes all",
            f"{study.nodes} nodes share a target; one sees 1 + ε of it. Left: its length over that of another, right: "
            "the difference that drives it, which goes to 0 or to ε. A node that keeps losing is in the end pushed "
            "round to the other side, where it grows again.",
            "S1 sec 5.3, theorem 7",
            _symmetry(study, run),
        ),
        Figure(
            "slow-start",
            "The nearer to opposite, the later it turns",
            "Time from the angle π − ε to π/2. It grows as 1/ε for the angle's own equation and where both layers move "
            "in balance; with the output weight held, w shrinks first and turns after about 2 ln(π/ε).",
            "S1 sec 5.3",
            _leaving(study, run),
        ),
    )
    largest = float(np.abs(every.off).max())
    slope = leaving_slope(run, "both layers")
    return Story(
        f"Over {counted(pairs, 'pair')} of nodes the pull of a teacher node is that of S1 theorem 6, the largest of "
        f"{len(every.off):,} differences {largest:.1f} standard errors; {_won(study, run)} to turn from π − ε takes a "
        f"time that grows as 1/ε to the power {slope:.3f}.",
        (
            Number(f"{pairs:,}", "pairs of nodes"),
            Number(f"{every.beyond:,}", f"of {len(every.off):,} differences beyond {ERRORS:g} standard errors"),
            Number(style.number(float(run.series("off")[part(run, "steps"), 0].max())), "largest error of norm ratios"),
            Number(f"{slope:.3f}", "slope of the time to leave π"),
        ),
        figures,
    )


def _won(study: NodeDynamics, run: Run) -> str:
    more = [extra for extra in study.extra if extra > 0]
    if not more:
        return "norm ratios of nodes that share a target stay;"
    middle = more[len(more) // 2]
    rate = float(np.nanmedian(growth(study, run, middle)))
    return f"a node that sees {1 + middle:g} times the target outgrows another at a rate of {rate:.3f};"


def _pull(study: NodeDynamics, every: Pulls) -> Curves:
    panels = []
    colours = dict(zip(_NAMES, style.CATEGORIES, strict=False))
    for dim in study.dim:
        series = []
        for component, name in _NAMES.items():
            here = np.flatnonzero((every.dim == dim) & (every.component == component))
            here = here[np.argsort(every.theta[here])]
            theta, bar = every.theta[here], every.error[here]
            if len(here):
                series.append(Series("closed form", theta, every.closed[here], colour=style.HAIRLINE))
                mean = every.mean[here]
                ends, colour = (mean - bar, mean + bar), colours[component]
                whose = every.network[here]
                series.append(Series(name, theta, mean, *ends, points=True, colour=colour, network=whose))
        panels.append(Panel(f"d = {dim}", "angle θ", "E[x z f*] / s²‖w*‖", tuple(series)))
    return Curves(tuple(panels), note=f"n = {study.seeds * len(study.inputs)} pairs a panel")


def _errors(study: NodeDynamics, every: Pulls) -> Curves:
    lines = []
    for dim in study.dim:
        off = np.sort(every.off[every.dim == dim])
        normal = stats.norm.ppf((np.arange(len(off)) + 0.5) / len(off))
        lines.append(Series(f"d = {dim}", normal, off))
    ends = np.array([-ERRORS, ERRORS])
    chance = Series("chance", ends, ends, dashed=True, colour=style.HAIRLINE)
    panel = Panel("", "of a normal number", "difference in standard errors", (*lines, chance))
    return Curves((panel,), note=f"n = {len(every.off):,} differences")


def _symmetry(study: NodeDynamics, run: Run) -> Curves:
    times = study.times()
    ratios, gaps = [], []
    for extra in study.extra:
        networks = part(run, "contest", extra=extra)
        ratio, gap = (run.series(name)[networks][:, : len(times)] for name in ("log_ratio", "gap"))
        name = f"ε = {extra:g}"
        low, middle, high = np.quantile(np.exp(ratio), [0.25, 0.5, 0.75], axis=0)
        ratios.append(Series(name, times, middle, low, high))
        size = np.abs(gap)
        low, middle, high = np.quantile(np.where(size > _FLOOR, size, np.nan), [0.25, 0.5, 0.75], axis=0)
        gaps.append(Series(name, times, middle, low, high))
    return Curves(
        (
            Panel("length over another's", "time", "‖w₀‖ / ‖w₁‖", tuple(ratios), log_y=True),
            Panel("what drives it", "time", "|h₀ − h₁|", tuple(gaps), log_y=True),
        ),
        note=f"median and quartiles, n = {study.flows} starts",
    )


def _leaving(study: NodeDynamics, run: Run) -> Curves:
    lines = []
    for law, name in _LAWS.items():
        networks = part(run, "leaving", law=law)
        order = networks[np.argsort(-run.column("eps")[networks])]
        lines.append(Series(name, 1 / run.column("eps")[order], run.series("time")[order, 0]))
    panel = Panel("", "1/ε", "time from π − ε to π/2", tuple(lines), log_x=True, log_y=True, slope=1.0)
    return Curves((panel,), note=f"n = {len(study.eps)} starts each")
