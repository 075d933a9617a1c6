"""Figures and headline of `mnist-classifier`."""

import numpy as np

from understudy.lab.layers import diverged_story, loss_curves, some_diverged
from understudy.papers.separable.mnist_classifier.study import MnistClassifier
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run


def story(study: MnistClassifier, run: Run) -> Story:
    """Loss and accuracy over training."""
    if not run.select().alive.any():
        return diverged_story(study, run)
    accuracy = run.array("accuracy", "seed epoch")
    title = f"digits {study.digits[0]} and {study.digits[1]}"
    figures = (
        Figure(
            "losses",
            "The loss during training",
            "Logistic loss: on the test images after each epoch, and over its steps on the training images.",
            "",
            loss_curves(run, "seed", (), {(): title}, "logistic loss"),
        ),
        Figure(
            "accuracy",
            "How well the digits are classified",
            "Share of the test images on which the output has the correct sign, over training.",
            "",
            Curves.from_array(
                accuracy.expand_dims(line=["accuracy"]), line="line", titles={(): title}, name="test accuracy"
            ),
        ),
    )
    end = accuracy.isel(epoch=-1).dropna("seed").to_numpy()
    mean = f"{100 * end.mean():.1f}%"
    spread = f" ({100 * end.min():.1f}% to {100 * end.max():.1f}%)" if len(end) > 1 else ""
    headline = (
        f"After {counted(study.epochs, 'epoch')} on the {title} of MNIST, networks classify {mean} of the test images "
        f"correctly, mean of {counted(len(end), 'network')}{spread}.{some_diverged(run)}"
    )
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(mean, "mean test accuracy at the end of training"),
        Number(f"{np.nanmedian(run.select().end('train_loss')):.2g}", "median training loss of the last epoch"),
    )
    return Story(headline, numbers, figures)
