"""Angles between all pairs of vectors, and the functions of them that the closed forms of `gaussian` are made of.

An angle φ comes with π − φ, each to full relative precision: arccos of a cosine keeps only half of the digits of a
small angle. What is small for small angles (sin φ − φ cos φ and its like) is a series, in which nothing cancels.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError

_TERMS = 13
_CURL = [(-1) ** (n + 1) * 2 * n / math.factorial(2 * n + 1) for n in range(1, _TERMS)]
_LAG = [(-1) ** (n + 1) / math.factorial(2 * n + 1) for n in range(1, _TERMS)]


class Angles(NamedTuple):
    """φ in [0, π] and π − φ of pairs."""

    angle: Float[Tensor, "*net one other"]
    rest: Float[Tensor, "*net one other"]

    @property
    def folded(self) -> Float[Tensor, "*net one other"]:
        """Up to sign, in [0, π/2]."""
        return torch.minimum(self.angle, self.rest)

    @property
    def agree(self) -> Float[Tensor, "*net one other"]:
        """Share of inputs on which both have the same sign, less the share on which they have not: 1 − 2φ/π."""
        return (self.rest - self.angle) / math.pi

    @property
    def same(self) -> Tensor:
        """Whether φ ≤ π/2."""
        return self.angle <= self.rest

    def turned(self, same: Tensor) -> Float[Tensor, "*net one other"]:
        """φ where `same`, and π − φ, the angle with the opposite vector, elsewhere."""
        return torch.where(same, self.angle, self.rest)


def same_inputs(one: Tensor, other: Tensor) -> None:
    """Refuse what is not two sets of vectors in one space, in float64."""
    for given in (one, other):
        if given.dtype != torch.float64:
            raise UserError(
                f"closed forms are in float64, got {str(given.dtype).removeprefix('torch.')}: use .double()"
            )
        if given.ndim < 2 or given.shape[-2] == 0:
            raise UserError(f"give vectors as [..., node, input] with at least one node, got {list(given.shape)}")
    if one.shape[-1] != other.shape[-1]:
        raise UserError(f"vectors of {one.shape[-1]} and of {other.shape[-1]} inputs: both must have as many")


def units(vectors: Float[Tensor, "*shape in"]) -> tuple[Float[Tensor, "*shape in"], Float[Tensor, "*shape"]]:
    """Directions and lengths; the direction of zero is zero, at a right angle to everything but itself."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1)
    return vectors / torch.where(lengths > 0, lengths, 1.0).unsqueeze(-1), lengths


def angles(one: Float[Tensor, "*#net one in"], other: Float[Tensor, "*#net other in"]) -> Angles:
    """Between unit vectors: tan φ/2 = ‖u − v‖ / ‖u + v‖."""
    exactly = "donot_use_mm_for_euclid_dist"
    near, far = (torch.cdist(one, v, compute_mode=exactly) for v in (other, -other))
    return Angles(2 * torch.atan2(near, far), 2 * torch.atan2(far, near))


def curl(phi: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """sin φ − φ cos φ for φ in [0, π/2]."""
    return _series(phi, _CURL)


def lag(t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """t − sin t for |t| ≤ π."""
    return _series(t, _LAG)


def lift(t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1 − cos t."""
    return 2 * (t / 2).sin().square()


def _series(x: Tensor, coefficients: list[float]) -> Tensor:
    square = x * x
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * square + coefficient
    return total * square * x
