"""Figures and headline of `regimes` (Zhou, Ge & Jin 2021, fig. 1)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from understudy.lab.layers import some_diverged
from understudy.papers.local.regimes.claims import (
    NEAR,
    SHARE,
    TURN,
    largest_angles,
    largest_turns,
    light_words,
    regimes,
)
from understudy.papers.local.regimes.study import LARGE, LAZY, LOCAL, MEAN_FIELD, Regimes
from understudy.papers.local.shared import warning_words
from understudy.report import style
from understudy.report.figures import Curves, Panel, PlaneTrajectories, Series, Trajectories
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

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
            "S4 fig. 1",
            _planes(run, found, (LAZY, MEAN_FIELD, LOCAL), note),
        ),
        Figure(
            "courses",
            "Loss, turn, and remaining angle",
            "Exact loss (of f(W) − f(W₀) for lazy students); largest turn of a student since the start; angle to the "
            "nearest teacher node, averaged over students with weights ‖w‖².",
            "S4 fig. 1, over seeds",
            _over_steps(found),
        ),
        *_masses(found),
        Figure(
            "large-start",
            "Large initial weights alone are not lazy",
            "The initial weights of lazy students without centring: the output is far above the teacher's, so that "
            "students shrink towards the origin, and turn.",
            "S4 fig. 1a, without centring",
            _planes(run, found, (LARGE,), note),
        ),
    )
    turned, large = (style.number(largest_turns(found.sel(regime=name)).max()) for name in (LAZY, LARGE))
    field, local = (style.number(largest_angles(found.sel(regime=name)).max()) for name in (MEAN_FIELD, LOCAL))
    headline = (
        f"Lazy students turn by at most {turned} rad; from small initial weights all that carry mass end within "
        f"{field} rad of a teacher node, up to sign, and from near the teacher within {local}. From large initial "
        f"weights without centring they turn by up to {large}.{some_diverged(run)}{warning_words(study)}"
    )
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(turned, "rad: largest turn of a lazy student"),
        Number(field, f"rad: largest angle to a teacher node of students with mass, {MEAN_FIELD}"),
        Number(local, f"rad: largest angle to a teacher node of students with mass, {LOCAL}"),
    )
    return Story(headline, numbers, figures)


def _drawable(values: xr.DataArray) -> xr.DataArray:
    return values.where(abs(values) < _LARGEST)


def _planes(run: Run, found: xr.Dataset, names: Sequence[str], note: str) -> Trajectories:
    teachers = np.stack([run.matched("teacher", name, epoch=0) for name in ("x", "y")], -1)
    planes = []
    for name in names:
        one = found.sel(regime=name).isel(seed=0)
        places, network = np.stack([_drawable(one[axis]) for axis in ("x", "y")], -1), one["network"].item()
        planes.append(PlaneTrajectories(name, teachers[network], places, network))
    return Trajectories(tuple(planes), run.epochs, note=note)


def _over_steps(found: xr.Dataset) -> Curves:
    turned = found["turn"].max("student", skipna=False)
    quantities = {
        "loss": found["loss"],
        "largest turn": turned.copy(data=np.maximum.accumulate(turned.to_numpy(), axis=-1)),
        "angle to a teacher node": (found["share"] * found["angle"]).sum("student", skipna=False),
    }
    later = xr.Dataset(quantities).isel(epoch=slice(1, None))  # a logarithmic axis has no step 0
    drawn = Curves.from_array(
        _drawable(later.to_dataarray("quantity")),
        name="rad",
        x_name="step",
        panel="quantity",
        line="regime",
        band="range",
        colours=[_COLOURS[name] for name in found["regime"].to_numpy()],
        log_x=True,
        log_y=True,
    )
    changes: dict[str, dict[str, Any]] = {
        "loss": {"y_label": "loss"},
        "largest turn": {"bound": TURN, "bound_words": f"{TURN:g} rad"},
    }
    panels = tuple(replace(panel, **changes.get(panel.title, {})) for panel in drawn.panels)
    return replace(drawn, panels=panels, share="none")


def _masses(found: xr.Dataset) -> list[Figure]:
    """The mass and the angle of every student at the end; no figure if every network diverged."""
    ends = found.isel(epoch=-1).sel(regime=[MEAN_FIELD, LOCAL]).stack(each=("seed", "student"))
    if ends["angle"].isnull().all():
        return []

    def points(name: str) -> Series:
        share, angle, network = (ends[column].sel(regime=name).to_numpy() for column in ("share", "angle", "network"))
        return Series(name, share, angle, points=True, colour=_COLOURS[name], network=network)

    panel = Panel(
        "",
        "share of Σ ‖w‖²",
        "angle, rad",
        tuple(map(points, (MEAN_FIELD, LOCAL))),
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
            f"{light_words(found.sel(regime=MEAN_FIELD))}.",
            "S4 fig. 1, over seeds",
            Curves((panel,), f"n = {counted(found.sizes['seed'], 'seed')}, every student"),
        )
    ]
