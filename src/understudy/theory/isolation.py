"""Lemmas 6 and 7 of S0: a sample beside one boundary and far from all others shows that node's kink in the gradient.

Lemma 6 counts. Of the samples in the band |w̃ᵀx + b| ≤ e of one boundary, those within γe of another are few unless the
two boundaries are aligned; so where none is aligned, some sample is far from all of them. Lemma 7 looks at the gradient
there and at two points on either side: it cannot be small at all three.

Two boundaries are one when [w̃, b] and [w̃', b'] are equal or opposite. The paper's proof turns w̃' alone and keeps b',
which is another plane; here both are turned, and the gap of biases is |b − s b'| with s the sign of cos θ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.theory.boundaries import Planes, apart

_PARALLEL = 1e-10
"""Below this sine two boundaries count as parallel: rounding leaves no direction between them."""
ROUNDING = 2.0**-52


def _turned(one: Planes, others: Planes) -> Planes:
    """The others, turned so that no normal points away from that of the one."""
    side = torch.where(others.normal @ one.normal[0] < 0, -1.0, 1.0).to(one.normal.dtype)
    return Planes(others.normal * side.unsqueeze(1), others.offset * side)


class Isolation(NamedTuple):
    """Lemma 6 on the samples of one band: unless another boundary is aligned by (m1·e, m2·e), a sample is isolated."""

    gamma: float
    eta: float
    mu: float
    m1: float
    m2: float
    needed: int
    """Samples that the band must hold: (γ + 3) K (d + 1)."""


def needed(gamma: float, count: int, dim: int) -> int:
    """(γ + 3) K (d + 1): condition (a) of Lemma 6."""
    return math.ceil((gamma + 3) * count * (dim + 1) - 1e-9)


def isolation(one: Planes, others: Planes, inside: Float[Tensor, "sample in"], e: float, gamma: float) -> Isolation:
    """M1 = (γ + 3) η K and M2 = 1 + γ + M1 (|b| + √((3 + γ) μ K / (1 + γ))), with η and μ of these samples (eqn 41).

    The proof uses η for one plane a boundary only, [ũ, b_u] with w' = cos θ w + sin θ u: η is the smallest that holds
    for these. μ is the largest second moment of the samples across w̃, which bounds it in all directions (Chebyshev).
    """
    count, dim = len(others) + 1, inside.shape[1]
    eta = _eta(one, others, inside)
    mu = across(one, inside)
    m1 = max((gamma + 3) * eta * count, _PARALLEL / e)
    m2 = 1 + gamma + m1 * (abs(float(one.offset[0])) + math.sqrt((3 + gamma) * mu * count / (1 + gamma)))
    return Isolation(gamma, eta, mu, m1, m2, needed(gamma, count, dim))


def scatter(distances: Float[Tensor, "sample plane"], dim: int) -> Float[Tensor, "plane"]:
    """The smallest η with N[|u · x| ≤ t] ≤ η t N + (d + 1) for all t, of each plane (Definitions 6 and 10)."""
    samples = len(distances)
    if samples <= dim + 1:
        return distances.new_zeros(distances.shape[1])
    # Samples next to each other in memory are sorted in less than half the time.
    near = distances.abs().T.contiguous().sort(dim=1).values[:, dim + 1 :]
    beyond = torch.arange(1, near.shape[1] + 1, dtype=near.dtype, device=near.device)
    return (beyond / (near * samples)).amax(1)


def _eta(one: Planes, others: Planes, inside: Float[Tensor, "sample in"]) -> float:
    turned, sin = _turned(one, others), apart(one, others).sin
    crossing = (sin > _PARALLEL).nonzero().flatten()
    if not len(crossing) or not len(inside):
        return 0.0
    turned, sin = turned.some(crossing), sin[crossing]
    cos = (turned.normal @ one.normal[0]).clamp_max(1.0)
    toward = turned.normal - cos.unsqueeze(1) * one.normal
    toward = toward - (toward @ one.normal[0]).unsqueeze(1) * one.normal
    length = torch.linalg.vector_norm(toward, dim=1)
    between = Planes(toward / length.unsqueeze(1), (turned.offset - cos * one.offset) / sin)
    # Where two boundaries are nearly parallel, the plane between them is known up to rounding over their sine only.
    scale = 1.0 + torch.linalg.vector_norm(inside, dim=1).max() + turned.offset.abs() + one.offset.abs()
    unsure = 16 * ROUNDING * inside.shape[1] ** 0.5 * scale / sin
    return float(scatter((between.distances(inside).abs() - unsure).clamp_min(0.0), inside.shape[1]).max())


def across(one: Planes, x: Float[Tensor, "sample in"]) -> float:
    """The largest second moment of x̃ in a direction at right angles to the normal: N[|ũᵀx̃| ≥ 1/t] ≤ μ t² N."""
    if x.shape[1] < 2 or not len(x):
        return 0.0
    flat = x - (x @ one.normal[0]).unsqueeze(1) * one.normal
    return float(torch.linalg.eigvalsh(flat.T @ flat / len(x))[-1].clamp_min(0.0))


def kink(coefficient: float, step: float, e: float) -> float:
    """Lemma 7: where a node's kink is alone, the gradient is above |c| (step − e) / 5 at one of three points.

    They lie in the band |w̃ᵀx + b| ≤ e and `step` before and behind it, measured along w̃. For leaky ReLU c is to be
    multiplied by 1 − slope: the second difference of an activation of that slope is that much smaller.
    """
    return abs(coefficient) * (step - e) / 5
