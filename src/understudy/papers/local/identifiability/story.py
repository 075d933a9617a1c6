"""Identifiability in words and figures."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from understudy.papers.local.identifiability.claims import (
    ACCURATE,
    CONVERGED,
    ERRORS,
    decay,
    eigenvalues,
    ended,
    hermite,
    lowest_right,
    sampled,
    slope,
)
from understudy.papers.local.identifiability.study import FAR, MATCHED, SIZES
from understudy.papers.specialization.dynamics.claims import part
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.identifiability.study import Identifiability

_FLOOR = 1e-17
"""What is exactly right has no place on a logarithmic axis: it is drawn here."""
_NOTHING = {"loss": 1e-12, "nearest": 1e-6, "farthest_line": 1e-6}
"""What is below this is drawn as this."""
_LOST = 1e6
"""What is above is not drawn: what diverges goes up to any number."""
_WAYS = {False: "ReLU", True: "linear term first"}
_FANS = 3
"""Numbers of nodes that have a line of their own."""


def story(study: Identifiability, run: Run) -> Story:
    stray = ended(run, "nearest", start="opposite", linear=False)
    lost = ended(run, "loss", start="opposite", linear=False)
    every_loss = ended(run, "loss")
    left, gone = np.isfinite(lost), int((~np.isfinite(every_loss)).sum())
    unmatched = bool((lost <= CONVERGED).all() and (stray > MATCHED).all())
    figures = (
        Figure(
            "accuracy",
            "Small losses keep their digits",
            "Relative error of losses of networks close to a solution, a point a network, against the same in 60 "
            "digits. The textbook's form is a difference of large numbers, and ends in noise; dashed, 1%.",
            "S4 eq. 1",
            _accuracy(run),
        ),
        Figure(
            "relu",
            "Without loss, and matching nobody" if unmatched else "ReLU students from the opposite of teacher nodes",
            "ReLU students that begin near the opposite of every teacher node. Left: the loss. Right: the ReLU student "
            "nearest to the direction of any teacher node; and, with the linear term fitted first, the student "
            f"farthest from the line of one. Median and range{', what diverged left out' if gone else ''}.",
            "S4 claim 1, app A",
            _relu(study, run),
        ),
        Figure(
            "least-eigenvalue",
            "What tells close teacher nodes apart goes as Δ³",
            "The least eigenvalue of M. Left: teacher nodes in a fan, each Δ from the next. Right: the same over Δ³, "
            "and of random teachers, by the number of nodes: the proved bound also falls as 1/r³, and these do not.",
            "S4 lemma 10",
            _eigenvalues(study, run),
        ),
        Figure(
            "sampled",
            "The differences from samples are chance",
            "Losses and slopes by Monte Carlo less the closed forms, in standard errors and in order, against those of "
            "a normal number: on the dashed line they are what sampling gives.",
            "S4 eq. 1",
            _sampled(run),
        ),
        Figure(
            "hermite",
            "Hermite coefficients of |x| fall as k^(−5/2)",
            "Squares of the even ones; k^(−3/2), which is printed beside the formula, is the dashed line.",
            "S4 lemma C.6",
            _hermite(run),
        ),
    )
    farthest = ended(run, "farthest_line", start="opposite", linear=True)
    low, low_book = (lowest_right(run, name) for name in ("off", "textbook_off"))
    every = sampled(run)
    steep = slope(*eigenvalues(run, arranged="fan", teacher_nodes=2)[:2])
    reached = f"All {len(lost)} networks of ReLU students begun near the opposite of teacher nodes diverged"
    if left.any():
        worst, nearest = float(lost[left].max()), float(stray[left].min())
        reached = f"ReLU students reach a loss of {style.number(worst)} with none nearer than {nearest:.2f} rad to a "
        reached += "teacher node"
    diverged = f" {gone} of {len(every_loss)} descents diverged." if gone else ""
    said = "".join(f" Warning: {caution}." for caution in study.warnings())
    return Story(
        f"{reached}; with the linear term fitted first, {int((farthest < MATCHED).sum())} of {len(farthest)} "
        f"networks match within {MATCHED:g} rad.{diverged} Losses are right to 1% down to {style.number(low)}, by the "
        f"textbook's form to {style.number(low_book)}.{said}",
        (
            Number(style.number(low), "least loss right to 1%"),
            Number(f"{np.abs(every.off).max():.2f}", f"standard errors, the largest of {len(every.off):,}"),
            Number(f"{int((farthest < MATCHED).sum())} of {len(farthest)}", "networks match after the reduction"),
            Number(f"{steep:.3f}", "slope of λ_min in Δ"),
            Number(style.signed(round(decay(run), 2)), "power of k of Hermite squares"),
        ),
        figures,
    )


def _accuracy(run: Run) -> Curves:
    which = part(run, "digits")
    loss = run.series("exact")[which, 0]
    names = {"textbook_off": ("textbook, arccos", style.VERMILLION), "off": ("here", style.BLUE)}
    series = tuple(
        Series(
            label,
            loss,
            np.maximum(run.series(name)[which, 0], _FLOOR),
            points=True,
            colour=colour,
            network=which,
        )
        for name, (label, colour) in names.items()
    )
    ours = (Series("here", loss, np.maximum(run.series("gradient_off")[which, 0], _FLOOR), points=True, network=which),)
    return Curves(
        (
            Panel("the loss", "loss", "relative error", series[::-1], True, True, ACCURATE, "1%"),
            Panel("its gradient", "loss", "relative error", ours, True, True, ACCURATE, "1%"),
        ),
        note=f"n = {len(which)} networks",
    )


def _relu(study: Identifiability, run: Run) -> Curves:
    steps = np.array(study.probes()[1:], float)
    at = np.isin(run.epochs, study.probes()[1:])

    def line(name: str, linear: bool) -> Series:
        values = run.series(name)[part(run, "descent", start="opposite", linear=linear)][:, at]
        values = np.where(values < _LOST, np.maximum(values, _NOTHING[name]), np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a step by which every network has diverged
            low, middle, high = (of(values, axis=0) for of in (np.nanmin, np.nanmedian, np.nanmax))
        return Series(_WAYS[linear], steps, middle, low, high)

    losses = tuple(line("loss", linear) for linear in _WAYS)
    angles = line("nearest", False), line("farthest_line", True)
    count = len(part(run, "descent", start="opposite", linear=True))
    return Curves(
        (
            Panel("the loss", "step", "loss", losses, True, True),
            Panel("how far students are", "step", "angle (rad)", angles, True, True, MATCHED, "0.01 rad"),
        ),
        note=f"n = {count} networks each",
    )


def _eigenvalues(study: Identifiability, run: Run) -> Curves:
    at = np.unique(np.linspace(0, len(study.fan) - 1, _FANS).round().astype(int))
    shown = [sorted(study.fan)[i] for i in at]
    lines = []
    for nodes, colour in zip(shown, style.ramp(len(shown)), strict=True):
        apart, least, _ = eigenvalues(run, arranged="fan", teacher_nodes=nodes)
        if len(apart):
            lines.append(Series(f"r = {nodes}", apart, least, colour=colour))
    apart, least, sizes = eigenvalues(run, arranged="fan")
    first = np.array([np.flatnonzero(sizes == n)[0] for n in study.fan if (sizes == n).any()])
    over = least / apart**3
    scattered, values, counts = eigenvalues(run, arranged="random")
    middle = [np.median((values / scattered**3)[counts == n]) for n in study.fan]
    ends = [[f((values / scattered**3)[counts == n]) for n in study.fan] for f in (np.min, np.max)]
    by_nodes = (
        Series("fan, least Δ", sizes[first].astype(float), over[first], colour=style.BLUE),
        Series(
            "random",
            np.array(study.fan, float),
            np.array(middle),
            np.array(ends[0]),
            np.array(ends[1]),
            colour=style.ORANGE,
        ),
    )
    return Curves(
        (
            Panel("in a fan", "angle Δ (rad)", "λ_min(M)", tuple(lines), True, True, slope=3.0),
            Panel("by the number of nodes", "teacher nodes r", "λ_min(M) / Δ³", by_nodes, True, True),
        ),
        note="random: 10 teachers each in 3, 5 and 10 dimensions, median and range",
    )


def _sampled(run: Run) -> Curves:
    every = sampled(run)
    size = {
        network: tuple(run.column(c)[network] for c in ("students", "teacher_nodes", "dim"))
        for network in every.network
    }
    lines = []
    for wanted in SIZES:
        off = np.sort(every.off[[size[network] == wanted for network in every.network]])
        normal = stats.norm.ppf((np.arange(len(off)) + 0.5) / len(off))
        lines.append(Series("m = {}, r = {}, d = {}".format(*wanted), normal, off))
    ends = np.array([-ERRORS, ERRORS])
    chance = Series("chance", ends, ends, dashed=True, colour=style.HAIRLINE)
    panel = Panel("", "of a normal number", "difference in standard errors", (*lines, chance))
    return Curves((panel,), note=f"n = {len(every.off):,} differences")


def _hermite(run: Run) -> Curves:
    k, values = hermite(run, "coefficient")
    there = (k > 0) & (k % 2 == 0)
    k, squares = k[there].astype(float), values[there] ** 2
    printed = squares[0] * (k / k[0]) ** -1.5
    series = (
        Series("σ̂²", k, squares, points=True, colour=style.BLUE),
        Series("k^(−3/2), printed", k, printed, dashed=True, colour=style.HAIRLINE),
    )
    return Curves(
        (Panel("", "k", "square of the coefficient", series, True, True, slope=-2.5),), note=f"k up to {FAR[-1]:,}"
    )
