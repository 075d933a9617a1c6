"""A residual as a difference of averages and what students bend away from their teacher node (S4 eq. 3)."""

import math
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.papers.local.theory.gaussian.pairs import Angles, angles, curl, lag, lift, same_inputs, units
from understudy.papers.local.theory.gaussian.signs import gram_of_signs

_NODES = 8
"""Of Gauss and Legendre, along each of two ways from a teacher node to a student."""
_SMALL = 0.2
"""How large a student's angle may be, relative to the sine of the angle of both teacher nodes, for these to do."""
_PAIRS = 1 << 14
"""Pairs of students that are summed over these together: what they take stays in the cache."""
_TINY = float(np.finfo(float).tiny)
Pairs = TypeVar("Pairs", Tensor, np.ndarray)


class Residual(NamedTuple):
    """R = f − f* = R₁ + R₂ (S4 eq. 3). Nodes that point away from their teacher node are turned: |·| is even."""

    averages: Float[Tensor, "*net teacher in"]
    """v_i = Σ ‖w_j‖ w_j − w*_i over the students of each teacher node (S4 eq. 2)."""
    linear: Float[Tensor, "*net"]
    """E R₁², R₁ = Σ v_iᵀx sgn(w*_iᵀx)."""
    bent: Float[Tensor, "*net"]
    """E R₂², R₂ = Σ ‖w_j‖ w_jᵀx (sgn(w_jᵀx) − sgn(w*_iᵀx))."""
    angles: Float[Tensor, "*net student"]
    """δ_j of every student with its teacher node, up to sign."""
    assignment: Int[Tensor, "*net student"]
    """The teacher node of every student."""


def residual(
    students: Float[Tensor, "*#net student in"],
    teachers: Float[Tensor, "*#net teacher in"],
    assignment: Int[Tensor, "*#net student"] | None = None,
) -> Residual:
    """The parts for a given assignment of students to teacher nodes; the nearest, up to sign, if none is given."""
    same_inputs(students, teachers)
    nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
    students, teachers = (part.detach().expand(*nets, *part.shape[-2:]) for part in (students, teachers))
    (theirs, _), (ours, lengths) = units(teachers), units(students)
    to_teachers = angles(ours, theirs)
    count = teachers.shape[-2]
    if assignment is None:
        assignment = to_teachers.folded.argmin(-1)
    elif ((assignment < 0) | (assignment >= count)).any():
        raise UserError(f"students are assigned to teacher nodes 0 to {count - 1}, got {assignment.unique().tolist()}")
    assignment = assignment.expand(students.shape[:-1])
    which = assignment.unsqueeze(-1)
    same = torch.gather(to_teachers.same, -1, which)
    delta = torch.gather(to_teachers.folded, -1, which)
    ours, students = (torch.where(same, w, -w) for w in (ours, students))
    rows = which.expand_as(students)
    averages = (-teachers).scatter_add(-2, rows, lengths.unsqueeze(-1) * students)
    stacked = averages.flatten(-2).unsqueeze(-1)
    linear = (stacked.mT @ gram_of_signs(teachers) @ stacked)[..., 0, 0]
    square = lengths.square().unsqueeze(-1)
    bent = square.mT @ _products(ours, torch.gather(theirs, -2, rows), delta, assignment) @ square
    return Residual(averages, linear.clamp_min(0), bent[..., 0, 0], delta.squeeze(-1), assignment)


def _products(u: Tensor, b: Tensor, delta: Tensor, assignment: Tensor) -> Tensor:
    """E[ρ_j ρ_k] of all pairs of students u with teacher nodes b, ρ = |uᵀx| − sgn(bᵀx) uᵀx; all are ≥ 0."""
    ours, theirs = angles(u, u), angles(b, b)
    # Of the same teacher node: zero if both lie in a plane with it, on either side.
    t = delta + delta.mT - ours.angle
    own = 2 / math.pi * (ours.angle.cos() * lag(t) + ours.folded.sin() * lift(t))
    same = assignment.unsqueeze(-1) == assignment.unsqueeze(-2)
    found = torch.where(same, own, _outright(u, b, ours, theirs))
    small = torch.maximum(delta, delta.mT) < _SMALL * theirs.folded.sin()
    return _replaced(found, (small & ~same).triu(), u - b, b).clamp_min(0)


