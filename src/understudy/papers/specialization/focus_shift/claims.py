"""What a focus-shift run decides: T7."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.lab.recovery import strengths
from understudy.measures import THRESHOLD
from understudy.papers.specialization.sweep import Sweep
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.specialization.focus_shift.study import FocusShifting

POLARITY = 1.0
"""Of S1 fig 6."""
FOLLOWS = 0.5
"""Correlation from which a student follows its best teacher node. Nodes that have nothing to do with each other lie
within a few tenths of 0 (a student's first correlations; one teacher node with another), so that a best teacher below
this says little."""


def shifted(correlation: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """[student]: whether a student left a stronger teacher node for a weaker one.

    From correlations [look, teacher, student] and fan-out norms [teacher]: at some look after the first (epoch 0 is
    before training) its best teacher node, correlated above 0.5, was stronger than its best one at the end, with which
    it is correlated above 0.95.
    """
    known = np.nan_to_num(correlation, nan=-1.0)
    best, value = known.argmax(axis=1), known.max(axis=1)
    followed = np.where(value[1:] > FOLLOWS, strength[best[1:]], -np.inf).max(axis=0, initial=-np.inf)
    return (followed > strength[best[-1]]) & (value[-1] > THRESHOLD)


def shifted_students(run: Run, networks: np.ndarray) -> list[np.ndarray]:
    """Which students of each network shifted."""
    strength = strengths(run)
    return [shifted(run.pairs(int(n)), strength[n]) for n in networks]


def claims(study: FocusShifting, run: Run) -> list[Claim]:
    if not _as_in_paper(study):
        return []
    sweep = Sweep.of(run, study.teacher_nodes)
    return [
        _t7(multiple, [int(s.sum()) for s in shifted_students(run, networks)])
        for multiple in sweep.multiples
        if len(networks := sweep.where(POLARITY, multiple))
    ]


def _t7(multiple: float, counts: list[int]) -> Claim:
    some = sum(count >= 1 for count in counts)
    return Claim(
        id="T7",
        statement="students whose best teacher (correlation above 0.5) changes from a stronger to a weaker node and that end "
        "above 0.95: at least one in every seed",
        paper="at least 1 (S1 fig 6 shows one in each of 3 seeds)",
        measured=f"{min(counts)} to {max(counts)} a network, median {np.median(counts):g}; "
        f"at least one in {some} of {len(counts)}",
        n=len(counts),
        holds=some == len(counts),
        part=f"{multiple:g}×",
        values=tuple(float(count) for count in counts),
        low=1.0,
        high=None,
    )


def _as_in_paper(study: FocusShifting) -> bool:
    """The paper's network and training, for at least the 40 epochs of 1,000 steps that its figure shows."""
    settings = (study.teacher_nodes, study.batch, study.lr, study.dim, study.outputs, study.train, study.input_std)
    same = settings == (5, 16, 0.01, 100, 50, 10_000, 1.5)
    return same and study.epochs * study.steps >= 40_000 and study.steps <= 1_000
