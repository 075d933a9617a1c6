"""When each teacher node of a run was recovered, and how strong it is."""

from __future__ import annotations

import numpy as np

from understudy.store import Run


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
