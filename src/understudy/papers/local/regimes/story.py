"""Figures and headline of `regimes` (Zhou, Ge & Jin 2021, fig. 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.lab.layers import some_diverged
from understudy.papers.local.regimes.claims import NEAR, SHARE, TURN, Regime, light_words, regimes
from understudy.papers.local.regimes.study import LARGE, LAZY, LOCAL, MEAN_FIELD
from understudy.report import style
from understudy.report.figures import Curves, Panel, Plane, Series, Trajectories
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.regimes.study import Regimes

_COLOURS = {LAZY: style.ORANGE, MEAN_FIELD: style.BLUE, LOCAL: style.GREEN, LARGE: style.PURPLE}
_LARGEST = 1e30
"""Largest value that is drawn: networks that diverge exceed the range of float32."""


def story(study: Regimes, run: Run) -> Story:
    """Trajectories in the plane, losses and angles over training, and the mass of every student at the end."""
    found = regimes(run)
    note = f"{study.students} students, seed 1"
    figures = (
        Figure(
            "trajectories",
            "Lazy students stay, others turn to teacher nodes",
            f"Weights of {study.students} students and {counted(study.teacher_nodes, 'teacher node')} in the plane, "
            "seed 1: lines are the directions of teacher nodes, points are students. Press ▶, or move the slider.",
            "S4 fig 1",
            _planes(run, [found[name] for name in (LAZY, MEAN_FIELD, LOCAL)], note),
        ),
        Figure(
            "courses",
            "Loss, turn, and remaining angle",
            "Exact loss (of f(W) − f(W₀) for lazy students); largest turn of a student since the start; angle to the "
            "nearest teacher node, averaged over students with weights ‖w‖².",
            "S4 fig 1, over seeds",
            _over_steps(run, found),
        ),
        *_masses([found[name] for name in (MEAN_FIELD, LOCAL)]),
        Figure(
            "large-start",
            "Large initial weights alone are not lazy",
            "The initial weights of lazy students without centring: the output is far above the teacher's, so that "
            "students shrink towards the origin, and turn.",
            "beside S4 fig 1a",
            _planes(run, [found[LARGE]], note),
        ),
    )
    turned, large = (style.number(float(found[name].farthest.max())) for name in (LAZY, LARGE))
    field, local = (style.number(float(found[name].ends.max())) for name in (MEAN_FIELD, LOCAL))
    headline = (
        f"Lazy students turn by at most {turned} rad; from small initial weights all that carry mass end within "
        f"{field} rad of a teacher node, up to sign, and from near the teacher within {local}. From large initial "
        f"weights without centring they turn by up to {large}.{some_diverged(run)}"
        + "".join(f" Warning: {warning}." for warning in study.warnings())
    )
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(turned, "rad: largest turn of a lazy student"),
        Number(field, f"rad: largest angle to a teacher node of students with mass, {MEAN_FIELD}"),
        Number(local, f"rad: largest angle to a teacher node of students with mass, {LOCAL}"),
    )
    return Story(headline, numbers, figures)


def _drawable(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _planes(run: Run, found: list[Regime], note: str) -> Trajectories:
    x, y = (run.matched("teacher", name, epoch=0) for name in ("x", "y"))
    planes = tuple(
        Plane(regime.name, np.stack([x[network], y[network]], -1), _drawable(regime.places[0]), network)
        for regime in found
        for network in [int(regime.networks[0])]
    )
    return Trajectories(planes, run.epochs, note=note)


def _over_steps(run: Run, found: dict[str, Regime]) -> Curves:
    import xarray as xr

    quantities: dict[str, Callable[[Regime], np.ndarray]] = {
        "loss": lambda regime: regime.loss,
        "largest turn": lambda regime: np.maximum.accumulate(regime.turns.max(-1), axis=1),
        "angle to a teacher node": lambda regime: (regime.shares * regime.angles).sum(-1),
    }
    values = np.stack([[quantity(regime) for regime in found.values()] for quantity in quantities.values()])
    networks = np.stack([regime.networks for regime in found.values()])
    array = xr.DataArray(
        _drawable(values),
        {"quantity": list(quantities), "regime": list(found), "step": run.epochs},
        ("quantity", "regime", "seed", "step"),
    ).assign_coords(network=(("regime", "seed"), networks))
    drawn = Curves.from_array(
        array.isel(step=slice(1, None)),  # a logarithmic axis has no step 0
        name="rad",
        x="step",
        panel="quantity",
        line="regime",
        band="range",
        colours=[_COLOURS[name] for name in found],
        log_x=True,
        log_y=True,
    )
    changes: dict[str, dict[str, Any]] = {
        "loss": {"y_label": "loss"},
        "largest turn": {"bound": TURN, "bound_words": f"{TURN:g} rad"},
    }
    panels = tuple(replace(panel, **changes.get(panel.title, {})) for panel in drawn.panels)
    return replace(drawn, panels=panels, share="none")


def _masses(found: list[Regime]) -> list[Figure]:
    """The mass and the angle of every student at the end; no figure if every network diverged."""
    if not any(np.isfinite(regime.angles[:, -1]).any() for regime in found):
        return []

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
    return [
        Figure(
            "masses",
            "Students away from teacher nodes at the end carry little mass",
            "Every student of every seed at the last step: its share of Σ ‖w‖² in its network, and its angle to the "
            f"nearest teacher node, up to sign. Those left of {SHARE:g} count as carrying no mass: in the mean field "
            f"{light_words(found[0])}.",
            "S4 fig 1, over seeds",
            Curves((panel,), f"n = {counted(len(found[0].networks), 'seed')}, every student"),
        )
    ]
