"""What a teacher-aware run decides: T9."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.specialization.teacher_aware.study import TeacherAwareData

FEW, ENOUGH, MANY = 150, 1_000, 3_000
"""Samples at which knowing the teacher pays, at which it no longer does, and below which points too near mislead."""
FACTOR = 4.0
LOW = 0.01
"""A training loss is low below this share of the untrained student's: 99% of what there is to learn is fitted."""
CLOSED = 0.05
"""The gap has closed when it is below this share of what it was with few samples."""
_VERIFIED = {0.0: "0.08 against 0.38", 1.0: "0.006 against 0.049"}


@dataclass(frozen=True, eq=False)
class Losses:
    """Losses [polarity, data, samples, seed] as training ended, NaN where a network diverged."""

    kinds: tuple[str, ...]
    samples: np.ndarray
    polarities: np.ndarray
    seeds: np.ndarray
    network: np.ndarray
    training: np.ndarray
    training_share: np.ndarray
    """The training loss over that of the untrained student on the same samples."""
    evaluation: np.ndarray

    @classmethod
    def of(cls, study: TeacherAwareData, run: Run) -> Losses:
        axes = {"polarity": np.array(sorted(study.polarity)), "data": np.array(study.data)}
        axes |= {"samples": np.array(sorted(study.samples)), "seed": np.arange(1, study.seeds + 1)}
        shape = tuple(len(axis) for axis in axes.values())
        network = np.full(shape, -1)
        places = [_place(axis, run.column(name)) for name, axis in axes.items()]
        network[tuple(places)] = run.column("network")
        network[~np.isin(network, np.flatnonzero(run.networks["diverged_at"].is_null().to_numpy()))] = -1

        def at(values: np.ndarray) -> np.ndarray:
            return np.where(network >= 0, values[network], np.nan)

        first, training = (run.series("train_loss")[:, look] for look in (0, -1))
        return cls(
            study.data,
            axes["samples"],
            axes["polarity"],
            axes["seed"],
            network,
            at(training),
            at(training / first),
            at(run.series("eval_loss")[:, -1]),
        )

    def pick(self, values: np.ndarray, polarity: float, kind: str, samples: int) -> np.ndarray:
        """[seed] of one setting; all NaN if it was not swept."""
        p, s = np.flatnonzero(self.polarities == polarity), np.flatnonzero(self.samples == samples)
        if kind not in self.kinds or not len(p) or not len(s):
            return np.full(len(self.seeds), np.nan)
        return values[p[0], self.kinds.index(kind), s[0]]


def _place(axis: np.ndarray, values: np.ndarray) -> np.ndarray:
    known = {value: i for i, value in enumerate(axis.tolist())}
    return np.array([known[value] for value in values.tolist()])


def claims(study: TeacherAwareData, run: Run) -> list[Claim]:
    if not _as_verified(study):
        return []
    losses = Losses.of(study, run)
    parts = (_training, _lower, _closes, _reversed)
    return [c for part in parts for p in losses.polarities if p in _VERIFIED for c in part(study, losses, float(p))]


def _as_verified(study: TeacherAwareData) -> bool:
    settings = (study.teacher_nodes, study.over_realization, study.batch, study.lr, study.dim, study.outputs)
    same = settings == (10, 5.0, 16, 0.01, 100, 50) and study.input_std == 1.5
    return same and study.epochs * study.steps >= 100_000


def _far(study: TeacherAwareData) -> bool:
    return study.moved == (10.0, 11.0)


