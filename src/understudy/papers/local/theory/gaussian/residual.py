"""Decomposition of the residual R = f − f* into R₁ and R₂ (Zhou, Ge & Jin 2021, eq. 3), with exact norms of both."""

import math
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.papers.local.theory.gaussian.pairs import (
    Angles,
    angles,
    broadcast_nodes,
    gram_of_signs,
    one_minus_cos,
    sin_minus_x_cos,
    units,
    x_minus_sin,
)

_NODES = 8
"""Gauss–Legendre nodes along each of the two segments from a teacher node to a student."""
_SMALL = 0.2
"""Largest angle of a student, relative to the sine of the angle between both teacher nodes, at which they suffice."""
_PAIRS = 1 << 14
"""Pairs of students in one quadrature, so that the working set fits the CPU cache; a GPU takes 64 times as many."""
_TINY = float(np.finfo(float).tiny)
Pairs = TypeVar("Pairs", Tensor, np.ndarray)


class Residual(NamedTuple):
    """R = f − f* = R₁ + R₂; students that point away from their teacher node count with the opposite sign."""

    averages: Float[Tensor, "*net teacher in"]
    """v_i = Σ ‖w_j‖ w_j − w*_i over the students of each teacher node (eq. 2)."""
    linear: Float[Tensor, "*net"]
    """E R₁², R₁ = Σ v_iᵀx sgn(w*_iᵀx): the difference in linear weights."""
    bent: Float[Tensor, "*net"]
    """E R₂², R₂ = Σ ‖w_j‖ w_jᵀx (sgn(w_jᵀx) − sgn(w*_iᵀx)): the difference in activation patterns."""
    angles: Float[Tensor, "*net student"]
    """Angle δ_j of each student with its teacher node, up to sign."""
    assignment: Int[Tensor, "*net student"]
    """Index of the teacher node of each student."""


def decompose_residual(
    students: Float[Tensor, "*#net student in"],
    teachers: Float[Tensor, "*#net teacher in"],
    assignment: Int[Tensor, "*#net student"] | None = None,
) -> Residual:
    """Decompose the residual of |·| networks into R₁ and R₂ (Zhou, Ge & Jin 2021, eqs 2 and 3).

    Args:
        students: student nodes w_j of f(x) = Σ ‖w_j‖ |w_jᵀx|.
        teachers: teacher nodes w*_i of f*(x) = Σ |w*_iᵀx|.
        assignment: teacher node of each student; by default the nearest up to sign.

    Raises:
        UserError: an assigned teacher node does not exist, or nodes are not float64 vectors of the same dimension.
    """
    students, teachers = broadcast_nodes(students.detach(), teachers.detach())
    (theirs, _), (ours, lengths) = units(teachers), units(students)
    to_teachers = angles(ours, theirs)
    count = teachers.shape[-2]
    if assignment is None:
        assignment = to_teachers.folded.argmin(-1)
    elif ((assignment < 0) | (assignment >= count)).any():
        raise UserError(f"assignment must name teacher nodes 0 to {count - 1}, got {assignment.unique().tolist()}")
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
    """E[ρ_j ρ_k] ≥ 0 of all pairs of students u with teacher nodes b, where ρ = |uᵀx| − sgn(bᵀx) uᵀx."""
    ours, theirs = angles(u, u), angles(b, b)
    # Students of the same teacher node: zero if they lie in one plane with it, on opposite sides.
    t = delta + delta.mT - ours.angle
    own = 2 / math.pi * (ours.angle.cos() * x_minus_sin(t) + ours.folded.sin() * one_minus_cos(t))
    same = assignment.unsqueeze(-1) == assignment.unsqueeze(-2)
    found = torch.where(same, own, _by_expansion(u, b, ours, theirs))
    small = torch.maximum(delta, delta.mT) < _SMALL * theirs.folded.sin()
    return _replace_small(found, (small & ~same).triu(), u - b, b).clamp_min(0)


def _replace_small(found: Tensor, small: Tensor, e: Tensor, b: Tensor) -> Tensor:
    """Replace the pairs marked in `small` (upper triangle) by quadrature, which is accurate at small angles."""
    bb, be, ee = b @ b.mT, b @ e.mT, e @ e.mT
    sizes = torch.diagonal(ee, dim1=-2, dim2=-1)
    on_gpu = found.device.type != "cpu"
    for some in small.nonzero().split(64 * _PAIRS if on_gpu else _PAIRS):
        *net, one, other = some.unbind(-1)
        here, there = (*net, one, other), (*net, other, one)
        pairs = bb[here], be[here], be[there], ee[here], sizes[*net, one], sizes[*net, other]
        # NumPy on a CPU: torch would distribute even these few square roots over threads, and wait for them.
        value = _by_quadrature(*pairs) if on_gpu else torch.from_numpy(_by_quadrature(*(p.numpy() for p in pairs)))
        found[here], found[there] = value, value
    return found


def _by_expansion(u: Tensor, b: Tensor, ours: Angles, theirs: Angles) -> Tensor:
    """E[ρ_j ρ_k] as a sum of the four products in its definition, which cancel where δ is small."""
    cosine, crossed, onto = u @ u.mT, angles(u, b), u @ b.mT
    own = torch.diagonal(onto, dim1=-2, dim2=-1).unsqueeze(-1)
    both = ours.folded.cos() + 2 / math.pi * sin_minus_x_cos(ours.folded)
    one = crossed.agreement * cosine + 2 / math.pi * crossed.folded.sin() * own.mT
    # uᵀ M u' with M = `second_moment` of b and b', written with the tangent of half their angle.
    tangent = torch.tan(theirs.angle / 2)
    sums, differences = (own + onto) * (own.mT + onto.mT), (own - onto) * (onto.mT - own.mT)
    least = torch.finfo(u.dtype).eps
    inner = tangent.clamp_max(1 / least) * sums - differences / tangent.clamp_min(least)
    return both - one - one.mT + theirs.agreement * cosine + inner / math.pi


def _by_quadrature(bb: Pairs, be: Pairs, eb: Pairs, ee: Pairs, mine: Pairs, its: Pairs) -> Pairs:
    """E[ρ_j ρ_k] as an integral over both segments b + s e, e = u − b, of a positive integrand.

    The integrand is the product of the second derivatives of |(b + s e)ᵀx|, 2 δ(·) (eᵀx)². Inputs on which both
    arguments vanish are normal in the space perpendicular to both nodes, where E (eᵀx)² (e'ᵀx)² is known. Arguments
    are bᵀb', bᵀe', eᵀb', eᵀe', ‖e‖² and ‖e'‖² of each pair.
    """
    total = 0 * bb
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    points = list(zip(((1 + nodes) / 2).tolist(), (weights / 2).tolist(), strict=True))
    for (s, weight), (t, other) in product(points, points):
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
    """Inner product of the parts of two vectors perpendicular to two others.

    `plain` is their inner product, p and q are the products of each with those two, and `gram` is the Gram matrix of
    those two with its determinant.
    """
    left, right, across, area = gram
    return plain - (p[0] * q[0] * right + p[1] * q[1] * left - (p[0] * q[1] + p[1] * q[0]) * across) / area
