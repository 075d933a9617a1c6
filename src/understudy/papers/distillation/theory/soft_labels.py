"""Linear students that learn from the soft labels of a linear teacher: loss, limits and learners (Phuong 2021, ch. 5).

A row of `x` is an input (the thesis writes Xᵀ). Leading axes are independent sets of inputs; a teacher w* may be
shared by all of them. A student is wᵀ = W_L ⋯ W_1; students with L ≥ 2 layers are populations in `linear_students`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.papers.distillation.theory.separators import separators

Weights = Float[Tensor, "*#net in"]
Inputs = Float[Tensor, "*#net sample in"]
_SMALL_GAP = 1.0
"""Difference of two logits up to which their cross-entropy is computed from the difference, without cancellation."""
_BALANCED = 1e-12
_NEWTON = 200
"""Maximum number of Newton steps; about five are taken."""


def soft_labels(x: Inputs, teacher: Weights) -> Float[Tensor, "*_ sample"]:
    """Soft labels y_i = σ(w*ᵀx_i) of the teacher."""
    return _along(x, teacher).sigmoid()


def loss(w: Weights, x: Inputs, teacher: Weights) -> Float[Tensor, "*_"]:
    """Cross-entropy ℓ1 with the soft labels (Phuong 2021, eq. 5.1), minus their entropy, so that its minimum is 0."""
    _counts(x)
    wanted = _along(x, teacher)
    gap = _along(x, w) - wanted
    near = gap.clamp(-_SMALL_GAP, _SMALL_GAP)
    label = wanted.sigmoid()
    close = torch.log1p(label * torch.expm1(near)) - label * near
    softplus = torch.nn.functional.softplus
    far = softplus(wanted + gap) - softplus(wanted) - label * gap
    return torch.where(gap.abs() <= _SMALL_GAP, close, far).clamp_min(0.0).mean(-1)


def gradient(w: Weights, x: Inputs, teacher: Weights) -> Float[Tensor, "*_ in"]:
    """Gradient ∇ℓ1, which lies in the span of the inputs (Phuong 2021, eq. D.4)."""
    _counts(x)
    residual = _along(x, w).sigmoid() - soft_labels(x, teacher)
    return (residual.unsqueeze(-2) @ x).squeeze(-2) / x.shape[-2]


def gain(w: Weights, x: Inputs, teacher: Weights) -> Float[Tensor, "*_"]:
    """ℓ1(0) − ℓ1(w), positive where condition 5.12 of Phuong 2021 holds; accurate also for small w."""
    ahead = _along(x, w)
    # log cosh(v/2), the even part of softplus minus log 2.
    even = torch.where(
        ahead.abs() < 1,
        torch.log1p(2 * torch.sinh(ahead.clamp(-1, 1) / 4).square()),
        ahead.abs() / 2 + torch.log1p(torch.exp(-ahead.abs())) - math.log(2),
    )
    return (torch.tanh(_along(x, teacher) / 2) / 2 * ahead - even).mean(-1)


def span(x: Float[Tensor, "*net sample in"]) -> Float[Tensor, "*net in basis"]:
    """Orthonormal basis of the span of the inputs, as columns; zero columns if the inputs are linearly dependent."""
    samples, size = _counts(x)
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    rows = torch.where(lengths > 0, x / lengths.clamp_min(torch.finfo(x.dtype).tiny), 0.0)
    least = max(samples, size) * torch.finfo(x.dtype).eps
    if samples < size:
        basis, triangle = torch.linalg.qr(rows.mT)
        dependent = (triangle.diagonal(dim1=-2, dim2=-1).abs() <= least).any(-1)
        if not bool(dependent.any()):
            return basis
        _, values, vectors = torch.linalg.svd(rows[dependent], full_matrices=False)
        basis[dependent] = vectors.mT * (values > least * values[..., :1]).unsqueeze(-2)
        return basis
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    return vectors.mT * (values > least * values[..., :1]).unsqueeze(-2)


def solution(x: Float[Tensor, "*net sample in"], teacher: Weights) -> Float[Tensor, "*net in"]:
    """Distillation solution ŵ: the projection of the teacher on the span of the inputs (Phuong 2021, eq. 5.6).

    It is the teacher itself if the inputs span the whole space. The thesis asks for n ≥ d, which is enough if inputs
    have a density; images do not, so the rank is computed.
    """
    basis = span(x)
    every = teacher.expand(*x.shape[:-2], teacher.shape[-1]).to(x)
    whole = (basis.square().sum((-2, -1)) > x.shape[-1] - 0.5).unsqueeze(-1)
    return torch.where(whole, every, _projected(basis, every))


def limit(start: Float[Tensor, "*net in"], x: Inputs, teacher: Weights, depth: int) -> Float[Tensor, "*net in"]:
    """Limit of gradient flow of a balanced student of L layers from w(0) = `start`, in closed form.

    The component of w(0) orthogonal to the inputs keeps its direction, and eqs. D.30 and D.31 of Phuong 2021 are
    equalities: it grows by (‖w(∞)‖/‖w(0)‖)^((L−1)/L), while the component in the span converges to ŵ. With
    z = ‖w(∞)‖^(2/L) one equation remains, z^(L−1) (z − a) = ‖ŵ‖², where a = ‖w(0)⊥‖²/‖w(0)‖^(2(L−1)/L); it has one root
    above a. Theorem 5.2 bounds ‖w(∞) − ŵ‖ by ε. For L ≥ 2 condition 5.12 ensures that the flow does not end at w = 0.
    """
    validate_depth(depth)
    reached = solution(x, teacher)
    across = start - _projected(span(x), start)
    length = torch.linalg.vector_norm(start, dim=-1)
    if depth == 1:
        return reached + across
    if bool((length == 0).any()):
        raise UserError(f"a student of {depth} layers that starts at 0 stays there: give a nonzero start")
    long = whole_length(reached.square().sum(-1), offset(start, across, depth), depth)
    return reached + (long / length).pow((depth - 1) / depth).unsqueeze(-1) * across


def offset(start: Float[Tensor, "*net in"], across: Float[Tensor, "*net in"], depth: int) -> Float[Tensor, "*net"]:
    """Invariant a = ‖w(0)⊥‖²/‖w(0)‖^(2(L−1)/L) of the flow, w(0)⊥ orthogonal to the inputs; 0 if w(0) = 0."""
    length = torch.linalg.vector_norm(start, dim=-1).clamp_min(torch.finfo(start.dtype).tiny)
    return (torch.linalg.vector_norm(across, dim=-1) / length).square() * length.pow(2 / depth)


def whole_length(inside: Float[Tensor, "*#net"], a: Float[Tensor, "*#net"], depth: int) -> Float[Tensor, "*_"]:
    """‖w‖ = z^(L/2) of a balanced student, z the root of z^(L−1) (z − a) = `inside`, the squared length in the span."""
    # The function is convex and increasing above a: Newton's method decreases to the root from the right of it.
    z = a + inside.pow(1 / depth)
    for _ in range(_NEWTON):
        slope = z.pow(depth - 2) * (depth * z - (depth - 1) * a)
        step = (z.pow(depth - 1) * (z - a) - inside) / slope.clamp_min(torch.finfo(z.dtype).tiny)
        now = torch.maximum(z - step, a)
        if bool((now >= z).all()):
            break
        z = torch.minimum(now, z)
    return z.pow(depth / 2)


def allowed_error(
    start: Float[Tensor, "*#net"] | float, solution: Float[Tensor, "*#net"] | float, depth: int
) -> Float[Tensor, "*_"]:
    """Smallest ε that condition 5.11 allows: ‖ŵ‖ √(r/(1 − r)), r = (‖w(0)‖/‖ŵ‖)^(2/L) (Phuong 2021, eq. D.40).

    Infinite if ‖w(0)‖ ≥ ‖ŵ‖, where condition 5.11 holds for no ε.
    """
    validate_depth(depth)
    short, long = (torch.as_tensor(v, dtype=torch.float64) for v in (start, solution))
    r = (short / long).pow(2 / depth)
    return torch.where(r < 1, long * (r / (1 - r).clamp_min(torch.finfo(torch.float64).tiny)).sqrt(), torch.inf)


class Conditions(NamedTuple):
    """The quantities in the hypotheses of Phuong 2021, theorem 5.2 at a start."""

    start: Float[Tensor, "net"]
    """‖w(0)‖."""
    solution: Float[Tensor, "net"]
    """‖ŵ‖, which must exceed ‖w(0)‖ (condition 5.11)."""
    epsilon: Float[Tensor, "net"]
    """Distance from ŵ within which the student ends: the infimum of the ε that condition 5.11 allows."""
    gain: Float[Tensor, "net"]
    """ℓ1(0) − ℓ1(w(0)), which must be positive (condition 5.12)."""
    imbalance: Float[Tensor, "net"]
    """Largest ‖W_{l+1}ᵀW_{l+1} − W_l W_lᵀ‖ / ‖W_l W_lᵀ‖, which must be 0 (condition 5.13)."""

    def hold(self) -> Bool[Tensor, "net"]:
        """Whether all three conditions hold, balance up to rounding."""
        return (self.start < self.solution) & (self.gain > 0) & (self.imbalance <= _BALANCED)


def angle(u: Weights, v: Weights) -> Float[Tensor, "*_"]:
    """Angle α(u, v) from 0 to π, accurate near both ends (Phuong 2021, eq. 5.28).

    π/2 if a vector is zero, NaN if a length is not finite.
    """
    tiny = torch.finfo(u.dtype).tiny
    lengths = [torch.linalg.vector_norm(one, dim=-1, keepdim=True) for one in (u, v)]
    one, other = (w / length.clamp_min(tiny) for w, length in zip((u, v), lengths, strict=True))
    difference, total = (torch.linalg.vector_norm(w, dim=-1) for w in (one - other, one + other))
    silent = ((lengths[0] == 0) | (lengths[1] == 0)).squeeze(-1)
    lost = ~(lengths[0].isfinite() & lengths[1].isfinite()).squeeze(-1)
    return torch.where(silent, math.pi / 2, 2 * torch.atan2(difference, total)).masked_fill(lost, math.nan)


def unsigned_angle(u: Weights, v: Weights) -> Float[Tensor, "*_"]:
    """Angle ᾱ(u, v) between lines, from 0 to π/2 (Phuong 2021, eq. 5.16)."""
    found = angle(u, v)
    return torch.minimum(found, math.pi - found)


def less_biased(
    x: Float[Tensor, "net sample in"],
    teacher: Weights,
    deltas: Sequence[float],
    seeds: Sequence[int],
    draw: int = 0,
) -> Float[Tensor, "delta net in"]:
    """Learners w_δ = ŵ + δ ‖ŵ‖/‖q‖ q with q Gaussian, orthogonal to the inputs (Phuong 2021, sec. 5.4.2).

    All of them minimise the loss. q depends only on the seed, the size of the set and the number of the draw: all δ
    share it, and a set with one more input has another. If the inputs span the whole space there is no q, and w_δ = ŵ.
    """
    if len(seeds) != len(x):
        raise UserError(f"one seed per set of inputs is needed ({len(x)}), got {len(seeds)}")
    if not all(math.isfinite(delta) for delta in deltas):
        raise UserError(f"deltas must be finite, got {list(deltas)}")
    samples, size = _counts(x)
    basis = span(x)
    drawn = normal(torch.tensor(list(seeds)), Stream.TRANSFER_ACROSS, (draw << 32) + samples, size).to(x)
    # Twice: the first projection leaves rounding errors in the span.
    for _ in range(2):
        drawn = drawn - _projected(basis, drawn)
    length = torch.linalg.vector_norm(drawn, dim=-1, keepdim=True)
    aside = torch.where(length > 1e-9, drawn / length.clamp_min(1e-9), 0.0)
    reached = solution(x, teacher)
    steps = torch.tensor(list(deltas)).to(x)[:, None, None]
    return reached + steps * torch.linalg.vector_norm(reached, dim=-1, keepdim=True) * aside


def hard_target(x: Float[Tensor, "*net sample in"], teacher: Weights) -> Float[Tensor, "*net in"]:
    """Limit direction of learning from hard labels 1{w*ᵀx ≥ 0}: the max-margin separator through 0, with margin 1.

    Gradient descent on cross-entropy with hard labels diverges, and its direction converges to this one at the rate
    1/log t. The limit is computed by an active-set solver; `hard_path` takes gradient steps, and is far from the limit
    after any practical number of them.
    """
    _counts(x)
    return separators(_signed(x, teacher), teacher)


def hard_path(
    x: Float[Tensor, "*net sample in"], teacher: Weights, rate: float, probes: Sequence[int]
) -> Float[Tensor, "probe *net in"]:
    """Learner of hard labels by gradient descent from w = 0, after each number of steps in `probes`."""
    samples, _ = _counts(x)
    if not (math.isfinite(rate) and rate > 0):
        raise UserError(f"rate must be finite and above 0, got {rate}")
    if not probes or min(probes) < 1 or list(probes) != sorted(probes):
        raise UserError(f"steps must be at least 1 and in ascending order, got {list(probes)}")
    signed = _signed(x, teacher)
    kernel = signed @ signed.mT * (rate / samples)
    sums, step, kept = torch.zeros_like(signed[..., 0]), 0, []
    for probe in probes:
        while step < probe:
            # Elementwise: for matrices this small a batched product is slower.
            sums = sums + (-(kernel * sums.unsqueeze(-2)).sum(-1)).sigmoid()
            step += 1
        kept.append((sums.unsqueeze(-2) @ signed).squeeze(-2) * (rate / samples))
    return torch.stack(kept)


def _signed(x: Tensor, teacher: Tensor) -> Tensor:
    """Inputs times their hard labels, −1 or 1."""
    return torch.where(_along(x, teacher) >= 0, 1.0, -1.0).to(x).unsqueeze(-1) * x


def _along(x: Tensor, w: Tensor) -> Tensor:
    if x.shape[-1] != w.shape[-1]:
        raise UserError(f"inputs and weights must have the same size, got {x.shape[-1]} and {w.shape[-1]}")
    return (x @ w.to(x).unsqueeze(-1)).squeeze(-1)


def _projected(basis: Tensor, v: Tensor) -> Tensor:
    return (basis @ (basis.mT @ v.unsqueeze(-1))).squeeze(-1)


def _counts(x: Tensor) -> tuple[int, int]:
    samples, size = x.shape[-2:]
    if samples < 1 or size < 1:
        raise UserError(f"a set needs 1 or more inputs of 1 or more numbers, got {samples} inputs of {size} numbers")
    return samples, size


def validate_depth(depth: int) -> None:
    if depth < 1:
        raise UserError(f"depth must be at least 1, got {depth} layers")
