"""What an initialisation run decides: Z7."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from understudy.papers.local.initialisation.study import ALGORITHMS, BESIDE, REACHED, Initialisation
from understudy.papers.specialization.dynamics.claims import part
from understudy.report.style import number, signed
from understudy.store import Claim, Run
from understudy.store.claims import Variant

SLOPE, WITHIN = -0.5, 0.1
"""Of log of the median angle against log N, and how far it may be from that."""

_BESIDE = {"small": "small starts", "large": "large starts, whose rate is smaller"}


class Reached(NamedTuple):
    """Descents from one kind of start."""

    steps: np.ndarray
    """Of the first look at a loss of 1e−6 or less, a network; infinite where there is none."""
    last: np.ndarray
    """The loss at the last step; infinite where descent diverged."""

    @property
    def arrived(self) -> int:
        return int(np.isfinite(self.steps).sum())

    def __str__(self) -> str:
        there = self.steps[np.isfinite(self.steps)]
        took = f", after {np.median(there):,.0f} steps (median; at most {there.max():,.0f})" if len(there) else ""
        rest = (
            ""
            if self.arrived == len(self.steps)
            else f", the median loss ends at {number(float(np.median(self.last)))}"
        )
        return f"{self.arrived} of {len(self.steps)}{took}{rest}"


def by_students(run: Run, by: str, nodes: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of students, in order, and [number, seed] of the losses they start at."""
    which = part(run, "start", by=by, teacher_nodes=nodes, dim=dim)
    return _by(run.column("students")[which], run.series("loss")[which, 0])


def by_samples(run: Run, nodes: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of samples, in order, and [number, seed] of the angles of the spans they show."""
    which = part(run, "span", teacher_nodes=nodes, dim=dim)
    if not len(which):
        return np.zeros(0), np.zeros((0, 0))
    return _by(run.column("samples")[which], run.series("angle")[which, 0])


def _by(numbers: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    each = np.unique(numbers)
    return each.astype(float), np.stack([values[numbers == n] for n in each])


def slopes(study: Initialisation, run: Run) -> dict[tuple[int, int], float]:
    """Of log of the median angle in log N, for every number of nodes and inputs whose span is not all of the space."""
    found = {}
    for size in study.settings(study.dim):
        samples, angles = by_samples(run, *size)
        if len(samples) > 1:
            found[size] = float(np.polyfit(np.log(samples), np.log(np.median(angles, 1)), 1)[0])
    return found


def reached(study: Initialisation, run: Run, by: str) -> Reached:
    losses = run.series("loss")[part(run, "descent", by=by)][:, np.isin(run.epochs, study.probes())]
    there = losses <= REACHED
    first = np.array(study.probes(), float)[there.argmax(1)]
    return Reached(np.where(there.any(1), first, np.inf), np.where(np.isfinite(losses[:, -1]), losses[:, -1], np.inf))


def claims(study: Initialisation, run: Run) -> list[Claim]:
    if study.teacher:
        return []  # of one teacher nothing follows for others
    found: list[Claim] = []
    shown = study.span_samples >= Initialisation.span_samples
    if study.seeds >= 20 and shown and _far_apart(study.students):
        found.append(_falls(study, run))
    wide = max(study.samples) >= 100 * min(study.samples) and min(study.samples) >= 10_000
    if study.seeds >= 20 and wide and slopes(study, run):
        found.append(_span(study, run))
    long = study.steps >= Initialisation.steps and study.rate == Initialisation.rate
    if study.descents >= 10 and shown and long and study.descent_students >= Initialisation.descent_students:
        found.append(_descent(study, run))
    return found


def _far_apart(students: tuple[int, ...]) -> bool:
    """Ten times as many in all, and twice as many or more from one to the next: less is within what chance does."""
    each = sorted(students)
    return each[-1] >= 10 * each[0] and all(more >= 2 * less for less, more in pairwise(each))


def _falls(study: Initialisation, run: Run) -> Claim:
    steps, words = [], []
    for by in ALGORITHMS:
        ends = []
        for size in study.settings(study.dim):
            middle = np.median(by_students(run, by, *size)[1], 1)
            steps += (middle[1:] / middle[:-1]).tolist()
            ends.append(middle[0] / middle[-1])
        words.append(f"{by} by {min(ends):.2g} to {max(ends):.2g} times in all")
    down = sum(step < 1 for step in steps)
    return Claim(
        id="Z7",
        statement=f"median loss of the start over {study.seeds} seeds, from {min(study.students)} to {max(study.students)} "
        "students, algorithms 1 (scattered) and 2 (in the span): lower at every step",
        paper="falls with m",
        measured=f"{down} of {len(steps)} steps go down; {', '.join(words)}",
        n=study.seeds,
        holds=down == len(steps),
        part="loss by m",
        values=tuple(steps),
        low=None,
        high=1.0,
    )


def _span(study: Initialisation, run: Run) -> Claim:
    found = slopes(study, run)
    words = ", ".join(f"{signed(round(value, 3))} at r = {nodes}, d = {dim}" for (nodes, dim), value in found.items())
    return Claim(
        id="Z7",
        statement=f"largest angle between the span that N samples show and the teacher's, N from {min(study.samples):,} to "
        f"{max(study.samples):,}: slope of its median over {study.seeds} seeds in N, log-log, within −0.5 ± 0.1",
        paper="N^(−½)",
        measured=words,
        n=study.seeds,
        holds=all(abs(value - SLOPE) <= WITHIN for value in found.values()),
        part="span",
        values=tuple(found.values()),
        low=SLOPE - WITHIN,
        high=SLOPE + WITHIN,
    )


def _descent(study: Initialisation, run: Run) -> Claim:
    found = {by: reached(study, run, by) for by in (*ALGORITHMS, *BESIDE)}
    steps = np.concatenate([found[by].steps for by in ALGORITHMS])
    last = np.concatenate([found[by].last for by in ALGORITHMS])
    return Claim(
        id="Z7",
        statement=f"gradient descent on the exact loss from both, {study.descent_students} students, rate {study.rate:g}: a loss "
        f"of 1e−6 within {study.steps:,} steps, in every network",
        paper="reaches any ε",
        measured="; ".join(f"{by} {found[by]}" for by in ALGORITHMS),
        n=len(steps),
        holds=bool(np.isfinite(steps).all()),
        part="descent",
        values=tuple(np.log10(last[np.isfinite(last)]).tolist()),
        low=None,
        high=float(np.log10(REACHED)),
        variants=tuple(Variant(_BESIDE[by], str(found[by]), found[by].arrived == len(found[by].steps)) for by in BESIDE),
    )
