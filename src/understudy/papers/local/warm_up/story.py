"""Figures and headline of `warm-up` (Zhou, Ge & Jin 2021, claim 2, fig. 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from understudy.claims import number
from understudy.papers.local.warm_up.claims import TO, Approach, approach, power
from understudy.papers.local.warm_up.study import STUDENTS
from understudy.report import style
from understudy.report.figures import Curves, Panel, Plane, Series, Trajectories
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.warm_up.study import WarmUp

_COLOURS = {1: style.VERMILLION, 2: style.BLUE}


def story(study: WarmUp, run: Run) -> Story:
    """Losses and gradients by angle, and the students in the plane."""
    one, two = found = [approach(run, students) for students in STUDENTS]

    def panel(name: str, values: Callable[[Approach], np.ndarray], log_y: bool = True) -> Panel:
        lines = (Series(STUDENTS[a.students], a.deltas, values(a), colour=_COLOURS[a.students]) for a in found)
        return Panel("", "δ, rad", name, tuple(lines), log_x=True, log_y=log_y)

    figures = (
        Figure(
            "losses",
            "Two students that balance each other have a smaller loss",
            "Exact losses of one student at the angle δ from the teacher node, and of two at ±δ with Σ ‖w‖w = w*; "
            "divided by δ² and δ³ they converge to the constants ½ and 2/(3π).",
            "S4 claim 2",
            Curves(
                (
                    panel("loss", lambda a: a.loss),
                    panel("loss / δ², loss / δ³", lambda a: a.loss / a.deltas**a.order, log_y=False),
                )
            ),
        ),
        Figure(
            "students",
            "One teacher node, two students",
            "The teacher node as a line, with one student and with two; the slider decreases their angle δ.",
            "S4 fig 2",
            _planes(run, found),
        ),
        Figure(
            "gradients",
            "Where the Polyak–Łojasiewicz inequality fails",
            "‖∇L‖²/L stays above a constant with one student and converges to zero with two; ‖∇L‖/L does not.",
            "S4 sec 4",
            Curves((panel("‖∇L‖²/L", lambda a: a.squared_ratio), panel("‖∇L‖/L", lambda a: a.ratio))),
        ),
    )
    headline = (
        f"With one student the loss is proportional to δ^{one.slope(one.loss):.2f}, with one on either side to "
        f"δ^{two.slope(two.loss):.2f}: then ‖∇L‖²/L converges to zero, {style.number(float(two.squared_ratio[0]))} at "
        f"δ = {number(study.least, 'g')}, where one student has {style.number(float(one.squared_ratio[0]))}."
    )
    return Story(headline, tuple(number for a in found for number in _numbers(a)), figures)


def _planes(run: Run, found: list[Approach]) -> Trajectories:
    teacher = np.array([[1.0, 0.0]])
    x, y = (run.matched("student", name) for name in ("x", "y"))
    planes = tuple(
        Plane(STUDENTS[a.students], teacher, np.stack([x[a.network], y[a.network]], -1)[:, : a.students], a.network)
        for a in found
    )
    deltas = found[0].deltas
    return Trajectories(planes, deltas, "δ =", f"δ = {deltas[-1]:g}", strokes=True)


def _numbers(found: Approach) -> tuple[Number, ...]:
    name = STUDENTS[found.students]
    return (
        Number(f"{found.slope(found.loss):.3f}", f"slope of the loss in δ up to {TO:g}, {name}"),
        Number(power(found.slope(found.squared_ratio)), f"slope of ‖∇L‖²/L, {name}"),
    )
