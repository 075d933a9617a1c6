"""Max-margin separators through 0 of many small sets at once, by a batched active-set method."""

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError

_OPTIMAL = 1e-10
"""Shortfall, relative to a margin of 1, up to which an input is not added to the support."""


def separators(
    signed: Float[Tensor, "*net sample in"], separating: Float[Tensor, "*#net in"]
) -> Float[Tensor, "*net in"]:
    """Compute the shortest w with wᵀz ≥ 1 for every row z, given any w that separates.

    A row z is an input times its label ±1. The least-distance problem is solved as non-negative least squares (Lawson
    and Hanson, "Solving least squares problems", ch. 23): for the u ≥ 0 that minimises ‖Σ u_i (z_i, 1) − (0, 1)‖²,
    w = Σ u_i z_i / (1 − Σ u_i). Every iteration adds one input to the support of each set and removes those whose
    multiplier would become negative, until all margins are at least 1.
    """
    some = separating / torch.linalg.vector_norm(separating, dim=-1, keepdim=True)
    least = (signed @ some.to(signed).unsqueeze(-1)).squeeze(-1).amin(-1)
    if not bool((least > 0).all()):
        raise UserError("an input is zero or on the boundary of its teacher: leave it out, as no margin separates it")
    # In these units ‖w‖ ≤ 1, so that 1 − Σ u = 1/(1 + ‖w‖²) is accurate.
    z = (signed / least[..., None, None]).reshape(-1, *signed.shape[-2:])
    # Lengths of inputs can differ by orders of magnitude: scaling by them keeps the systems well conditioned.
    scale = 1 / torch.linalg.vector_norm(z, dim=-1)
    kernel = (z @ z.mT + 1) * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    u = torch.zeros_like(scale)
    support = torch.zeros_like(scale, dtype=torch.bool)
    for _ in range(20 * z.shape[-2] + 20):
        room = 1 - (u * scale).sum(-1, keepdim=True)
        lacking = 1 - (kernel @ u.unsqueeze(-1)).squeeze(-1) / scale
        wanted = (lacking > _OPTIMAL * room) & ~support
        if not bool(wanted.any()):
            break
        first = torch.where(wanted, lacking * scale, -torch.inf).argmax(-1, keepdim=True)
        support |= torch.zeros_like(support).scatter(-1, first, True) & wanted.any(-1, keepdim=True)
        u, support = _solve_on_support(kernel, scale, u, support)
    w = ((u * scale).unsqueeze(-2) @ z).squeeze(-2) / (1 - (u * scale).sum(-1, keepdim=True))
    return w.reshape(*signed.shape[:-2], signed.shape[-1]) / least.unsqueeze(-1)


def _solve_on_support(kernel: Tensor, scale: Tensor, u: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Optimal multipliers on the support of every set, which loses the inputs whose multiplier would be negative."""
    one = torch.eye(kernel.shape[-1]).to(kernel)
    for _ in range(kernel.shape[-1] + 1):
        both = support.unsqueeze(-1) & support.unsqueeze(-2)
        best = torch.linalg.solve(torch.where(both, kernel, one), torch.where(support, scale, 0.0))
        negative = support & (best <= 0)
        if not bool(negative.any()):
            return best, support
        share = torch.where(negative, u / (u - best).clamp_min(torch.finfo(u.dtype).tiny), torch.inf)
        least = share.amin(-1, keepdim=True)
        moved = torch.where(least.isfinite(), u + least.clamp_max(1) * (best - u), best)
        support = support & ~(negative & (share <= least))
        u = torch.where(support, moved.clamp_min(0), 0.0)
    return u, support
