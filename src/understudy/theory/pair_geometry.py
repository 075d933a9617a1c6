"""Geometry of a teacher–student pair on samples: boundaries of the lowest layers, gradients, and α (Tian 2020)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.nets import Population, activate, gate, incoming
from understudy.theory.boundaries import PlaneDistances, Planes, concatenate, layer_planes, plane_distances
from understudy.theory.isolation import ROUNDING
from understudy.theory.result import CheckFunction, Finding

Value = TypeVar("Value")

_ROWS = 4_096
"""Samples of which gradients and pre-activations are in memory at a time."""


class Gradient(NamedTuple):
    """Gradient g of the students of the lowest layer at points, with a bound on its rounding error."""

    value: Float[Tensor, "point node"]
    rounding: Float[Tensor, "point node"]

    @property
    def upper(self) -> Float[Tensor, "point node"]:
        """Upper bound of |g| with rounding."""
        return self.value.abs() + self.rounding


class _GradientExtremes(NamedTuple):
    active: Float[Tensor, "student"]
    """Largest gradient, with rounding, over the samples on which a student is active."""
    excess: Float[Tensor, "student"]
    """Largest multiple of the rounding error over these samples."""
    anywhere: float
    """Largest gradient, with rounding, over all students and samples."""


class _ForwardPass(NamedTuple):
    output: Float[Tensor, "point out"]
    gates: tuple[Float[Tensor, "point node"], ...]
    largest: Float[Tensor, "point out"]
    """The outputs if no terms cancelled, which scales the rounding error."""


@dataclass(frozen=True, eq=False)
class PairGeometry:
    """One teacher and one student, fully connected, of equal depth, in float64, on samples."""

    teacher: Population
    student: Population
    x: Float[Tensor, "sample in"]
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)

    def remember(self, what: object, compute: Callable[[], Value]) -> Value:
        """Compute a quantity of the pair that several results need once."""
        if what not in self._known:
            self._known[what] = compute()
        known: Value = self._known[what]
        return known

    @cached_property
    def student_planes(self) -> Planes:
        """Boundaries of the students of the lowest layer that have one."""
        return _lowest_planes(self.student)[0]

    @cached_property
    def student_nodes(self) -> Int[Tensor, "plane"]:
        """Indices of the students that have a boundary."""
        return _lowest_planes(self.student)[1]

    @cached_property
    def teacher_planes(self) -> Planes:
        """Boundaries of the teacher nodes of the lowest layer that have one."""
        return _lowest_planes(self.teacher)[0]

    @cached_property
    def teacher_nodes(self) -> Int[Tensor, "plane"]:
        """Indices of the teacher nodes that have a boundary."""
        return _lowest_planes(self.teacher)[1]

    @property
    def slope_jump(self) -> float:
        """Change of the activation's slope at zero."""
        return 1.0 - self.student.slope

    @cached_property
    def teacher_norms(self) -> Float[Tensor, "plane"]:
        """‖w̃*_j‖ of the teacher nodes that have a boundary: 1 for regular weights."""
        lengths: Tensor = torch.linalg.vector_norm(self.teacher.layers[0].weight[0], dim=1)
        return lengths[self.teacher_nodes]

    @cached_property
    def active(self) -> Bool[Tensor, "sample student"]:
        """E_k: the samples on which each student is active."""
        layer = self.student.layers[0]
        found = torch.empty(len(self.x), layer.weight.shape[1], dtype=torch.bool, device=self.x.device)
        for part, some in zip(found.split(_ROWS), self.x.split(_ROWS), strict=True):
            before = some @ layer.weight[0].T
            torch.gt(before if layer.bias is None else before + layer.bias[0], 0, out=part)
        return found

    @cached_property
    def active_rows(self) -> Bool[Tensor, "student sample"]:
        """`active` with the samples of a student side by side."""
        return self.active.T.contiguous()

    @cached_property
    def active_counts(self) -> list[int]:
        """Number of samples on which each student is active."""
        # Not `sum`, which would make a copy in 64-bit integers.
        return [int(row.count_nonzero()) for row in self.active_rows]

    @property
    def largest_gradients(self) -> Float[Tensor, "student"]:
        """Largest gradient of each student over the samples on which it is active."""
        return self._gradient_extremes.active

    @property
    def gradient_excess(self) -> Float[Tensor, "student"]:
        """Largest gradient in units of its rounding error: a gradient of a few units is zero to machine precision."""
        return self._gradient_extremes.excess

    @property
    def largest_gradient(self) -> float:
        """Largest gradient at any sample, with rounding; NaN where one is not a number."""
        return self._gradient_extremes.anywhere

    @cached_property
    def _gradient_extremes(self) -> _GradientExtremes:
        parts = []
        for active, some in zip(self.active.split(_ROWS), self.x.split(_ROWS), strict=True):
            g = self.gradient(some)
            times = g.value.abs() / g.rounding.clamp_min(5e-324)
            parts.append([torch.where(active, each, 0.0).amax(0) for each in (g.upper, times)] + [g.upper.amax()])
        largest, excess, anywhere = (torch.stack(each).amax(0) for each in zip(*parts, strict=True))
        return _GradientExtremes(largest, excess, float(anywhere))

    def gradient_parts(self) -> Iterator[Float[Tensor, "some student"]]:
        """Compute the gradients at the samples, which are many numbers, part by part."""
        return (self.gradient(some).value for some in self.x.split(_ROWS))

    def name(self, j: int) -> str:
        """Name of the j-th teacher node with a boundary, as findings use it."""
        return f"teacher node {int(self.teacher_nodes[j])}"

    @cached_property
    def teacher_sample_distances(self) -> Float[Tensor, "sample plane"]:
        """Signed distances of the samples to the boundaries of the teacher nodes."""
        return self.teacher_planes.distances(self.x)

    def teacher_plane(self, j: int) -> Planes:
        """Boundary of the j-th teacher node that has one."""
        return self.teacher_planes.select(torch.tensor([j]))

    def away(self, j: int) -> Float[Tensor, "sample"]:
        """Distance of every sample from the boundary of the j-th teacher node that has one."""
        return self.remember(("away", j), lambda: self.teacher_sample_distances[:, j].abs())

    def closest(self, j: int, count: int) -> Int[Tensor, "some"]:
        """The samples nearest to the boundary of the j-th teacher node that has one."""
        return self.remember(("closest", j, count), lambda: self.away(j).argsort()[:count])

    @cached_property
    def largest_norm(self) -> float:
        """Largest length of a sample."""
        return float(self.squared_norms.max().sqrt())

    @cached_property
    def squared_norms(self) -> Float[Tensor, "sample"]:
        """Squared length of every sample."""
        return torch.einsum("si,si->s", self.x, self.x)

    def other_teachers(self, j: int) -> Int[Tensor, "plane"]:
        """Positions of the other teacher nodes with a boundary."""
        return torch.tensor([i for i in range(len(self.teacher_planes)) if i != j], dtype=torch.long)

    def other_planes(self, j: int) -> Planes:
        """Boundaries of all other nodes of both lowest layers, students first."""
        return self.remember(
            ("other planes", j),
            lambda: concatenate(self.student_planes, self.teacher_planes.select(self.other_teachers(j))),
        )

    def student_distances(self, j: int) -> PlaneDistances:
        """Distances of all student boundaries from that of the j-th teacher node."""
        return self.remember(
            ("student distances", j), lambda: plane_distances(self.teacher_plane(j), self.student_planes)
        )

    def alpha(self, k: int, j: int, points: Float[Tensor, "point in"]) -> Float[Tensor, "point"]:
        """α_kj(x) = v_k(x)ᵀ v*_j(x) for the j-th teacher node, made regular (Tian 2020, definition 2)."""
        ours, theirs = _fan_out(self.student, k, points), _fan_out(self.teacher, int(self.teacher_nodes[j]), points)
        return (ours * theirs).sum(1) * self.teacher_norms[j]

    def alphas(self, j: int, points: Float[Tensor, "point in"]) -> Float[Tensor, "point student"]:
        """α_kj(x) of every student of the lowest layer; of two layers it is the same at all points."""
        if len(self.student.layers) == len(self.teacher.layers) == 2:
            theirs = self.teacher.layers[1].weight[0, :, int(self.teacher_nodes[j])]
            ours = self.student.layers[1].weight[0]
            return ((theirs @ ours) * self.teacher_norms[j]).expand(len(points), -1)
        return torch.stack([self.alpha(k, j, points) for k in range(self.student.sizes[1])], 1)

    def gradient(self, points: Float[Tensor, "point in"], node: int | None = None) -> Gradient:
        """Negative gradient of ½‖f* − f‖² by the activations of the lowest student layer, or of one node of it."""
        ours, theirs = _forward(self.student, points), _forward(self.teacher, points)
        g, largest = theirs.output - ours.output, theirs.largest + ours.largest
        for i, gates in zip(range(len(self.student.layers) - 1, 0, -1), ours.gates[::-1], strict=True):
            weight = self.student.layers[i].weight[0]
            if i == 1 and node is not None:
                weight, gates = weight[:, node : node + 1], gates[:, node : node + 1]
            g, largest = (g @ weight) * gates, largest @ weight.abs()
        return Gradient(g, 2 * self._terms * ROUNDING * largest)

    def largest_gradient_beside(self, k: int, samples: Int[Tensor, "some"], shift: Float[Tensor, "in"]) -> float:
        """Upper bound of the gradient of student k at samples and at points `shift` before and behind them.

        Of two layers only what student k receives is computed, from pre-activations at the samples, which differ at the
        other points by a constant.
        """
        parts = [self._largest_beside(k, self.x[some], shift) for some in samples.split(_ROWS)]
        return float(torch.stack(parts).max())

    def _largest_beside(
        self, k: int, points: Float[Tensor, "some in"], shift: Float[Tensor, "in"]
    ) -> Float[Tensor, ""]:
        if len(self.student.layers) > 2 or len(self.teacher.layers) > 2:
            return self.gradient(torch.cat((points, points + shift, points - shift)), k).upper.max()
        fan_out = self.student.layers[1].weight[0, :, k]
        moves = torch.stack((torch.zeros_like(shift), shift, -shift))
        total, largest = fan_out.new_zeros(len(moves), len(points)), fan_out.new_zeros(len(points))
        reach = points.abs() + shift.abs()
        for network, sign in ((self.teacher, 1.0), (self.student, -1.0)):
            (weight, below), (above, bias) = network.layers
            before = points @ weight[0].T
            before = before if below is None else before.add_(below[0])
            toward, beside = fan_out @ above[0], fan_out.abs() @ above[0].abs()
            for row, move in zip(total, moves @ weight[0].T, strict=True):
                row += sign * (activate(before + move, network.slope) @ toward)
            largest += reach @ (weight[0].abs().T @ beside)  # the outputs if no terms cancelled
            if below is not None:
                largest += below[0].abs() @ beside
            if bias is not None:
                total += sign * (bias[0] @ fan_out)
                largest += bias[0].abs() @ fan_out.abs()
        # `before` is now that of the student.
        own, slope = self.student.layers[0].weight[0, k], self.student.slope
        gates = gate(before[:, k] + (moves @ own).unsqueeze(1), slope)
        return ((total * gates).abs() + 2 * self._terms * ROUNDING * largest).max()

    @property
    def _terms(self) -> int:
        """Number of terms that are added up on the way to a gradient."""
        return sum(self.teacher.sizes) + sum(self.student.sizes) + sum(self.student.sizes[1:])


