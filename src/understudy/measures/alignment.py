"""Alignment of the hyperplanes of teacher and student nodes (Tian 2020, Definition 3).

Two nodes with regular weights (Definition 1) are ε-aligned if sin θ ≤ ε for the angle θ between w̃_j and w̃_k, and
|b_j − b_k| ≤ ε; opposite weights have sin θ = 0 too, as in the paper. A node whose w̃ is zero or not finite is never
aligned: sin θ = 1 and an infinite bias gap. Computed in float64, returned in the dtype of the weights, never NaN.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.nets import Layer


class Regular(NamedTuple):
    """Regular weights (Tian 2020, Definition 1): w̃ of length 1; a node without a direction has w̃ = 0 and b = ∞."""

    weight: Float[Tensor, "net node in"]
    bias: Float[Tensor, "net node"]
    directed: Bool[Tensor, "net node"]


def regular(layer: Layer) -> Regular:
    """Divide [w̃, b] of each node of a fully connected layer by ‖w̃‖, in float64 (Tian 2020, Definition 1).

    A missing bias counts as 0.

    Args:
        layer: The layer.

    Returns:
        Regular weights, and which nodes have a direction.
    """
    weight = layer.weight.double()
    bias = weight.new_zeros(weight.shape[:2]) if layer.bias is None else layer.bias.double()
    # Divide by the largest entry first: squares of very large or small weights would overflow or underflow.
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
    """sin θ = ½ ‖u − w‖ ‖u + w‖ for unit vectors, which has no cancellation at 0 or π, unlike √(1 − cos²)."""
    return torch.where(directed, (0.5 * apart * together).clamp_max(1.0), 1.0)


def _gap(teacher: Tensor, student: Tensor) -> Tensor:
    return torch.where(teacher.isfinite() & student.isfinite(), (teacher - student).abs(), torch.inf)


def sin_angle(
    teacher: Float[Tensor, "net teacher in"], student: Float[Tensor, "net student in"]
) -> Float[Tensor, "net teacher student"]:
    """Sine of the angle between the weights of every teacher and student node (Tian 2020, Definition 3, eq. 4).

    Args:
        teacher: Weights of the teachers.
        student: Weights of the students.

    Returns:
        sin θ of every pair.
    """
    t, s = regular(Layer(teacher, None)), regular(Layer(student, None))
    direct = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(t.weight, s.weight, compute_mode=direct)
    together = torch.cdist(t.weight, -s.weight, compute_mode=direct)
    return _sin(apart, together, t.directed.unsqueeze(2) & s.directed.unsqueeze(1)).to(teacher.dtype)


def bias_gap(teacher: Layer, student: Layer) -> Float[Tensor, "net teacher student"]:
    """Bias gap |b*_j − b_k| of regular weights for every pair of nodes (Tian 2020, Definition 3, eq. 4).

    Args:
        teacher: Lowest layer of the teachers.
        student: Lowest layer of the students.

    Returns:
        Gap of every pair.
    """
    return _gap(regular(teacher).bias.unsqueeze(2), regular(student).bias.unsqueeze(1)).to(teacher.weight.dtype)


def alignment_eps(teacher: Layer, student: Layer) -> Float[Tensor, "net teacher student"]:
    """Smallest ε for which two nodes are ε-aligned: max(sin θ, |b*_j − b_k|) (Tian 2020, Definition 3).

    Args:
        teacher: Lowest layer of the teachers.
        student: Lowest layer of the students.

    Returns:
        ε of every pair.
    """
    return torch.maximum(sin_angle(teacher.weight, student.weight), bias_gap(teacher, student))


def eps_aligned(teacher: Layer, student: Layer, eps: float) -> Bool[Tensor, "net teacher student"]:
    """Whether each pair of nodes is ε-aligned (Tian 2020, Definition 3).

    Args:
        teacher: Lowest layer of the teachers.
        student: Lowest layer of the students.
        eps: ε.

    Returns:
        One truth value per pair.
    """
    return alignment_eps(teacher, student) <= eps


class MatchedAlignment(NamedTuple):
    """Sine of the angle and bias gap of each node and its partner (Tian 2020, Definition 3)."""

    sin_angle: Float[Tensor, "net node"]
    bias_gap: Float[Tensor, "net node"]


def matched_alignment(nodes: Layer, partners: Layer, index: Int[Tensor, "net node"]) -> MatchedAlignment:
    """Alignment of each node with one partner (Tian 2020, Definition 3), computed for these pairs only.

    Args:
        nodes: Layer of the nodes, for example of the teachers.
        partners: Layer of the partners, for example of the students.
        index: Partner of each node, as from `best_students`.

    Returns:
        Sine of the angle and bias gap of each pair.
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
