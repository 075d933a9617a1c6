"""What a run of ever wider students decides: D9. Layers are counted from the lowest, which is layer 1."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.luck.over_parameterization.study import NAMES
from understudy.papers.specialization.deep.claims import at, laid_out
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.luck.over_parameterization.study import Kind, OverParameterization

BEST = 10.0
"""The over-realization up to which more nodes are better, and the wider ones slower."""
MOST, HALF = 0.9, 0.5
"""Of what 10× gains: when it has made most of it the wider ones are compared, and shown when it has made half."""
_TRAINING = {"fc": (40, 1_562, 0.01), "cnn": (20, 150, 0.02)}
"""Epochs, steps of an epoch and learning rate with which each kind of network is decided on."""


class Widths(NamedTuple):
    """Mean best correlations of one kind of network; NaN where a network diverged."""

    kind: Kind
    multiples: np.ndarray
    network: np.ndarray
    """[multiple, seed]; −1 where it diverged."""
    rho: np.ndarray
    """[multiple, seed, layer, epoch]."""

    @property
    def mean(self) -> np.ndarray:
        """[multiple, layer, epoch] over seeds."""
        return over_seeds(np.nanmean, self.rho)

    @property
    def std(self) -> np.ndarray:
        """[multiple, layer, epoch] over seeds, of this sample of them."""
        return over_seeds(np.nanstd, self.rho)

    def gained(self, share: float) -> int:
        """Which look first finds the students of 10×, all layers together, at this share of what they gain."""
        curve = self.mean[self.place(BEST)].mean(axis=0)
        return int(np.argmax(curve >= curve[0] + share * (curve[-1] - curve[0])))

    def place(self, multiple: float) -> int:
        return int(np.flatnonzero(self.multiples == multiple)[0])


def over_seeds(how: Callable[..., np.ndarray], values: np.ndarray) -> np.ndarray:
    """[multiple, …] of values [multiple, seed, …], without the networks that diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a width at which every network diverged
        return how(values, axis=1)


def widths(study: OverParameterization, run: Run) -> list[Widths]:
    """Each kind of network, over-realizations from small to large."""
    multiples = np.array(sorted(map(float, study.multiple)))
    axes = {"networks": np.array(study.networks), "multiple": multiples, "seed": np.array(study.seed_names)}
    network = laid_out(run, axes)
    rho = np.stack([run.series("rho_mean", layer) for layer in range(len(study.teacher_layers))], axis=1)
    return [Widths(kind, multiples, each, at(each, rho)) for kind, each in zip(study.networks, network, strict=True)]


class Finding(NamedTuple):
    """What is measured of some layers, in words, and whether it is as claimed."""

    words: str
    holds: bool
    values: tuple[float, ...]


Measure = Callable[[Widths, np.ndarray], Finding]


def claims(study: OverParameterization, run: Run) -> list[Claim]:
    """Decided on the mean of all layers; each layer stands beside it."""
    decided = []
    for found in widths(study, run):
        if _papers_settings(study, found.kind) and (found.network >= 0).any(axis=1).all():
            decided += [_claim(found, *part) for part in _parts(study, found)]
    return decided


def _papers_settings(study: OverParameterization, kind: Kind) -> bool:
    inputs, rate = (study.dim, study.lr) if kind == "fc" else (study.image, study.cnn_lr)
    return (
        set(study.multiple) >= {1.0, 2.0, 5.0, BEST, 20.0, 50.0}
        and (study.teacher_layers, study.outputs, study.input_std) == ((10, 15, 20, 25), 100, 10.0)
        and inputs == (20 if kind == "fc" else 16)
        and (study.epochs, study.steps, rate) == _TRAINING[kind]
        and study.batch == 64
        and study.train >= study.steps * study.batch
    )


def _parts(study: OverParameterization, found: Widths) -> list[tuple[str, str, str, Measure]]:
    """What each part is called, states, is in the paper, and how it is measured."""
    epoch = found.gained(MOST)
    return [
        (
            "higher",
            f"mean best correlation after {study.epochs} epochs, mean over seeds and layers: does not fall from 1× "
            "to 10×",
            "higher with more nodes",
            _higher,
        ),
        (
            "steadier",
            f"standard deviation over seeds of the mean best correlation after {study.epochs} epochs, mean over "
            "layers: does not rise from 1× to 10×",
            "steadier with more nodes",
            _steadier,
        ),
        (
            "slower",
            f"mean best correlation at epoch {epoch}, by which 10× has made {MOST:.0%} of its gain, mean over seeds "
            "and layers: 20× and 50× are below 10× (below: by how much)",
            "20× and 50× slower",
            _slower,
        ),
    ]


def _claim(found: Widths, part: str, statement: str, paper: str, measure: Measure) -> Claim:
    layers = np.arange(found.rho.shape[2])
    words, holds, values = measure(found, layers)
    high = 0.0 if part == "slower" else None
    claim = Claim(
        id="D9", statement=statement, paper=paper, measured=words, n=found.rho.shape[1], holds=holds, part=f"{NAMES[found.kind]}, {part}", values=values, low=None, high=high
    )
    beside = [(layer, measure(found, np.array([layer]))) for layer in layers.tolist()]
    return replace(claim, variants=tuple(Variant(f"layer {i + 1}", each.words, each.holds) for i, each in beside))


def _higher(found: Widths, layers: np.ndarray) -> Finding:
    return _in_order(found, found.mean[:, layers, -1].mean(axis=1), 1)


def _steadier(found: Widths, layers: np.ndarray) -> Finding:
    return _in_order(found, found.std[:, layers, -1].mean(axis=1), -1)


def _in_order(found: Widths, value: np.ndarray, sign: int) -> Finding:
    """Whether what was measured goes one way up to 10×."""
    up_to = found.multiples <= BEST
    words = ", ".join(f"{k:g}×: {v:.4f}" for k, v in zip(found.multiples, value, strict=True))
    return Finding(words, bool((sign * np.diff(value[up_to]) >= 0).all()), tuple(value[up_to].tolist()))


def _slower(found: Widths, layers: np.ndarray) -> Finding:
    at_most, at_half = (found.mean[:, layers, found.gained(share)].mean(axis=1) for share in (MOST, HALF))
    wider = found.multiples >= BEST
    words, before = (
        ", ".join(f"{k:g}×: {v:.4f}" for k, v in zip(found.multiples[wider], value[wider], strict=True))
        for value in (at_most, at_half)
    )
    behind = at_most[found.multiples > BEST] - at_most[found.place(BEST)]
    words = f"{words} (at half of the gain, epoch {found.gained(HALF)}, {before})"
    return Finding(words, bool((behind < 0).all()), tuple(behind.tolist()))
