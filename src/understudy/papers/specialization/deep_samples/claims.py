"""Claim D3: every layer improves with samples, and the lowest is the best (Tian 2020, fig. 6)."""

from typing import Any

import numpy as np

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.specialization.deep.claims import has_papers_inputs
from understudy.papers.specialization.deep_samples.study import DeepSamples
from understudy.store import Run

NAMES = {"mse": "MSE", "cross-entropy": "cross-entropy"}
_STEPS = 100_000
"""Least number of steps: how long the paper trains, and on how many samples, is not stated."""


claims = Claims(
    fixed="teacher_layers dim outputs over_realization batch lr leaky",
    when=lambda study: has_papers_inputs(study) and study.epochs * study.steps >= _STEPS and len(study.samples) > 1,
    tuned_on="the rate of cross-entropy and the numbers of samples on one seed, which is not recorded",
)


def _losses(study: DeepSamples, run: Run) -> list[dict[str, Any]]:
    """Losses with networks left at every number of samples."""
    left = {
        loss: run.array("eval_loss", "samples seed", loss=loss)["network"] >= 0 for loss in NAMES if loss in study.loss
    }
    return [{"loss": NAMES[loss], "n": n} for loss, each in left.items() if (n := int(each.sum("seed").min()))]


def _medians(run: Run, name: str, metric: str, dims: str = "samples seed") -> np.ndarray:
    """Medians over seeds [samples, (layer)] after training."""
    (loss,) = (loss for loss, other in NAMES.items() if other == name)
    return np.nanmedian(run.array(metric, dims, loss=loss).to_numpy(), axis=1)


@claims.claim(
    "D3",
    "{loss}, correlation",
    statement="{samples_words}: in every layer the mean best correlation rises with the number of samples (medians "
    "over seeds)",
    paper="improves with samples",
    values_are="least rise of any layer from one number of samples to the next",
    cases=_losses,
)
def correlation_rises(study: DeepSamples, run: Run, loss: str, n: int) -> Verdict | None:
    rho = _medians(run, loss, "rho_mean", "samples seed layer")
    words = "; ".join(f"layer {i + 1}: {_row(line, '.3f')}" for i, line in enumerate(rho.T))
    return every(np.diff(rho, axis=0).min(axis=1), above=0.0, n=n, say=words)


@claims.claim(
    "D3",
    "{loss}, loss",
    statement="{samples_words}: the evaluation loss falls with the number of samples (medians over seeds)",
    paper="improves with samples",
    values_are="change of log10 of the loss from one number of samples to the next",
    cases=_losses,
)
def loss_falls(study: DeepSamples, run: Run, loss: str, n: int) -> Verdict | None:
    values = _medians(run, loss, "eval_loss")
    return every(np.diff(np.log10(values)), below=0.0, n=n, say=_row(values, ".3g"))


@claims.claim(
    "D3",
    "{loss}, lowest layer",
    statement="{samples_words}: the lowest layer has the highest mean best correlation with every number of samples "
    "(medians over seeds)",
    paper="lowest layer best",
    values_are="lead of the lowest layer, per number of samples",
    cases=_losses,
)
def lowest_layer_best(study: DeepSamples, run: Run, loss: str, n: int) -> Verdict | None:
    rho = _medians(run, loss, "rho_mean", "samples seed layer")
    lead = rho[:, 0] - rho[:, 1:].max(axis=1)
    return every(lead, above=0.0, n=n, say="best in {count}, least lead {least:.3f}")


def _row(values: np.ndarray, digits: str) -> str:
    return ", ".join(number(value, digits) for value in values)
