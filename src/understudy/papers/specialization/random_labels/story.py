"""Figures and headline of `random-labels` (Tian 2020, sec. 1; Tian et al. 2019, fig. 2)."""

from typing import Any

import numpy as np

from understudy.lab.layers import diverged_story, multiple_curves, some_diverged
from understudy.papers.specialization.random_labels.study import LabelledStudents
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_DIMS = "labels multiple seed epoch"


def story(study: LabelledStudents, run: Run) -> Story:
    """Training loss, accuracy and correlation, with structured labels and with random ones."""
    loss, accuracy = (run.array(metric, _DIMS) for metric in ("train_loss", "accuracy"))
    if accuracy.isnull().all():
        return diverged_story(study, run)
    rho = run.array("rho_mean", _DIMS, layer=0)
    titles = {kind: f"{kind} labels" for kind in study.labels}

    def curves(values: Any, name: str, **more: Any) -> Curves:
        return multiple_curves(values, "labels", titles, name=name, **more)

    chance = 1 / study.outputs
    figures = (
        Figure(
            "training-loss",
            "Both kinds of labels are fitted",
            "Cross-entropy over the steps of each epoch, by over-realization.",
            "S2 fig. 2",
            curves(loss, "training cross-entropy", log_y=True),
        ),
        Figure(
            "accuracy",
            "Only structured ones generalise",
            "Share of evaluation samples whose label is predicted; dashed is chance.",
            "S0 sec. 1",
            curves(accuracy, "evaluation accuracy", limits=(0.0, 1.02), bound=(chance, f"chance, {chance:.0%}")),
        ),
        Figure(
            "correlation",
            "Only with structured ones do students specialise",
            "Mean correlation of the teacher nodes with their best students.",
            "S2 fig. 2",
            curves(rho, "mean best correlation", limits=(0.0, 1.02)),
        ),
    )
    return Story(_headline(study, run, loss, accuracy), _numbers(study, run, loss, accuracy), figures)


def _headline(study: LabelledStudents, run: Run, loss: Any, accuracy: Any) -> str:
    widest, parts = max(study.multiple), []
    for kind in study.labels:
        low, right = (np.nanmedian(each.sel(labels=kind, multiple=widest).isel(epoch=-1)) for each in (loss, accuracy))
        parts.append(f"{low:.2g} and {right:.0%} with {kind} labels")
    return (
        f"At {widest:g}× training loss and evaluation accuracy end at {', '.join(parts)} (medians of "
        f"{counted(study.seeds, 'seed')}; chance is {1 / study.outputs:.0%}).{some_diverged(run)}"
    )


def _numbers(study: LabelledStudents, run: Run, loss: Any, accuracy: Any) -> tuple[Number, ...]:
    numbers = [Number(f"{run.networks.num_rows:,}", "networks")]
    for kind in study.labels:
        right = np.nanmedian(accuracy.sel(labels=kind, multiple=max(study.multiple)).isel(epoch=-1))
        numbers.append(Number(f"{right:.0%}", f"evaluation accuracy with {kind} labels at {max(study.multiple):g}×"))
    return tuple(numbers)
