"""Second moments of standard normal inputs, weighted by the signs of two nodes (Zhou, Ge & Jin 2021, eq. 4)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.papers.local.theory.gaussian.pairs import units


def second_moment(u: Float[Tensor, "*#shape in"], v: Float[Tensor, "*#shape in"]) -> Float[Tensor, "*shape in in"]:
    """E[x xᵀ sgn(uᵀx) sgn(vᵀx)] in closed form, x standard normal.

    It is (1 − 2φ/π) I + 2/π sin φ (ppᵀ − nnᵀ), p and n being the unit vectors along ū + v̄ and ū − v̄.

    Args:
        u: nodes, of any length.
        v: nodes of the same number of inputs; shapes broadcast.

    Returns:
        One matrix per pair; 0 where u or v is zero.
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
    """Matrix M of Zhou, Ge & Jin 2021, eq. 4: r × r blocks E[x xᵀ sgn(w*_iᵀx) sgn(w*_jᵀx)] of size d × d.

    Args:
        teachers: the r teacher nodes w*_i.

    Returns:
        M, of size r d × r d, with the input as the faster index.
    """
    blocks = second_moment(teachers.unsqueeze(-2), teachers.unsqueeze(-3))
    size = teachers.shape[-2] * teachers.shape[-1]
    return blocks.transpose(-3, -2).reshape(*teachers.shape[:-2], size, size)


def least_eigenvalue(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """λ_min(M) of Zhou, Ge & Jin 2021, lemma 10; for two nodes at an angle φ ≤ π/2 it is 2/π (φ − sin φ).

    Args:
        teachers: the teacher nodes w*_i.

    Returns:
        The smallest eigenvalue of M, with an absolute error of about 1e−16.
    """
    return torch.linalg.eigvalsh(gram_of_signs(teachers))[..., 0]
