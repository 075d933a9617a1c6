"""What linear students learn from soft labels of a linear teacher (S3 chapter 5): loss, limits, learners, conditions.

A row of `x` is an input: thesis' X is its transpose. Sets of inputs are batched over leading axes; a teacher w* may be
shared. Students are wᵀ = W_L ⋯ W_1; those with L ≥ 2 are linear populations, of slope 1, in `linear_students`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy._random import Stream
from understudy.errors import UserError
from understudy.papers.distillation.theory.draws import normals
from understudy.papers.distillation.theory.separators import separators

_SMALL_GAP = 1.0
"""Gap of two logits up to which their cross-entropy is computed from the gap, so that none of its digits are lost."""
_NEWTON = 200
"""Steps of Newton's method; it stops where nothing moves, after five or so."""


def soft_labels(x: Float[Tensor, "*#net sample in"], teacher: Float[Tensor, "*#net in"]) -> Float[Tensor, "*_ sample"]:
    """y_i = σ(w*ᵀx_i)."""
    return _along(x, teacher).sigmoid()


def loss(
    w: Float[Tensor, "*#net in"], x: Float[Tensor, "*#net sample in"], teacher: Float[Tensor, "*#net in"]
) -> Float[Tensor, "*_"]:
    """ℓ1 of eq. 5.1: cross-entropy with the teacher's soft labels less their own entropy, so that its minimum is 0."""
    _counts(x)
    wanted = _along(x, teacher)
    gap = _along(x, w) - wanted
    near = gap.clamp(-_SMALL_GAP, _SMALL_GAP)
    label = wanted.sigmoid()
    close = torch.log1p(label * torch.expm1(near)) - label * near
    softplus = torch.nn.functional.softplus
    far = softplus(wanted + gap) - softplus(wanted) - label * gap
    return torch.where(gap.abs() <= _SMALL_GAP, close, far).clamp_min(0.0).mean(-1)


def gradient(
    w: Float[Tensor, "*#net in"], x: Float[Tensor, "*#net sample in"], teacher: Float[Tensor, "*#net in"]
) -> Float[Tensor, "*_ in"]:
    """∇ℓ1 (eq. D.4), which lies in the span of the inputs."""
    _counts(x)
    residual = _along(x, w).sigmoid() - soft_labels(x, teacher)
    return (residual.unsqueeze(-2) @ x).squeeze(-2) / x.shape[-2]


def gain(
    w: Float[Tensor, "*#net in"], x: Float[Tensor, "*#net sample in"], teacher: Float[Tensor, "*#net in"]
) -> Float[Tensor, "*_"]:
    """ℓ1(0) − ℓ1(w), above 0 where condition 5.12 holds, exact to the last digits also for w close to zero."""
    ahead = _along(x, w)
    # log cosh(v/2), the even part of softplus less log 2.
    even = torch.where(
        ahead.abs() < 1,
        torch.log1p(2 * torch.sinh(ahead.clamp(-1, 1) / 4).square()),
        ahead.abs() / 2 + torch.log1p(torch.exp(-ahead.abs())) - math.log(2),
    )
    return (torch.tanh(_along(x, teacher) / 2) / 2 * ahead - even).mean(-1)


def span(x: Float[Tensor, "*net sample in"]) -> Float[Tensor, "*net in basis"]:
    """Orthonormal columns that span the inputs, by QR; zero columns stand for inputs that add nothing to the others."""
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


def solution(x: Float[Tensor, "*net sample in"], teacher: Float[Tensor, "*#net in"]) -> Float[Tensor, "*net in"]:
    """ŵ of eq. 5.6: the teacher where the inputs span everything, else its projection on their span.

    Thesis asks only whether n ≥ d, enough where inputs have a density; images do not, so their rank is looked at here.
    """
    basis = span(x)
    every = teacher.expand(*x.shape[:-2], teacher.shape[-1]).to(x)
    whole = (basis.square().sum((-2, -1)) > x.shape[-1] - 0.5).unsqueeze(-1)
    return torch.where(whole, every, _projected(basis, every))


