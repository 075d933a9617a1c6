"""The warm-up in words and figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.local.warm_up.claims import ORDERS, TO, Approach, approaches, power
from understudy.report import style
from understudy.report.figures import Curves, Panel, Plane, Series, Trajectories
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.warm_up.study import WarmUp

_COLOURS = {1: style.VERMILLION, 2: style.BLUE}


def story(study: WarmUp, run: Run) -> Story:
    one, two = found = approaches(run)
    figures = (
        Figure(
            "losses",
            "Two students that make up for each other lose less",
            "Exact losses of one student at the angle δ from the teacher node, and of two at ±δ whose sum is right; "
            "divided by δ² and δ³ they come to constants, ½ and 2/(3π).",
            "S4 claim 2",
            Curves((_over_angles("loss", found, _loss), _constants(found))),
        ),
        Figure(
            "students",
            "One teacher node, two students",
            "The teacher node as a line, one student and two beside it; the slider turns them towards it.",
            "S4 fig 2",
            _planes(found),
        ),
        Figure(
            "gradients",
            "Where PL fails",
            "‖∇L‖²/L stays above a constant with one student and goes to zero with two; ‖∇L‖/L does not.",
            "S4 sec 4",
            Curves((_over_angles("‖∇L‖²/L", found, _squared), _over_angles("‖∇L‖/L", found, _plain))),
        ),
    )
    headline = (
        f"With one student the loss goes as δ^{_slope(one):.2f}, with two on either side as δ^{_slope(two):.2f}: there "
        f"‖∇L‖²/L goes to zero, {style.number(float(two.squared_ratio[0]))} at δ = {study.least:g}, where one student "
        f"has {style.number(float(one.squared_ratio[0]))}."
    )
    return Story(headline, _numbers(found), figures)


def _slope(approach: Approach) -> float:
    return approach.slope(approach.loss)


def _name(approach: Approach) -> str:
    return "one student" if approach.students == 1 else "two students"


def _loss(approach: Approach) -> np.ndarray:
    return approach.loss


def _squared(approach: Approach) -> np.ndarray:
    return approach.squared_ratio


def _plain(approach: Approach) -> np.ndarray:
    return approach.ratio


def _over_angles(what: str, found: list[Approach], of: Callable[[Approach], np.ndarray]) -> Panel:
    series = (Series(_name(a), a.deltas, of(a), colour=_COLOURS[a.students]) for a in found)
    return Panel("", "δ, rad", what, tuple(series), log_x=True, log_y=True)


def _constants(found: list[Approach]) -> Panel:
    series = (
        Series(_name(a), a.deltas, a.loss / a.deltas ** ORDERS[a.students], colour=_COLOURS[a.students]) for a in found
    )
    return Panel("", "δ, rad", "loss / δ², loss / δ³", tuple(series), log_x=True)


def _planes(found: list[Approach]) -> Trajectories:
    teacher = np.array([[1.0, 0.0]])
    planes = tuple(Plane(_name(a), teacher, a.places, a.network) for a in found)
    return Trajectories(planes, found[0].deltas, "δ =", f"δ = {found[0].deltas[-1]:g}", strokes=True)


def _numbers(found: list[Approach]) -> tuple[Number, ...]:
    return tuple(
        number
        for approach in found
        for number in (
            Number(f"{_slope(approach):.3f}", f"slope of the loss in δ up to {TO:g}, {_name(approach)}"),
            Number(power(approach.slope(approach.squared_ratio)), f"slope of ‖∇L‖²/L, {_name(approach)}"),
        )
    )
