"""Two-layer networks on standard normal inputs in closed form (S4): losses, gradients, and what the proofs are about.

S4 definition 1: students f(x) = Σ ‖w_i‖ |w_iᵀx|, whose output weights are the lengths of the nodes, a teacher
f*(x) = Σ |v_jᵀx|, whose output weights are 1, and L = ½ E (f − f*)². (Sec 5.4 leaves the ½ out, and of the gradient
what comes from the output weights: ∇L = ‖w‖ (I + w̄w̄ᵀ) E[R x sgn(wᵀx)], R = f − f*.)

Activations of any slope c are a line and an absolute value, σ(z) = (1+c)/2 z + (1−c)/2 |z|, whose products have mean
zero: each of the two is a loss by itself, and the line's is a square.

A loss near zero as Σ c_k c_l E|u_kᵀx||u_lᵀx| is a difference of large numbers. Here each node k has a reference b (for
a student the nearest teacher node), turned so that u_kᵀb ≥ 0, and |u_kᵀx| = sgn(bᵀx) u_kᵀx + ρ_k(x), ρ_k ≥ 0 where
the signs differ and 0 elsewhere. Then E R² = Σ_b r_bᵀ E[R x sgn(bᵀx)] + Σ_k c_k E[R ρ_k], with r_b = Σ c_k u_k over
the nodes of b: small numbers times small numbers. For unit vectors, φ = ∠(u, v), ψ = ∠(b, v), t = φ − ψ, δ = ∠(u, b),

    E[|vᵀx| ρ] = 2/π [sin φ (1 − cos t) − cos φ (t − sin t) + sin ψ (1 − cos δ)].

This is true of any references; the right ones make it accurate. With nodes at angles δ from the teacher's the
relative error is about 1e-16/δ², for losses of order δ³.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from understudy.errors import UserError
from understudy.papers.local.theory.gaussian import compiled as fast
from understudy.papers.local.theory.gaussian.pairs import Angles, angles, curl, lag, lift, same_inputs, units
from understudy.papers.local.theory.gaussian.residual import Residual as Residual
from understudy.papers.local.theory.gaussian.residual import residual as residual
from understudy.papers.local.theory.gaussian.signs import gram_of_signs as gram_of_signs
from understudy.papers.local.theory.gaussian.signs import least_eigenvalue as least_eigenvalue
from understudy.papers.local.theory.gaussian.signs import second_moment as second_moment

_NEAR = 0.1
"""Angle (up to sign) within which a teacher node, or an earlier student node, is a reference."""
_SMALL, _STRIPS = 256, 4
"""Nodes up to which a problem is done by one thread; the strips of a larger one."""
_ALONE = 100_000
"""Pairs of nodes for which other threads are not worth starting."""


def kernel(
    u: Float[Tensor, "*#net one in"], v: Float[Tensor, "*#net other in"], slope: float = -1.0
) -> Float[Tensor, "*net one other"]:
    """E[σ(uᵀx) σ(vᵀx)] of all pairs, x standard normal; slope −1 is |·|, 0 ReLU (the arc-cosine kernel of degree 1)."""
    same_inputs(u, v)
    (one, here), (other, there) = units(u), units(v)
    pairs = angles(one, other)
    folded = pairs.folded
    # (1−c)²/4 ± (1+c)²/4: with ReLU nothing is left of the cosine of opposite vectors.
    line = torch.where(pairs.same, folded.new_full((), (1 + slope**2) / 2), folded.new_full((), -slope))
    unit = line * folded.cos() + (1 - slope) ** 2 / (2 * math.pi) * curl(folded)
    return here.unsqueeze(-1) * there.unsqueeze(-2) * unit


def weighted_loss(
    students: Float[Tensor, "*#net student in"],
    teachers: Float[Tensor, "*#net teacher in"],
    student_weights: Float[Tensor, "*#net student"],
    teacher_weights: Float[Tensor, "*#net teacher"],
    slope: float = -1.0,
) -> Float[Tensor, "*net"]:
    """½ E (Σ a_i σ(w_iᵀx) − Σ b_j σ(v_jᵀx))², differentiable once in all four."""
    same_inputs(students, teachers)
    nets = torch.broadcast_shapes(
        students.shape[:-2], teachers.shape[:-2], student_weights.shape[:-1], teacher_weights.shape[:-1]
    )
    nodes = torch.cat([part.expand(*nets, *part.shape[-2:]) for part in (teachers, students)], -2)
    signed = (-teacher_weights, student_weights)
    weights = torch.cat([part.expand(*nets, part.shape[-1]) for part in signed], -1)
    value: Tensor = _HalfSquare.apply(nodes, weights, teachers.shape[-2], slope)  # type: ignore[no-untyped-call]
    return value


def loss(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> Float[Tensor, "*net"]:
    """L of S4 eq. 1, differentiable once; other slopes are the same networks with another activation."""
    same_inputs(students, teachers)
    return weighted_loss(students, teachers, students.norm(dim=-1), teachers.new_ones(teachers.shape[:-1]), slope)


def loss_and_gradient(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net student in"]]:
    """L and ∇L with respect to the students, 0 at w = 0; compiled on processors, in tensors on a card."""
    same_inputs(students, teachers)
    if students.device.type != "cpu":
        return loss_and_gradient_in_tensors(students, teachers, slope)
    nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
    ours, theirs = (
        part.detach().expand(*nets, *part.shape[-2:]).reshape(-1, *part.shape[-2:]).contiguous().numpy()
        for part in (students, teachers)
    )
    losses, gradients = np.empty(len(ours)), np.empty(ours.shape)
    _compiled(ours, theirs, slope, losses, gradients)
    return torch.from_numpy(losses).reshape(nets), torch.from_numpy(gradients).reshape(*nets, *ours.shape[1:])


def loss_and_gradient_in_tensors(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net student in"]]:
    """The same on any device."""
    same_inputs(students, teachers)
    with torch.no_grad():
        nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
        count = teachers.shape[-2]
        nodes = torch.cat([part.expand(*nets, *part.shape[-2:]) for part in (teachers, students)], -2)
        directions, lengths = units(nodes)
        weights = torch.cat([lengths.new_full((*nets, count), -1.0), lengths[..., count:]], -1)
        value, pulls = _half_square(nodes, weights, count, slope)
        return value, _turned(pulls[..., count:, :], directions[..., count:, :], lengths[..., count:])


def gradient(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> Float[Tensor, "*net student in"]:
    """∇L alone: on a card a small part of the work, most of which is in what keeps the digits of the loss."""
    if students.device.type == "cpu":
        return loss_and_gradient(students, teachers, slope)[1]
    return gradient_in_tensors(students, teachers, slope)


def gradient_in_tensors(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> Float[Tensor, "*net student in"]:
    """The same on any device."""
    same_inputs(students, teachers)
    with torch.no_grad():
        nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
        (ours, lengths), (theirs, norms) = units(students), units(teachers)
        parts = (ours, lengths.unsqueeze(-1) * students, lengths.square()), (theirs, -teachers, -norms)
        nodes, vectors = (torch.cat([p[i].expand(*nets, *p[i].shape[-2:]) for p in parts], -2) for i in (0, 1))
        outputs = torch.cat([p[2].expand(*nets, p[2].shape[-1]) for p in parts], -1)
        pairs = angles(ours, nodes)
        across = (pairs.folded.sin() @ outputs.unsqueeze(-1)) * (2 / math.pi)
        pulls = (1 - slope) ** 2 / 4 * (pairs.agree @ vectors + across * ours)
        if slope != -1:
            pulls = pulls + (1 + slope) ** 2 / 4 * vectors.sum(-2, keepdim=True)
        return _turned(pulls, ours, lengths)


def _turned(pulls: Tensor, directions: Tensor, lengths: Tensor) -> Tensor:
    """‖w‖ (I + w̄w̄ᵀ) E[R x σ'(wᵀx)]."""
    along = (pulls * directions).sum(-1, keepdim=True)
    return lengths.unsqueeze(-1) * (pulls + along * directions)


def _compiled(
    students: np.ndarray, teachers: np.ndarray, slope: float, losses: np.ndarray, gradients: np.ndarray
) -> None:
    """Small problems side by side, large ones one by one in strips, by as many threads as torch has.

    How one is cut is a matter of its size alone: its result is the same alone, among others and by more threads.
    """
    problems, m, d = students.shape
    r = teachers.shape[1]
    threads = torch.get_num_threads() if problems * (m + r) ** 2 > _ALONE else 1
    side_by_side = _pool(threads).map if threads > 1 else map
    if m + r <= _SMALL:
        parts = [slice(problems * i // threads, problems * (i + 1) // threads) for i in range(threads)]
        list(side_by_side(lambda p: fast.each(students[p], teachers[p], slope, losses[p], gradients[p]), parts))
        return
    for e in range(problems):
        room = fast.start(students[e], teachers[e])
        pulls, sums = np.empty((_STRIPS, *room[0].shape)), np.empty((2, _STRIPS, len(room[0])))
        shares = [(r, m + r, d, s, _STRIPS, room, pulls[s], *sums[:, s]) for s in range(_STRIPS)]
        list(side_by_side(fast.strip, *zip(*shares, strict=True)))
        losses[e] = fast.end(r, m + r, d, slope, room, pulls, *sums, gradients[e])


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Kept: to start threads takes as long as some of the problems."""
    return ThreadPoolExecutor(threads, "gaussian")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads are not there in a child


class _HalfSquare(torch.autograd.Function):
    """½ E (Σ c_k σ(u_kᵀx))², whose gradients are c_k E[R σ' x] and E[R σ]."""

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, weights: Tensor, teachers: int, slope: float) -> Tensor:
        value, pulls = _half_square(nodes, weights, teachers, slope)
        ctx.save_for_backward(nodes, weights, pulls)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, Tensor, None, None]:
        nodes, weights, pulls = ctx.saved_tensors
        above = above.unsqueeze(-1)
        return (above * weights).unsqueeze(-1) * pulls, above * (nodes * pulls).sum(-1), None, None


def _half_square(nodes: Tensor, weights: Tensor, teachers: int, slope: float) -> tuple[Tensor, Tensor]:
    """½ E R², R = Σ c_k σ(u_kᵀx), and E[R x σ'(u_kᵀx)] of every node. The first nodes are the teacher's."""
    directions, lengths = units(nodes)
    outputs = weights * lengths
    vectors = weights.unsqueeze(-1) * nodes
    pairs = angles(directions, directions)
    sines = pairs.folded.sin()
    across = (sines @ outputs.unsqueeze(-1)) * (2 / math.pi)
    pulls = pairs.agree @ vectors + across * directions
    references = _references(pairs.folded, teachers)
    square = _square(pairs, sines, outputs, vectors, pulls, references, teachers)
    line, bend = (1 + slope) ** 2 / 4, (1 - slope) ** 2 / 4
    mean = vectors.sum(-2)
    return (line * mean.square().sum(-1) + bend * square) / 2, line * mean.unsqueeze(-2) + bend * pulls


def _references(folded: Tensor, teachers: int) -> Tensor:
    """Of every node: the nearest teacher node, or, with none near, the first student node that is; itself at last.

    Students that are far from every teacher node and yet give no loss cancel each other, by weights of both signs.
    """
    nearest, which = folded[..., teachers:, :teachers].min(-1)
    first = (folded[..., teachers:, teachers:] < _NEAR).to(torch.uint8).argmax(-1) + teachers
    students = torch.where(nearest < _NEAR, which, first)
    own = torch.arange(teachers, device=folded.device).expand(*folded.shape[:-2], teachers)
    return torch.cat([own, students], -1)


def _square(
    pairs: Angles, sines: Tensor, outputs: Tensor, vectors: Tensor, pulls: Tensor, references: Tensor, teachers: int
) -> Tensor:
    """E R² for |·|, from the pulls E[R x sgn(u_kᵀx)] and what every student node bends away from its reference."""
    same = torch.gather(pairs.same, -1, references.unsqueeze(-1))
    turned = torch.where(same, vectors, -vectors)
    rests = torch.zeros_like(vectors).scatter_add_(-2, references.unsqueeze(-1).expand_as(vectors), turned)
    students = references[..., teachers:]
    rows = students.unsqueeze(-1).expand(*students.shape, pairs.angle.shape[-1])
    its = Angles(torch.gather(pairs.angle, -2, rows), torch.gather(pairs.rest, -2, rows))
    ours = Angles(pairs.angle[..., teachers:, :], pairs.rest[..., teachers:, :])
    phi, psi = ours.turned(its.same == same[..., teachers:, :]), its.folded
    t = phi - psi
    delta = torch.gather(ours.folded, -1, students.unsqueeze(-1))
    bends = sines[..., teachers:, :] * lift(t) - phi.cos() * lag(t) + psi.sin() * lift(delta)
    bent = (bends @ outputs.unsqueeze(-1)).squeeze(-1) * (2 / math.pi)
    return ((rests * pulls).sum((-2, -1)) + (outputs[..., teachers:] * bent).sum(-1)).clamp_min(0)


def hermite(k: int, slope: float = -1.0) -> float:
    """E[σ(x) h_k(x)], h_k the normalised Hermite polynomials, x standard normal: S4 lemma C.6 for |·|.

    Their squares fall as k^(−5/2), not as k^(−3/2), which is printed beside the formula.
    """
    if k < 0:
        raise UserError(f"Hermite polynomials are counted from 0, got {k}")
    if k % 2:
        return (1 + slope) / 2 if k == 1 else 0.0
    # Each is the one before times −(k−3)/√(k(k−1)): no factorials, which would overflow.
    return (
        (1 - slope)
        / 2
        * math.sqrt(2 / math.pi)
        * math.prod((3 - n) / math.sqrt(n * (n - 1)) for n in range(2, k + 1, 2))
    )
