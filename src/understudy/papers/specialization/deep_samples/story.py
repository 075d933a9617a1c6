"""The study of deep students on few and many samples in words and figures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from understudy.lab.matrices import matrix_images, modulated
from understudy.papers.specialization.deep.story import (
    LOSS_COLOURS,
    LOSSES,
    all_diverged,
    every_student,
    followed,
    layer_names,
    over_seeds,
    ranks_of_winners,
    some_diverged,
)
from understudy.papers.specialization.deep_samples.claims import NAMES, Cells
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.deep_samples.study import DeepSamples


def story(study: DeepSamples, run: Run) -> Story:
    cells = Cells.of(study, run)
    if (cells.network < 0).all():
        return Story(all_diverged(study, run), (Number(f"{run.networks.num_rows:,}", "networks, all diverged"),), ())
    figures = (
        Figure(
            "layer-samples",
            "More samples, better matched layers",
            "How well each layer's teacher nodes are matched by their best students as training ended, against the "
            "number of samples.",
            "S0 fig 6",
            _against_samples(
                study, cells, cells.rho[..., -1], layer_names(len(study.teacher_layers)), "mean best correlation"
            ),
        ),
        Figure(
            "loss-samples",
            "What that does to the loss",
            "Loss as training ended against the number of samples, each kind in its own measure: what lies between "
            "training and evaluation is learned by heart.",
            "S0 fig 6",
            _against_samples(
                study,
                cells,
                np.stack([cells.evaluation[..., -1], cells.training[..., -1]], axis=-1),
                tuple(LOSSES),
                "loss",
            ),
        ),
        Figure(
            "layer-curves",
            "Layer by layer over training",
            "The mean best correlation of each layer over training, a panel a kind of loss and number of samples.",
            "",
            _over_training(study, run, cells),
        ),
        *_of_layers(study, run, cells),
    )
    return Story(_headline(study, run, cells), _numbers(run, cells), figures)


def _against_samples(
    study: DeepSamples, cells: Cells, values: np.ndarray, labels: tuple[str, ...], name: str
) -> Curves:
    """A panel a kind of loss, from values [loss, samples, seed, line]."""
    of_losses = labels == tuple(LOSSES)
    array = xr.DataArray(
        values,
        dims=("loss", "samples", "seed", "line"),
        coords={
            "loss": [NAMES[loss] for loss in cells.losses],
            "samples": cells.samples,
            "line": list(labels),
            "network": (("loss", "samples", "seed"), cells.network),
        },
    )
    return Curves.from_array(
        array,
        name=name,
        x="samples",
        panel="loss",
        line="line",
        x_name="number of samples",
        log_x=True,
        log_y=of_losses,
        limits=None if of_losses else (0.0, 1.02),
        own_scales=of_losses,
        colours=LOSS_COLOURS if of_losses else "layers",
    )


def _over_training(study: DeepSamples, run: Run, cells: Cells) -> Curves:
    titles = tuple(f"{NAMES[loss]}, {n:,}" for loss in cells.losses for n in cells.samples)
    network, rho = (each.reshape(-1, *each.shape[2:]) for each in (cells.network, cells.rho))
    return followed(
        study,
        run,
        titles,
        layer_names(len(study.teacher_layers)),
        network,
        rho,
        name="mean best correlation",
        limits=(0.0, 1.02),
        columns=len(cells.samples),
    )


def _of_layers(study: DeepSamples, run: Run, cells: Cells) -> tuple[Figure, ...]:
    """The L and how early winners led, a row a kind of loss and number of samples, and matrices with the most."""
    there: np.ndarray = np.any(cells.network >= 0, axis=2)
    titles = tuple(f"{NAMES[cells.losses[i]]}, {cells.samples[j]:,}" for i, j in np.argwhere(there))
    network, rho = cells.network[there], cells.rho[there]
    most = int(np.sum(there[np.argmax(there.any(axis=1))])) - 1  # of the first kind of loss that is left
    # Evaluation samples do not depend on how many there are to learn from.
    source = partial(study.source, int(cells.samples[-1]), fresh=False)
    found = modulated(run, network[most][network[most] >= 0][:1], source)
    multiples = [study.over_realization] * len(network)
    return (
        *every_student(run, titles, network, study.teacher_layers, multiples, rho),
        *ranks_of_winners(
            study, run, titles, network, len(study.teacher_layers), columns=len(cells.samples) if there.all() else None
        ),
        *matrix_images(found, titles[most]),
    )


def _headline(study: DeepSamples, run: Run, cells: Cells) -> str:
    """From the fewest to the most samples."""
    few, many = cells.samples[[0, -1]]
    parts = []
    for loss, middle in zip(cells.losses, over_seeds(cells.rho[..., -1], axis=2)[0], strict=True):
        first, last = middle[[0, -1]]
        if np.isfinite(first + last).all():
            low, top = (f"{first[i]:.2f} to {last[i]:.2f}" if few < many else f"{last[i]:.2f}" for i in (0, -1))
            upper = f" and {top} in the top one" if len(last) > 1 else ""
            parts.append(f"{low} in the lowest layer{upper} ({NAMES[loss]})")
    samples = f"From {few:,} to {many:,} samples" if few < many else f"With {many:,} samples"
    if not parts:
        return f"{samples} no kind of loss has networks that came through at both ends.{some_diverged(run)}"
    verb, seeds = "goes from" if few < many else "is", counted(study.seeds, "seed")
    return f"{samples} the mean best correlation {verb} {'; '.join(parts)}; median of {seeds}.{some_diverged(run)}"


def _numbers(run: Run, cells: Cells) -> tuple[Number, ...]:
    numbers = [Number(f"{run.networks.num_rows:,}", "networks")]
    loss = over_seeds(cells.evaluation[..., -1], axis=2)[0]
    numbers += [
        Number(f"{row[-1]:.2g}", f"median evaluation loss with {cells.samples[-1]:,} samples, {NAMES[kind]}")
        for kind, row in zip(cells.losses, loss, strict=True)
        if np.isfinite(row[-1])
    ]
    return tuple(numbers)
