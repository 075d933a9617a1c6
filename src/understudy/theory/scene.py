"""A teacher, a student and data as S0's theorems look at them: boundaries of the lowest layer, gradients, α."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.nets import Population, activate, gate, incoming
from understudy.theory.boundaries import Apart, Planes, apart, planes
from understudy.theory.isolation import ROUNDING


class Gradient(NamedTuple):
    """g of the lowest layer's nodes at points, and what rounding may have done to it."""

    value: Float[Tensor, "point node"]
    unsure: Float[Tensor, "point node"]

    @property
    def most(self) -> Float[Tensor, "point node"]:
        return self.value.abs() + self.unsure


class _Pass(NamedTuple):
    output: Float[Tensor, "point out"]
    gates: tuple[Float[Tensor, "point node"], ...]
    largest: Float[Tensor, "point out"]
    """What the outputs would be if nothing in them cancelled."""


@dataclass(frozen=True, eq=False)
class Scene:
    """One teacher and one student, fully connected, of equal depth, in float64, on samples."""

    teacher: Population
    student: Population
    x: Float[Tensor, "sample in"]

    @cached_property
    def _ours(self) -> tuple[Planes, Int[Tensor, "plane"]]:
        return _lowest(self.student)

    @cached_property
    def _theirs(self) -> tuple[Planes, Int[Tensor, "plane"]]:
        return _lowest(self.teacher)

    @property
    def ours(self) -> Planes:
        """Boundaries of the students of the lowest layer that have one."""
        return self._ours[0]

    @property
    def students(self) -> Int[Tensor, "plane"]:
        """Which students these are."""
        return self._ours[1]

    @property
    def theirs(self) -> Planes:
        return self._theirs[0]

    @property
    def nodes(self) -> Int[Tensor, "plane"]:
        """Which teacher nodes have a boundary."""
        return self._theirs[1]

    @property
    def kinked(self) -> float:
        """How much steeper the activation is above zero than below."""
        return 1.0 - self.student.slope

    @cached_property
    def strengths(self) -> Float[Tensor, "plane"]:
        """‖w̃*_j‖: 1 for regular weights."""
        lengths: Tensor = torch.linalg.vector_norm(self.teacher.layers[0].weight[0], dim=1)
        return lengths[self.nodes]

    @cached_property
    def active(self) -> Bool[Tensor, "sample student"]:
        """E_k: where each student is above zero."""
        layer = self.student.layers[0]
        before = self.x @ layer.weight[0].T
        return (before if layer.bias is None else before + layer.bias[0]) > 0

    @cached_property
    def gradients(self) -> Gradient:
        """At the samples."""
        return self.gradient(self.x)

    @cached_property
    def flattest(self) -> Float[Tensor, "student"]:
        """The largest gradient of each student over the samples at which it is active."""
        return torch.where(self.active, self.gradients.most, 0.0).amax(0)

    @cached_property
    def excess(self) -> Float[Tensor, "student"]:
        """The same in units of its rounding error: where it is a few, the gradient is zero to machine precision."""
        times = self.gradients.value.abs() / self.gradients.unsure.clamp_min(5e-324)
        return torch.where(self.active, times, 0.0).amax(0)

    def one(self, j: int) -> Planes:
        """The boundary of the j-th teacher node that has one."""
        return self.theirs.some(torch.tensor([j]))

    def rest(self, j: int) -> Int[Tensor, "plane"]:
        return torch.tensor([i for i in range(len(self.theirs)) if i != j], dtype=torch.long)

    def others(self, j: int) -> Planes:
        """The boundaries of all nodes of the lowest layers but that one: students first."""
        return joined(self.ours, self.theirs.some(self.rest(j)))

    def nearest(self, j: int) -> Apart:
        """How far every student's boundary is from that teacher node's."""
        return apart(self.one(j), self.ours)

    def alpha(self, k: int, j: int, points: Float[Tensor, "point in"]) -> Float[Tensor, "point"]:
        """α_kj(x) = v_k(x)ᵀ v*_j(x) of the j-th teacher node with a boundary, made regular (S0 Definition 2)."""
        ours, theirs = _fan(self.student, k, points), _fan(self.teacher, int(self.nodes[j]), points)
        return (ours * theirs).sum(1) * self.strengths[j]

    def gradient(self, points: Float[Tensor, "point in"]) -> Gradient:
        """What backpropagation of ½‖f* − f‖² brings to the students of the lowest layer, with its sign turned."""
        ours, theirs = _through(self.student, points), _through(self.teacher, points)
        g, largest = theirs.output - ours.output, theirs.largest + ours.largest
        for (weight, _), gates in zip(self.student.layers[:0:-1], ours.gates[::-1], strict=True):
            g, largest = (g @ weight[0]) * gates, largest @ weight[0].abs()
        terms = sum(self.teacher.sizes) + sum(self.student.sizes) + sum(self.student.sizes[1:])
        return Gradient(g, 2 * terms * ROUNDING * largest)


def gates(network: Population, points: Float[Tensor, "point in"]) -> Bool[Tensor, "point gate"]:
    """Which nodes of all hidden layers are on, the lowest first."""
    h, on = points, []
    for i in range(len(network.layers) - 1):
        before = incoming(network, i, h)
        on.append(before[0] >= 0)
        h = activate(before, network.slope)
    return torch.cat(on, 1)


def joined(*several: Planes) -> Planes:
    return Planes(*(torch.cat(parts) for parts in zip(*several, strict=True)))


def _lowest(network: Population) -> tuple[Planes, Int[Tensor, "plane"]]:
    weight, bias = network.layers[0]
    return planes(weight[0], None if bias is None else bias[0])


def _through(network: Population, points: Float[Tensor, "point in"]) -> _Pass:
    h, largest, gates = points, points.abs(), []
    for i, (weight, bias) in enumerate(network.layers):
        shift = torch.zeros_like(weight[0, :, 0]) if bias is None else bias[0]
        h, largest = torch.addmm(shift, h, weight[0].T), torch.addmm(shift.abs(), largest, weight[0].abs().T)
        if i < len(network.layers) - 1:
            gates.append(gate(h, network.slope).to(h.dtype))
            h = activate(h, network.slope)
    return _Pass(h, tuple(gates), largest)


def _fan(network: Population, node: int, points: Float[Tensor, "point in"]) -> Float[Tensor, "point out"]:
    """The column of V_1 that belongs to a node of the lowest layer, at every point."""
    v = network.layers[1].weight[0, :, node].expand(len(points), -1)
    if len(network.layers) == 2:
        return v
    for (weight, _), gates in zip(network.layers[2:], _through(network, points).gates[1:], strict=True):
        v = (v * gates) @ weight[0].T
    return v
