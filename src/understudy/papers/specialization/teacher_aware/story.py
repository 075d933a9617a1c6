"""The teacher-aware study in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from understudy.papers.specialization.teacher_aware.claims import FEW, Losses
from understudy.report.figures import Curves
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


def _curves(study: TeacherAwareData, losses: Losses) -> Curves:
    low, high = study.moved_near
    names = {"aware": "teacher-aware", "agnostic": "teacher-agnostic", "aware-near": f"moved {low:g}–{high:g} only"}
    axes = ("polarity", "data", "samples", "seed")
    array = xr.DataArray(
        np.stack([losses.evaluation, losses.training]),
        dims=("loss", *axes),
        coords={
            "loss": ["evaluation", "training"],
            "polarity": losses.polarities,
            "data": list(losses.kinds),
            "samples": losses.samples,
            # Single networks are shown by their evaluation loss alone.
            "network": (("loss", *axes), np.stack([losses.network, np.full_like(losses.network, -1)])),
        },
    )
    return Curves.from_array(
        array,
        name="MSE loss",
        x="samples",
        panel="polarity",
        line="data",
        style="loss",
        titles={p: f"p = {p:g}" for p in losses.polarities.tolist()},
        labels=names,
        x_name="number of samples",
        colours="categories",
        log_x=True,
        log_y=True,
        height=1.9,
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
