"""Which teacher nodes of a run were recovered, when, and how that goes with their strength."""

from __future__ import annotations

import numpy as np

from understudy.store import Run


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
