"""The focus-shift study in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.report import style
from understudy.report.figures import FocusShift
from understudy.report.figures.dots import Dots
from understudy.report.story import Figure, Number, Story
from understudy.store import Run
from understudy.studies.focus_shift_claims import shifted_students
from understudy.studies.sweep import Sweep

if TYPE_CHECKING:
    from understudy.studies.focus_shift import FocusShifting

_ROWS = 3
_EPOCH = 1_000
"""Steps in an epoch of the paper."""


def story(study: FocusShifting, run: Run) -> Story:
    sweep = Sweep.of(run)
    which = {int(n): s for n, s in zip(_networks(sweep), shifted_students(run, _networks(sweep)), strict=True)}
    counts = sweep.at(np.array([which[n].sum() if n in which else 0 for n in range(run.networks.num_rows)]))[0]
    figures = (
        *_curves(study, sweep, which),
        Figure(
            "focus-shift-counts",
            "It happens in every network",
            "Students of each network that followed a stronger teacher node and end on a weaker one, above 0.95.",
            "S1 fig 6, over seeds",
            _counts(sweep, counts),
        ),
    )
    return Story(_headline(sweep, counts), _numbers(run, sweep, counts), figures)


def _networks(sweep: Sweep) -> np.ndarray:
    return np.sort(sweep.network[sweep.network >= 0])


def _curves(study: FocusShifting, sweep: Sweep, which: dict[int, np.ndarray]) -> tuple[Figure, ...]:
    """Three seeds at 5×, or at the widest there is; nothing where every network diverged."""
    run, row = sweep.run, _shown(sweep)
    networks = sweep.network[0, row]
    networks = networks[networks >= 0][:_ROWS]
    if not len(networks):
        return ()
    kind = FocusShift(
        run.epochs * study.steps / _EPOCH,
        np.stack([run.pairs(int(n)).transpose(1, 2, 0) for n in networks]),
        networks,
        run.column("seed")[networks],
        np.stack([which[int(n)] for n in networks]),
    )
    caption = (
        f"Correlation of every student with each of {study.teacher_nodes} teacher nodes, strongest first, over "
        f"{study.epochs * study.steps / _EPOCH:g} epochs of 1,000 steps at {sweep.multiples[row]:g}×: coloured students "
        "rise with a strong node, let go of it, and end on a weaker one."
    )
    return (Figure("focus-shift", "From a strong teacher node to a weaker one", caption, "S1 fig 6", kind),)


def _shown(sweep: Sweep) -> int:
    five = np.flatnonzero(sweep.multiples == 5)
    return int(five[0]) if len(five) else len(sweep.multiples) - 1


def _counts(sweep: Sweep, counts: np.ndarray) -> Dots:
    return Dots(
        tuple(f"{m:g}×" for m in sweep.multiples),
        counts,
        sweep.network[0],
        "students that shifted",
        "over-realization",
        bound=1.0,
        bound_words="one",
        colours=tuple(style.multiple_colour(m) for m in sweep.multiples),
    )


def _headline(sweep: Sweep, counts: np.ndarray) -> str:
    parts = []
    for multiple, each in zip(sweep.multiples, counts, strict=True):
        known = each[np.isfinite(each)]
        if len(known):
            low, high = int(known.min()), int(known.max())
            students = f"{low}" if low == high else f"{low} to {high}"
            parts.append(
                f"at {multiple:g}× {students} students a network ({(known >= 1).sum()} of {len(known)} networks have one)"
            )
    if not parts:
        return "Every network diverged."
    return f"Students left a strong teacher node for a weaker one and ended on it: {', '.join(parts)}."


def _numbers(run: Run, sweep: Sweep, counts: np.ndarray) -> tuple[Number, ...]:
    row = _shown(sweep)
    wide = sweep.network[0, row]
    wide = wide[wide >= 0]
    if not len(wide):
        return (Number(f"{run.networks.num_rows:,}", "networks"), Number("all", "diverged"))
    multiple = f"{sweep.multiples[row]:g}×"
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{np.nanmedian(counts[row]):g}", f"students shifted a network at {multiple} (median)"),
        Number(f"{run.series('recovered', 0)[wide, -1].mean():.0%}", f"of teacher nodes recovered at {multiple}"),
    )
