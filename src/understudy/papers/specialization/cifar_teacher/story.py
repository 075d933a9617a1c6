"""Figures and headline of `cifar-teacher`."""

import numpy as np

from understudy.lab.cifar import kept_sizes
from understudy.lab.layers import diverged_story, layer_names, loss_curves, some_diverged
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher
from understudy.report.figures import Curves, SignedHistograms
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_NORM = {"after": " with BatchNorm after each ReLU", "before": " with BatchNorm before each ReLU", "none": ""}


def story(study: CifarTeacher, run: Run) -> Story:
    """Accuracy and loss over training, and the shifts of BatchNorm."""
    alive = np.flatnonzero(run.select().alive)
    if not len(alive):
        return diverged_story(study, run, "lr" if study.whole else "tune_lr")
    accuracy, title = run.array("accuracy", "seed epoch"), {(): _sizes(study)}
    figures = [
        Figure(
            "accuracy",
            "How well the labels are learned",
            "Share of the evaluation images whose label is the largest output, over training.",
            "",
            Curves.from_array(
                accuracy.expand_dims(line=["accuracy"]), line="line", titles=title, name="evaluation accuracy"
            ),
        ),
        Figure(
            "losses",
            "The loss during training",
            "Cross-entropy with the labels: on the evaluation images after each epoch, and over its steps on the "
            "training images.",
            "",
            loss_curves(run, "seed", (), title, "cross-entropy"),
        ),
    ]
    (networks,) = run.weights(f"epoch.{run.epochs[-1]}")
    if shifts := [norm.shift.numpy()[alive].ravel() for norm in networks.norms if norm.shift is not None]:
        figures.append(
            Figure(
                "shifts",
                "What BatchNorm adds to each node",
                "Shifts of BatchNorm after training, layer by layer, over all networks that did not diverge.",
                "S2 fig. 6" if study.norm == "before" else "",
                SignedHistograms(tuple(layer_names(len(shifts)).values()), tuple(shifts), "BatchNorm shift"),
            )
        )
    end = accuracy.isel(epoch=-1).dropna("seed").to_numpy()
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{end.mean():.1%}", "mean evaluation accuracy after training"),
        Number(f"{float(accuracy.max()):.1%}", "highest of any network and epoch"),
        Number(f"{np.nanmedian(run.select().end('train_loss')):.2g}", "median training loss"),
    )
    return Story(_headline(study, run, end), numbers, tuple(figures))


def _sizes(study: CifarTeacher) -> str:
    return "-".join(map(str, kept_sizes(study.keep, study.layers)))


def _headline(study: CifarTeacher, run: Run, end: np.ndarray) -> str:
    kind = "Convolutional" if study.network == "cnn" else "Fully connected"
    spread = f" ({end.min():.1%} to {end.max():.1%})" if len(end) > 1 else ""
    images, networks = counted(study.evaluation, "evaluation image"), counted(len(end), "network")
    if study.whole:
        how = f"after {counted(study.length, 'epoch')} on {study.train:,} training images"
    else:
        before = float(np.nanmean(run.array("accuracy", "seed epoch", diverged=True).isel(epoch=0)))
        whole, kept = sum(study.layers), sum(kept_sizes(study.keep, study.layers))
        how = (
            f"after pruning to {kept} of {whole} nodes, which left {before:.1%}, and "
            f"{counted(study.length, 'epoch')} of further training"
        )
    return (
        f"{kind} networks {_sizes(study)}{_NORM[study.norm]} classify {end.mean():.1%} of {images} "
        f"correctly, mean of {networks}{spread}, {how}.{some_diverged(run)}"
    )
