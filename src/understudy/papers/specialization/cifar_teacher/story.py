"""Teachers for CIFAR-10 in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.lab.cifar import kept_sizes
from understudy.lab.images import all_diverged, percent, shift_histograms, shifts
from understudy.papers.specialization.deep.claims import at, laid_out
from understudy.papers.specialization.deep.story import followed, layer_names, losses, some_diverged
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.cifar_teacher.study import CifarTeacher


def story(study: CifarTeacher, run: Run) -> Story:
    network = laid_out(run, {"seed": np.array(study.seed_names)})[None]
    alive = network[network >= 0]
    if not len(alive):
        return all_diverged(run, *(("--lr", study.lr) if study.whole else ("--tune-lr", study.tune_lr)))
    accuracy = at(network, run.series("accuracy"))
    figures = [
        Figure(
            "accuracy",
            "How well the labels are learned",
            "Share of the evaluation images whose label is the largest output, over training.",
            "",
            followed(
                study,
                run,
                (_sizes(study),),
                ("accuracy",),
                network,
                accuracy[:, :, None],
                name="evaluation accuracy",
            ),
        ),
        Figure(
            "losses",
            "And the loss that is descended",
            "Cross-entropy with the labels: on the evaluation images after each epoch, and over its steps on those "
            "it learned from.",
            "",
            losses(study, run, (_sizes(study),), network, "cross-entropy"),
        ),
    ]
    (ended,) = run.weights(f"epoch.{run.epochs[-1]}")
    if found := shifts(ended):
        figures.append(
            Figure(
                "shifts",
                "What BatchNorm adds to each node",
                "Shifts of BatchNorm as training ended, layer by layer, over all networks that came through.",
                "S2 fig 6" if study.norm == "before" else "",
                shift_histograms(layer_names(len(found)), [layer[alive] for layer in found]),
            )
        )
    end = accuracy[0, :, -1][network[0] >= 0]
    return Story(_headline(study, run, end), _numbers(run, end, alive), tuple(figures))


def _sizes(study: CifarTeacher) -> str:
    return "-".join(map(str, kept_sizes(study.keep, study.layers)))


def _headline(study: CifarTeacher, run: Run, end: np.ndarray) -> str:
    kind = "Convolutional" if study.network == "cnn" else "Fully connected"
    norm = {"after": " with BatchNorm after each ReLU", "before": " with BatchNorm before each ReLU", "none": ""}
    what = f"{kind} networks {_sizes(study)}{norm[study.norm]}"
    spread = f" ({percent(end.min())} to {percent(end.max())})" if len(end) > 1 else ""
    whose = f"{counted(study.evaluation, 'evaluation image')}, mean of {counted(len(end), 'network')}{spread}"
    if study.whole:
        how = f"after {counted(study.length, 'epoch')} on {study.train:,} training images"
    else:
        whole, kept = sum(study.layers), sum(kept_sizes(study.keep, study.layers))
        before = percent(float(np.nanmean(run.series("accuracy")[:, 0])))
        how = f"after {kept} of {whole} nodes were kept, which left {before}, and {counted(study.length, 'epoch')} more"
    return f"{what} are right on {percent(float(end.mean()))} of {whose}, {how}.{some_diverged(run)}"


def _numbers(run: Run, end: np.ndarray, alive: np.ndarray) -> tuple[Number, ...]:
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(percent(float(end.mean())), "mean evaluation accuracy as training ended"),
        Number(percent(float(run.series("accuracy")[alive].max())), "highest of any network and epoch"),
        Number(f"{np.median(run.series('train_loss')[alive, -1]):.2g}", "median training loss"),
    )
