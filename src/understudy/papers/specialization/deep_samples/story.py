"""Figures and headline of `deep-samples` (Tian 2020, fig. 6)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from understudy.lab import layers
from understudy.lab.matrices import matrix_images, measure_modulation
from understudy.papers.specialization.deep_samples.claims import NAMES
from understudy.papers.specialization.deep_samples.study import DeepSamples
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_DIMS = "loss samples seed"
_RATES = {"mse": "lr", "cross-entropy": "ce_lr"}
"""The option that sets the learning rate of each loss."""


def story(study: DeepSamples, run: Run) -> Story:
    """The figure of the paper, the layers over training, and their students."""
    rho = run.array("rho_mean", f"{_DIMS} layer epoch")
    if rho.isnull().all():
        return layers.diverged_story(study, run, " ".join(_RATES[loss] for loss in study.loss))
    titles = {(loss, n): f"{NAMES[loss]}, {n:,}" for loss in study.loss for n in study.samples}
    figures = (
        Figure(
            "layer-samples",
            "With more samples, all layers match better",
            "Mean correlation of each layer's teacher nodes with their best students after training, against the "
            "number of samples.",
            "S0 fig. 6",
            layers.correlation_curves(
                rho.isel(epoch=-1), "loss", NAMES, x="samples", x_name="number of samples", log_x=True
            ),
        ),
        Figure(
            "loss-samples",
            "What that does to the loss",
            "Loss after training against the number of samples, each kind in its own units. The difference between "
            "training and evaluation is memorised.",
            "S0 fig. 6",
            layers.loss_curves(
                run, _DIMS, "loss", NAMES, "loss", x="samples", x_name="number of samples", log_x=True, own_scales=True
            ),
        ),
        Figure(
            "layer-curves",
            "Layer by layer over training",
            "Mean best correlation of each layer over training, one panel per loss and number of samples.",
            "",
            layers.correlation_curves(rho, ("loss", "samples"), titles, columns=len(study.samples)),
        ),
        *_layer_figures(study, run, rho, titles),
    )
    return Story(_headline(study, run, rho), _numbers(study, run), figures)


def _layer_figures(study: DeepSamples, run: Run, rho: xr.DataArray, titles: Mapping[Any, str]) -> tuple[Figure, ...]:
    """Every student and the ranks of winners by loss and samples, and matrices of one network with the most samples."""
    cells = rho.stack(cell=("loss", "samples")).dropna("cell", how="all")
    names = cells["cell"].to_numpy().tolist()
    shown = [name for name in names if name[0] == names[0][0]][-1]
    network = layers.first_network(cells.sel(cell=shown))
    # Evaluation samples do not depend on the number of training samples.
    source = partial(study.source, max(study.samples), fresh=False)
    columns = len(study.samples) if len(names) == len(titles) else None
    return (
        *layers.student_figures(run, cells, "cell", titles=titles),
        *layers.rank_figures(run, _DIMS, ("loss", "samples"), titles, columns=columns),
        *matrix_images(measure_modulation(run, network, source), titles[shown]),
    )


def _headline(study: DeepSamples, run: Run, rho: xr.DataArray) -> str:
    """The change from the fewest to the most samples."""
    few, many = min(study.samples), max(study.samples)
    medians, parts = rho.isel(epoch=-1).median("seed"), []
    for loss in study.loss:
        first, last = (medians.sel(loss=loss, samples=n).to_numpy() for n in (few, many))
        if np.isfinite(first + last).all():
            low, top = (f"{first[i]:.2f} to {last[i]:.2f}" if few < many else f"{last[i]:.2f}" for i in (0, -1))
            upper = f" and {top} in the top one" if len(last) > 1 else ""
            parts.append(f"{low} in the lowest layer{upper} ({NAMES[loss]})")
    samples = f"From {few:,} to {many:,} samples" if few < many else f"With {many:,} samples"
    if not parts:
        return f"{samples}, no kind of loss has networks left at both ends.{layers.some_diverged(run)}"
    verb, seeds = "goes from" if few < many else "is", counted(study.seeds, "seed")
    return (
        f"{samples} the mean best correlation {verb} {'; '.join(parts)}; median of {seeds}.{layers.some_diverged(run)}"
    )


def _numbers(study: DeepSamples, run: Run) -> tuple[Number, ...]:
    most = max(study.samples)
    medians = run.array("eval_loss", _DIMS).sel(samples=most).median("seed")
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        *(
            Number(f"{value:.2g}", f"median evaluation loss with {most:,} samples, {NAMES[loss]}")
            for loss, value in zip(study.loss, medians.to_numpy(), strict=True)
            if np.isfinite(value)
        ),
    )
