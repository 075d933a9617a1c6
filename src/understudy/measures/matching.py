"""Who learned whom: each teacher node's best student and each student's best teacher.

S0 sec 7, eqn 9: ρ_mean = mean over teacher nodes j of max over students k of ρ_jk.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

# S0 sec 7.1: a teacher node is matched successfully when its best correlation exceeds 0.95.
THRESHOLD = 0.95


class Match(NamedTuple):
    """For each node the index of its best partner, the lowest of several equally good, and the pair's correlation."""

    partner: Int[Tensor, "net node"]
    correlation: Float[Tensor, "net node"]


def best_students(rho: Float[Tensor, "net teacher student"]) -> Match:
    """For each teacher node the student that correlates best with it: the arg max of S0 eqn 9."""
    best = rho.max(2)
    return Match(best.indices, best.values)


def best_teachers(rho: Float[Tensor, "net teacher student"]) -> Match:
    """For each student the teacher node that correlates best with it: the x axis of S0 fig 5."""
    best = rho.max(1)
    return Match(best.indices, best.values)


def mean_best_correlation(rho: Float[Tensor, "net teacher student"]) -> Float[Tensor, "net"]:
    """ρ_mean of S0 eqn 9, the ρ̄ of S2 sec 5.1."""
    return rho.amax(2).mean(1)


def recovered(rho: Float[Tensor, "net teacher student"], threshold: float = THRESHOLD) -> Bool[Tensor, "net teacher"]:
    """Whether a teacher node's best correlation exceeds the threshold (S0 sec 7.1, fig 7)."""
    return rho.amax(2) > threshold


def recovered_share(rho: Float[Tensor, "net teacher student"], threshold: float = THRESHOLD) -> Float[Tensor, "net"]:
    """The share of a network's teacher nodes that are recovered (S0 sec 7.1)."""
    return recovered(rho, threshold).to(rho.dtype).mean(1)
