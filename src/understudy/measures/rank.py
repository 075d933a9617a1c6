"""Whether the students that win in the end led before: the mean rank of S2 sec 5.1, from one look at a time.

`timing` asks the same of a whole history; here the winners are given, and the correlations of any one moment.
"""

from jaxtyping import Float, Int
from torch import Tensor


def rank_of(
    rho_then: Float[Tensor, "net teacher student"], winners: Int[Tensor, "net teacher"]
) -> Float[Tensor, "net teacher"]:
    """The place of each teacher node's winner among the students by their correlation then: 0 is first, 1 is last.

    Of n students the place is divided by n − 1; a single student is first. Equal correlations share the mean of their
    places, so that a moment at which nothing is told apart gives 1/2.
    """
    if winners.shape != rho_then.shape[:2]:
        raise ValueError(
            f"winners {tuple(winners.shape)} do not name a student for each teacher node of correlations "
            f"{tuple(rho_then.shape)}: give one for each network and teacher node"
        )
    score = rho_then.gather(2, winners.unsqueeze(2))
    ahead, level = (rho_then > score).sum(2), (rho_then == score).sum(2) - 1
    return (ahead + level / 2).to(rho_then.dtype) / max(rho_then.shape[2] - 1, 1)


def mean_rank(
    rho_then: Float[Tensor, "net teacher student"], winners: Int[Tensor, "net teacher"]
) -> Float[Tensor, "net"]:
    """r̄ of S2 sec 5.1: `rank_of` averaged over teacher nodes; small where the final winners already led."""
    return rank_of(rho_then, winners).mean(1)
