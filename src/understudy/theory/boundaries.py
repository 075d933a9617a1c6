"""Decision boundaries of nodes, and distances between boundaries in either orientation.

[w̃, b] and [−w̃, −b] define one hyperplane, with which the proofs of Tian 2020 identify a node. Definition 3 as printed
requires |b_j − b_k| ≤ ε whatever the sign of cos θ; for opposite weights the condition must be |b_j + b_k| ≤ ε.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.measures.alignment import regular
from understudy.nets import Layer

ALIGNED = 0.25
"""ε up to which a student shares the boundary of a teacher node: correlation about 0.95 on Gaussian inputs."""


class Planes(NamedTuple):
    """Hyperplanes {x : normal · x + offset = 0} with unit normals."""

    normal: Float[Tensor, "plane in"]
    offset: Float[Tensor, "plane"]

    def __len__(self) -> int:
        return len(self.offset)

    def select(self, indices: Int[Tensor, "some"]) -> Planes:
        return Planes(self.normal[indices], self.offset[indices])

    def distances(self, x: Float[Tensor, "sample in"]) -> Float[Tensor, "sample plane"]:
        """Signed distances of samples to the planes."""
        return torch.addmm(self.offset, x, self.normal.T)


class PlaneDistances(NamedTuple):
    """Distances of one boundary to several others, in either orientation."""

    sin: Float[Tensor, "plane"]
    """sin θ of the angle between the normals."""
    gap: Float[Tensor, "plane"]
    """|b − s b'| with s = sign cos θ."""

    @property
    def eps(self) -> Float[Tensor, "plane"]:
        """The smallest ε at which the boundaries are ε-aligned."""
        return torch.maximum(self.sin, self.gap)


def layer_planes(
    weight: Float[Tensor, "node in"], bias: Float[Tensor, "node"] | None
) -> tuple[Planes, Int[Tensor, "plane"]]:
    """Boundaries of the nodes of a layer, and the indices of these nodes: a node with w̃ = 0 has no boundary."""
    units = regular(Layer(weight.unsqueeze(0), None if bias is None else bias.unsqueeze(0)))
    indices = (units.directed[0] & units.bias[0].isfinite()).nonzero().flatten()
    return Planes(units.weight[0][indices], units.bias[0][indices]), indices


def concatenate(*several: Planes) -> Planes:
    return Planes(*(torch.cat(parts) for parts in zip(*several, strict=True)))


def plane_distances(one: Planes, others: Planes) -> PlaneDistances:
    """Distances of a single boundary to several others."""
    sin, gap = _sines_and_gaps(
        one.normal.unsqueeze(0), one.offset.unsqueeze(0), others.normal.unsqueeze(0), others.offset.unsqueeze(0)
    )
    return PlaneDistances(sin[0, 0], gap[0, 0])


def _sines_and_gaps(
    a: Float[Tensor, "net a in"],
    a_offset: Float[Tensor, "net a"],
    b: Float[Tensor, "net b in"],
    b_offset: Float[Tensor, "net b"],
) -> tuple[Float[Tensor, "net a b"], Float[Tensor, "net a b"]]:
    """Compute sin θ = ½ ‖u − w‖ ‖u + w‖, which does not cancel near 0 and π; the shorter factor gives sign cos θ."""
    near, far = (torch.cdist(a, sign * b, compute_mode="donot_use_mm_for_euclid_dist") for sign in (1, -1))
    sign = torch.where(far < near, -1.0, 1.0)
    gap = (a_offset.unsqueeze(2) - sign * b_offset.unsqueeze(1)).abs()
    return (0.5 * near * far).clamp_max(1.0), gap


def hyperplane_eps(a: Layer, b: Layer) -> Float[Tensor, "net a b"]:
    """Distance max(sin θ, |b_a − s b_b|), s = sign cos θ, of all boundaries of two layers, in float64.

    Computed for regular weights; 0 where two boundaries coincide, infinite where a node has no boundary (w̃ zero or not
    finite).
    """
    left, right = regular(a), regular(b)
    sin, gap = _sines_and_gaps(left.weight, left.bias, right.weight, right.bias)
    finite = left.bias.isfinite().unsqueeze(2) & right.bias.isfinite().unsqueeze(1)
    return torch.where(finite, torch.maximum(sin, gap), torch.inf)


def same_ray(a: Layer, b: Layer, eps: float) -> Bool[Tensor, "net a b"]:
    """Whether [w̃, b] of two nodes lie on one ray: one boundary, active on the same side (Tian 2020, sec. 4)."""
    same_side = torch.bmm(regular(a).weight, regular(b).weight.mT) > 0
    return (hyperplane_eps(a, b) <= eps) & same_side
