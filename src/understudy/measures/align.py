"""Match the nodes of any two networks, layer by layer; used by `understudy align`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data.batches import as_rows
from understudy.measures.alignment import matched_alignment
from understudy.measures.canonical import svcca
from understudy.measures.correlation import Correlation
from understudy.measures.matching import THRESHOLD, best_students
from understudy.nets import Layer, Population

_ROWS = 10_000
"""Most rows, of samples and positions, over which canonical correlations are computed."""


class LayerMatch(NamedTuple):
    """Correlations at one hidden layer, and the best student of each teacher node with its alignment.

    `svcca` compares the layers up to a linear map instead of node by node; it is NaN where the samples are no more than
    the nodes of both.
    """

    correlation: Float[Tensor, "teacher student"]
    best: Int[Tensor, "teacher"]
    best_correlation: Float[Tensor, "teacher"]
    sin_angle: Float[Tensor, "teacher"]
    bias_gap: Float[Tensor, "teacher"]
    svcca: float

    @property
    def recovered(self) -> int:
        """Number of teacher nodes whose best correlation exceeds 0.95."""
        return int((self.best_correlation > THRESHOLD).sum())


def align(teacher: Population, student: Population, x: Any) -> list[LayerMatch]:
    """Match the nodes of two networks by correlation (Tian 2020, eq. 9) and alignment (Definition 3).

    Hidden layers are paired from the lowest up, as many as both networks have. Everything is computed in float64, SVCCA
    over the first 10,000 rows (samples, or samples at positions).

    Args:
        teacher: A population of one network.
        student: A population of one network with as many inputs and outputs.
        x: Inputs: a tensor, numpy array or pandas frame [sample, …], of which samples with several axes are flattened;
            a DataLoader or another iterable of batches; or a source of `us.data`, of which the evaluation inputs of
            seed 0 are used.

    Returns:
        One match per hidden layer. Angles and bias gaps are NaN where the weights have different numbers of inputs.

    Raises:
        UserError: Networks or inputs that do not fit, inputs with NaN or infinity, or networks without a hidden layer.
    """
    x = as_rows(x).to(teacher.device)
    require_fitting(teacher, student, x)
    depth = min(len(teacher.layers), len(student.layers)) - 1
    if teacher.shape.positions[:depth] != student.shape.positions[:depth]:
        raise UserError(
            "align compares nodes at the same positions: both networks must be fully connected, or convolutional with "
            "feature maps of equal sizes"
        )
    if depth < 1:
        raise UserError("networks without a hidden layer have no nodes to align; give networks of two or more layers")
    teacher, student, x = teacher.to(dtype=torch.float64), student.to(dtype=torch.float64), x.double()
    sums = [Correlation() for _ in range(depth)]
    rows: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(depth)]
    each = teacher.shape.activations + student.shape.activations
    for part in x.split(max(1, min(1_000, (1 << 24) // each))):
        nodes = teacher.activations(part).hidden, student.activations(part).hidden
        for total, kept, t, s in zip(sums, rows, *nodes, strict=False):
            total.update(t, s)
            left = _ROWS - sum(each.shape[1] for each, _ in kept)
            if left > 0:
                kept.append((t[:, :left], s[:, :left]))
    return [_match(teacher.layers[i], student.layers[i], sums[i].result(), _svcca(rows[i])) for i in range(depth)]


def require_fitting(teacher: Population, student: Population, x: Tensor) -> None:
    """Raise a `UserError` unless two networks and samples have the same inputs, and the networks the same outputs."""
    for name, theirs, ours in (
        ("inputs", teacher.inputs, student.inputs),
        ("outputs", teacher.sizes[-1], student.sizes[-1]),
    ):
        if ours != theirs:
            raise UserError(f"teacher and student must have the same number of {name}, got {theirs} and {ours}")
    if x.ndim != 2 or not len(x):
        raise UserError(
            f"inputs must have shape [sample, {teacher.inputs}] with at least one sample, got {list(x.shape)}"
        )
    if x.shape[1] != teacher.inputs:
        raise UserError(f"the networks take {teacher.inputs} inputs, and the data has {x.shape[1]} per sample")


def _svcca(rows: list[tuple[Tensor, Tensor]]) -> float:
    teacher, student = (torch.cat(each, dim=1) for each in zip(*rows, strict=True))
    if teacher.shape[1] <= teacher.shape[2] + student.shape[2]:
        return math.nan
    return float(svcca(teacher, student))


def _match(teacher: Layer, student: Layer, rho: Float[Tensor, "one teacher student"], canonical: float) -> LayerMatch:
    best = best_students(rho)
    ours, theirs = (Layer(layer.weight.flatten(2), layer.bias) for layer in (teacher, student))
    if ours.weight.shape[2] == theirs.weight.shape[2]:
        sin, gap = matched_alignment(ours, theirs, best.partner)
    else:
        sin = gap = torch.full_like(best.correlation, torch.nan)
    return LayerMatch(rho[0], best.partner[0], best.correlation[0], sin[0], gap[0], canonical)
