"""Figures and headline of `identifiability` (Zhou, Ge & Jin 2021, claim 1, lemmas 10, C.6, app. A)."""

from typing import Any

import numpy as np
from scipy import stats

from understudy.papers.local.identifiability import claims
from understudy.papers.local.identifiability.study import FAR, MATCHED, SIZE, Identifiability, size_words
from understudy.papers.local.shared import warning_words
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

_FLOOR = 1e-17
"""Smaller relative errors, 0 among them, are drawn here."""
_FLOORS = {"loss": 1e-12, "nearest": 1e-6, "farthest_line": 1e-6}
"""Smaller values along descents are drawn here."""
_LARGEST = 1e6
"""Larger values are not drawn: before divergence they rise to any number."""
_LINES: dict[str, dict[str, Any]] = {
    "teacher sums to zero": {"part": "descent"},
    "no linear term": {"part": "reduction", "linear": False},
    "linear term fitted": {"part": "reduction", "linear": True},
}
"""Descents of ReLU students, by their labels."""
_FANS = 3
"""Numbers of teacher nodes that have their own line."""


def story(study: Identifiability, run: Run) -> Story:
    """Exactness of small losses, ReLU students, λ_min, differences from samples, and Hermite coefficients."""
    nearest, loss = (claims.final(run, name, part="descent") for name in ("nearest", "loss"))
    unmatched = bool((loss <= claims.CONVERGED).all() and (nearest > MATCHED).all())
    ends = claims.final(run, "loss", part=["descent", "reduction"])
    diverged = int((~np.isfinite(ends)).sum())
    figures = (
        Figure(
            "accuracy",
            "Small losses are exact",
            "Relative error of losses and gradients of networks close to a solution against 60 digits, one point per "
            "network. The textbook formula is a difference of large numbers, and ends in noise; dashed is 1%.",
            "S4 eq. 1",
            _accuracy(run),
        ),
        Figure(
            "relu",
            "Zero loss without a match" if unmatched else "ReLU students from the opposite of teacher nodes",
            "ReLU students that start near the opposite of every teacher node. Left: the loss. Right: for teachers "
            "that sum to zero, the least angle between a student and the direction of a teacher node; for others, "
            f"on {study.batch:,} fresh samples in each step with and without a fitted linear term, the largest angle "
            f"between a student and the line of one{', without diverged networks' if diverged else ''}.",
            "S4 claim 1, app. A",
            _relu(run),
        ),
        Figure(
            "least-eigenvalue",
            "The eigenvalue that separates close teacher nodes is of order Δ³",
            "Least eigenvalue of M. Left: teacher nodes in a fan, Δ between neighbours. Right: divided by Δ³, also for "
            "random teachers (10 each in 3, 5 and 10 dimensions, median and range), by the number of nodes: the proved "
            "bound also falls as 1/r³, these do not.",
            "S4 lemma 10",
            _eigenvalues(study, run),
        ),
        Figure(
            "sampled",
            "The differences from samples are random",
            "Monte Carlo losses and slopes minus the closed forms, in standard errors, sorted, against quantiles of "
            "the normal distribution: on the dashed line they are sampling errors.",
            "S4 eq. 1",
            _sampled(run),
        ),
        Figure(
            "hermite",
            "Squared Hermite coefficients of |x| fall as k^(−5/2)",
            "Squares of the even coefficients; dashed is k^(−3/2), which is printed with the formula.",
            "S4 lemma C.6",
            _hermite(run),
        ),
    )
    farthest = claims.final(run, "farthest_line", part="reduction", linear=True)
    matched = f"{int((farthest < MATCHED).sum())} of {len(farthest)}"
    exact, textbook = (style.number(claims.smallest_accurate(run, name)) for name in ("off", "textbook_off"))
    alive = np.isfinite(loss)
    reached = f"All {len(loss)} networks of ReLU students near the opposite of teacher nodes diverged"
    if alive.any():
        worst, least = style.number(float(loss[alive].max())), nearest[alive].min()
        reached = f"ReLU students reach a loss of {worst} with none within {least:.2f} rad of a teacher node"
    lost = f" {diverged} of {len(ends)} descents diverged." if diverged else ""
    off = np.abs(claims.sampled_errors(run)[["loss", "slope"]].to_numpy())
    return Story(
        f"{reached}; with a fitted linear term {matched} networks match within {MATCHED:g} rad.{lost} Losses "
        f"are accurate to 1% down to {exact}, by the textbook formula to {textbook}.{warning_words(study)}",
        (
            Number(exact, "smallest loss accurate to 1%"),
            Number(f"{off.max():.2f}", f"standard errors, the largest of {off.size:,}"),
            Number(matched, "networks match with a fitted linear term"),
            Number(f"{claims.eigenvalue_slope(run):.3f}", "slope of λ_min in Δ"),
            Number(f"{round(claims.decay(run), 2):g}", "power of k of squared Hermite coefficients"),
        ),
        figures,
    )


