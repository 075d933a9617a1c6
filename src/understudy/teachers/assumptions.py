"""Assumptions of Tian (2020) on a teacher and its inputs, which the theorems require."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets import Layer, Population, activate

_REGULAR = 1e-5
_COLINEAR = 1e-6


def strengths(teacher: Population) -> Float[Tensor, "net node"]:
    """Norm ‖v*_j‖ of the fan-out of every node of the last hidden layer (Tian 2020, sec. 3).

    Args:
        teacher: The teachers.
    """
    lengths: Tensor = torch.linalg.vector_norm(teacher.layers[-1].weight, dim=1)
    return lengths


@dataclass(frozen=True, eq=False)
class LayerAssumptions:
    """Assumptions 1 and 3 of Tian (2020), measured at one hidden layer. Nodes are counted from 0."""

    lengths: Float[Tensor, "node"]
    """‖w̃_j‖: 1 for a regular weight (Definition 1)."""
    closest: tuple[int, int] | None
    """The two nodes that are ε-aligned (Definition 3) at the smallest ε; None for a single node."""
    sin_angle: float
    bias_gap: float
    colinear: tuple[tuple[int, int], ...]
    """Pairs of nodes with collinear [w̃_j, b_j], which violate Assumption 1 (2)."""
    active: Float[Tensor, "node"]
    """Share of samples with w̃ᵀx + b ≥ 0."""
    band: Int[Tensor, "node"]
    """Number of samples with |w̃ᵀx + b| ≤ ε (Definition 5)."""
    tau: Float[Tensor, "node"]
    """Largest τ of Assumption 3 (b): band / (ε N)."""

    @property
    def eps0(self) -> float:
        """Smallest ε at which two nodes are ε-aligned; Assumption 3 (a) holds below it."""
        return max(self.sin_angle, self.bias_gap)

    @property
    def irregular(self) -> tuple[int, ...]:
        """Nodes whose weights do not have length 1 (Definition 1)."""
        return true_indices((self.lengths - 1.0).abs() > _REGULAR)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Nodes with all samples on one side of their boundary, which violate Assumption 1 (3)."""
        return true_indices((self.active == 0) | (self.active == 1))

    def failures(self, eps: float) -> list[str]:
        """Describe every assumption that fails at `eps`.

        Args:
            eps: ε of Assumption 3.
        """
        found, least = [], number(eps, "g")
        if self.irregular:
            found.append(f"weights of nodes {format_list(self.irregular)} do not have length 1 (Definition 1)")
        if self.colinear:
            found.append(f"nodes {format_list(self.colinear)} are collinear (Assumption 1)")
        if self.eps0 <= eps and self.closest:
            j, k = self.closest
            found.append(f"nodes {j} and {k} are aligned at ε = {number(self.eps0)}, not above {least} (Assumption 3a)")
        if self.unseen:
            found.append(f"the data never crosses the boundary of nodes {format_list(self.unseen)} (Assumption 1)")
        if empty := true_indices(self.band == 0):
            found.append(f"no sample within {least} of the boundary of nodes {format_list(empty)} (Assumption 3b)")
        return found

    def __str__(self) -> str:
        lone = "one node"
        pair = self.closest and f"closest nodes {self.closest[0]} and {self.closest[1]}"
        apart = f"{pair} (sin {number(self.sin_angle)}, bias gap {number(self.bias_gap)}): ε0 = {number(self.eps0)}"
        return (
            f"{apart if pair else lone}; active on {100 * self.active.min():.0f}% to {100 * self.active.max():.0f}%; "
            f"{int(self.band.min())} to {int(self.band.max())} samples per band (τ = {number(float(self.tau.min()))})"
        )


@dataclass(frozen=True, eq=False)
class Assumptions:
    """Assumptions 1 and 3 of Tian (2020) on a teacher and its data, measured on one network."""

    seed: int
    eps: float
    samples: int
    layers: tuple[LayerAssumptions, ...]
    strengths: Float[Tensor, "node"]

    @property
    def strengthless(self) -> tuple[int, ...]:
        """Nodes of the last hidden layer whose fan-out is zero."""
        return true_indices(self.strengths == 0)

    @property
    def failures(self) -> list[str]:
        """Describe every assumption that fails."""
        found = [f"layer {i}: {what}" for i, layer in enumerate(self.layers, 1) for what in layer.failures(self.eps)]
        if self.strengthless:
            found.append(f"nodes {format_list(self.strengthless)} of the last hidden layer have no fan-out")
        return found

    @property
    def holds(self) -> bool:
        """Whether all assumptions hold."""
        return not self.failures

    def __str__(self) -> str:
        verdict = f"{'hold' if self.holds else 'fail'} at ε = {number(self.eps, 'g')}"
        return "\n".join(
            [
                f"teacher of seed {self.seed}: the assumptions {verdict} on {self.samples:,} samples",
                *(f"  layer {i}: {layer}" for i, layer in enumerate(self.layers, 1)),
                f"  strengths {number(float(self.strengths.min()))} to {number(float(self.strengths.max()))}",
                *(f"  fails: {what}" for what in self.failures),
            ]
        )


