"""Epoch at which teacher nodes are recovered, and ranks of the final best students during training."""

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from understudy.measures.matching import THRESHOLD, best_students


def first_recovery(
    best: Float[Tensor, "net epoch teacher"], epochs: Num[Tensor, "epoch"], threshold: float = THRESHOLD
) -> Float[Tensor, "net teacher"]:
    """First epoch at which the best correlation of a teacher node exceeds the threshold (Tian 2020, fig. 8).

    Also Tian 2019, fig. 7. A node that is lost again keeps its first epoch; NaN never counts as recovered.

    Args:
        best: Best correlation of each teacher node at each epoch.
        epochs: The epochs.
        threshold: Correlation that must be exceeded.

    Returns:
        First epoch of each teacher node in float64, infinity if there is none.

    Raises:
        ValueError: The number of epochs does not fit, or is 0.
    """
    if best.shape[1] != len(epochs) or len(epochs) == 0:
        raise ValueError(f"epochs must be one per measurement ({best.shape[1]}) and at least one, got {len(epochs)}")
    when = epochs.to(best.device, torch.float64).view(1, -1, 1)
    return torch.where(best > threshold, when, torch.inf).amin(1)


def ranks(rho: Float[Tensor, "*batch student"]) -> Int[Tensor, "*batch student"]:
    """Rank of every student by correlation, 0 for the highest; ties are ordered by index.

    The basis of the ranks of Tian et al. 2019, sec. 5.1.

    Args:
        rho: Correlations with all students in the last dimension.
    """
    order = rho.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(rho.shape[-1], device=rho.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def final_winner_rank(rho: Float[Tensor, "net epoch teacher student"]) -> Float[Tensor, "net epoch teacher"]:
    """Rank at every epoch of the student that is best at the end, 0 first to 1 last (Tian et al. 2019, sec. 5.1).

    Ranks are divided by n − 1 for n students; a single student has rank 0. Ties are ordered by index, as in
    `best_students`, so that the rank at the last epoch is 0.

    Args:
        rho: Correlations of every pair of nodes at every epoch.
    """
    nets, epochs, teachers, students = rho.shape
    winner: Int[Tensor, "net 1 teacher 1"] = best_students(rho[:, -1]).partner.view(nets, 1, teachers, 1)
    rank = ranks(rho).gather(3, winner.expand(nets, epochs, teachers, 1)).squeeze(3)
    return rank.to(rho.dtype) / max(students - 1, 1)


def mean_rank(rho: Float[Tensor, "net epoch teacher student"]) -> Float[Tensor, "net epoch"]:
    """Rank of the final best students averaged over teacher nodes: r̄ of Tian et al. 2019, sec. 5.1.

    Args:
        rho: Correlations of every pair of nodes at every epoch.
    """
    return final_winner_rank(rho).mean(2)
