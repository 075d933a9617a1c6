"""Students of a pruned teacher on CIFAR-10 in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from understudy.lab.images import all_diverged, layers_of, percent
from understudy.lab.matrices import matrix_images, modulated
from understudy.papers.specialization.cifar.claims import multiples
from understudy.papers.specialization.deep.claims import at
from understudy.papers.specialization.deep.story import (
    every_student,
    followed,
    layer_names,
    losses,
    over_seeds,
    ranks_of_winners,
    some_diverged,
)
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.cifar.study import Cifar


def story(study: Cifar, run: Run) -> Story:
    axis, network = multiples(study, run)
    there = (network >= 0).any(axis=1)
    if not there.any():
        return all_diverged(run, "--lr", study.lr)
    axis, network = axis[there], network[there]
    rho = at(network, layers_of(run, len(study.teacher_layers)))
    accuracy, teacher = (at(network, run.series(metric)) for metric in ("accuracy", "teacher_accuracy"))
    end, taught = np.nanmean(accuracy[..., -1], axis=1), float(np.nanmean(teacher[..., -1]))
    names = tuple(f"{k:g}×" for k in axis)
    figures = (
        Figure(
            "layer-curves",
            "How well every layer is matched",
            "How well the teacher's channels are matched, each by its best student, over training; over each panel the "
            f"students' evaluation accuracy as it ended (mean over seeds, teacher {percent(taught)}).",
            "S0 fig 10",
            followed(
                study,
                run,
                tuple(f"{name}: {percent(a)}" for name, a in zip(names, end, strict=True)),
                layer_names(rho.shape[2]),
                network,
                rho,
                name="mean best correlation",
                limits=(0.0, 1.02),
            ),
        ),
        Figure(
            "layer-widths",
            "Width against width, layer by layer",
            f"The same curves, a panel a layer{_ordered(rho)}.",
            "S0 fig 10",
            _widths(run, axis, rho, layer_names(rho.shape[2]), name="mean best correlation", limits=(0.0, 1.02)),
        ),
        *every_student(run, names, network, study.kept, axis, rho, channels=True),
        *ranks_of_winners(study, run, names, network, rho.shape[2]),
        *matrix_images(modulated(run, network[-1][network[-1] >= 0][:1], study.source), names[-1]),
        Figure(
            "accuracy",
            "And how well the labels are known",
            "Share of evaluation images whose label is the largest output. Students never see a label: they learn the "
            "outputs of the pruned teacher (dashed).",
            "S0 fig 10",
            _widths(
                run,
                axis,
                accuracy[:, :, None],
                ("",),
                name="evaluation accuracy",
                bound=(taught, f"teacher, {percent(taught)}"),
            ),
        ),
        Figure(
            "losses",
            "What that does to the loss",
            "Squared error against the teacher, averaged over outputs: on the evaluation images after each epoch, and "
            "over its steps on training images.",
            "",
            losses(study, run, names, network, "MSE loss"),
        ),
    )
    return Story(_headline(study, run, axis, end, taught, rho), _numbers(run, axis, end, taught, rho), figures)


def _widths(run: Run, axis: np.ndarray, values: np.ndarray, titles: tuple[str, ...], **more: Any) -> Curves:
    """One line per width, one panel per quantity of values [multiple, seed, quantity, epoch]."""
    array = xr.DataArray(
        values,
        dims=("multiple", "seed", "quantity", "epoch"),
        coords={"multiple": axis, "quantity": list(titles), "epoch": run.epochs},
    )
    labels = {k: f"{k:g}×" for k in axis.tolist()}
    return Curves.from_array(array, panel="quantity", line="multiple", labels=labels, colours="multiples", **more)


def _ordered(rho: np.ndarray) -> str:
    """Says that wider students are ahead at the end, where it came out so."""
    last = over_seeds(rho[..., -1], axis=1)[0]
    return ": at the end the wider students are ahead in each" if (np.diff(last, axis=0) > 0).all() else ""


def _headline(study: Cifar, run: Run, axis: np.ndarray, end: np.ndarray, taught: float, rho: np.ndarray) -> str:
    right = ", ".join(f"{percent(a)} at {k:g}×" for k, a in zip(axis, end, strict=True))
    match = np.nanmean(rho[..., -1], axis=(1, 2))
    spread = f"goes from {match[0]:.2f} at {axis[0]:g}× to {match[-1]:.2f} at {axis[-1]:g}×"
    matched = spread if len(axis) > 1 else f"is {match[0]:.2f}"
    return (
        f"Students of a teacher that is right on {percent(taught)} of {study.evaluation:,} images are right on "
        f"{right}; their mean best correlation over all layers {matched} (mean of {counted(study.seeds, 'seed')})."
        f"{some_diverged(run)}"
    )


def _numbers(run: Run, axis: np.ndarray, end: np.ndarray, taught: float, rho: np.ndarray) -> tuple[Number, ...]:
    low = np.nanmean(rho[..., -1], axis=1)[-1]
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(percent(taught), "accuracy of the pruned teacher"),
        Number(percent(end[-1]), f"accuracy of students at {axis[-1]:g}×"),
        Number(
            f"{low.min():.2f}", f"mean best correlation at {axis[-1]:g}× in layer {low.argmin() + 1}, the least matched"
        ),
    )