def limit(
    start: Float[Tensor, "*net in"],
    x: Float[Tensor, "*net sample in"],
    teacher: Float[Tensor, "*#net in"],
    depth: int,
) -> Float[Tensor, "*net in"]:
    """Where gradient flow of a balanced student of L layers ends, from w(0) = `start`: in closed form.

    The part of w(0) across the span of the inputs keeps its direction, and eqs. D.30 and D.31 are equalities: it grows
    by (‖w(∞)‖/‖w(0)‖)^((L−1)/L), while the part in the span goes to ŵ. With z = ‖w(∞)‖^(2/L) this leaves one equation,
    z^(L−1) (z − a) = ‖ŵ‖², a = ‖w(0) across‖²/‖w(0)‖^(2(L−1)/L), with one root above a. Theorem 5.2's ε bounds what is
    exact here. For L ≥ 2 the flow must not end in w = 0, which condition 5.12 sees to.
    """
    _check_depth(depth)
    reached = solution(x, teacher)
    across = start - _projected(span(x), start)
    length = torch.linalg.vector_norm(start, dim=-1)
    if depth == 1:
        return reached + across
    if bool((length == 0).any()):
        raise UserError(f"a student of {depth} layers that starts at 0 stays there; allowed is a start away from 0")
    long = whole_length(reached.square().sum(-1), offset(start, across, depth), depth)
    return reached + (long / length).pow((depth - 1) / depth).unsqueeze(-1) * across


def offset(start: Float[Tensor, "*net in"], across: Float[Tensor, "*net in"], depth: int) -> Float[Tensor, "*net"]:
    """a = ‖w(0) across‖²/‖w(0)‖^(2(L−1)/L), which flow keeps; 0 of a start at 0."""
    length = torch.linalg.vector_norm(start, dim=-1).clamp_min(torch.finfo(start.dtype).tiny)
    return (torch.linalg.vector_norm(across, dim=-1) / length).square() * length.pow(2 / depth)


def whole_length(inside: Float[Tensor, "*#net"], a: Float[Tensor, "*#net"], depth: int) -> Float[Tensor, "*_"]:
    """‖w‖ of a balanced student whose part in the span has this square: z^(L/2), z the root of z^(L−1) (z − a) = it."""
    # Convex and growing above a: from the right of the root, Newton's steps come down to it.
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
    """The least ε that condition 5.11 allows a start of length ‖w(0)‖: ‖ŵ‖ √(r/(1 − r)), r = (‖w(0)‖/‖ŵ‖)^(2/L).

    This is eq. D.40, whose constants are right; infinite where ‖w(0)‖ ≥ ‖ŵ‖, and condition 5.11 holds for no ε.
    """
    _check_depth(depth)
    short, long = (torch.as_tensor(v, dtype=torch.float64) for v in (start, solution))
    r = (short / long).pow(2 / depth)
    return torch.where(r < 1, long * (r / (1 - r).clamp_min(torch.finfo(torch.float64).tiny)).sqrt(), torch.inf)


class Conditions(NamedTuple):
    """What theorem 5.2 asks of a start, as numbers."""

    start: Float[Tensor, "net"]
    """‖w(0)‖."""
    solution: Float[Tensor, "net"]
    """‖ŵ‖, which must be larger (5.11)."""
    epsilon: Float[Tensor, "net"]
    """The distance from ŵ within which the student ends: the infimum of those that 5.11 allows."""
    gain: Float[Tensor, "net"]
    """ℓ1(0) − ℓ1(w(0)), which must be above 0 (5.12)."""
    imbalance: Float[Tensor, "net"]
    """The largest ‖W_{l+1}ᵀW_{l+1} − W_l W_lᵀ‖, in parts of ‖W_l W_lᵀ‖, which must be 0 (5.13)."""

    def hold(self, imbalance: float = 1e-12) -> Bool[Tensor, "net"]:
        """Where all three hold, balance up to rounding."""
        return (self.start < self.solution) & (self.gain > 0) & (self.imbalance <= imbalance)


def angle(u: Float[Tensor, "*#net in"], v: Float[Tensor, "*#net in"]) -> Float[Tensor, "*_"]:
    """α(u, v) of eq. 5.28, from 0 to π, exact also near both; π/2 where a vector is zero and says nothing, NaN where
    the length of one is not finite."""
    tiny = torch.finfo(u.dtype).tiny
    lengths = [torch.linalg.vector_norm(one, dim=-1, keepdim=True) for one in (u, v)]
    one, other = (w / length.clamp_min(tiny) for w, length in zip((u, v), lengths, strict=True))
    apart, together = (torch.linalg.vector_norm(w, dim=-1) for w in (one - other, one + other))
    silent = ((lengths[0] == 0) | (lengths[1] == 0)).squeeze(-1)
    lost = ~(lengths[0].isfinite() & lengths[1].isfinite()).squeeze(-1)
    return torch.where(silent, math.pi / 2, 2 * torch.atan2(apart, together)).masked_fill(lost, math.nan)


def unsigned_angle(u: Float[Tensor, "*#net in"], v: Float[Tensor, "*#net in"]) -> Float[Tensor, "*_"]:
    """ᾱ(u, v) of eq. 5.16, from 0 to π/2."""
    found = angle(u, v)
    return torch.minimum(found, math.pi - found)