_last = threading.local()


def shared_pair(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> PairGeometry:
    """The pair of these networks and samples that this thread made last and still uses, or a new one."""
    known: PairGeometry | None = getattr(_last, "pair", lambda: None)()
    if known is not None and known.x is x and _same(known.teacher, teacher) and _same(known.student, student):
        return known
    made = PairGeometry(teacher, student, x)
    _last.pair = weakref.ref(made)
    return made


def _same(a: Population, b: Population) -> bool:
    """Whether two networks have the same tensors."""
    pairs = zip(a.layers, b.layers, strict=False)
    return a.shape == b.shape and all(p is q for ours, theirs in pairs for p, q in zip(ours, theirs, strict=True))


def per_teacher_node(finding: Callable[[PairGeometry, int], Finding]) -> CheckFunction:
    """Turn a function of a pair and its j-th teacher node into a check function with one finding per teacher node."""

    def check(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
        pair = shared_pair(teacher, student, x)
        return [finding(pair, j) for j in range(len(pair.teacher_planes))]

    return check


def hidden_gates(network: Population, points: Float[Tensor, "point in"]) -> Bool[Tensor, "point gate"]:
    """Gates of all hidden nodes at points, the lowest layer first."""
    h, gates = points, []
    for i in range(len(network.layers) - 1):
        before = incoming(network, i, h)
        gates.append(before[0] >= 0)
        h = activate(before, network.slope)
    return torch.cat(gates, 1)


def _lowest_planes(network: Population) -> tuple[Planes, Int[Tensor, "plane"]]:
    weight, bias = network.layers[0]
    return layer_planes(weight[0], None if bias is None else bias[0])


def _forward(network: Population, points: Float[Tensor, "point in"]) -> _ForwardPass:
    h, largest, gates = points, points.abs(), []
    for i, (weight, bias) in enumerate(network.layers):
        shift = torch.zeros_like(weight[0, :, 0]) if bias is None else bias[0]
        h, largest = torch.addmm(shift, h, weight[0].T), torch.addmm(shift.abs(), largest, weight[0].abs().T)
        if i < len(network.layers) - 1:
            gates.append(gate(h, network.slope).to(h.dtype))
            h = activate(h, network.slope)
    return _ForwardPass(h, tuple(gates), largest)


def _fan_out(network: Population, node: int, points: Float[Tensor, "point in"]) -> Float[Tensor, "point out"]:
    """Column of V_1 that belongs to a node of the lowest layer, at every point."""
    v = network.layers[1].weight[0, :, node].expand(len(points), -1)
    if len(network.layers) == 2:
        return v
    for (weight, _), gates in zip(network.layers[2:], _forward(network, points).gates[1:], strict=True):
        v = (v * gates) @ weight[0].T
    return v
