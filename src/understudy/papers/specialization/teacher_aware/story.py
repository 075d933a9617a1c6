"""Figures and headline of `teacher-aware` (Tian 2020, fig. 9)."""

import numpy as np
import xarray as xr

from understudy.lab.layers import LOSSES, diverged_story
from understudy.papers.specialization.teacher_aware.claims import FEW, at
from understudy.papers.specialization.teacher_aware.study import TeacherAwareData
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run


def story(study: TeacherAwareData, run: Run) -> Story:
    """Losses against the number of samples, and how much teacher-aware data gains with few."""
    evaluation, training = (run.array(metric, "polarity data samples seed") for metric in LOSSES.values())
    if evaluation.isnull().all():
        return diverged_story(study, run)
    figure = Figure(
        "sample-curves",
        "Knowing the teacher saves samples",
        f"Loss after training against the number of samples (median and quartiles of {counted(study.seeds, 'seed')}): "
        "training loss (dashed) is low everywhere; with few samples, evaluation loss (solid, on Gaussian inputs) "
        "depends on where they lie.",
        "S0 fig. 9",
        _curves(study, evaluation, training),
    )
    return Story(_headline(evaluation), _numbers(run, evaluation), (figure,))


def _curves(study: TeacherAwareData, evaluation: xr.DataArray, training: xr.DataArray) -> Curves:
    low, high = study.moved_near
    # Single networks are shown by their evaluation loss alone.
    unnamed = training.assign_coords(network=xr.full_like(training["network"], -1))
    both = xr.concat([evaluation, unnamed], "loss", coords=["network"], join="exact").assign_coords(loss=list(LOSSES))
    return Curves.from_array(
        both,
        name="MSE loss",
        x="samples",
        panel="polarity",
        line="data",
        style="loss",
        titles={p: f"p = {p:g}" for p in both["polarity"].to_numpy().tolist()},
        labels={"aware": "teacher-aware", "agnostic": "teacher-agnostic", "aware-near": f"moved {low:g}–{high:g} only"},
        x_name="number of samples",
        colours="categories",
        log_x=True,
        log_y=True,
        height=1.9,
    )


def _nearest_to_few(losses: xr.DataArray) -> int:
    """The size that the headline reports: 150 samples, or the nearest that was trained."""
    sizes = losses["samples"].to_numpy()
    return int(sizes[np.abs(np.log(sizes / FEW)).argmin()])


def _headline(losses: xr.DataArray) -> str:
    few = _nearest_to_few(losses)
    parts = []
    for p in losses["polarity"].to_numpy():
        middle = [
            f"{np.nanmedian(values):.2g} {words}"
            for data, words in (("aware", "with teacher-aware"), ("agnostic", "with teacher-agnostic data"))
            if np.isfinite(values := at(losses.sel(polarity=p), data, few)).any()
        ]
        if middle:
            parts.append(f"{' against '.join(middle)} (p = {p:g})")
    if not parts:
        return f"No network was trained on {few} teacher-aware or teacher-agnostic samples without diverging."
    seeds = counted(losses.sizes["seed"], "seed")
    return f"With {few} samples the evaluation loss is {', '.join(parts)}; median of {seeds}."


def _numbers(run: Run, losses: xr.DataArray) -> tuple[Number, ...]:
    few = _nearest_to_few(losses)
    numbers = [Number(f"{run.networks.num_rows:,}", "networks")]
    for p in losses["polarity"].to_numpy()[:3]:
        aware, agnostic = (at(losses.sel(polarity=p), data, few) for data in ("aware", "agnostic"))
        ratio = agnostic / aware
        if np.isfinite(ratio).any():
            words = f"lower loss with teacher-aware data, {few} samples, p = {p:g}"
            numbers.append(Number(f"{np.nanmedian(ratio):.1f}×", words))
    return tuple(numbers)
