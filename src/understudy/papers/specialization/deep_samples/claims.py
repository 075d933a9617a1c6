"""What a run of deep students on few and many samples decides: D3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.specialization.deep.claims import at, by_layer, laid_out
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.specialization.deep_samples.study import DeepSamples

NAMES = {"mse": "MSE", "cross-entropy": "cross-entropy"}


@dataclass(frozen=True, eq=False)
class Cells:
    """Networks [loss, samples, seed] of a run and what they reached, NaN where one diverged."""

    losses: tuple[str, ...]
    samples: np.ndarray
    network: np.ndarray
    rho: np.ndarray
    """Mean best correlation [loss, samples, seed, layer, epoch]."""
    evaluation: np.ndarray
    """Evaluation loss [loss, samples, seed, epoch]: each kind in its own measure."""
    training: np.ndarray

    @classmethod
    def of(cls, study: DeepSamples, run: Run) -> Cells:
        axes = {"loss": np.array(study.loss), "samples": np.array(sorted(study.samples))}
        network = laid_out(run, axes | {"seed": np.array(study.seed_names)})
        evaluation, training = (at(network, run.series(metric)) for metric in ("eval_loss", "train_loss"))
        rho = at(network, by_layer(study, run))
        return cls(study.loss, axes["samples"], network, rho, evaluation, training)


def claims(study: DeepSamples, run: Run) -> list[Claim]:
    """Parts of D3 for each loss of which every cell has a network that did not diverge."""
    if not _papers_settings(study):
        return []
    cells = Cells.of(study, run)
    found: list[Claim] = []
    for i, loss in enumerate(cells.losses):
        if (cells.network[i] >= 0).any(axis=-1).all():
            rho, evaluation = cells.rho[i, ..., -1], cells.evaluation[i, ..., -1]
            n = int((cells.network[i] >= 0).sum(axis=-1).min())
            found += _decided(NAMES[loss], cells.samples, rho, evaluation, n)
    return found


def _papers_settings(study: DeepSamples) -> bool:
    """Which sizes the figure shows and how long it trains cannot be read from the paper."""
    networks = (study.teacher_layers, study.dim, study.outputs, study.over_realization)
    inputs = study.half_width == 15 if study.inputs == "uniform" else study.input_std == 10
    return (
        inputs
        and networks == ((50, 75, 100, 125), 100, 50, 2.0)
        and (study.batch, study.lr) == (64, 0.2)
        and study.epochs * study.steps >= 100_000
        and len(study.samples) > 1
    )


def _decided(name: str, samples: np.ndarray, rho: np.ndarray, evaluation: np.ndarray, n: int) -> Iterator[Claim]:
    """From correlations [samples, seed, layer] and losses [samples, seed] as training ended."""
    middle, loss = np.nanmedian(rho, axis=1), np.nanmedian(evaluation, axis=1)
    sizes = f"{samples[0]:,} to {samples[-1]:,} samples"
    rises = np.diff(middle, axis=0).min(axis=1)
    yield Claim(
        id="D3",
        statement=f"{sizes}: mean best correlation rises with every larger number of samples, at every layer (medians over "
        "seeds; below: the smallest rise of a layer from one number to the next)",
        paper="improves with samples",
        measured="; ".join(f"layer {i + 1}: {_row(line, '.3f')}" for i, line in enumerate(middle.T)),
        n=n,
        holds=bool((rises > 0).all()),
        part=f"{name}, correlation",
        values=tuple(rises.tolist()),
        low=0.0,
    )
    falls = np.diff(np.log10(loss))
    yield Claim(
        id="D3",
        statement=f"{sizes}: evaluation loss falls with every larger number of samples (medians over seeds; below: log10 of the "
        "change from one number to the next)",
        paper="improves with samples",
        measured=_row(loss, ".3g"),
        n=n,
        holds=bool((falls < 0).all()),
        part=f"{name}, loss",
        values=tuple(falls.tolist()),
        low=None,
        high=0.0,
    )
    lead = middle[:, 0] - middle[:, 1:].max(axis=1)
    yield Claim(
        id="D3",
        statement=f"{sizes}: the lowest layer has the highest mean best correlation in every cell (medians over seeds; below: by "
        "how much)",
        paper="lowest layer best",
        measured=f"best in {(lead > 0).sum()} of {len(lead)}, least lead {lead.min():.3f}",
        n=n,
        holds=bool((lead > 0).all()),
        part=f"{name}, lowest layer",
        values=tuple(lead.tolist()),
        low=0.0,
    )


def _row(values: np.ndarray, form: str) -> str:
    return ", ".join(f"{v:{form}}" for v in values)
