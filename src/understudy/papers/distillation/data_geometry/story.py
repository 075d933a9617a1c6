"""The study of data geometry in words and figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.distillation.data_geometry.claims import tasks
from understudy.papers.distillation.data_geometry.study import BOUNDS
from understudy.papers.distillation.shared import Cell, mean_series
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.distillation.data_geometry.study import DataGeometry

_SHOWN = 100
"""Sets whose own risks are drawn."""
_LOOKS = {"bound": style.VERMILLION, "corollary": style.ORANGE}


def story(study: DataGeometry, run: Run) -> Story:
    found = tasks(run)
    kappas = np.array([cell.parameters["kappa"] for cell in found])
    risk = mean_series("mean risk", kappas, found, colour=style.BLUE)
    setting = f"d = {study.dim:,}, n = {study.inputs:,}, {counted(study.seeds, 'transfer set')}"
    figures = (
        Figure(
            "risk",
            "The better inputs are aligned with the teacher, the lower the risk",
            "The probability that a student decides otherwise than its teacher, exact for every set and averaged over "
            f"them, with intervals of {study.confidence:.0%}: on a plain axis as in the thesis, and on a logarithmic "
            f"one, with {min(_SHOWN, study.seeds)} sets one by one.",
            "S3 fig 5.3",
            Curves(
                (
                    Panel("", "κ", "transfer risk", (risk,)),
                    Panel("", "κ", "transfer risk", (risk, _each(kappas, found)), log_y=True),
                ),
                setting,
            ),
        ),
        Figure(
            "bounds",
            "What the theorem promises, and what there is",
            "Mean risk, the bound of theorem 5.3 at its best β, and corollary 5.2's, (1 + (log n)^κ)/n^κ, which is "
            "above 1 where κ is small.",
            "S3 theorem 5.3, corollary 5.2",
            Curves((Panel("", "κ", "transfer risk", (risk, *_bounds(kappas, found)), log_y=True),), setting),
        ),
        Figure(
            "angles",
            "How inputs lie about the teacher",
            "p(θ), the probability of an angle of θ or more between an input and the teacher, up to sign, for each κ; "
            "and the angle between student and teacher that comes of it, mean over sets and 5% to 95% of them.",
            "S3 fig 5.1, eq. 5.17",
            Curves((_alignment(study), _reached(kappas, found)), setting),
        ),
    )
    return Story(_headline(study, found), _numbers(found), figures)


def _each(kappas: np.ndarray, found: list[Cell]) -> Series:
    shown = [cell.values["risk"][:_SHOWN] for cell in found]
    x = np.concatenate([np.full(len(risks), kappa) for kappa, risks in zip(kappas, shown, strict=True)])
    network = np.concatenate([cell.networks[:_SHOWN] for cell in found])
    return Series("one set", x, np.concatenate(shown), points=True, colour=style.CONTEXT, network=network)


def _bounds(kappas: np.ndarray, found: list[Cell]) -> tuple[Series, ...]:
    return tuple(
        Series(BOUNDS[name], kappas, np.array([cell.once[name] for cell in found]), dashed=True, colour=colour)
        for name, colour in _LOOKS.items()
    )


def _alignment(study: DataGeometry) -> Panel:
    theta = np.linspace(0, math.pi / 2, 91)
    kappas = sorted(study.kappa)
    series = tuple(
        Series(f"κ = {kappa:g}", theta, (1 - 2 * theta / math.pi) ** kappa, colour=colour)
        for kappa, colour in zip(kappas, style.ramp(len(kappas)), strict=True)
    )
    return Panel("", "θ, rad", "p(θ)", series)


def _reached(kappas: np.ndarray, found: list[Cell]) -> Panel:
    angles = np.stack([cell.values["angle"] for cell in found], 1)
    low, high = np.quantile(angles, (0.05, 0.95), axis=0)
    return Panel("", "κ", "angle, rad", (Series("student", kappas, angles.mean(0), low, high, colour=style.BLUE),))


def _headline(study: DataGeometry, found: list[Cell]) -> str:
    each = [f"{style.number(cell.means['risk'].mean)} at κ = {cell.parameters['kappa']:g}" for cell in found]
    means = np.array([cell.means["risk"].mean for cell in found])
    falls = len(means) > 1 and bool((np.diff(means) < 0).all())
    words = " to ".join((each[0], each[-1])) if len(each) > 1 else each[0]
    verb = "falls at every step from" if falls else "goes from" if len(each) > 1 else "is"
    return (
        f"From {counted(study.inputs, 'soft label')} in {study.dim:,} dimensions the mean risk of a linear student "
        f"{verb} {words}."
    )


def _numbers(found: list[Cell]) -> tuple[Number, ...]:
    even = [cell for cell in found[1:-1] if cell.parameters["kappa"] == 1]  # uniform angles
    shown = [found[0], *even, found[-1]] if len(found) > 1 else found
    return (
        Number(f"{sum(len(cell.networks) for cell in found):,}", "transfer sets"),
        *(
            Number(style.number(cell.means["risk"].mean), f"mean risk at κ = {cell.parameters['kappa']:g}")
            for cell in shown
        ),
    )
