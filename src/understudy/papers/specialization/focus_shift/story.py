"""The focus-shift study in words and figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.specialization.focus_shift.claims import shifted_students
from understudy.papers.specialization.sweep import Sweep
from understudy.report import style
from understudy.report.figures import Dots, FocusShift
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.focus_shift.study import FocusShifting

_ROWS = 3
_EPOCH = 1_000
"""Steps in an epoch of the paper."""


@dataclass(frozen=True, eq=False)
class _Setting:
    """The networks of one polarity and over-realization, and which of their students shifted."""

    label: str
    multiple: float
    networks: np.ndarray
    shifted: list[np.ndarray]

    @property
    def counts(self) -> np.ndarray:
        return np.array([each.sum() for each in self.shifted])


def story(study: FocusShifting, run: Run) -> Story:
    settings = _settings(Sweep.of(run, study.teacher_nodes))
    if not settings:
        return Story("Every network diverged.", (Number(f"{run.networks.num_rows:,}", "networks"),), ())
    shown = next((s for s in settings if s.multiple == 5), settings[-1])
    curves = Figure(
        "focus-shift",
        "From a strong teacher node to a weaker one",
        f"Correlation of every student with each of {study.teacher_nodes} teacher nodes, strongest first, over "
        f"{study.epochs * study.steps / _EPOCH:g} epochs of 1,000 steps ({shown.label}): coloured students rise with a "
        "strong node, let go of it, and end on a weaker one.",
        "S1 fig 6",
        _curves(study, run, shown),
    )
    counts = Figure(
        "focus-shift-counts",
        "How many of them there are",
        "Students of each network that followed a stronger teacher node and end on a weaker one, above 0.95.",
        "S1 fig 6, over seeds",
        _counts(settings),
    )
    return Story(_headline(settings), _numbers(run, shown), (curves, counts))


def _settings(sweep: Sweep) -> list[_Setting]:
    found = []
    for p in sweep.polarities:
        for k in sweep.multiples:
            networks = sweep.where(p, k)
            label = f"{k:g}×" if len(sweep.polarities) == 1 else f"{k:g}×, p = {p:g}"
            if len(networks):
                found.append(_Setting(label, float(k), networks, shifted_students(sweep.run, networks)))
    return found


def _curves(study: FocusShifting, run: Run, shown: _Setting) -> FocusShift:
    networks = shown.networks[:_ROWS]
    return FocusShift(
        run.epochs * study.steps / _EPOCH,
        np.stack([run.pairs(int(n)).transpose(1, 2, 0) for n in networks]),
        networks,
        run.column("seed")[networks],
        np.stack(shown.shifted[:_ROWS]),
    )


def _counts(settings: list[_Setting]) -> Dots:
    most = max(len(s.networks) for s in settings)
    values, network = np.full((len(settings), most), np.nan), np.full((len(settings), most), -1)
    for row, setting in enumerate(settings):
        values[row, : len(setting.networks)] = setting.counts
        network[row, : len(setting.networks)] = setting.networks
    return Dots(
        tuple(s.label for s in settings),
        values,
        network,
        "students that shifted",
        "over-realization",
        bound=1.0,
        bound_words="one",
        colours=tuple(style.multiple_colour(s.multiple) for s in settings),
    )


def _headline(settings: list[_Setting]) -> str:
    parts = []
    for setting in settings:
        low, high = setting.counts.min(), setting.counts.max()
        students = counted(low, "student") if low == high else f"{low} to {high} students"
        some = f"{(setting.counts >= 1).sum()} of {len(setting.counts)}"
        parts.append(f"{students} a network at {setting.label} (at least one in {some})")
    return f"Students left a strong teacher node for a weaker one and ended on it: {', '.join(parts)}."


def _numbers(run: Run, shown: _Setting) -> tuple[Number, ...]:
    recovered = run.series("recovered", 0)[shown.networks, -1].mean()
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{np.median(shown.counts):g}", f"students shifted a network at {shown.label} (median)"),
        Number(f"{recovered:.0%}", f"of teacher nodes recovered at {shown.label}"),
    )
