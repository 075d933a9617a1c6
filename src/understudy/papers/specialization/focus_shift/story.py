"""Figures and headline of `focus-shift` (Tian 2019, fig. 6)."""

from itertools import product
from typing import NamedTuple

import numpy as np

from understudy.lab.layers import diverged_story, some_diverged
from understudy.papers.specialization.focus_shift.claims import shifted_students
from understudy.papers.specialization.focus_shift.study import FocusShifting
from understudy.report import style
from understudy.report.figures import Dots, FocusShift
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_ROWS = 3
_EPOCH = 1_000
"""Steps of an epoch in the paper."""


class _Setting(NamedTuple):
    """The networks of one polarity and over-realization that did not diverge, and which of their students shifted."""

    label: str
    multiple: float
    networks: np.ndarray
    shifted: list[np.ndarray]
    counts: np.ndarray


def story(study: FocusShifting, run: Run) -> Story:
    """The paper's figure for a few networks, and the counts of all."""
    settings = _settings(run)
    if not settings:
        return diverged_story(study, run)
    shown = next((s for s in settings if s.multiple == 5), settings[-1])
    networks = shown.networks[:_ROWS]
    curves = Figure(
        "focus-shift",
        "From a strong teacher node to a weaker one",
        f"Correlation of every student with each of {study.teacher_nodes} teacher nodes, strongest first, over "
        f"{study.epochs * study.steps / _EPOCH:g} epochs of 1,000 steps ({shown.label}): coloured students follow a "
        "strong node, leave it, and end on a weaker one.",
        "S1 fig. 6",
        FocusShift(
            run.epochs * study.steps / _EPOCH,
            np.stack([run.pairs(int(n)).transpose(1, 2, 0) for n in networks]),
            networks,
            run.column("seed")[networks],
            np.stack(shown.shifted[:_ROWS]),
        ),
    )
    counts = Figure(
        "focus-shift-counts",
        "How many students shift",
        "Students of each network that followed a stronger teacher node and end on a weaker one, above 0.95.",
        "S1 fig. 6, over seeds",
        Dots.from_columns(
            {s.label: (s.counts, s.networks) for s in settings},
            "students that shifted",
            "over-realization",
            bound=1.0,
            bound_words="one",
            colours=tuple(style.multiple_colour(s.multiple) for s in settings),
        ),
    )
    return Story(_headline(settings) + some_diverged(run), _numbers(run, shown), (curves, counts))


def _settings(run: Run) -> list[_Setting]:
    every = run.select()
    polarities, found = every.values("polarity"), []
    for p, k in product(polarities, every.values("multiple")):
        cell = run.select(polarity=p, multiple=k)
        networks = cell.index[cell.alive]
        if len(networks):
            label = f"{k:g}×" if len(polarities) == 1 else f"{k:g}×, p = {p:g}"
            shifted = shifted_students(run, networks)
            found.append(_Setting(label, k, networks, shifted, np.array([students.sum() for students in shifted])))
    return found


def _headline(settings: list[_Setting]) -> str:
    parts = []
    for setting in settings:
        low, high = setting.counts.min(), setting.counts.max()
        students = counted(low, "student") if low == high else f"{low} to {high} students"
        some = f"{(setting.counts >= 1).sum()} of {len(setting.counts)}"
        parts.append(f"{students} per network at {setting.label} (at least one in {some})")
    return f"Students left a strong teacher node for a weaker one and ended on it: {', '.join(parts)}."


def _numbers(run: Run, shown: _Setting) -> tuple[Number, ...]:
    recovered = run.series("recovered", 0)[shown.networks, -1].mean()
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{np.median(shown.counts):g}", f"students shifted per network at {shown.label} (median)"),
        Number(f"{recovered:.0%}", f"of teacher nodes recovered at {shown.label}"),
    )