def less_biased(
    x: Float[Tensor, "net sample in"],
    teacher: Float[Tensor, "*#net in"],
    deltas: Sequence[float],
    seeds: Sequence[int],
) -> Float[Tensor, "delta net in"]:
    """Learners w_δ = ŵ + δ ‖ŵ‖/‖q‖ q of sec 5.4.2, q Gaussian across the inputs: all of them minimise the loss.

    q follows from the set's seed and size alone, so that all δ share it, and [X, x] has another than X. Where inputs
    span everything there is no q, and w_δ is ŵ.
    """
    if len(seeds) != len(x):
        raise UserError(f"{len(seeds)} seeds were given for {len(x)} sets of inputs: give each its own")
    if not all(math.isfinite(delta) for delta in deltas):
        raise UserError(f"δ must be finite numbers, got {list(deltas)}")
    samples, size = _counts(x)
    basis = span(x)
    drawn = normals(seeds, Stream.TRANSFER_ACROSS, samples, size).to(x)
    # Twice, because the first leaves rounding in the span.
    for _ in range(2):
        drawn = drawn - _projected(basis, drawn)
    length = torch.linalg.vector_norm(drawn, dim=-1, keepdim=True)
    aside = torch.where(length > 1e-9, drawn / length.clamp_min(1e-9), 0.0)
    reached = solution(x, teacher)
    steps = torch.tensor(list(deltas)).to(x)[:, None, None]
    return reached + steps * torch.linalg.vector_norm(reached, dim=-1, keepdim=True) * aside


def hard_target(x: Float[Tensor, "*net sample in"], teacher: Float[Tensor, "*#net in"]) -> Float[Tensor, "*net in"]:
    """The learner of hard labels 1{w*ᵀx ≥ 0}, trained for ever: the max-margin separator through 0 (margin 1).

    Gradient descent on cross-entropy with hard labels grows without end, and its direction goes to this one, but only
    as fast as 1/log t: here an active-set solver finds the limit, and no steps are taken. `hard_descent` takes them,
    and is far from the limit after any number of them that one would wait for.
    """
    _counts(x)
    return separators(_sides(x, teacher).unsqueeze(-1) * x, teacher)


def hard_descent(
    x: Float[Tensor, "*net sample in"], teacher: Float[Tensor, "*#net in"], rate: float, steps: int
) -> Float[Tensor, "*net in"]:
    """The learner of hard labels after some steps of gradient descent from w = 0."""
    return hard_path(x, teacher, rate, [steps])[0]


def hard_path(
    x: Float[Tensor, "*net sample in"], teacher: Float[Tensor, "*#net in"], rate: float, looks: Sequence[int]
) -> Float[Tensor, "look *net in"]:
    """The same after as many steps as each of `looks` says, in multipliers of the inputs."""
    samples, _ = _counts(x)
    if not (math.isfinite(rate) and rate > 0) or not looks or min(looks) < 1 or list(looks) != sorted(looks):
        raise UserError(
            f"{', '.join(map(str, looks)) or 'no'} steps at rate {rate} were asked for; allowed is 1 step or more, in "
            "order, at a rate above 0"
        )
    signed = _sides(x, teacher).unsqueeze(-1) * x
    kernel = signed @ signed.mT * (rate / samples)
    sums, step, kept = torch.zeros_like(signed[..., 0]), 0, []
    for look in looks:
        while step < look:
            # Not as matrices: theirs are too small to be worth the call.
            sums = sums + (-(kernel * sums.unsqueeze(-2)).sum(-1)).sigmoid()
            step += 1
        kept.append((sums.unsqueeze(-2) @ signed).squeeze(-2) * (rate / samples))
    return torch.stack(kept)


def _sides(x: Tensor, teacher: Tensor) -> Tensor:
    return torch.where(_along(x, teacher) >= 0, 1.0, -1.0).to(x)


def _along(x: Tensor, w: Tensor) -> Tensor:
    if x.shape[-1] != w.shape[-1]:
        raise UserError(f"inputs of {x.shape[-1]} numbers were given for weights of {w.shape[-1]}: give as many")
    return (x @ w.to(x).unsqueeze(-1)).squeeze(-1)


def _projected(basis: Tensor, v: Tensor) -> Tensor:
    return (basis @ (basis.mT @ v.unsqueeze(-1))).squeeze(-1)


def _counts(x: Tensor) -> tuple[int, int]:
    samples, size = x.shape[-2:]
    if samples < 1 or size < 1:
        raise UserError(f"a set of {samples} inputs of {size} numbers was given; allowed is 1 or more of both")
    return samples, size


def _check_depth(depth: int) -> None:
    if depth < 1:
        raise UserError(f"{depth} layers were asked for; allowed is 1 or more")
