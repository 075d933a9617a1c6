"""Networks of a sweep by the size of their teachers, and which teacher nodes they recover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from understudy.measures import THRESHOLD
from understudy.store import Run
from understudy.store.arrays import Networks

if TYPE_CHECKING:
    import xarray as xr


def by_size(run: Run) -> dict[int, Networks]:
    """The networks of each teacher size, from few nodes to many. Runs of format 1 had one size, and no column of it."""
    if "teacher_nodes" not in run.networks.column_names:
        return {int(run.options["teacher_nodes"]): run.select()}
    return {int(nodes): run.select(teacher_nodes=nodes) for nodes in run.select().values("teacher_nodes")}


def best_correlations(networks: Networks, nodes: int, dims: str, epoch: int | None = None) -> xr.DataArray:
    """Correlations of teacher nodes with their best students, without the nodes that only larger teachers have."""
    return networks.array("correlation", f"{dims} teacher", epoch=epoch).isel(teacher=slice(nodes))


def recovery_rates(networks: Networks, nodes: int, epoch: int) -> xr.DataArray:
    """Share of seeds that recover each teacher node, by polarity and multiple; NaN where no network is left."""
    best = best_correlations(networks, nodes, "polarity multiple seed epoch", epoch).isel(epoch=0)
    return (best > THRESHOLD).where(best.notnull()).mean("seed")


def rank_correlations(first: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of epoch and strength, per network, over the recovered nodes.

    Nodes that were never recovered have no epoch of recovery: with these tied in the last place, even a perfect order
    of few recovered nodes among many stays above −0.9.
    """
    pairs = [(f[np.isfinite(f)], s[np.isfinite(f)]) for f, s in zip(first, strength, strict=True)]
    return np.array([stats.spearmanr(f, s).statistic for f, s in pairs if len(set(f)) > 1])