def _replaced(found: Tensor, small: Tensor, e: Tensor, b: Tensor) -> Tensor:
    """With pairs, each given once, by what is right for small angles; so many at a time as stay in the cache."""
    bb, be, ee = b @ b.mT, b @ e.mT, e @ e.mT
    sizes = torch.diagonal(ee, dim1=-2, dim2=-1)
    card = found.device.type != "cpu"
    for some in small.nonzero().split(64 * _PAIRS if card else _PAIRS):
        *net, one, other = some.unbind(-1)
        here, there = (*net, one, other), (*net, other, one)
        pairs = bb[here], be[here], be[there], ee[here], sizes[*net, one], sizes[*net, other]
        # By numpy on a processor: torch would share even these few roots out over threads, and wait for them.
        value = _along(*pairs) if card else torch.from_numpy(_along(*(part.numpy() for part in pairs)))
        found[here], found[there] = value, value
    return found


def _outright(u: Tensor, b: Tensor, ours: Angles, theirs: Angles) -> Tensor:
    """The four products of |uᵀx| − sgn(bᵀx) uᵀx, which cancel where δ is small."""
    cosine, crossed, onto = u @ u.mT, angles(u, b), u @ b.mT
    own = torch.diagonal(onto, dim1=-2, dim2=-1).unsqueeze(-1)
    both = ours.folded.cos() + 2 / math.pi * curl(ours.folded)
    one = crossed.agree * cosine + 2 / math.pi * crossed.folded.sin() * own.mT
    # uᵀ M u' by `second_moment`, M of b and b', whose half angle has this tangent.
    tangent = torch.tan(theirs.angle / 2)
    sums, differences = (own + onto) * (own.mT + onto.mT), (own - onto) * (onto.mT - own.mT)
    least = torch.finfo(u.dtype).eps
    inner = tangent.clamp_max(1 / least) * sums - differences / tangent.clamp_min(least)
    return both - one - one.mT + theirs.agree * cosine + inner / math.pi


def _along(bb: Pairs, be: Pairs, eb: Pairs, ee: Pairs, mine: Pairs, its: Pairs) -> Pairs:
    """The same by the second derivatives of |(b + s e)ᵀx|, 2 δ(·) (eᵀx)², along both ways: sums of what is positive.

    The inputs with both at zero are a normal in the space perpendicular to both, where E (eᵀx)² (e'ᵀx)² is known. Of
    every pair bᵀb', bᵀe', eᵀb', eᵀe', ‖e‖² and ‖e'‖² are given, e = u − b.
    """
    total = 0 * bb
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    ways = list(zip(((1 + nodes) / 2).tolist(), (weights / 2).tolist(), strict=True))
    for (s, weight), (t, other) in product(ways, ways):
        # With bᵀe = −‖e‖²/2: the products of b + s e and b' + t e', and of each with e and e'.
        left, right = 1 - s * (1 - s) * mine, 1 - t * (1 - t) * its
        across = bb + t * be + s * eb + s * t * ee
        area = (left * right - across**2).clip(_TINY)
        one, two = ((s - 0.5) * mine, eb + t * ee), (be + s * ee, (t - 0.5) * its)

        gram = (left, right, across, area)
        squares = _perpendicular(mine, one, one, gram) * _perpendicular(its, two, two, gram)
        mixed = _perpendicular(ee, one, two, gram) ** 2
        total += weight * other * (1 - s) * (1 - t) * (squares + 2 * mixed) / area**0.5
    return 2 / math.pi * total


def _perpendicular(
    plain: Pairs, p: tuple[Pairs, Pairs], q: tuple[Pairs, Pairs], gram: tuple[Pairs, Pairs, Pairs, Pairs]
) -> Pairs:
    """The product of two vectors less that of their parts along two others, from their products with those."""
    left, right, across, area = gram
    return plain - (p[0] * q[0] * right + p[1] * q[1] * left - (p[0] * q[1] + p[1] * q[0]) * across) / area
