"""Lemmas 6 and 7 of Tian 2020: a sample near one boundary and far from all others reveals that node's kink.

Lemma 6 counts samples. Among those in the band |w̃ᵀx + b| ≤ e of one boundary, few lie within γe of another boundary
unless the two are aligned; so if no boundary is aligned, some sample is far from all others. Lemma 7 compares the
gradient at such a sample with the gradient at two points on either side: it cannot be small at all three.

Two boundaries coincide if [w̃, b] and [w̃', b'] are equal or opposite. The proof in the paper flips w̃' alone and keeps
b', which gives another plane; here both are flipped, and the gap of the biases is |b − s b'| with s = sign cos θ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy.theory.boundaries import Planes, plane_distances

_PARALLEL = 1e-10
"""Sine below which two boundaries count as parallel: rounding leaves no direction between them."""
ROUNDING = 2.0**-52
_PLANES, _ROWS = 4, 1 << 12
"""Planes whose distances from all samples are in memory at a time, and samples of which copies are."""


class Isolation(NamedTuple):
    """Constants of lemma 6 for one band: unless another boundary is within (m1·e, m2·e), some sample is isolated."""

    gamma: float
    eta: float
    mu: float
    m1: float
    m2: float
    needed: int
    """Samples that the band must contain: (γ + 3) K (d + 1)."""


def samples_needed(gamma: float, count: int, dim: int) -> int:
    """Number of samples (γ + 3) K (d + 1) in condition (a) of lemma 6."""
    return math.ceil((gamma + 3) * count * (dim + 1) - 1e-9)


def isolation(one: Planes, others: Planes, inside: Float[Tensor, "sample in"], e: float, gamma: float) -> Isolation:
    """Compute M1 = (γ + 3) η K and M2 = 1 + γ + M1 (|b| + √((3 + γ) μ K / (1 + γ))) of eqn 41 for one band.

    The proof uses η for a single plane per boundary, [ũ, b_u] with w' = cos θ w + sin θ u: η is the smallest value that
    holds for these. μ is the largest second moment of the samples across w̃, which bounds it in all directions
    (Chebyshev).
    """
    count, dim = len(others) + 1, inside.shape[1]
    eta = _eta(one, others, inside)
    mu = largest_moment_across(one, inside)
    m1 = max((gamma + 3) * eta * count, _PARALLEL / e)
    m2 = 1 + gamma + m1 * (abs(float(one.offset[0])) + math.sqrt((3 + gamma) * mu * count / (1 + gamma)))
    return Isolation(gamma, eta, mu, m1, m2, samples_needed(gamma, count, dim))


def smallest_eta(distances: Float[Tensor, "sample plane"], dim: int) -> Float[Tensor, "plane"]:
    """Smallest η per plane with N[|u · x| ≤ t] ≤ η t N + (d + 1) for all t (definitions 6 and 10)."""
    samples = len(distances)
    if samples <= dim + 1:
        return distances.new_zeros(distances.shape[1])
    near = sorted_rows(distances.abs().T)[:, dim + 1 :]
    beyond = torch.arange(1, near.shape[1] + 1, dtype=near.dtype, device=near.device)
    return (beyond / (near * samples)).amax(1)


def sorted_rows(values: Float[Tensor, "row value"]) -> Float[Tensor, "row value"]:
    """Sort each row, by numpy: without the indices that torch also sorts, it takes a quarter of the time."""
    return torch.from_numpy(np.sort(values.contiguous().cpu().numpy(), axis=1)).to(values.device)


def _eta(one: Planes, others: Planes, inside: Float[Tensor, "sample in"]) -> float:
    sin = plane_distances(one, others).sin
    crossing = (sin > _PARALLEL).nonzero().flatten()
    if not len(crossing) or not len(inside):
        return 0.0
    # Planes are flipped so that no normal points away from that of the given plane.
    side = torch.where(others.normal @ one.normal[0] < 0, -1.0, 1.0).to(one.normal.dtype)
    flipped, sin = Planes(others.normal * side.unsqueeze(1), others.offset * side).select(crossing), sin[crossing]
    cos = (flipped.normal @ one.normal[0]).clamp_max(1.0)
    toward = flipped.normal - cos.unsqueeze(1) * one.normal
    toward = toward - (toward @ one.normal[0]).unsqueeze(1) * one.normal
    length = torch.linalg.vector_norm(toward, dim=1)
    between = Planes(toward / length.unsqueeze(1), (flipped.offset - cos * one.offset) / sin)
    # For nearly parallel boundaries, the plane between them is known only up to rounding divided by their sine.
    scale = 1.0 + torch.linalg.vector_norm(inside, dim=1).max() + flipped.offset.abs() + one.offset.abs()
    rounding = 16 * ROUNDING * inside.shape[1] ** 0.5 * scale / sin
    largest = 0.0
    for planes in torch.arange(len(between)).split(_PLANES):
        distances = (between.select(planes).distances(inside).abs() - rounding[planes]).clamp_min(0.0)
        largest = max(largest, float(smallest_eta(distances, inside.shape[1]).max()))
    return largest


def largest_moment_across(one: Planes, x: Float[Tensor, "sample in"]) -> float:
    """Largest second moment of x̃ in a direction orthogonal to the normal, a μ with N[|ũᵀx̃| ≥ 1/t] ≤ μ t² N."""
    if x.shape[1] < 2 or not len(x):
        return 0.0
    moments = x.new_zeros(x.shape[1], x.shape[1])
    for some in x.split(_ROWS):
        flat = some - (some @ one.normal[0]).unsqueeze(1) * one.normal
        moments += flat.T @ flat
    return float(torch.linalg.eigvalsh(moments / len(x))[-1].clamp_min(0.0))


def kink_bound(coefficient: float, step: float, e: float) -> float:
    """Lower bound |c| (step − e) / 5 of the gradient at one of three points around an isolated kink (lemma 7).

    The points lie in the band |w̃ᵀx + b| ≤ e and `step` before and behind it, measured along w̃. For leaky ReLU,
    multiply c by 1 − slope: the second difference of the activation is smaller by this factor.
    """
    return abs(coefficient) * (step - e) / 5
