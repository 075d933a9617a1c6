"""Figures and headline of `warm-up` (Zhou, Ge & Jin 2021, claim 2, fig. 2)."""

from typing import Any

import numpy as np
import xarray as xr

from understudy.papers.local.warm_up.claims import TO, approach, power, slope
from understudy.papers.local.warm_up.study import STUDENTS, WarmUp
from understudy.report import style
from understudy.report.figures import Curves, Panel, PlaneTrajectories, Trajectories
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

_COLOURS = (style.VERMILLION, style.BLUE)


def story(study: WarmUp, run: Run) -> Story:
    """Losses and gradients by angle, and the students in the plane."""
    found = approach(run)
    scaled = found["loss"] / found["delta"] ** (found["students"] + 1)

    def panel(name: str, values: xr.DataArray, log_y: bool = True) -> Panel:
        lines: dict[str, Any] = {"x": "delta", "x_name": "δ, rad", "line": "students", "over": None, "labels": STUDENTS}
        return Curves.from_array(values, name=name, colours=_COLOURS, log_x=True, log_y=log_y, **lines).panels[0]

    figures = (
        Figure(
            "losses",
            "Two students that balance each other have a smaller loss",
            "Exact losses of one student at the angle δ from the teacher node, and of two at ±δ with Σ ‖w‖w = w*; "
            "divided by δ² and δ³ they converge to the constants ½ and 2/(3π).",
            "S4 claim 2",
            Curves((panel("loss", found["loss"]), panel("loss / δ², loss / δ³", scaled, log_y=False))),
        ),
        Figure(
            "students",
            "One teacher node, two students",
            "The teacher node as a line, with one student and with two; the slider decreases their angle δ.",
            "S4 fig. 2",
            _planes(run, found),
        ),
        Figure(
            "gradients",
            "Where the Polyak–Łojasiewicz inequality fails",
            "‖∇L‖²/L stays above a constant with one student and converges to zero with two; ‖∇L‖/L does not.",
            "S4 sec. 4",
            Curves((panel("‖∇L‖²/L", found["squared_ratio"]), panel("‖∇L‖/L", found["ratio"]))),
        ),
    )
    one, two = map(slope, found["loss"])
    steep, flat = (style.number(least) for least in found["squared_ratio"][:, 0].to_numpy())
    headline = (
        f"With one student the loss is proportional to δ^{one:.2f}, with one on either side to δ^{two:.2f}: then "
        f"‖∇L‖²/L converges to zero, {flat} at δ = {study.least:g}, where one student has {steep}."
    )
    numbers = []
    for name, loss, squared in zip(STUDENTS.values(), found["loss"], found["squared_ratio"], strict=True):
        numbers.append(Number(f"{slope(loss):.3f}", f"slope of the loss in δ up to {TO:g}, {name}"))
        numbers.append(Number(power(slope(squared)), f"slope of ‖∇L‖²/L, {name}"))
    return Story(headline, tuple(numbers), figures)


def _planes(run: Run, found: xr.Dataset) -> Trajectories:
    x, y = (run.matched("student", name) for name in ("x", "y"))
    planes = []
    for students, network in zip(STUDENTS, found["network"].to_numpy().tolist(), strict=True):
        places = np.stack([x[network], y[network]], -1)[:, :students]
        planes.append(PlaneTrajectories(STUDENTS[students], np.array([[1.0, 0.0]]), places, network))
    deltas = found["delta"].to_numpy()
    return Trajectories(tuple(planes), deltas, "δ =", f"δ = {deltas[-1]:g}", strokes=True)
