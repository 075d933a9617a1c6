"""What a run of students of a pruned teacher on CIFAR-10 decides: D4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.lab.images import layers_of, percent
from understudy.papers.specialization.deep.claims import at, laid_out
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.specialization.cifar.study import Cifar

PAPERS = {1.0: 0.7967, 2.0: 0.8309, 5.0: 0.8385}
"""Evaluation accuracy by over-realization (S0 fig 10)."""
WITHIN, AHEAD = 0.03, 0.01
"""How near to the paper's an accuracy must come, and how far 2× must be above 1×."""


def multiples(study: Cifar, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The over-realizations in their order, and the networks [multiple, seed]."""
    axis = np.array(sorted(float(k) for k in study.multiple))
    return axis, laid_out(run, {"multiple": axis, "seed": np.array(study.seed_names)})


def claims(study: Cifar, run: Run) -> list[Claim]:
    """Parts of D4, where each of the paper's over-realizations has a network that did not diverge."""
    if not _papers_settings(study):
        return []
    axis, network = multiples(study, run)
    network = network[np.isin(axis, list(PAPERS))]
    if not (network >= 0).any(axis=1).all():
        return []
    n = int((network >= 0).sum(axis=1).min())
    each = at(network, run.series("accuracy")[:, -1])
    accuracy = np.nanmean(each, axis=1)
    rho = np.nanmean(at(network, layers_of(run, len(study.teacher_layers))[..., -1]), axis=1)
    teacher = np.nanmean(at(network, run.series("teacher_accuracy")[:, -1]))
    here = ", ".join(percent(a) for a in accuracy)
    off = each - np.array(list(PAPERS.values()))[:, None]
    gaps = np.diff(accuracy)
    rises = np.diff(rho, axis=0)
    return [
        Claim(
            id="D4",
            statement=f"evaluation accuracy of 1×, 2×, 5×, mean over seeds: each within {100 * WITHIN:g} points of the paper's "
            "(below: points above it, a network each)",
            paper=", ".join(f"{100 * a:.2f}%" for a in PAPERS.values()),
            measured=f"{here}; pruned teacher {percent(float(teacher))}",
            n=n,
            holds=bool((np.abs(np.nanmean(off, axis=1)) <= WITHIN).all()),
            part="accuracy",
            values=tuple((100 * off[np.isfinite(off)]).tolist()),
            low=-100 * WITHIN,
            high=100 * WITHIN,
        ),
        Claim(
            id="D4",
            statement=f"evaluation accuracy, mean over seeds: 2× at least {100 * AHEAD:g} point above 1×, 5× not below 2×",
            paper="3.42 and 0.76 points above",
            measured=f"{100 * gaps[0]:.2f} and {100 * gaps[1]:.2f} points above",
            n=n,
            holds=bool(gaps[0] >= AHEAD and gaps[1] >= 0),
            part="order of accuracies",
        ),
        Claim(
            id="D4",
            statement="mean best correlation as training ended, mean over seeds: 5× above 2× above 1× at every layer (below: the "
            "rise from one to the next, each layer)",
            paper="5× > 2× > 1×",
            measured="; ".join(f"{k:g}×: {', '.join(f'{r:.3f}' for r in row)}" for k, row in zip(PAPERS, rho, strict=True)),
            n=n,
            holds=bool((rises > 0).all()),
            part="correlation",
            values=tuple(rises.ravel().tolist()),
            low=0.0,
        ),
    ]


def _papers_settings(study: Cifar) -> bool:
    """Training and pruning are not in the paper: those that were found to give its values. Rates are free."""
    teacher = (study.teacher_layers, study.norm, set(study.keep), study.teacher_epochs)
    return (
        teacher == ((64, 64, 64, 64), "after", {0.5}, 30)
        and (study.epochs, study.batch) == (40, 128)
        and (study.train, study.evaluation, study.images) == (50_000, 10_000, "augmented")
        and set(PAPERS) <= set(study.multiple)
    )
