"""What a hyperplanes run decides: T8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.specialization.hyperplanes.study import MovingHyperplanes

CORRELATION = 0.99
EPS = 0.05
"""A student's boundary coincides with a teacher's when the nodes are correlated above 0.99 and ε-aligned (S0
Definition 3) with ε = 0.05: under 3 degrees apart, and offset by under 0.05 with weights of length 1."""
SHARE = 0.02


@dataclass(frozen=True, eq=False)
class Settled:
    """Networks of one scale as training ended, in the order of their seeds; networks that diverged are left out."""

    networks: np.ndarray
    covered: np.ndarray
    """[network]: teacher boundaries with a student's on them."""
    others: np.ndarray
    """[network]: largest fan-out of a student on no boundary, over the largest of its network; 0 if all are on one."""

    @property
    def both(self) -> np.ndarray:
        return self.covered == 2

    @property
    def quiet(self) -> np.ndarray:
        return self.others < SHARE


def settled(run: Run, scale: float) -> Settled:
    columns = ("correlation", "sin_angle", "bias_gap", "fanout", "teacher")
    epoch = int(run.epochs[-1])
    alive = run.networks["diverged_at"].is_null().to_numpy()
    networks = np.flatnonzero((run.column("scale") == scale) & alive)
    rho, sin, gap, fan, teacher = (run.matched("student", column, epoch=epoch)[networks] for column in columns)
    aligned = (rho > CORRELATION) & (sin <= EPS) & (gap <= EPS)
    covered = np.stack([(aligned & (teacher == j)).any(axis=1) for j in (0, 1)], axis=1).sum(axis=1)
    others = np.where(aligned, 0.0, fan).max(axis=1, initial=0.0) / fan.max(axis=1, initial=1e-300)
    return Settled(networks, covered, others)


def claims(study: MovingHyperplanes, run: Run) -> list[Claim]:
    if not _settled_enough(study):
        return []
    scale = min(study.scale)
    ends = settled(run, scale)
    if not len(ends.networks):
        return []
    n, part = len(ends.networks), f"{study.angle:g}° apart, started at {scale:g}"
    return [
        Claim(
            id="T8",
            statement="two inputs, 2 teacher nodes, 6 students: every teacher boundary ends with a student's on it, in every "
            "seed",
            paper="both boundaries covered",
            measured=f"both covered in {ends.both.sum()} of {n} seeds{_elsewhere(study, run, lambda s: s.both)}",
            n=n,
            holds=bool(ends.both.all()),
            part=f"covered, {part}",
            values=tuple(ends.covered.astype(float).tolist()),
            low=2.0,
            high=None,
        ),
        Claim(
            id="T8",
            statement="largest fan-out of a student on no teacher boundary, over the largest of its network: under 2% in every "
            "seed",
            paper="0.01 of 2.27 (S1 fig 2)",
            measured=f"under 2% in {ends.quiet.sum()} of {n} seeds{_elsewhere(study, run, lambda s: s.quiet)}; "
            f"median {np.median(ends.others):.2%}, largest {ends.others.max():.2%}",
            n=n,
            holds=bool(ends.quiet.all()),
            part=f"others, {part}",
            values=tuple(ends.others.tolist()),
            low=None,
            high=SHARE,
        ),
    ]


def _elsewhere(study: MovingHyperplanes, run: Run, what: Callable[[Settled], np.ndarray]) -> str:
    """The same count for the larger starts, which do not decide the claim."""
    parts = []
    for scale in sorted(study.scale)[1:]:
        good = what(settled(run, scale))
        parts.append(f"{good.sum()} of {len(good)} started at {scale:g}")
    return f" ({', '.join(parts)})" if parts else ""


def _settled_enough(study: MovingHyperplanes) -> bool:
    """The study's own six students and data, and at least as much training as 30,000 steps at 0.01."""
    settings = (study.students, study.outputs, study.batch, study.input_std)
    long = study.epochs * study.steps * study.lr >= 0.999 * 300
    return settings == (6, 50, 16, 1.5) and study.train >= 10_000 and long