def assumptions(
    teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"], *, eps: float = 0.1
) -> list[Assumptions]:
    """Measure Assumptions 1 and 3 of Tian (2020) for every teacher, in float64 and without rescaling weights.

    A deeper layer is measured on the activations of the layer below.

    Args:
        teacher: Fully connected teachers without BatchNorm.
        x: Inputs shared by all teachers, or one set per teacher.
        eps: ε of the bands around boundaries (Definition 5) and of alignment (Definition 3).

    Returns:
        One result per teacher; print it for a summary.

    Raises:
        UserError: Another kind of network, inputs that do not fit, or an ε that is not positive.
    """
    if not teacher.shape.dense:
        raise UserError("the assumptions need fully connected networks without BatchNorm: give such a teacher")
    if not (math.isfinite(eps) and eps > 0):
        raise UserError(f"eps must be a positive number, got {eps}")
    return [_assumptions(network, inputs, eps) for network, inputs in iterate_networks(teacher, x)]


def _assumptions(network: Population, x: Float[Tensor, "sample in"], eps: float) -> Assumptions:
    h, layers = x, []
    for layer in network.layers[:-1]:
        weight, bias = double(layer)
        z = torch.addmm(bias, h, weight.T)
        layers.append(_layer_assumptions(weight, bias, z, eps))
        h = activate(z, network.slope)
    return Assumptions(int(network.seeds[0]), eps, len(x), tuple(layers), strengths(network)[0].double())


def _layer_assumptions(
    weight: Float[Tensor, "node in"], bias: Float[Tensor, "node"], z: Float[Tensor, "sample node"], eps: float
) -> LayerAssumptions:
    # [w̃, b] and [−w̃, −b] are the same boundary: flip one of two weights with a negative inner product.
    side = torch.where(weight @ weight.T < 0, -1.0, 1.0).to(bias.dtype)
    sin, gap = _sines(weight), (bias.unsqueeze(1) - side * bias).abs()
    apart = torch.maximum(sin, gap)
    apart.fill_diagonal_(math.inf)
    j, k = divmod(int(apart.argmin()), len(bias))
    on_one_line = (_sines(torch.cat((weight, bias.unsqueeze(1)), dim=1)) <= _COLINEAR).triu(1).nonzero().tolist()
    band = (z.abs() <= eps).sum(0)
    lone = len(bias) == 1
    return LayerAssumptions(
        lengths=torch.linalg.vector_norm(weight, dim=1),
        closest=None if lone else (min(j, k), max(j, k)),
        sin_angle=math.inf if lone else float(sin[j, k]),
        bias_gap=math.inf if lone else float(gap[j, k]),
        colinear=tuple((a, b) for a, b in on_one_line),
        active=(z >= 0).double().mean(0),
        band=band,
        tau=band / (eps * len(z)),
    )


def _sines(rows: Float[Tensor, "node in"]) -> Float[Tensor, "node node"]:
    """Sine of the angle of every pair of rows, as ‖u−v‖ ‖u+v‖ / 2 of unit vectors, accurate also for small angles.

    A zero row has no direction and counts as collinear with every row.
    """
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit = rows / torch.where(length > 0, length, 1.0)
    exactly = "donot_use_mm_for_euclid_dist"
    sin = torch.cdist(unit, unit, compute_mode=exactly) * torch.cdist(unit, -unit, compute_mode=exactly) / 2
    return torch.where((length > 0) & (length > 0).T, sin, 0.0)


def iterate_networks(teacher: Population, x: Tensor) -> Iterator[tuple[Population, Float[Tensor, "sample in"]]]:
    """Yield each network with its inputs in float64, so that its result does not depend on the others."""
    if x.ndim not in (2, 3) or x.shape[-1] != teacher.inputs or x.shape[-2] == 0:
        raise UserError(f"inputs must be [sample, {teacher.inputs}] for this teacher, got {list(x.shape)}")
    if x.ndim == 3 and len(x) != len(teacher):
        raise UserError(f"give one set of inputs per teacher ({len(teacher)}), got {len(x)}")
    shared = x.to(teacher.device, torch.float64) if x.ndim == 2 else None
    for n in range(len(teacher)):
        yield teacher[n], x[n].to(teacher.device, torch.float64) if shared is None else shared


def double(layer: Layer) -> tuple[Float[Tensor, "out in"], Float[Tensor, "out"]]:
    """Weights and biases of a single network in float64; missing biases are 0."""
    weight = layer.weight[0].double()
    return weight, weight.new_zeros(len(weight)) if layer.bias is None else layer.bias[0].double()


def true_indices(chosen: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in chosen.nonzero().flatten())


def format_list(nodes: Sequence[object], most: int = 8) -> str:
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(str(n) for n in nodes[:most]) + more
