"""The teacher-aware study in words and figures."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.specialization.teacher_aware.claims import FEW, Losses
from understudy.report.figures import SampleCurves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.teacher_aware.study import TeacherAwareData


def story(study: TeacherAwareData, run: Run) -> Story:
    losses = Losses.of(study, run)
    figure = Figure(
        "sample-curves",
        "Knowing the teacher saves samples",
        f"Loss after training against the number of samples (median and quartiles of {counted(study.seeds, 'seed')}): "
        "training loss (dashed) is low everywhere; with few samples, evaluation loss (solid, on Gaussian inputs) "
        "depends on where they lie.",
        "S0 fig 9",
        _curves(study, losses),
    )
    return Story(_headline(losses), _numbers(run, losses), (figure,))


def _quartiles(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median, low and high over seeds, the last axis."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a setting in which every network diverged
        low, middle, high = np.nanpercentile(values, (25, 50, 75), axis=-1)
    return middle, low, high


def _curves(study: TeacherAwareData, losses: Losses) -> SampleCurves:
    low, high = study.moved_near
    names = {"aware": "teacher-aware", "agnostic": "teacher-agnostic", "aware-near": f"moved {low:g}–{high:g} only"}
    return SampleCurves(
        tuple(f"p = {p:g}" for p in losses.polarities),
        tuple(names[kind] for kind in losses.kinds),
        losses.samples,
        *_quartiles(losses.training),
        *_quartiles(losses.evaluation),
        len(losses.seeds),
        losses.network,
        losses.evaluation,
    )


def _few(losses: Losses) -> int:
    """The size to speak of: 150 samples, or the nearest there is."""
    return int(losses.samples[np.abs(np.log(losses.samples / FEW)).argmin()])


def _headline(losses: Losses) -> str:
    few = _few(losses)
    parts = []
    for p in losses.polarities:
        middle = [
            f"{np.nanmedian(values):.2g} {words}"
            for kind, words in (("aware", "with teacher-aware"), ("agnostic", "with teacher-agnostic data"))
            if np.isfinite(values := losses.pick(losses.evaluation, p, kind, few)).any()
        ]
        if middle:
            parts.append(f"{' against '.join(middle)} (p = {p:g})")
    if not parts:
        return f"No network that learned from teacher-aware or teacher-agnostic data at {few} samples came through."
    seeds = counted(len(losses.seeds), "seed")
    return f"With {few} samples the evaluation loss is {', '.join(parts)}; median of {seeds}."


def _numbers(run: Run, losses: Losses) -> tuple[Number, ...]:
    few = _few(losses)
    numbers = [Number(f"{run.networks.num_rows:,}", "networks")]
    for p in losses.polarities[:3]:
        aware, plain = (losses.pick(losses.evaluation, p, kind, few) for kind in ("aware", "agnostic"))
        ratio = plain / aware
        if np.isfinite(ratio).any():
            numbers.append(
                Number(f"{np.nanmedian(ratio):.1f}×", f"lower loss with teacher-aware data, {few} samples, p = {p:g}")
            )
    return tuple(numbers)
