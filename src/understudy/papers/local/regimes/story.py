"""The study of regimes in words and figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from understudy.lab.old_layers import some_diverged
from understudy.papers.local.regimes.claims import NEAR, SHARE, TURN, Regime, light_words, regimes
from understudy.papers.local.regimes.study import LARGE, LAZY, LOCAL, MEAN_FIELD
from understudy.report import style
from understudy.report.figures import Curves, Panel, Plane, Series, Trajectories
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.regimes.study import Regimes

_COLOURS = {LAZY: style.ORANGE, MEAN_FIELD: style.BLUE, LOCAL: style.GREEN, LARGE: style.PURPLE}
_FAR = 1e30
_SHOWN = (LAZY, MEAN_FIELD, LOCAL)


def story(study: Regimes, run: Run) -> Story:
    found = regimes(run)
    note = f"n = {counted(study.seeds, 'seed')}: median and range"
    figures = (
        Figure(
            "trajectories",
            "Lazy students stay, the others turn to the teacher's nodes",
            f"Weights of {study.students} students and {counted(study.teacher_nodes, 'teacher node')} in the plane, "
            "seed 1: lines are the teacher's directions, points where students are. Press ▶, or move the slider.",
            "S4 fig 1",
            _planes(run, [found[name] for name in _SHOWN], f"{study.students} students, seed 1"),
        ),
        Figure(
            "courses",
            "Loss, turning, and what is left to turn",
            "Exact losses (of f(W) − f(W₀) for lazy students); the largest angle that a student of a network has "
            "turned by since the start; the angle to the nearest teacher node, averaged over students by ‖w‖².",
            "S4 fig 1, over seeds",
            _courses(run.epochs, found, note),
        ),
        *_ends(study, [found[name] for name in (MEAN_FIELD, LOCAL)]),
        Figure(
            "large-start",
            "A large start alone is not lazy",
            "The lazy students' start with nothing taken off: the output is far above the teacher's, and to lose it "
            "students shrink towards the origin, and turn.",
            "beside S4 fig 1a",
            _planes(run, [found[LARGE]], f"{study.students} students, seed 1"),
        ),
    )
    return Story(_headline(study, run, found), _numbers(run, found), figures)


def _planes(run: Run, found: list[Regime], note: str) -> Trajectories:
    x, y = (run.matched("teacher", name, epoch=0) for name in ("x", "y"))
    planes = tuple(
        Plane(regime.name, np.stack([x[network], y[network]], -1), _drawable(regime.places[0]), network)
        for regime in found
        for network in [int(regime.networks[0])]
    )
    return Trajectories(planes, run.epochs, note=note)


def _drawable(places: np.ndarray) -> np.ndarray:
    """On its way to divergence a student leaves what float32, and a page, can hold."""
    return np.where(np.abs(places) < _FAR, places, np.nan)


def _spread(regime: Regime, x: np.ndarray, values: np.ndarray) -> Series:
    """Median and range over seeds: values are [seed, look]."""
    values = _drawable(values)
    there = np.isfinite(values).any(0)
    low, middle, high = np.nanquantile(values[:, there], (0, 0.5, 1), axis=0)
    return Series(regime.name, x[there], middle, low, high, colour=_COLOURS[regime.name])


def _courses(steps: np.ndarray, found: dict[str, Regime], note: str) -> Curves:
    steps, after = steps[1:], slice(1, None)  # a logarithmic axis has no step 0
    panel = partial(Panel, x_label="step", log_x=True, log_y=True)

    def lines(of: Callable[[Regime], np.ndarray]) -> tuple[Series, ...]:
        return tuple(_spread(regime, steps, of(regime)[:, after]) for regime in found.values())

    def turned(regime: Regime) -> np.ndarray:
        return np.maximum.accumulate(regime.turns.max(-1), axis=1)

    def left(regime: Regime) -> np.ndarray:
        return (regime.shares * regime.angles).sum(-1)

    return Curves(
        (
            panel("loss", y_label="loss", series=lines(lambda regime: regime.loss)),
            panel("turned by", y_label="rad", series=lines(turned), bound=TURN, bound_words=f"{TURN:g} rad"),
            panel("off the nearest teacher node", y_label="rad", series=lines(left)),
        ),
        note,
    )


def _ends(study: Regimes, found: list[Regime]) -> tuple[Figure, ...]:
    """Nothing where every network diverged."""
    if not any(np.isfinite(regime.angles[:, -1]).any() for regime in found):
        return ()
    caption = (
        "Every student of every seed at the last step: its share of Σ ‖w‖² in its network, and its angle to the "
        f"nearest teacher node, up to sign. Those left of {SHARE:g} count as carrying no mass: in the mean field "
        f"{light_words(found[0])}."
    )
    title = "Who is off a teacher node at the end carries little"
    return (Figure("masses", title, caption, "S4 fig 1, over seeds", _masses(found, study.seeds)),)


def _masses(found: list[Regime], seeds: int) -> Curves:
    def points(regime: Regime) -> Series:
        network = np.repeat(regime.networks, regime.angles.shape[-1])
        share, angle = regime.shares[:, -1].ravel(), regime.angles[:, -1].ravel()
        return Series(regime.name, share, angle, points=True, colour=_COLOURS[regime.name], network=network)

    panel = Panel(
        "",
        "share of Σ ‖w‖²",
        "angle, rad",
        tuple(map(points, found)),
        log_x=True,
        log_y=True,
        bound=NEAR,
        bound_words=f"{NEAR:g} rad",
    )
    return Curves((panel,), f"n = {counted(seeds, 'seed')}, every student")


def _headline(study: Regimes, run: Run, found: dict[str, Regime]) -> str:
    lazy, large = (style.number(float(found[name].farthest.max())) for name in (LAZY, LARGE))
    field, local = (style.number(float(found[name].ends.max())) for name in (MEAN_FIELD, LOCAL))
    said = "".join(f" Warning: {caution}." for caution in study.warnings())
    return (
        f"Lazy students turn by at most {lazy} rad; from a small start all that carry mass end within {field} rad of a "
        f"teacher node, up to sign, and from near the teacher within {local}. From a large start that is not centred "
        f"they turn by up to {large}.{some_diverged(run)}{said}"
    )


def _numbers(run: Run, found: dict[str, Regime]) -> tuple[Number, ...]:
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(style.number(float(found[LAZY].farthest.max())), "rad that a lazy student turned by at most"),
        *(
            Number(style.number(float(found[name].ends.max())), f"rad off at most, of students with mass, {name}")
            for name in (MEAN_FIELD, LOCAL)
        ),
    )