def _accuracy(run: Run) -> Curves:
    found = claims.units(run, "solutions")

    def points(column: str, label: str, colour: str) -> Series:
        errors = np.maximum(found[column].to_numpy(), _FLOOR)
        return Series(label, found["exact"].to_numpy(), errors, points=True, colour=colour)

    loss = points("off", "here", style.BLUE), points("textbook_off", "textbook, arccos", style.VERMILLION)
    gradient = (points("gradient_off", "here", style.BLUE),)
    return Curves(
        tuple(
            Panel(title, "loss", "relative error", series, True, True, claims.ACCURATE, "1%")
            for title, series in (("loss", loss), ("gradient", gradient))
        ),
        note=f"n = {len(found)} networks",
    )


def _relu(run: Run) -> Curves:
    def line(metric: str, label: str) -> Series:
        values = run.array(metric, diverged=True, **_LINES[label])
        values = values.reindex(epoch=run.epochs[1:]).clip(min=_FLOORS[metric]).where(lambda each: each < _LARGEST)
        middle, low, high = (getattr(values, name)("network").to_numpy() for name in ("median", "min", "max"))
        return Series(label, values["epoch"].to_numpy(), middle, low, high)

    zero_sum, *others = _LINES
    losses = tuple(line("loss", label) for label in _LINES)
    angles = line("nearest", zero_sum), *(line("farthest_line", label) for label in others)
    count = len(run.select(**_LINES[zero_sum]))
    return Curves(
        (
            Panel("loss", "step", "loss", losses, True, True),
            Panel("angles", "step", "angle (rad)", angles, True, True, MATCHED, f"{MATCHED:g} rad"),
        ),
        note=f"n = {count} networks each",
        band="range",
    )


def _eigenvalues(study: Identifiability, run: Run) -> Curves:
    numbers = sorted(study.fan)
    shown = [numbers[i] for i in np.unique(np.linspace(0, len(numbers) - 1, _FANS).round().astype(int))]
    lines = []
    for nodes, colour in zip(shown, style.ramp(len(shown)), strict=True):
        fan = claims.eigenvalues(run, arranged="fan", teacher_nodes=nodes)
        if len(fan):
            x, y = (fan[name].to_numpy() for name in ("separated", "least_eigenvalue"))
            lines.append(Series(f"r = {nodes}", x, y, colour=colour))
    fans, scattered = (
        claims.eigenvalues(run, arranged=arranged).groupby("teacher_nodes")["over_cube"]
        for arranged in ("fan", "random")
    )
    least, spread = fans.first(), scattered.quantile([0.5, 0.0, 1.0]).unstack()
    middle, low, high = spread.to_numpy().T
    by_nodes = (
        Series("fan, least Δ", least.index.to_numpy(float), least.to_numpy(), colour=style.BLUE),
        Series("random", spread.index.to_numpy(float), middle, low, high, colour=style.ORANGE),
    )
    return Curves(
        (
            Panel("in a fan", "angle Δ (rad)", "λ_min(M)", tuple(lines), True, True, slope=3.0),
            Panel("by the number of nodes", "teacher nodes r", "λ_min(M) / Δ³", by_nodes, True, True),
        )
    )


def _sampled(run: Run) -> Curves:
    errors = claims.sampled_errors(run)
    lines = []
    for size, some in errors.groupby(list(SIZE)):
        off = np.sort(some[["loss", "slope"]].to_numpy().ravel())
        normal = stats.norm.ppf((np.arange(len(off)) + 0.5) / len(off))
        lines.append(Series(size_words(size), normal, off))
    ends = np.array([-claims.ERRORS, claims.ERRORS])
    chance = Series("normal distribution", ends, ends, dashed=True, colour=style.HAIRLINE)
    panel = Panel("", "normal quantile", "difference in standard errors", (*lines, chance))
    return Curves((panel,), note=f"n = {2 * len(errors):,} differences")


def _hermite(run: Run) -> Curves:
    found = claims.units(run, "coefficients")
    found = found[(found["k"] > 0) & (found["k"] % 2 == 0)]
    k, squares = found["k"].to_numpy(float), found["coefficient"].to_numpy() ** 2
    series = (
        Series("σ̂²", k, squares, points=True, colour=style.BLUE),
        Series("k^(−3/2), printed", k, squares[0] * (k / k[0]) ** -1.5, dashed=True, colour=style.HAIRLINE),
    )
    panel = Panel("", "k", "squared coefficient", series, True, True, slope=-2.5)
    return Curves((panel,), note=f"k up to {FAR[-1]:,}")
