"""Which teacher nodes of a run were recovered, when, and how that goes with their strength."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import stats

from understudy.store import Run
from understudy.studies.sweep import Sweep


def recovery_rates(sweep: Sweep, epoch: int) -> np.ndarray:
    """[polarity, multiple, teacher]: share of seeds that recover the node, NaN where no network is left."""
    from understudy.measures import THRESHOLD

    best = sweep.nodes_at(sweep.run.matched("teacher", "correlation", epoch=epoch))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a setting in which every network diverged
        return np.nanmean(np.where(np.isnan(best), np.nan, best > THRESHOLD), axis=2)


def first_epochs(run: Run, layer: int = 0) -> np.ndarray:
    """[network, teacher]: first epoch at which the node of a layer is recovered, infinite if it never is."""
    import torch

    from understudy.measures import first_recovery

    best = torch.tensor(run.matched("teacher", "correlation", layer))
    return first_recovery(best, torch.from_numpy(run.epochs).double()).numpy()


def strengths(run: Run) -> np.ndarray:
    """[network, teacher]: fan-out norms of each network's teacher, NaN beyond the nodes of a smaller one."""
    from understudy.teachers import strengths as of

    each = [of(teacher).numpy() for teacher in run.weights("teacher")]
    most = max(strength.shape[1] for strength in each)
    return np.concatenate([np.pad(s, ((0, 0), (0, most - s.shape[1])), constant_values=np.nan) for s in each])


def rank_correlations(first: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Spearman's, a network, over the nodes that were recovered: the others have no epoch of recovery.

    With the others tied in the last place even a perfect order of few recovered nodes among many stays above −0.9.
    """
    pairs = [(f[np.isfinite(f)], s[np.isfinite(f)]) for f, s in zip(first, strength, strict=True)]
    return np.array([stats.spearmanr(f, s).statistic for f, s in pairs if len(set(f)) > 1])
