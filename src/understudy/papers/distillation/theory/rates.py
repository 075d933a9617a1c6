"""Rate at which the loss of linear students decays along gradient flow (Phuong 2021, theorem D.3, eqs. D.20, D.25)."""

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.papers.distillation.theory.soft_labels import (
    Inputs,
    Weights,
    gain,
    gradient,
    limit,
    loss,
    span,
    validate_depth,
)

_DOUBLINGS, _BISECTIONS = 100, 60
_ROUNDING = 1e-12
"""Loss, relative to the first, below which it is rounding."""
_RANK = 1e-12


def proved_rate(start: Float[Tensor, "*net in"], x: Inputs, teacher: Weights, depth: int) -> Float[Tensor, "*net"]:
    """Compute a rate c with ℓ(t) ≤ ℓ(0) e^(−ct), following the proofs of Phuong 2021, theorems D.3, 5.1 and 5.2.

    For one layer c = 2µ, µ = ωλ/n: ω is the least slope σ′ on the sublevel set of ℓ(0), in which the flow stays, and λ
    the least eigenvalue of XXᵀ on the span of the inputs; eq. D.8 omits the 1/n. For more layers c = 2µ δ^(2 − 2/L),
    where δ, the distance of the sublevel set from 0, is at least (ℓ1(0) − ℓ(0))/‖∇ℓ1(0)‖, as ℓ1 is convex. The thesis
    states that there is such a c, and not its value.

    Args:
        start: w(0).
        x: Inputs.
        teacher: w*.
        depth: Number of layers L of the balanced student.

    Returns:
        c; 0 where condition 5.12 fails.
    """
    validate_depth(depth)
    level = x.shape[-2] * loss(start, x, teacher)
    steepest = _largest_logit((x @ teacher.to(x).unsqueeze(-1)).squeeze(-1), level).amax(-1)
    values = torch.linalg.svdvals(x @ span(x))
    least = torch.where(values > _RANK * values[..., :1], values, torch.inf).amin(-1).square()
    rate = 2 * steepest.sigmoid() * (-steepest).sigmoid() * least / x.shape[-2]
    if depth == 1:
        return rate
    pull = torch.linalg.vector_norm(gradient(torch.zeros_like(start), x, teacher), dim=-1)
    return rate * (gain(start, x, teacher).clamp_min(0) / pull).pow(2 - 2 / depth)


def _largest_logit(wanted: Float[Tensor, "*net sample"], level: Float[Tensor, "*net"]) -> Float[Tensor, "*net sample"]:
    """The largest |u| at which the loss ℓ_i(u) of one input is at most a level."""
    one = torch.ones(1, 1).to(wanted)
    found = wanted.abs()
    for sign in (-1.0, 1.0):

        def beyond(reach: Tensor, sign: float = sign) -> Tensor:
            return loss((wanted + sign * reach).unsqueeze(-1), one, wanted.unsqueeze(-1)) > level.unsqueeze(-1)

        high = torch.ones_like(wanted)
        for _ in range(_DOUBLINGS):
            high = torch.where(beyond(high), high, 2 * high)
        low = torch.zeros_like(high)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            over = beyond(middle)
            low, high = torch.where(over, low, middle), torch.where(over, middle, high)
        found = torch.maximum(found, (wanted + sign * high).abs())
    return found


def limit_rate(start: Float[Tensor, "*net in"], x: Inputs, teacher: Weights, depth: int) -> Float[Tensor, "*net"]:
    """Compute the rate of the loss as t → ∞: twice the slowest rate of the flow, linearised at its limit.

    Args:
        start: w(0).
        x: Inputs.
        teacher: w*.
        depth: Number of layers L of the balanced student.

    Returns:
        Twice the least eigenvalue of ‖w‖^(2 − 2/L) (I + (L − 1) v vᵀ/‖w‖²) H on the span of the inputs, with H the
        Hessian of ℓ1 at the limit w, and v its part in the span.
    """
    end = limit(start, x, teacher, depth)
    basis = span(x)
    rows = x @ basis
    slope = (rows @ (basis.mT @ end.unsqueeze(-1))).squeeze(-1)
    hessian = (rows * (slope.sigmoid() * (-slope).sigmoid()).unsqueeze(-1)).mT @ rows / x.shape[-2]
    inside = (basis.mT @ end.unsqueeze(-1)).squeeze(-1)
    square = end.square().sum(-1)[..., None, None]
    along = inside.unsqueeze(-1) * inside.unsqueeze(-2) / square.clamp_min(torch.finfo(x.dtype).tiny)
    stretch = torch.eye(basis.shape[-1]).to(x) + (depth - 1) * along
    values = torch.linalg.eigvals(square.pow(1 - 1 / depth) * stretch @ hessian).real
    moves = values > _RANK * values.amax(-1, keepdim=True)
    return 2 * torch.where(moves, values, torch.inf).amin(-1)


def fitted_rates(
    losses: Float[Tensor, "time *net"], times: Float[Tensor, "time"]
) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net"]]:
    """Fit an exponential decay to the loss along gradient flow.

    Args:
        losses: ℓ(t), the first at t = 0.
        times: The times, in ascending order.

    Returns:
        The largest c with ℓ(t) ≤ ℓ(0) e^(−ct) at all times; and the rate between the last two times at which the loss
        is more than rounding, NaN if there are none.
    """
    shape = (-1, *(1,) * (losses.ndim - 1))
    elapsed = times.to(losses).view(shape)
    logs = losses.log() - losses[:1].log()
    real = losses > _ROUNDING * losses[:1]
    envelope = torch.where(real[1:], -logs[1:] / elapsed[1:], torch.inf).amin(0)
    falling = torch.where(real[1:], -logs.diff(dim=0) / elapsed.diff(dim=0), torch.nan)
    last = real[1:].int().cumsum(0).argmax(0, keepdim=True)
    return envelope, falling.gather(0, last).squeeze(0)
