"""Loss and gradient of two-layer networks on standard normal inputs, in closed form and without loss of precision.

Zhou, Ge & Jin 2021, definition 1: students f(x) = Σ ‖w_i‖ |w_iᵀx|, whose output weights are the lengths of the nodes,
a teacher f*(x) = Σ |v_jᵀx|, whose output weights are 1, and L = ½ E R² with the residual R = f − f*. The gradient is
∇L = ‖w‖ (I + w̄w̄ᵀ) E[R x sgn(wᵀx)]; sec. 5.4 of the paper omits the ½ and the factor that stems from the output weights.
E[R x sgn(uᵀx)] is called the pull on node u below.

An activation of slope c below zero is the sum of a linear function and an absolute value, σ(z) = (1+c)/2 z +
(1−c)/2 |z|, whose products have mean zero: the loss is the sum of both losses, and the linear one is a square.

Written as Σ c_k c_l E|u_kᵀx||u_lᵀx|, a loss near zero is a difference of large numbers. Instead each node k has a
reference node b (for a student the nearest teacher node), and its sign is chosen so that u_kᵀb ≥ 0. Then |u_kᵀx| =
sgn(bᵀx) u_kᵀx + ρ_k(x), where ρ_k ≥ 0 is nonzero only where the signs differ, and E R² = Σ_b r_bᵀ E[R x sgn(bᵀx)] +
Σ_k c_k E[R ρ_k] with r_b = Σ c_k u_k over the nodes of b: products of small numbers. For unit vectors with
φ = ∠(u, v), ψ = ∠(b, v), t = φ − ψ, δ = ∠(u, b),

    E[|vᵀx| ρ] = 2/π [sin φ (1 − cos t) − cos φ (t − sin t) + sin ψ (1 − cos δ)].

The identity holds for any references; the choice decides the accuracy. With nodes at angles δ from the teacher's the
relative error is about 10⁻¹⁶/δ², for losses of order δ³.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.papers.local.theory.gaussian import compiled
from understudy.papers.local.theory.gaussian.pairs import (
    Angles,
    angles,
    broadcast_nodes,
    one_minus_cos,
    sin_minus_x_cos,
    units,
    validate_nodes,
    x_minus_sin,
)

_NEAR = 0.1
"""Angle (up to sign) within which a teacher node, or an earlier student node, is a reference."""
_SMALL, _STRIPS = 256, 4
"""Largest number of nodes of a problem that one thread solves, and number of strips of a larger problem."""
_ALONE = 100_000
"""Number of pairs of nodes up to which a single thread is used."""
_UNINTERRUPTED = 100_000_000
"""Number of pairs of nodes after which Ctrl-C is heeded: about a second."""


def kernel(
    u: Float[Tensor, "*#net one in"], v: Float[Tensor, "*#net other in"], slope: float = -1.0
) -> Float[Tensor, "*net one other"]:
    """E[σ(uᵀx) σ(vᵀx)] of all pairs of nodes, x standard normal; for ReLU the arc-cosine kernel of degree 1.

    Args:
        u: nodes, in float64.
        v: nodes of the same number of inputs.
        slope: slope of the activation σ below zero; −1 is |·|, 0 is ReLU.

    Raises:
        UserError: the nodes are not float64 vectors of the same dimension.
    """
    validate_nodes(u, v)
    (one, here), (other, there) = units(u), units(v)
    pairs = angles(one, other)
    folded = pairs.folded
    # (1−c)²/4 ± (1+c)²/4: for ReLU the cosine of opposite vectors drops out.
    line = torch.where(pairs.same, folded.new_full((), (1 + slope**2) / 2), folded.new_full((), -slope))
    unit = line * folded.cos() + (1 - slope) ** 2 / (2 * math.pi) * sin_minus_x_cos(folded)
    return here.unsqueeze(-1) * there.unsqueeze(-2) * unit


def loss(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> Float[Tensor, "*net"]:
    """Population loss L of Zhou, Ge & Jin 2021, eq. 1 (eq. 5 for ReLU), of each network.

    Args:
        students: student nodes w, in float64; their lengths are the output weights.
        teachers: teacher nodes w*; their output weights are 1.
        slope: slope of the activation below zero; −1 is |·|, 0 is ReLU.

    Raises:
        UserError: the nodes are not float64 vectors of the same dimension.
    """
    return loss_and_gradient_in_tensors(students, teachers, slope)[0]


def loss_and_gradient(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net student in"]]:
    """L and ∇L with respect to the students, 0 for one of length zero; arguments as in `loss`.

    Compiled on a CPU, by tensor operations on a GPU.
    """
    if students.device.type != "cpu":
        return loss_and_gradient_in_tensors(students, teachers, slope)
    ours, theirs = (
        part.reshape(-1, *part.shape[-2:]).contiguous().numpy()
        for part in broadcast_nodes(students.detach(), teachers.detach())
    )
    nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
    losses, gradients = np.empty(len(ours)), np.empty(ours.shape)
    _run_compiled(ours, theirs, slope, losses, gradients)
    return torch.from_numpy(losses).reshape(nets), torch.from_numpy(gradients).reshape(*nets, *ours.shape[1:])


def loss_and_gradient_in_tensors(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net student in"]]:
    """L and ∇L by tensor operations, on any device."""
    with torch.no_grad():
        students, teachers = broadcast_nodes(students, teachers)
        count = teachers.shape[-2]
        nodes = torch.cat([teachers, students], -2)
        directions, lengths = units(nodes)
        weights = torch.cat([torch.full_like(lengths[..., :count], -1.0), lengths[..., count:]], -1)
        value, pulls = _half_square(nodes, weights, count, slope)
        return value, _gradient_from_pulls(pulls[..., count:, :], directions[..., count:, :], lengths[..., count:])


def gradient(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> Float[Tensor, "*net student in"]:
    """∇L without the loss; on a GPU this is much cheaper, since most of the work preserves the digits of the loss."""
    if students.device.type == "cpu":
        return loss_and_gradient(students, teachers, slope)[1]
    return gradient_in_tensors(students, teachers, slope)


def gradient_in_tensors(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"], slope: float = -1.0
) -> Float[Tensor, "*net student in"]:
    """∇L by tensor operations, on any device."""
    validate_nodes(students, teachers)
    with torch.no_grad():
        nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
        (ours, lengths), (theirs, norms) = units(students), units(teachers)
        parts = (ours, lengths.unsqueeze(-1) * students, lengths.square()), (theirs, -teachers, -norms)
        nodes, vectors = (torch.cat([p[i].expand(*nets, *p[i].shape[-2:]) for p in parts], -2) for i in (0, 1))
        outputs = torch.cat([p[2].expand(*nets, p[2].shape[-1]) for p in parts], -1)
        pairs = angles(ours, nodes)
        across = (pairs.folded.sin() @ outputs.unsqueeze(-1)) * (2 / math.pi)
        pulls = (1 - slope) ** 2 / 4 * (pairs.agreement @ vectors + across * ours)
        if slope != -1:
            pulls = pulls + (1 + slope) ** 2 / 4 * vectors.sum(-2, keepdim=True)
        return _gradient_from_pulls(pulls, ours, lengths)


def can_take_steps(students: Float[Tensor, "net student in"], teachers: Float[Tensor, "#net teacher in"]) -> bool:
    """Whether `take_steps` applies: on a CPU, to problems that one thread solves."""
    return students.device.type == "cpu" and students.shape[-2] + teachers.shape[-2] <= _SMALL


def take_steps(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    rates: Float[Tensor, "#net"],
    steps: int,
    slope: float = -1.0,
) -> Float[Tensor, "net student in"]:
    """Take steps W ← W − η ∇L of small problems in compiled code, bit for bit as one at a time."""
    ours, theirs = (part.contiguous().numpy() for part in broadcast_nodes(students.detach(), teachers.detach()))
    now, each = ours.copy(), rates.expand(len(ours)).numpy()
    pairs = (ours.shape[1] + theirs.shape[1]) ** 2

    def descend(part: slice) -> None:
        compiled.descend(now[part], theirs[part], slope, each[part], some)

    while steps:  # in parts, since compiled code cannot be interrupted
        some = min(steps, max(1, _UNINTERRUPTED // (len(ours) * pairs)))
        _divide(len(ours), some * pairs, descend)
        steps -= some
    return torch.from_numpy(now)


def _gradient_from_pulls(pulls: Tensor, directions: Tensor, lengths: Tensor) -> Tensor:
    """‖w‖ (I + w̄w̄ᵀ) E[R x σ'(wᵀx)]."""
    along = (pulls * directions).sum(-1, keepdim=True)
    return lengths.unsqueeze(-1) * (pulls + along * directions)


def _run_compiled(
    students: np.ndarray, teachers: np.ndarray, slope: float, losses: np.ndarray, gradients: np.ndarray
) -> None:
    """Fill in losses and gradients: small problems in parallel, large ones one by one in strips, on torch's threads.

    The size of a problem alone decides how it is cut, so that its result does not depend on the other problems or on
    the number of threads.
    """
    problems, m, d = students.shape
    r = teachers.shape[1]
    if m + r <= _SMALL:
        pairs = (m + r) ** 2
        _divide(problems, pairs, lambda p: compiled.solve(students[p], teachers[p], slope, losses[p], gradients[p]))
        return
    threads = torch.get_num_threads()
    in_parallel = _thread_pool(threads).map if threads > 1 else map
    for e in range(problems):
        buffers = compiled.start(students[e], teachers[e])
        pulls, sums = np.empty((_STRIPS, *buffers[0].shape)), np.empty((2, _STRIPS, len(buffers[0])))
        shares = [(r, m + r, d, s, _STRIPS, buffers, pulls[s], *sums[:, s]) for s in range(_STRIPS)]
        list(in_parallel(compiled.add_strip, *zip(*shares, strict=True)))
        losses[e] = compiled.finish_strips(r, m + r, d, slope, buffers, pulls, *sums, gradients[e])


def _divide(problems: int, pairs: int, solve: Callable[[slice], None]) -> None:
    """Solve problems, of so many pairs of nodes each, in one part per thread; in this thread alone if they are few."""
    threads = min(problems, torch.get_num_threads()) if problems * pairs > _ALONE else 1
    parts = [slice(problems * i // threads, problems * (i + 1) // threads) for i in range(threads)]
    list((_thread_pool(threads).map if threads > 1 else map)(solve, parts))


@cache
def _thread_pool(threads: int) -> ThreadPoolExecutor:
    """A pool kept for reuse: starting threads takes as long as solving some of the problems."""
    return ThreadPoolExecutor(threads, "gaussian")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)  # a forked child has none of the threads


def _half_square(nodes: Tensor, weights: Tensor, teachers: int, slope: float) -> tuple[Tensor, Tensor]:
    """½ E R², R = Σ c_k σ(u_kᵀx), and E[R x σ'(u_kᵀx)] of every node. The first nodes are the teacher's."""
    directions, lengths = units(nodes)
    outputs = weights * lengths
    vectors = weights.unsqueeze(-1) * nodes
    pairs = angles(directions, directions)
    sines = pairs.folded.sin()
    across = (sines @ outputs.unsqueeze(-1)) * (2 / math.pi)
    pulls = pairs.agreement @ vectors + across * directions
    references = _references(pairs.folded, teachers)
    square = _mean_square(pairs, sines, outputs, vectors, pulls, references, teachers)
    line, bend = (1 + slope) ** 2 / 4, (1 - slope) ** 2 / 4
    mean = vectors.sum(-2)
    return (line * mean.square().sum(-1) + bend * square) / 2, line * mean.unsqueeze(-2) + bend * pulls


def _references(folded: Tensor, teachers: int) -> Tensor:
    """Reference of every node: the nearest teacher node if near, else the first student node near it, or itself."""
    nearest, which = folded[..., teachers:, :teachers].min(-1)
    first = (folded[..., teachers:, teachers:] < _NEAR).to(torch.uint8).argmax(-1) + teachers
    students = torch.where(nearest < _NEAR, which, first)
    own = torch.arange(teachers, device=folded.device).expand(*folded.shape[:-2], teachers)
    return torch.cat([own, students], -1)


def _mean_square(
    pairs: Angles, sines: Tensor, outputs: Tensor, vectors: Tensor, pulls: Tensor, references: Tensor, teachers: int
) -> Tensor:
    """E R² for |·|, from the pulls E[R x sgn(u_kᵀx)] and E[R ρ_k] of every student node with its reference."""
    same = torch.gather(pairs.same, -1, references.unsqueeze(-1))
    signed = torch.where(same, vectors, -vectors)
    sums = torch.zeros_like(vectors).scatter_add_(-2, references.unsqueeze(-1).expand_as(vectors), signed)
    students = references[..., teachers:]
    rows = students.unsqueeze(-1).expand(*students.shape, pairs.angle.shape[-1])
    its = Angles(torch.gather(pairs.angle, -2, rows), torch.gather(pairs.supplement, -2, rows))
    ours = Angles(pairs.angle[..., teachers:, :], pairs.supplement[..., teachers:, :])
    phi = torch.where(its.same == same[..., teachers:, :], ours.angle, ours.supplement)
    psi = its.folded
    t = phi - psi
    delta = torch.gather(ours.folded, -1, students.unsqueeze(-1))
    rho = sines[..., teachers:, :] * one_minus_cos(t) - phi.cos() * x_minus_sin(t) + psi.sin() * one_minus_cos(delta)
    residual_rho = (rho @ outputs.unsqueeze(-1)).squeeze(-1) * (2 / math.pi)
    return ((sums * pulls).sum((-2, -1)) + (outputs[..., teachers:] * residual_rho).sum(-1)).clamp_min(0)


def hermite(k: int, slope: float = -1.0) -> float:
    """Hermite coefficient E[σ(x) h_k(x)] of an activation, x standard normal (Zhou, Ge & Jin 2021, lemma C.6).

    For |·| the squares of the coefficients fall as k^(−5/2); the paper prints k^(−3/2) beside the formula.

    Args:
        k: degree of the normalised Hermite polynomial h_k.
        slope: slope of the activation σ below zero.

    Raises:
        UserError: k is negative.
    """
    if k < 0:
        raise UserError(f"the degree of a Hermite polynomial must be at least 0, got {k}")
    if k % 2:
        return (1 + slope) / 2 if k == 1 else 0.0
    # Each factor is the ratio of a coefficient to the one before it: factorials would overflow.
    factors = ((3 - n) / math.sqrt(n * (n - 1)) for n in range(2, k + 1, 2))
    return (1 - slope) / 2 * math.sqrt(2 / math.pi) * math.prod(factors)
