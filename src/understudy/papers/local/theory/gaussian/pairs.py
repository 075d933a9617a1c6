"""Angles between all pairs of vectors, and functions of angles that keep full precision when the angle is small.

An angle φ is computed together with π − φ, each to full relative precision: arccos of a cosine keeps only half of the
digits of a small angle. Differences that vanish for small angles, such as sin φ − φ cos φ, are summed as power series.
Second moments of standard normal inputs, weighted by the signs of two nodes, follow from the angles.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError

_TERMS = 13
_SIN_MINUS_X_COS = [(-1) ** (n + 1) * 2 * n / math.factorial(2 * n + 1) for n in range(1, _TERMS)]
_X_MINUS_SIN = [(-1) ** (n + 1) / math.factorial(2 * n + 1) for n in range(1, _TERMS)]


class Angles(NamedTuple):
    """Angles φ in [0, π] of pairs of vectors, and their supplements π − φ."""

    angle: Float[Tensor, "*net one other"]
    supplement: Float[Tensor, "*net one other"]

    @property
    def folded(self) -> Float[Tensor, "*net one other"]:
        """Angle up to sign, min(φ, π − φ), in [0, π/2]."""
        return torch.minimum(self.angle, self.supplement)

    @property
    def agreement(self) -> Float[Tensor, "*net one other"]:
        """E[sgn(uᵀx) sgn(vᵀx)] = 1 − 2φ/π, x standard normal."""
        return (self.supplement - self.angle) / math.pi

    @property
    def same(self) -> Tensor:
        """Whether φ ≤ π/2."""
        return self.angle <= self.supplement


def validate_nodes(one: Tensor, other: Tensor) -> None:
    """Raise UserError unless both are non-empty sets of float64 vectors of the same dimension."""
    for given in (one, other):
        if given.dtype != torch.float64:
            raise UserError(f"closed forms need float64, got {str(given.dtype).removeprefix('torch.')}: use .double()")
        if given.ndim < 2 or given.shape[-2] == 0:
            raise UserError(f"vectors must be [..., node, input] with at least one node, got {list(given.shape)}")
    if one.shape[-1] != other.shape[-1]:
        raise UserError(f"both sets of vectors must have the same inputs, got {one.shape[-1]} and {other.shape[-1]}")


def broadcast_nodes(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"]
) -> tuple[Float[Tensor, "*net student in"], Float[Tensor, "*net teacher in"]]:
    """Validate both sets of nodes and expand them to the same leading dimensions."""
    validate_nodes(students, teachers)
    nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
    return students.expand(*nets, *students.shape[-2:]), teachers.expand(*nets, *teachers.shape[-2:])


def units(vectors: Float[Tensor, "*shape in"]) -> tuple[Float[Tensor, "*shape in"], Float[Tensor, "*shape"]]:
    """Unit vectors and lengths; the unit vector of zero is zero, at a right angle to everything but itself."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1)
    return vectors / torch.where(lengths > 0, lengths, 1.0).unsqueeze(-1), lengths


def angles(one: Float[Tensor, "*#net one in"], other: Float[Tensor, "*#net other in"]) -> Angles:
    """Angles between all pairs of unit vectors, by tan φ/2 = ‖u − v‖ / ‖u + v‖."""
    exactly = "donot_use_mm_for_euclid_dist"
    near, far = (torch.cdist(one, v, compute_mode=exactly) for v in (other, -other))
    return Angles(2 * torch.atan2(near, far), 2 * torch.atan2(far, near))


def sin_minus_x_cos(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """sin x − x cos x for x in [0, π/2]."""
    return _series(x, _SIN_MINUS_X_COS)


def x_minus_sin(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """x − sin x for |x| ≤ π."""
    return _series(x, _X_MINUS_SIN)


def one_minus_cos(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1 − cos x."""
    return 2 * (x / 2).sin().square()


def _series(x: Tensor, coefficients: list[float]) -> Tensor:
    """Σ_n c_n x^(2n+3), c_n = coefficients[n]."""
    square = x * x
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * square + coefficient
    return total * square * x


def second_moment(u: Float[Tensor, "*#shape in"], v: Float[Tensor, "*#shape in"]) -> Float[Tensor, "*shape in in"]:
    """E[x xᵀ sgn(uᵀx) sgn(vᵀx)] in closed form, x standard normal; 0 where u or v is zero.

    It is (1 − 2φ/π) I + 2/π sin φ (ppᵀ − nnᵀ), p and n being the unit vectors along ū + v̄ and ū − v̄.
    """
    u, v = torch.broadcast_tensors(u, v)
    zero = (u == 0).all(-1) | (v == 0).all(-1)
    (u, _), (v, _) = units(u), units(v)
    sides = torch.stack([u + v, u - v], -2)
    far, near = torch.linalg.vector_norm(sides, dim=-1).unbind(-1)
    sides, _ = units(sides)
    agreement = 2 / math.pi * (torch.atan2(far, near) - torch.atan2(near, far))
    signs = torch.stack([near * far, -near * far], -1) / math.pi  # sin φ = ½ ‖ū − v̄‖ ‖ū + v̄‖
    flat = agreement[..., None, None] * torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
    moment = flat + sides.mT @ (signs.unsqueeze(-1) * sides)
    return torch.where(zero[..., None, None], 0.0, moment)


def gram_of_signs(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net all all"]:
    """Matrix M of Zhou, Ge & Jin 2021, eq. 4: r × r blocks E[x xᵀ sgn(w*_iᵀx) sgn(w*_jᵀx)] of size d × d."""
    blocks = second_moment(teachers.unsqueeze(-2), teachers.unsqueeze(-3))
    size = teachers.shape[-2] * teachers.shape[-1]
    return blocks.transpose(-3, -2).reshape(*teachers.shape[:-2], size, size)


def least_eigenvalue(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """λ_min(M) of Zhou, Ge & Jin 2021, lemma 10; for two nodes at an angle φ ≤ π/2 it is 2/π (φ − sin φ).

    The absolute error is about 10⁻¹⁶.
    """
    return torch.linalg.eigvalsh(gram_of_signs(teachers))[..., 0]
