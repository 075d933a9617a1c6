"""When a teacher node was learned, and whether its winner led from the start, from measurements over epochs."""

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from understudy.measures.matching import THRESHOLD, best_students


def first_recovery(
    best: Float[Tensor, "net epoch teacher"], epochs: Num[Tensor, "epoch"], threshold: float = THRESHOLD
) -> Float[Tensor, "net teacher"]:
    """The first epoch at which a teacher node's best correlation exceeds the threshold, infinity if at none.

    S0 fig 8, S1 fig 7. In float64. A node that is lost again keeps its first epoch; NaN never counts as recovered.
    """
    if best.shape[1] != len(epochs) or len(epochs) == 0:
        raise ValueError(
            f"{len(epochs)} epochs do not name the {best.shape[1]} measurements: give at least one epoch, one for each"
        )
    when = epochs.to(best.device, torch.float64).view(1, -1, 1)
    return torch.where(best > threshold, when, torch.inf).amin(1)


def ranks(rho: Float[Tensor, "*batch student"]) -> Int[Tensor, "*batch student"]:
    """The place of every student among all by correlation, from 0; of equal ones the lower index comes first."""
    return rho.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)


def final_winner_rank(rho: Float[Tensor, "net epoch teacher student"]) -> Float[Tensor, "net epoch teacher"]:
    """The rank that each teacher node's final best student had at every epoch: 0 is first, 1 is last (S2 sec 5.1).

    Divided by n − 1 for n students; a single student ranks 0. Of equal correlations the lower index ranks first, as in
    `best_students`, so that the last epoch's rank is always 0.
    """
    nets, epochs, teachers, students = rho.shape
    winner: Int[Tensor, "net 1 teacher 1"] = best_students(rho[:, -1]).partner.view(nets, 1, teachers, 1)
    rank = ranks(rho).gather(3, winner.expand(nets, epochs, teachers, 1)).squeeze(3)
    return rank.to(rho.dtype) / max(students - 1, 1)


def mean_rank(rho: Float[Tensor, "net epoch teacher student"]) -> Float[Tensor, "net epoch"]:
    """r̄ of S2 sec 5.1: the rank of the final winners at every epoch, averaged over teacher nodes."""
    return final_winner_rank(rho).mean(2)
