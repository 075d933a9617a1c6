"""Epoch at which teacher nodes are recovered, students that change their teacher node, ranks of the final winners."""

import torch
from jaxtyping import Bool, Float, Int, Num
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


FOLLOWS = 0.5
"""Correlation above which a student follows its best teacher node. Unrelated nodes have correlations within a few
tenths of 0 (students before training; teacher nodes with each other), so a best teacher node below this means little.
"""


def focus_shifts(
    rho: Float[Tensor, "net epoch teacher student"],
    strength: Float[Tensor, "net teacher"],
    follows: float = FOLLOWS,
    threshold: float = THRESHOLD,
) -> Bool[Tensor, "net student"]:
    """Whether each student left a stronger teacher node for a weaker one (Tian 2019, sec. 5.3, fig. 6).

    At some epoch after the first its best teacher node, with a correlation above `follows`, was stronger than its best
    one at the end, with which it has a correlation above `threshold`. NaN (after divergence) never counts.

    Args:
        rho: Correlations of every pair of nodes at every epoch; the first epoch is before training.
        strength: Norm of the fan-out of each teacher node.
        follows: Correlation from which a student follows a teacher node.
        threshold: Correlation that must be exceeded at the end.

    Returns:
        One truth value per student.
    """
    best = rho.nan_to_num(nan=-1.0).max(2)
    norms = strength.to(rho).unsqueeze(1).expand(-1, rho.shape[1], -1).gather(2, best.indices)
    followed = torch.where(best.values > follows, norms, -torch.inf)[:, 1:]
    strongest = followed.amax(1) if followed.shape[1] else torch.full_like(norms[:, 0], -torch.inf)
    return (strongest > norms[:, -1]) & (best.values[:, -1] > threshold)


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


def median_rank(rho: Float[Tensor, "net epoch teacher student"]) -> Float[Tensor, "net epoch"]:
    """Median over teacher nodes of the rank of the final best student (Tian et al. 2019, figs 21 to 23).

    The mean of the two middle ranks where teacher nodes are even in number.

    Args:
        rho: Correlations of every pair of nodes at every epoch.
    """
    return final_winner_rank(rho).quantile(0.5, dim=2)