def _training(study: TeacherAwareData, losses: Losses, p: float) -> Iterator[Claim]:
    each = [losses.pick(losses.training_share, p, kind, FEW) for kind in ("aware", "agnostic")]
    values = np.concatenate(each)
    values = values[np.isfinite(values)]
    if not _far(study) or any(np.isnan(one).all() for one in each):
        return
    yield Claim(
        id="T9",
        statement=f"{FEW} samples: training loss ends below {LOW:.0%} of the untrained student's, with both training sets, in "
        "every seed",
        paper="low in both",
        measured=f"largest {values.max():.2%} (medians {np.nanmedian(each[0]):.2%} teacher-aware, {np.nanmedian(each[1]):.2%} "
        "teacher-agnostic)",
        n=len(values),
        holds=bool((values < LOW).all()),
        part=f"training loss, p = {p:g}",
        values=tuple(values.tolist()),
        low=None,
        high=LOW,
    )


def _lower(study: TeacherAwareData, losses: Losses, p: float) -> Iterator[Claim]:
    aware, agnostic = (losses.pick(losses.evaluation, p, kind, FEW) for kind in ("aware", "agnostic"))
    ratio = agnostic / aware
    ratio = ratio[np.isfinite(ratio)]
    if not _far(study) or not len(ratio):
        return
    yield Claim(
        id="T9",
        statement=f"{FEW} samples: evaluation loss with teacher-agnostic over that with teacher-aware data (moved 10 to 11): at "
        f"least {FACTOR:g}×, median over seeds (below: log10)",
        paper=_VERIFIED[p],
        measured=f"{np.median(ratio):.1f}× (medians {np.nanmedian(aware):.2g} against {np.nanmedian(agnostic):.2g})",
        n=len(ratio),
        holds=bool(np.median(ratio) >= FACTOR),
        part=f"evaluation loss, p = {p:g}",
        values=tuple(np.log10(ratio).tolist()),
        low=math.log10(FACTOR),
        high=None,
    )


def _closes(study: TeacherAwareData, losses: Losses, p: float) -> Iterator[Claim]:
    few, enough = (
        losses.pick(losses.evaluation, p, "agnostic", n) - losses.pick(losses.evaluation, p, "aware", n)
        for n in (FEW, ENOUGH)
    )
    left = enough[few > 0] / few[few > 0]
    left = left[np.isfinite(left)]
    if not _far(study) or not len(left):
        return
    middle = float(np.median(np.abs(left)))
    yield Claim(
        id="T9",
        statement=f"the lead in evaluation loss at {ENOUGH:,} samples, of that at {FEW}: median over seeds within {CLOSED:.0%}",
        paper="closes by 300 to 1,000 samples",
        measured=f"{middle:.1%} of it is left",
        n=len(left),
        holds=middle <= CLOSED,
        part=f"gap closes, p = {p:g}",
        values=tuple(left.tolist()),
        low=-CLOSED,
        high=CLOSED,
    )


def _reversed(study: TeacherAwareData, losses: Losses, p: float) -> Iterator[Claim]:
    """Each seed's log10 of the loss with points moved 1 to 2 over that with Gaussian ones, at all sizes below 3,000."""
    sizes = [int(n) for n in losses.samples if n < MANY]
    if study.moved_near != (1.0, 2.0) or not sizes:
        return
    near, plain = (
        np.stack([losses.pick(losses.evaluation, p, kind, n) for n in sizes]) for kind in ("aware-near", "agnostic")
    )
    each = np.log10(near / plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a size at which every network diverged
        middle = np.nanmedian(each, axis=1)
    if np.isnan(middle).any():
        return
    shown = ", ".join(f"{n:,}: {10**m:.2g}×" for n, m in zip(sizes, middle, strict=True))
    yield Claim(
        id="T9",
        statement=f"points moved by 1 to 2 (released defaults): evaluation loss above that with teacher-agnostic data at every "
        f"size below {MANY:,} samples (medians over seeds; below: log10)",
        paper="order reversed",
        measured=shown,
        n=int(np.isfinite(each).sum(axis=1).min()),
        holds=bool((middle > 0).all()),
        part=f"moved 1 to 2, p = {p:g}",
        values=tuple(middle.tolist()),
        low=0.0,
        high=None,
    )
