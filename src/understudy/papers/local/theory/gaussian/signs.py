"""Second moments of normal inputs on which two nodes agree in sign, less those of the others (S4 eq. 4)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.papers.local.theory.gaussian.pairs import units


def second_moment(u: Float[Tensor, "*#shape in"], v: Float[Tensor, "*#shape in"]) -> Float[Tensor, "*shape in in"]:
    """E[x xᵀ sgn(uᵀx) sgn(vᵀx)] = (1 − 2φ/π) I + 2/π sin φ (ppᵀ − nnᵀ), p and n along ū + v̄ and ū − v̄; 0 for zero."""
    u, v = torch.broadcast_tensors(u, v)
    zero = (u == 0).all(-1) | (v == 0).all(-1)
    (u, _), (v, _) = units(u), units(v)
    sides = torch.stack([u + v, u - v], -2)
    far, near = torch.linalg.vector_norm(sides, dim=-1).unbind(-1)
    sides, _ = units(sides)
    agree = 2 / math.pi * (torch.atan2(far, near) - torch.atan2(near, far))
    signs = torch.stack([near * far, -near * far], -1) / math.pi  # sin φ is half of ‖ū − v̄‖ ‖ū + v̄‖
    flat = agree[..., None, None] * torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
    moment = flat + sides.mT @ (signs.unsqueeze(-1) * sides)
    return torch.where(zero[..., None, None], 0.0, moment)


def gram_of_signs(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net all all"]:
    """M of S4 eq. 4: E[x xᵀ sgn(v_iᵀx) sgn(v_jᵀx)] as a matrix of r × r blocks of d × d."""
    blocks = second_moment(teachers.unsqueeze(-2), teachers.unsqueeze(-3))
    size = teachers.shape[-2] * teachers.shape[-1]
    return blocks.transpose(-3, -2).reshape(*teachers.shape[:-2], size, size)


def least_eigenvalue(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """λ_min(M) of S4 lemma 10, to about 1e-16 absolutely; 2/π (φ − sin φ) for two nodes at an angle of φ ≤ π/2."""
    return torch.linalg.eigvalsh(gram_of_signs(teachers))[..., 0]
