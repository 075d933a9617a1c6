"""How near a student's hyperplane lies to a teacher's: S0 Definition 3, on weights made regular (Definition 1).

Two nodes are ε-aligned when sin θ ≤ ε for the angle θ between w̃_j and w̃_k, and |b_j − b_k| ≤ ε. Opposite weights have
sin θ = 0 too, as the paper defines it (its app C flips [w̃, b] to [−w̃, b] freely). Everything is computed in float64 and
returned in the dtype of the weights: angles far below the rounding of float32 are told apart.

A node whose w̃ is zero or not finite has no hyperplane and cannot be made regular: sin θ = 1 and a gap of infinity to
every node, so that it is never aligned; nothing is NaN.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.nets import Layer


class Regular(NamedTuple):
    """S0 Definition 1: w̃ of length 1 and b in the same scale; a node without a direction has w̃ = 0 and b = ∞."""

    weight: Float[Tensor, "net node in"]
    bias: Float[Tensor, "net node"]
    directed: Bool[Tensor, "net node"]


def regular(layer: Layer) -> Regular:
    """Each node's [w̃, b] over ‖w̃‖, in float64 (S0 Definition 1); an absent bias is 0."""
    weight = layer.weight.double()
    bias = weight.new_zeros(weight.shape[:2]) if layer.bias is None else layer.bias.double()
    # By the largest entry first: squares of very large or small weights would overflow or vanish.
    largest = weight.abs().amax(2, keepdim=True)
    directed = ((largest > 0) & largest.isfinite()).squeeze(2)
    scaled = weight / torch.where(directed.unsqueeze(2), largest, 1.0)
    length = torch.linalg.vector_norm(scaled, dim=2, keepdim=True)
    return Regular(
        torch.where(directed.unsqueeze(2), scaled / length, 0.0),
        torch.where(directed & bias.isfinite(), bias / largest.squeeze(2) / length.squeeze(2), torch.inf),
        directed,
    )


def _sin(apart: Tensor, together: Tensor, directed: Tensor) -> Tensor:
    """sin θ = ½ ‖u − w‖ ‖u + w‖ for unit vectors u and w: no cancellation at 0 or at π, unlike √(1 − cos²)."""
    return torch.where(directed, (0.5 * apart * together).clamp_max(1.0), 1.0)


def _gap(teacher: Tensor, student: Tensor) -> Tensor:
    return torch.where(teacher.isfinite() & student.isfinite(), (teacher - student).abs(), torch.inf)


def sin_angle(
    teacher: Float[Tensor, "net teacher in"], student: Float[Tensor, "net student in"]
) -> Float[Tensor, "net teacher student"]:
    """sin of the angle between the weights of every teacher node and every student node (S0 Definition 3, eqn 4)."""
    t, s = regular(Layer(teacher, None)), regular(Layer(student, None))
    direct = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(t.weight, s.weight, compute_mode=direct)
    together = torch.cdist(t.weight, -s.weight, compute_mode=direct)
    return _sin(apart, together, t.directed.unsqueeze(2) & s.directed.unsqueeze(1)).to(teacher.dtype)


def bias_gap(teacher: Layer, student: Layer) -> Float[Tensor, "net teacher student"]:
    """|b*_j − b_k| of regular weights, for every teacher node and every student node (S0 Definition 3, eqn 4)."""
    return _gap(regular(teacher).bias.unsqueeze(2), regular(student).bias.unsqueeze(1)).to(teacher.weight.dtype)


def alignment_eps(teacher: Layer, student: Layer) -> Float[Tensor, "net teacher student"]:
    """The smallest ε for which the two nodes are ε-aligned: max(sin θ, |b*_j − b_k|) (S0 Definition 3)."""
    return torch.maximum(sin_angle(teacher.weight, student.weight), bias_gap(teacher, student))


def eps_aligned(teacher: Layer, student: Layer, eps: float) -> Bool[Tensor, "net teacher student"]:
    """Whether every pair of nodes is ε-aligned (S0 Definition 3)."""
    return alignment_eps(teacher, student) <= eps


class MatchedAlignment(NamedTuple):
    """Definition 3 for each node and its partner only."""

    sin_angle: Float[Tensor, "net node"]
    bias_gap: Float[Tensor, "net node"]


def matched_alignment(nodes: Layer, partners: Layer, index: Int[Tensor, "net node"]) -> MatchedAlignment:
    """S0 Definition 3 for each node and the partner that `index` names, at the cost of these pairs alone.

    Teacher nodes with their best students, or (the other way round) students with their best teachers.
    """
    chosen = Layer(
        partners.weight.gather(1, index.unsqueeze(2).expand(-1, -1, partners.weight.shape[2])),
        None if partners.bias is None else partners.bias.gather(1, index),
    )
    a, b = regular(nodes), regular(chosen)
    apart = torch.linalg.vector_norm(a.weight - b.weight, dim=2)
    together = torch.linalg.vector_norm(a.weight + b.weight, dim=2)
    return MatchedAlignment(
        _sin(apart, together, a.directed & b.directed).to(nodes.weight.dtype),
        _gap(a.bias, b.bias).to(nodes.weight.dtype),
    )
