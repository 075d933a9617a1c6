"""What a deep run decides: D1, D2. Layers are counted from the lowest, which is layer 1."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.measures import THRESHOLD
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.specialization.deep.study import Deep, DeepTeachers

PAPERS_MULTIPLE = 10.0
ORDERED = 3
"""How many layers, from the lowest, must pass the threshold one after the other."""
CLOSE = 0.998
"""S1 fig 12: what the mean best correlation of every layer reaches."""


def laid_out(run: Run, axes: dict[str, np.ndarray]) -> np.ndarray:
    """Networks by the columns that the axes name; −1 where there is none, or where it diverged."""
    alive = np.flatnonzero(run.networks["diverged_at"].is_null().to_numpy())
    known = [{value: i for i, value in enumerate(axis.tolist())} for axis in axes.values()]
    places = [
        [place[value] for value in run.column(name)[alive].tolist()] for name, place in zip(axes, known, strict=True)
    ]
    network = np.full([len(axis) for axis in axes.values()], -1)
    network[tuple(places)] = alive
    return network


def at(network: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[network, …] laid out as the networks are, NaN where there is none."""
    laid = values[network].astype(float)
    laid[network < 0] = np.nan
    return laid


def by_layer(study: DeepTeachers, run: Run, metric: str = "rho_mean") -> np.ndarray:
    """[network, layer, epoch] of a metric of layers."""
    return np.stack([run.series(metric, layer) for layer in range(len(study.teacher_layers))], axis=1)


def multiples(study: Deep, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The over-realizations in their order, and the networks [multiple, seed]."""
    axis = np.array(sorted(float(k) for k in study.multiple))
    return axis, laid_out(run, {"multiple": axis, "seed": np.array(study.seed_names)})


def first_passed(rho: np.ndarray, epochs: np.ndarray, bound: float = THRESHOLD) -> np.ndarray:
    """[…]: the first epoch at which […, epoch] exceeds the bound, infinite if it never does."""
    return np.where(rho > bound, epochs, np.inf).min(axis=-1)


class Finding(NamedTuple):
    """A claim as the networks of one over-realization decide it, and in few words what was measured."""

    claim: Claim
    brief: str


def claims(study: Deep, run: Run) -> list[Claim]:
    """Decided on 10×; what other over-realizations of the run gave stands beside it."""
    if not _papers_settings(study):
        return []
    rho, (axis, network) = by_layer(study, run), multiples(study, run)
    found = {
        k: [decide(study, run.epochs, rho[each[each >= 0]]) for decide in (_d1, _d2)]
        for k, each in zip(axis.tolist(), network, strict=True)
        if (each >= 0).any()
    }
    decided = found.pop(PAPERS_MULTIPLE, [])
    return [
        replace(claim, variants=tuple(Variant(f"{k:g}×", f[i].brief, f[i].claim.holds) for k, f in found.items()))
        for i, (claim, _) in enumerate(decided)
    ]


def _papers_settings(study: Deep) -> bool:
    networks = (study.teacher_layers, study.dim, study.outputs)
    training = (study.epochs, study.steps, study.batch, study.lr, study.halve_after)
    inputs = study.half_width == 15 if study.inputs == "uniform" else study.input_std == 10
    return (
        inputs
        and networks == ((50, 75, 100, 125), 100, 50)
        and training == (100, 1_562, 64, 0.2, 20)
        and (study.train, study.evaluation) == (100_000, 10_000)
    )


def _part(study: Deep) -> str:
    return f"uniform ±{study.half_width:g}" if study.inputs == "uniform" else f"Gaussian, std {study.input_std:g}"


def _d1(study: Deep, epochs: np.ndarray, rho: np.ndarray) -> Finding:
    first = first_passed(rho, epochs)[:, :ORDERED]
    # A layer that never passes comes after every epoch; two that never do are in no order.
    ended = np.where(np.isinf(first), study.epochs + 1, first)
    steps = np.diff(ended, axis=1).min(axis=1)
    middle = ", ".join(epoch_words(m) for m in np.median(first, axis=0))
    ordered = f"in this order in {(steps > 0).sum()} of {len(steps)}"
    claim = Claim(
        id="D1",
        statement=f"epoch at which the mean best correlation of layers 1, 2, 3 first exceeds {THRESHOLD}: later with depth, in "
        "every network (below: epochs between two layers, the fewest of each network)",
        paper="lower layers first",
        measured=f"medians {middle}; {ordered}",
        n=len(steps),
        holds=bool((steps > 0).all()),
        part=_part(study),
        values=tuple(steps.tolist()),
        low=1.0,
    )
    return Finding(claim, f"{middle}; {ordered}")


def _d2(study: Deep, epochs: np.ndarray, rho: np.ndarray) -> Finding:
    last = rho[:, :, -1]
    middle = np.median(last, axis=0)
    words = ", ".join(f"{m:.4f}" for m in middle)
    claim = Claim(
        id="D2",
        statement=f"mean best correlation after {study.epochs} epochs, layers 1 to {last.shape[1]}: median over seeds at least "
        f"{CLOSE} at every layer (below: the least of each network's layers)",
        paper=f"≥ {CLOSE} at every layer",
        measured=f"{words}; lowest of any network {last.min():.4f}",
        n=len(last),
        holds=bool((middle >= CLOSE).all()),
        part=_part(study),
        values=tuple(last.min(axis=1).tolist()),
        low=CLOSE,
    )
    return Finding(claim, words)


def epoch_words(epoch: float) -> str:
    return f"{epoch:g}" if np.isfinite(epoch) else "never"
