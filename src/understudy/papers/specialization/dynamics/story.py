"""Figures and headline of `dynamics` (Tian 2019, theorems 6, 7, sec. 5.3)."""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from understudy.papers.specialization.dynamics.claims import (
    ERRORS,
    contest_array,
    count_pairs,
    escape_slope,
    growth,
    read_escapes,
    read_pulls,
)
from understudy.papers.specialization.dynamics.study import NodeDynamics
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_COMPONENTS = {"along": "along w*", "across": "across it, towards w", "outside": "out of their plane"}
_LAWS = {
    "angle": "θ̇ = −(π − θ) sin θ",
    "both layers": "both layers, v = ‖w‖",
    "lower layer": "lower layer alone",
}
_FLOOR = 1e-15
"""Differences below this are rounding."""


def story(study: NodeDynamics, run: Run) -> Story:
    """The pull of teacher nodes, the growth of norm ratios, and the time to leave θ = π."""
    pulls, escapes = read_pulls(run), read_escapes(run)
    pairs, off = count_pairs(pulls), pulls["off"].abs().to_numpy()
    slope = escape_slope(escapes, "both layers")
    figures = (
        Figure(
            "pull",
            "The pull of a teacher node on a student node depends on their angle alone",
            "E[x z f*] in units of s²‖w*‖. Grey: the closed form; points: one pair of nodes each, estimated from "
            f"{study.samples:,} inputs, with bars of one standard error. Opposite nodes do not move at all.",
            "S1 theorem 6",
            _pull(study, pulls),
        ),
        Figure(
            "pull-errors",
            "The differences are chance",
            "Differences from the closed form in standard errors, in order, against normal quantiles: on the dashed "
            "line they are what sampling gives.",
            "S1 theorem 6, in numbers",
            _errors(study, pulls),
        ),
        Figure(
            "symmetry",
            "A node that sees slightly more of the target takes all of it",
            f"{study.nodes} nodes share a target; one sees 1 + ε of it. Left: the ratio of its length to that of "
            "another node; right: the difference that drives it, which tends to 0 or to ε. A node that keeps losing is "
            "finally pushed to the other side, where it grows again.",
            "S1 sec. 5.3, theorem 7",
            _symmetry(study, run),
        ),
        Figure(
            "slow-start",
            "The closer to the opposite direction a node starts, the later it turns",
            "Time from the angle π − ε to π/2. It grows as 1/ε for the equation of the angle alone and where both "
            "layers move in balance; with the output weight fixed, w first shrinks and turns after about 2 ln(π/ε).",
            "S1 sec. 5.3",
            _leaving(study, escapes),
        ),
    )
    return Story(
        f"Over {counted(pairs, 'pair')} of nodes the pull of a teacher node agrees with theorem 6 of Tian 2019 "
        f"(largest of {len(off):,} differences: {off.max():.1f} standard errors); {_outgrown(study, run)} the time to "
        f"turn from π − ε grows as 1/ε to the power {slope:.3f}.",
        (
            Number(f"{pairs:,}", "pairs of nodes"),
            Number(f"{(off > ERRORS).sum():,}", f"of {len(off):,} differences beyond {ERRORS:g} standard errors"),
            Number(style.number(run.select(part="steps").end("off").max()), "largest error of norm ratios"),
            Number(f"{slope:.3f}", "slope of the time to leave π"),
        ),
        figures,
    )


def _outgrown(study: NodeDynamics, run: Run) -> str:
    more = [extra for extra in study.extra if extra > 0]
    if not more:
        return "norm ratios of nodes that share a target are constant;"
    middle = more[len(more) // 2]
    rate = float(np.nanmedian(growth(study, run, middle)))
    return f"a node that sees {1 + middle:g} times the target outgrows another at a rate of {rate:.3f};"


def _pull(study: NodeDynamics, pulls: pd.DataFrame) -> Curves:
    def series(dim: int, component: str, colour: str) -> tuple[Series, ...]:
        own = pulls[(pulls["dim"] == dim) & (pulls["component"] == component)].sort_values("theta")
        theta, closed, mean, error = (own[name].to_numpy() for name in ("theta", "closed", "mean", "error"))
        points = Series(_COMPONENTS[component], theta, mean, mean - error, mean + error, points=True, colour=colour)
        return (Series("closed form", theta, closed, colour=style.HAIRLINE), points) if len(own) else ()

    colours = dict(zip(_COMPONENTS, style.CATEGORIES, strict=False))
    panels = (
        Panel(
            f"d = {dim}",
            "angle θ",
            "E[x z f*] / s²‖w*‖",
            tuple(each for component, colour in colours.items() for each in series(dim, component, colour)),
        )
        for dim in study.dim
    )
    return Curves(tuple(panels), note=f"n = {study.seeds * len(study.inputs)} pairs per panel")


def _errors(study: NodeDynamics, pulls: pd.DataFrame) -> Curves:
    lines = []
    for dim in study.dim:
        off = np.sort(pulls.loc[pulls["dim"] == dim, "off"].to_numpy())
        normal = stats.norm.ppf((np.arange(len(off)) + 0.5) / len(off))
        lines.append(Series(f"d = {dim}", normal, off))
    ends = np.array([-ERRORS, ERRORS])
    chance = Series("chance", ends, ends, dashed=True, colour=style.HAIRLINE)
    panel = Panel("", "normal quantile", "difference in standard errors", (*lines, chance))
    return Curves((panel,), note=f"n = {len(pulls):,} differences")


def _symmetry(study: NodeDynamics, run: Run) -> Curves:
    ratio, gap = (contest_array(study, run, name) for name in ("log_ratio", "gap"))
    size = abs(gap)
    shown: dict[tuple[str, str], Any] = {
        ("ratio of lengths", "‖w₀‖ / ‖w₁‖"): np.exp(ratio),
        ("difference that drives it", "|h₀ − h₁|"): size.where((size > _FLOOR).all("seed")),
    }
    labels = {extra: f"ε = {extra:g}" for extra in study.extra}
    panels = [
        Curves.from_array(
            values,
            name=name,
            x="time",
            line="extra",
            labels=labels,
            titles={(): title},
            colours="categories",
            log_y=True,
        ).panels
        for (title, name), values in shown.items()
    ]
    return Curves((*panels[0], *panels[1]), note=f"n = {counted(study.flows, 'start')}", band="quartiles")


def _leaving(study: NodeDynamics, escapes: pd.DataFrame) -> Curves:
    def series(law: str, name: str) -> Series:
        own = escapes[escapes["law"] == law].sort_values("eps", ascending=False)
        return Series(name, 1 / own["eps"].to_numpy(), own["time"].to_numpy())

    lines = tuple(series(law, name) for law, name in _LAWS.items())
    panel = Panel("", "1/ε", "time from π − ε to π/2", lines, log_x=True, log_y=True, slope=1.0)
    return Curves((panel,), note=f"n = {len(study.eps)} starts each")
