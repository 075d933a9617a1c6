"""Claim T7: students leave a stronger teacher node for a weaker one (Tian 2019, fig. 6)."""

import numpy as np

from understudy.claims import Claims, Verdict, every
from understudy.lab.recovery import strengths
from understudy.measures import THRESHOLD
from understudy.papers.specialization.focus_shift.study import FocusShifting
from understudy.store import Run

POLARITY = 1.0
"""The polarity of Tian 2019, fig. 6."""
FOLLOWS = 0.5
"""Correlation from which a student follows its best teacher node. Unrelated nodes have correlations within a few tenths
of 0 (students before training; teacher nodes with each other), so a best teacher node below this means little."""


def shifted(correlation: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Which students left a stronger teacher node for a weaker one.

    Args:
        correlation: [epoch, teacher, student]; epoch 0 is before training.
        strength: [teacher], norms of the fan-outs.

    Returns:
        [student]: whether at some epoch after the first its best teacher node, with a correlation above 0.5, was
        stronger than its best one at the end, with which it has a correlation above 0.95.
    """
    known = np.nan_to_num(correlation, nan=-1.0)
    best, value = known.argmax(axis=1), known.max(axis=1)
    followed = np.where(value[1:] > FOLLOWS, strength[best[1:]], -np.inf).max(axis=0, initial=-np.inf)
    return (followed > strength[best[-1]]) & (value[-1] > THRESHOLD)


def shifted_students(run: Run, networks: np.ndarray) -> list[np.ndarray]:
    """Which students of each network shifted."""
    strength = strengths(run)
    return [shifted(run.pairs(int(n)), strength[n]) for n in networks]


def _long_enough(study: FocusShifting) -> bool:
    """At least the 40 epochs of 1,000 steps that the paper's figure shows, probed as often."""
    return study.epochs * study.steps >= 40_000 and study.steps <= 1_000


claims = Claims(fixed="teacher_nodes batch lr dim outputs train input_std", when=_long_enough)


@claims.claim(
    "T7",
    "{k:g}×",
    statement="at least one student per network whose best teacher node (correlation above 0.5) changes from a "
    "stronger to a weaker one and that ends above 0.95",
    paper="at least 1 (S1 fig. 6 shows one in each of 3 seeds)",
    values_are="students that shift, per network",
    cases=lambda study, run: [{"k": k} for k in run.select().values("multiple")],
)
def some_student_shifts(study: FocusShifting, run: Run, k: float) -> Verdict | None:
    networks = run.select(polarity=POLARITY, multiple=k)
    counts = [students.sum() for students in shifted_students(run, networks.index[networks.alive])]
    words = "{least:g} to {most:g} per network, median {median:g}; at least one in {count}"
    return every(counts, at_least=1.0, say=words) if counts else None
