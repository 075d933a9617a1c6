"""A run's networks laid out by the parameters that were swept."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import stats

from understudy.store import Run

_AXES = ("polarity", "multiple", "seed")


@dataclass(frozen=True, eq=False)
class Sweep:
    """Networks of one teacher size by polarity, multiple and seed; −1 where there is none, or where it diverged."""

    run: Run
    teacher_nodes: int
    polarities: np.ndarray
    multiples: np.ndarray
    seeds: np.ndarray
    network: np.ndarray

    @classmethod
    def each(cls, run: Run) -> list[Sweep]:
        """A sweep for every number of teacher nodes, from few to many."""
        return [cls.of(run, int(nodes)) for nodes in np.unique(_teacher_nodes(run))]

    @classmethod
    def of(cls, run: Run, teacher_nodes: int) -> Sweep:
        here = _teacher_nodes(run) == teacher_nodes
        columns = [run.column(name)[here] for name in _AXES]
        axes = [np.unique(column) for column in columns]
        places = [np.searchsorted(axis, column) for axis, column in zip(axes, columns, strict=True)]
        alive = run.networks["diverged_at"].is_null().to_numpy()[here]
        network = np.full([len(axis) for axis in axes], -1)
        network[tuple(place[alive] for place in places)] = run.column("network")[here][alive]
        polarities, multiples, seeds = axes
        return cls(run, teacher_nodes, polarities, multiples, seeds, network)

    def at(self, values: np.ndarray) -> np.ndarray:
        """[network, …] as [polarity, multiple, seed, …], NaN where there is no network."""
        laid = values[self.network].astype(float)
        laid[self.network < 0] = np.nan
        return laid

    def nodes_at(self, values: np.ndarray) -> np.ndarray:
        """The same of [network, …, teacher], without the places of nodes that only larger teachers have."""
        return self.at(values[..., : self.teacher_nodes])

    def where(self, polarity: float, multiple: float) -> np.ndarray:
        """The networks of one setting; none if it was not swept."""
        p, k = np.flatnonzero(self.polarities == polarity), np.flatnonzero(self.multiples == multiple)
        found = self.network[p[0], k[0]] if len(p) and len(k) else np.array([], int)
        return found[found >= 0]


def _teacher_nodes(run: Run) -> np.ndarray:
    """Of each network. Runs of format 1 had one size, and no column of it."""
    if "teacher_nodes" in run.networks.column_names:
        return run.column("teacher_nodes")
    return np.full(run.networks.num_rows, run.options["teacher_nodes"])


def recovery_rates(sweep: Sweep, epoch: int) -> np.ndarray:
    """[polarity, multiple, teacher]: share of seeds that recover the node, NaN where no network is left."""
    from understudy.measures import THRESHOLD

    best = sweep.nodes_at(sweep.run.matched("teacher", "correlation", epoch=epoch))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a setting in which every network diverged
        return np.nanmean(np.where(np.isnan(best), np.nan, best > THRESHOLD), axis=2)


def rank_correlations(first: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Spearman's, a network, over the nodes that were recovered: the others have no epoch of recovery.

    With the others tied in the last place even a perfect order of few recovered nodes among many stays above −0.9.
    """
    pairs = [(f[np.isfinite(f)], s[np.isfinite(f)]) for f, s in zip(first, strength, strict=True)]
    return np.array([stats.spearmanr(f, s).statistic for f, s in pairs if len(set(f)) > 1])
