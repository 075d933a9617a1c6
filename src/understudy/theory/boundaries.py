"""Which nodes have one decision boundary: S0 Definition 3 with the orientation that it leaves out.

[w̃, b] and [−w̃, −b] are one hyperplane, and so are they in the proofs, where a node counts by its boundary. Definition 3
as printed asks for |b_j − b_k| ≤ ε whichever way w̃_k points; for opposite weights that must be |b_j + b_k| ≤ ε (the
paper's flip of [w̃, b] to [−w̃, b], app D lemma 6, moves the boundary to the other side of the origin).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy.measures.alignment import regular
from understudy.nets import Layer


def hyperplane_eps(a: Layer, b: Layer) -> Float[Tensor, "net a b"]:
    """max(sin θ, |b_a − s b_b|) of regular weights with s = sign cos θ, in float64: 0 where two boundaries are one.

    A node without a hyperplane (w̃ zero or not finite) is infinitely far from all.
    """
    left, right = regular(a), regular(b)
    # sin θ = ½ ‖u − w‖ ‖u + w‖ loses nothing to cancellation at 0 and π; the shorter one says which way w points.
    apart, together = (
        torch.cdist(left.weight, sign * right.weight, compute_mode="donot_use_mm_for_euclid_dist") for sign in (1, -1)
    )
    towards = torch.where(together < apart, -1.0, 1.0)
    gap = (left.bias.unsqueeze(2) - towards * right.bias.unsqueeze(1)).abs()
    there = left.bias.isfinite().unsqueeze(2) & right.bias.isfinite().unsqueeze(1)
    return torch.where(there, torch.maximum((0.5 * apart * together).clamp_max(1.0), gap), torch.inf)


def same_boundary(a: Layer, b: Layer, eps: float) -> Bool[Tensor, "net a b"]:
    """Whether two nodes are ε-aligned, in either orientation."""
    return hyperplane_eps(a, b) <= eps


def same_ray(a: Layer, b: Layer, eps: float) -> Bool[Tensor, "net a b"]:
    """Whether two nodes are co-linear, [w̃, b] and [w̃', b'] on one ray: one boundary, and active on one side of it."""
    towards = torch.bmm(regular(a).weight, regular(b).weight.mT) > 0
    return same_boundary(a, b, eps) & towards
