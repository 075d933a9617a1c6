"""Claim T8: students' boundaries come to lie on the teacher's (Tian 2020, fig. 3; Tian 2019, fig. 2)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from understudy.claims import Claims, Verdict, every
from understudy.papers.specialization.hyperplanes.study import MovingHyperplanes
from understudy.store import Run

CORRELATION = 0.99
EPS = 0.05
"""A student has the boundary of a teacher node if their correlation is above 0.99 and they are ε-aligned (Tian 2020,
definition 3) with ε = 0.05: less than 3 degrees apart, and offset by less than 0.05 with weights of length 1."""
SHARE = 0.02


class Settled(NamedTuple):
    """Networks of one initial scale at the end, in the order of their seeds, without those that diverged."""

    networks: np.ndarray
    covered: np.ndarray
    """[network]: number of teacher boundaries that a student has."""
    others: np.ndarray
    """[network]: largest fan-out of a student without a teacher boundary, relative to the largest in the network."""

    @property
    def both(self) -> np.ndarray:
        """Which networks cover both teacher boundaries."""
        return self.covered == 2

    @property
    def quiet(self) -> np.ndarray:
        """In which networks the other students have a small fan-out."""
        return self.others < SHARE


def settled(run: Run, scale: float) -> Settled:
    """How the networks of one initial scale ended."""
    some = run.select(scale=scale)
    networks, epoch = some.index[some.alive], int(run.epochs[-1])
    columns = ("correlation", "sin_angle", "bias_gap", "fanout", "teacher")
    rho, sin, gap, fan_out, teacher = (run.matched("student", name, epoch=epoch)[networks] for name in columns)
    aligned = (rho > CORRELATION) & (sin <= EPS) & (gap <= EPS)
    covered = np.stack([(aligned & (teacher == j)).any(axis=1) for j in (0, 1)], axis=1).sum(axis=1)
    others = np.where(aligned, 0.0, fan_out).max(axis=1, initial=0.0) / fan_out.max(axis=1, initial=1e-300)
    return Settled(networks, covered, others)


def _long_enough(study: MovingHyperplanes) -> bool:
    """At least as much training as 30,000 steps at a rate of 0.01."""
    return study.epochs * study.steps * study.lr >= 0.999 * 300


claims = Claims(fixed="students outputs batch input_std", least={"train": 10_000}, when=_long_enough)


def _by_scale(study: MovingHyperplanes, run: Run, test: Callable[[Settled], Verdict]) -> Verdict | None:
    """Decide on the smallest initial scale, and show the larger ones beside it."""
    smallest, *larger = (settled(run, scale) for scale in sorted(study.scale))
    names = (f"initial scale {scale:g}" for scale in sorted(study.scale)[1:])
    others = {name: test(ends) for name, ends in zip(names, larger, strict=True)}
    return test(smallest).with_variants(others) if len(smallest.networks) else None


def _smallest(study: MovingHyperplanes, run: Run) -> list[dict[str, float]]:
    return [{"smallest": min(study.scale)}]


@claims.claim(
    "T8",
    "covered, {angle:g}° apart, started at {smallest:g}",
    statement="two inputs, 2 teacher nodes, 6 students: every teacher boundary ends with a student's on it, in every "
    "seed",
    paper="both boundaries covered",
    values_are="teacher boundaries covered, per seed",
    cases=_smallest,
)
def boundaries_covered(study: MovingHyperplanes, run: Run, smallest: float) -> Verdict | None:
    return _by_scale(study, run, lambda ends: every(ends.covered, at_least=2.0, say="both covered in {count} seeds"))


@claims.claim(
    "T8",
    "others, {angle:g}° apart, started at {smallest:g}",
    statement="largest fan-out of a student without a teacher boundary, relative to the largest in its network: under "
    "2% in every seed",
    paper="0.01 of 2.27 (S1 fig. 2)",
    cases=_smallest,
)
def others_are_silent(study: MovingHyperplanes, run: Run, smallest: float) -> Verdict | None:
    words = "under 2% in {count} seeds; median {median:.2%}, largest {most:.2%}"
    return _by_scale(study, run, lambda ends: every(ends.others, below=SHARE, say=words))
