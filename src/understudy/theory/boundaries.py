"""Which nodes have one decision boundary: S0 Definition 3 with the orientation that it leaves out.

[w̃, b] and [−w̃, −b] are one hyperplane, and so are they in the proofs, where a node counts by its boundary. Definition 3
as printed asks for |b_j − b_k| ≤ ε whichever way w̃_k points; for opposite weights that must be |b_j + b_k| ≤ ε (the
paper's flip of [w̃, b] to [−w̃, b], app D lemma 6, moves the boundary to the other side of the origin).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy.measures.alignment import regular
from understudy.nets import Layer

ALIGNED = 0.25
"""ε below which a student has the boundary of a teacher node: correlation about 0.95 on Gaussian inputs."""


class Planes(NamedTuple):
    """Boundaries {x : normal · x + offset = 0} with normals of length 1."""

    normal: Float[Tensor, "plane in"]
    offset: Float[Tensor, "plane"]

    def __len__(self) -> int:
        return len(self.offset)

    def some(self, which: Tensor) -> Planes:
        return Planes(self.normal[which], self.offset[which])

    def distances(self, x: Float[Tensor, "sample in"]) -> Float[Tensor, "sample plane"]:
        """Signed: of which side, and how far."""
        return torch.addmm(self.offset, x, self.normal.T)


def planes(weight: Float[Tensor, "node in"], bias: Float[Tensor, "node"] | None) -> tuple[Planes, Tensor]:
    """The boundaries of the nodes that have one, and which nodes these are: w̃ = 0 has none."""
    made = regular(Layer(weight.unsqueeze(0), None if bias is None else bias.unsqueeze(0)))
    which = (made.directed[0] & made.bias[0].isfinite()).nonzero().flatten()
    return Planes(made.weight[0][which], made.bias[0][which]), which


class Apart(NamedTuple):
    """How far one boundary is from each of several, in either orientation."""

    sin: Float[Tensor, "plane"]
    gap: Float[Tensor, "plane"]

    @property
    def eps(self) -> Float[Tensor, "plane"]:
        """The smallest ε at which they are ε-aligned."""
        return torch.maximum(self.sin, self.gap)


def apart(one: Planes, others: Planes) -> Apart:
    """sin θ and |b − s b'| of one boundary and several."""
    sin, gap = _apart(
        one.normal.unsqueeze(0), one.offset.unsqueeze(0), others.normal.unsqueeze(0), others.offset.unsqueeze(0)
    )
    return Apart(sin[0, 0], gap[0, 0])


def _apart(
    a: Float[Tensor, "net a in"],
    a_offset: Float[Tensor, "net a"],
    b: Float[Tensor, "net b in"],
    b_offset: Float[Tensor, "net b"],
) -> tuple[Float[Tensor, "net a b"], Float[Tensor, "net a b"]]:
    """sin θ = ½ ‖u − w‖ ‖u + w‖ loses nothing to cancellation at 0 and π; the shorter one says which way w points."""
    near, far = (torch.cdist(a, sign * b, compute_mode="donot_use_mm_for_euclid_dist") for sign in (1, -1))
    towards = torch.where(far < near, -1.0, 1.0)
    gap = (a_offset.unsqueeze(2) - towards * b_offset.unsqueeze(1)).abs()
    return (0.5 * near * far).clamp_max(1.0), gap


def hyperplane_eps(a: Layer, b: Layer) -> Float[Tensor, "net a b"]:
    """max(sin θ, |b_a − s b_b|) of regular weights with s = sign cos θ, in float64: 0 where two boundaries are one.

    A node without a hyperplane (w̃ zero or not finite) is infinitely far from all.
    """
    left, right = regular(a), regular(b)
    sin, gap = _apart(left.weight, left.bias, right.weight, right.bias)
    there = left.bias.isfinite().unsqueeze(2) & right.bias.isfinite().unsqueeze(1)
    return torch.where(there, torch.maximum(sin, gap), torch.inf)


def same_boundary(a: Layer, b: Layer, eps: float) -> Bool[Tensor, "net a b"]:
    """Whether two nodes are ε-aligned, in either orientation."""
    return hyperplane_eps(a, b) <= eps


def same_ray(a: Layer, b: Layer, eps: float) -> Bool[Tensor, "net a b"]:
    """Whether two nodes are co-linear, [w̃, b] and [w̃', b'] on one ray: one boundary, and active on one side of it."""
    towards = torch.bmm(regular(a).weight, regular(b).weight.mT) > 0
    return same_boundary(a, b, eps) & towards
