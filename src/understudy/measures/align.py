"""Who matches whom in any two networks, layer by layer: what `understudy align` shows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.measures.alignment import matched_alignment
from understudy.measures.correlation import Correlation
from understudy.measures.matching import THRESHOLD, best_students
from understudy.nets import Layer, Population


class LayerMatch(NamedTuple):
    """One hidden layer: correlations, and each teacher node's best student with how closely it is aligned."""

    correlation: Float[Tensor, "teacher student"]
    best: Int[Tensor, "teacher"]
    best_correlation: Float[Tensor, "teacher"]
    sin_angle: Float[Tensor, "teacher"]
    bias_gap: Float[Tensor, "teacher"]

    @property
    def recovered(self) -> int:
        return int((self.best_correlation > THRESHOLD).sum())


def align(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[LayerMatch]:
    """Match two single networks on inputs; hidden layers are paired from the lowest, as many as both have."""
    for name, ours, theirs in (
        ("inputs", teacher.inputs, student.inputs),
        ("outputs", teacher.sizes[-1], student.sizes[-1]),
    ):
        if ours != theirs:
            raise UserError(f"the teacher has {ours} {name} and the student {theirs}; align needs them equal")
    if x.shape[1] != teacher.inputs:
        raise UserError(f"a sample has {x.shape[1]} inputs; the networks take {teacher.inputs}")
    depth = min(len(teacher.layers), len(student.layers)) - 1
    if teacher.shape.positions[:depth] != student.shape.positions[:depth]:
        raise UserError(
            "one network is convolutional and the other fully connected, or their feature maps differ in size; align "
            "needs nodes that look at the same places"
        )
    if depth < 1:
        raise UserError("a network without a hidden layer has no nodes to align; give networks of two layers or more")
    teacher, student, x = teacher.to(dtype=torch.float64), student.to(dtype=torch.float64), x.double()
    sums = [Correlation() for _ in range(depth)]
    each = teacher.shape.activations + student.shape.activations
    for part in x.split(max(1, min(1_000, (1 << 24) // each))):
        nodes = teacher.activations(part).hidden, student.activations(part).hidden
        for total, t, s in zip(sums, *nodes, strict=False):
            total.update(t, s)
    return [_match(teacher.layers[i], student.layers[i], sums[i].result()) for i in range(depth)]


def _match(teacher: Layer, student: Layer, rho: Float[Tensor, "one teacher student"]) -> LayerMatch:
    best = best_students(rho)
    ours, theirs = (Layer(layer.weight.flatten(2), layer.bias) for layer in (teacher, student))
    if ours.weight.shape[2] == theirs.weight.shape[2]:
        sin, gap = matched_alignment(ours, theirs, best.partner)
    else:
        sin = gap = torch.full_like(best.correlation, torch.nan)
    return LayerMatch(rho[0], best.partner[0], best.correlation[0], sin[0], gap[0])
