"""Networks on two digits of MNIST in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.lab.images import all_diverged, percent
from understudy.papers.specialization.deep.claims import at, laid_out
from understudy.papers.specialization.deep.story import followed, losses, some_diverged
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.separable.mnist_classifier.study import MnistClassifier


def story(study: MnistClassifier, run: Run) -> Story:
    network = laid_out(run, {"seed": np.array(study.seed_names)})[None]
    alive = network[network >= 0]
    if not len(alive):
        return all_diverged(run, "--lr", study.lr)
    accuracy = at(network, run.series("accuracy"))
    title = f"digits {study.digits[0]} and {study.digits[1]}"
    figures = (
        Figure(
            "losses",
            "The loss that is descended",
            "Logistic loss: on the test images after each epoch, and over its steps on those it learned from.",
            "",
            losses(study, run, (title,), network, "logistic loss"),
        ),
        Figure(
            "accuracy",
            "How well the digits are told apart",
            "Share of the test images on whose side of 0 the output lies, over training.",
            "",
            followed(study, run, (title,), ("accuracy",), network, accuracy[:, :, None], name="test accuracy"),
        ),
    )
    end = accuracy[0, :, -1][network[0] >= 0]
    spread = f" ({percent(end.min())} to {percent(end.max())})" if len(end) > 1 else ""
    headline = (
        f"After {counted(study.epochs, 'epoch')} on the {title} of MNIST networks are right on "
        f"{percent(float(end.mean()))} of the test images, mean of {counted(len(end), 'network')}{spread}."
        f"{some_diverged(run)}"
    )
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(percent(float(end.mean())), "mean test accuracy as training ended"),
        Number(f"{np.median(run.series('train_loss')[alive, -1]):.2g}", "median training loss of the last epoch"),
    )
    return Story(headline, numbers, figures)
