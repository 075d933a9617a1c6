"""Claim D3: every layer improves with samples, and the lowest is the best (Tian 2020, fig. 6)."""

import numpy as np

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.specialization.deep.claims import has_papers_inputs
from understudy.papers.specialization.deep_samples.study import DeepSamples
from understudy.store import Run

NAMES = {"mse": "MSE", "cross-entropy": "cross-entropy"}
_LOSSES = {name: loss for loss, name in NAMES.items()}
_STEPS = 100_000
"""Least number of steps: how long the paper trains, and on how many samples, is not stated."""


claims = Claims(
    fixed="teacher_layers dim outputs over_realization batch lr",
    when=lambda study: has_papers_inputs(study) and study.epochs * study.steps >= _STEPS and len(study.samples) > 1,
)


def _medians(study: DeepSamples, run: Run, loss: str, metric: str) -> tuple[np.ndarray, int] | None:
    """Medians over seeds [samples, (layer)] after training, and the least number of networks; None if it is 0."""
    if _LOSSES[loss] not in study.loss:
        return None
    dims = "samples seed layer" if metric == "rho_mean" else "samples seed"
    values = run.array(metric, dims, loss=_LOSSES[loss])
    count = int((values["network"] >= 0).sum("seed").min())
    return (np.nanmedian(values.to_numpy(), axis=1), count) if count else None


@claims.claim(
    "D3",
    "{loss}, correlation",
    statement="{samples_words}: in every layer the mean best correlation rises with the number of samples (medians "
    "over seeds)",
    paper="improves with samples",
    values_are="least rise of any layer from one number of samples to the next",
    cases={"loss": _LOSSES},
)
def correlation_rises(study: DeepSamples, run: Run, loss: str) -> Verdict | None:
    if (found := _medians(study, run, loss, "rho_mean")) is None:
        return None
    rho, n = found
    words = "; ".join(f"layer {i + 1}: {_row(line, '.3f')}" for i, line in enumerate(rho.T))
    return every(np.diff(rho, axis=0).min(axis=1), above=0.0, n=n, say=words)


@claims.claim(
    "D3",
    "{loss}, loss",
    statement="{samples_words}: the evaluation loss falls with the number of samples (medians over seeds)",
    paper="improves with samples",
    values_are="change of log10 of the loss from one number of samples to the next",
    cases={"loss": _LOSSES},
)
def loss_falls(study: DeepSamples, run: Run, loss: str) -> Verdict | None:
    if (found := _medians(study, run, loss, "eval_loss")) is None:
        return None
    values, n = found
    return every(np.diff(np.log10(values)), below=0.0, n=n, say=_row(values, ".3g"))


@claims.claim(
    "D3",
    "{loss}, lowest layer",
    statement="{samples_words}: the lowest layer has the highest mean best correlation with every number of samples "
    "(medians over seeds)",
    paper="lowest layer best",
    values_are="lead of the lowest layer, per number of samples",
    cases={"loss": _LOSSES},
)
def lowest_layer_best(study: DeepSamples, run: Run, loss: str) -> Verdict | None:
    if (found := _medians(study, run, loss, "rho_mean")) is None:
        return None
    rho, n = found
    lead = rho[:, 0] - rho[:, 1:].max(axis=1)
    return every(lead, above=0.0, n=n, say="best in {count}, least lead {least:.3f}")


def _row(values: np.ndarray, digits: str) -> str:
    return ", ".join(number(value, digits) for value in values)
