"""The cost of giving up the bias of gradient descent, in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.distillation.optimisation_bias.claims import learners, steps
from understudy.papers.distillation.shared import Cell, mean_series, risk_words
from understudy.report import style
from understudy.report.figures import Curves, Dots, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.distillation.optimisation_bias.study import OptimisationBias


def story(study: OptimisationBias, run: Run) -> Story:
    found = learners(run)
    once = found[0].once
    sets = f"n = {counted(study.seeds, 'transfer set')}"
    figures = (
        Figure(
            "optimisation-bias",
            "Off what gradient descent finds",
            f"How often w_δ decides otherwise than its teacher on {once['held out']:,.0f} held-out inputs of "
            f"{study.where}, and its angle with the teacher; every w_δ fits the soft labels of its "
            f"{counted(study.inputs, 'input')}. Bands: {study.confidence:.0%} of the expected risk; the range of the "
            "angles.",
            "S3 fig 5.4",
            Curves((_risks(found), _angles(found)), sets),
        ),
        Figure(
            "transfer-sets",
            "Each transfer set",
            "A point a transfer set: the share of held-out inputs on which w_δ decides otherwise than its teacher.",
            "S3 fig 5.4, every set",
            _dots(found),
        ),
    )
    return Story(_headline(study, found), _numbers(study, found), figures)


def _risks(found: list[Cell]) -> Panel:
    deltas = [cell.parameters["delta"] for cell in found]
    return Panel("", "δ", "expected risk", (mean_series("risk", deltas, found, colour=style.GREEN),))


def _angles(found: list[Cell]) -> Panel:
    deltas = np.array([cell.parameters["delta"] for cell in found])
    every = np.degrees([cell.values["angle"] for cell in found])
    series = Series("angle", deltas, np.median(every, 1), every.min(1), every.max(1), colour=style.PURPLE)
    return Panel("", "δ", "angle with the teacher, °", (series,))


def _dots(found: list[Cell]) -> Dots:
    labels = tuple(f"{cell.parameters['delta']:g}" for cell in found)
    values = np.stack([cell.values["risk"] for cell in found])
    colours = (style.GREEN,) * len(found)
    return Dots(labels, values, np.stack([cell.networks for cell in found]), "risk", "δ", colours=colours, percent=True)


def _headline(study: OptimisationBias, found: list[Cell]) -> str:
    ends = [
        f"{risk_words(cell.means['risk'])} at δ = {cell.parameters['delta']:g}"
        for cell in (found if len(found) < 3 else (found[0], found[-1]))
    ]
    words = f"On {study.where}, from {counted(study.inputs, 'input')}, the expected risk of w_δ is {' and '.join(ends)}"
    falls = [step for step in steps(found) if not step.mean > 0]
    if falls:
        return f"{words}, but not higher from δ = {falls[0].first:g} to {falls[0].second:g}."
    return f"{words}, and higher at each δ than at the one before." if len(found) > 2 else f"{words}."


def _numbers(study: OptimisationBias, found: list[Cell]) -> tuple[Number, ...]:
    once = found[0].once
    right = once["right"]
    return (
        Number(f"{study.seeds:,}", "transfer sets"),
        Number(f"{once['pool']:,.0f}", "inputs that they are drawn from"),
        Number(f"{once['held out']:,.0f}", "held-out inputs"),
        *([Number(f"{right:.2%}", "of its own inputs that the teacher is right on")] if np.isfinite(right) else []),
        Number(f"{found[0].means['risk'].mean:.2g}", f"expected risk, δ = {found[0].parameters['delta']:g}"),
    )
