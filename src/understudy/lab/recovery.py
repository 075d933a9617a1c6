"""When each teacher node of a run was recovered, how strong it is, and how often students are active."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from understudy.store import Run

if TYPE_CHECKING:
    from understudy.data import Source


def first_epochs(run: Run, layer: int = 0) -> np.ndarray:
    """First epoch at which each teacher node of a layer is recovered, [network, teacher]; infinite if it never is."""
    import torch

    from understudy.measures import first_recovery

    best = torch.tensor(run.matched("teacher", "correlation", layer))
    return first_recovery(best, torch.from_numpy(run.epochs).double()).numpy()


def strengths(run: Run) -> np.ndarray:
    """Norm of the fan-out of each teacher node, [network, teacher]; NaN where a teacher has fewer nodes."""
    from understudy.teachers import strengths as measure

    each = [measure(teacher).numpy() for teacher in run.weights("teacher")]
    most = max(strength.shape[1] for strength in each)
    return np.concatenate([np.pad(s, ((0, 0), (0, most - s.shape[1])), constant_values=np.nan) for s in each])


def active_shares(run: Run, source: Source, epoch: int) -> np.ndarray:
    """Share of the evaluation inputs on which each student of the lowest layer is active, [network, student].

    NaN where a network has fewer students. A network that diverged has the shares of its last finite weights.

    Args:
        run: A run of students whose weights were kept at the epoch.
        source: The inputs of all groups.
        epoch: The epoch.
    """
    from understudy.measures import active_share

    networks = [group[i] for group in run.weights(f"epoch.{epoch}") for i in range(len(group))]
    found = np.full((len(networks), max(network.sizes[1] for network in networks)), np.nan)
    by_seed = sorted((int(network.seeds), n) for n, network in enumerate(networks))
    for seed, same in groupby(by_seed, key=lambda pair: pair[0]):  # networks of one seed share their inputs
        x = source.evaluating(seed, dtype=networks[0].dtype)
        for _, n in same:
            found[n, : networks[n].sizes[1]] = active_share(networks[n], x)[0].numpy()
    return found
