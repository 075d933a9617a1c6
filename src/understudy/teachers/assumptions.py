"""Which of S0's assumptions a teacher meets on given inputs: what its theorems need before they say anything."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.nets import Layer, Population, activate

_REGULAR = 1e-5
_COLINEAR = 1e-6


def strengths(teacher: Population) -> Float[Tensor, "net node"]:
    """‖v*_j‖, the length of the fan-out of every node of the last hidden layer (S0 sec 3: V* is the top weights)."""
    lengths: Tensor = torch.linalg.vector_norm(teacher.layers[-1].weight, dim=1)
    return lengths


@dataclass(frozen=True, eq=False)
class LayerAssumptions:
    """One hidden layer against Assumptions 1 and 3 of S0. Nodes are counted from 0."""

    lengths: Float[Tensor, "node"]
    """‖w̃_j‖: 1 for a regular weight (Definition 1)."""
    closest: tuple[int, int] | None
    """The pair of nodes that is ε-aligned (Definition 3) at the smallest ε; None for a single node."""
    sin_angle: float
    bias_gap: float
    colinear: tuple[tuple[int, int], ...]
    """Pairs with [w̃_j, b_j] on one line (against Assumption 1 (2))."""
    active: Float[Tensor, "node"]
    """Share of the samples with w̃ᵀx + b ≥ 0."""
    band: Int[Tensor, "node"]
    """Samples with |w̃ᵀx + b| ≤ ε (Definition 5)."""
    tau: Float[Tensor, "node"]
    """band / (ε N): the largest τ of Assumption 3 (b)."""

    @property
    def eps0(self) -> float:
        """The smallest ε at which two nodes are ε-aligned; Assumption 3 (a) holds below it."""
        return max(self.sin_angle, self.bias_gap)

    @property
    def irregular(self) -> tuple[int, ...]:
        return indices((self.lengths - 1.0).abs() > _REGULAR)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Nodes with all samples on one side of their boundary (against Assumption 1 (3))."""
        return indices((self.active == 0) | (self.active == 1))

    def failures(self, eps: float) -> list[str]:
        found = []
        if self.irregular:
            found.append(f"weights of nodes {listed(self.irregular)} are not of length 1 (Definition 1)")
        if self.colinear:
            found.append(f"nodes {listed(self.colinear)} are co-linear (Assumption 1)")
        if self.eps0 <= eps and self.closest:
            j, k = self.closest
            found.append(f"nodes {j} and {k} are aligned at ε = {self.eps0:.3g}, not above {eps:g} (Assumption 3a)")
        if self.unseen:
            found.append(f"the data never crosses the boundary of nodes {listed(self.unseen)} (Assumption 1)")
        if empty := indices(self.band == 0):
            found.append(f"no sample within {eps:g} of the boundary of nodes {listed(empty)} (Assumption 3b)")
        return found

    def __str__(self) -> str:
        lone = "one node"
        pair = self.closest and f"closest nodes {self.closest[0]} and {self.closest[1]}"
        apart = f"{pair} (sin {self.sin_angle:.3g}, bias gap {self.bias_gap:.3g}): ε0 = {self.eps0:.3g}"
        return (
            f"{apart if pair else lone}; active on {100 * self.active.min():.0f}% to {100 * self.active.max():.0f}%; "
            f"{int(self.band.min())} to {int(self.band.max())} samples a band (τ = {self.tau.min():.3g})"
        )


@dataclass(frozen=True, eq=False)
class Assumptions:
    """What S0's theorems ask of a teacher and its data (Assumptions 1 and 3), measured on one network."""

    seed: int
    eps: float
    samples: int
    layers: tuple[LayerAssumptions, ...]
    strengths: Float[Tensor, "node"]

    @property
    def strength_ratio(self) -> float:
        """The strongest node's fan-out over the weakest's."""
        return float(self.strengths.max() / self.strengths.min())

    @property
    def strengthless(self) -> tuple[int, ...]:
        return indices(self.strengths == 0)

    @property
    def failures(self) -> list[str]:
        found = [f"layer {i}: {what}" for i, layer in enumerate(self.layers, 1) for what in layer.failures(self.eps)]
        if self.strengthless:
            found.append(f"nodes {listed(self.strengthless)} of the last hidden layer have no fan-out")
        return found

    @property
    def holds(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        verdict = "hold" if self.holds else "fail"
        return "\n".join(
            [
                f"teacher of seed {self.seed}: the assumptions {verdict} at ε = {self.eps:g} on {self.samples} samples",
                *(f"  layer {i}: {layer}" for i, layer in enumerate(self.layers, 1)),
                f"  strengths {self.strengths.min():.3g} to {self.strengths.max():.3g}",
                *(f"  fails: {what}" for what in self.failures),
            ]
        )


def assumptions(
    teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"], *, eps: float = 0.1
) -> list[Assumptions]:
    """Every network against S0's Assumptions 1 and 3 on x, in float64, with weights and bands as they are given.

    A deeper layer is measured on what the layers below it make of x.
    """
    if not teacher.shape.dense:
        raise UserError("the assumptions are on fully connected networks without BatchNorm: give such a teacher")
    if not (math.isfinite(eps) and eps > 0):
        raise UserError(f"eps must be a positive number, got {eps}")
    return [_assumptions(network, inputs, eps) for network, inputs in one_by_one(teacher, x)]


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
    # [w̃, b] and [−w̃, −b] are one boundary: of weights that point away from each other one is turned.
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
    """sin of the angle of every pair, as ‖u−v‖ ‖u+v‖ / 2 of unit vectors: exact for small angles, where 1−cos² is not.

    A zero row has no direction: it counts as being on every line.
    """
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit = rows / torch.where(length > 0, length, 1.0)
    exactly = "donot_use_mm_for_euclid_dist"
    sin = torch.cdist(unit, unit, compute_mode=exactly) * torch.cdist(unit, -unit, compute_mode=exactly) / 2
    return torch.where((length > 0) & (length > 0).T, sin, 0.0)


def one_by_one(teacher: Population, x: Tensor) -> Iterator[tuple[Population, Float[Tensor, "sample in"]]]:
    """Each network with its inputs in float64: what comes out for one does not depend on the others."""
    if x.ndim not in (2, 3) or x.shape[-1] != teacher.inputs or x.shape[-2] == 0:
        raise UserError(f"inputs must be [sample, {teacher.inputs}] for this teacher, got {list(x.shape)}")
    if x.ndim == 3 and len(x) != len(teacher):
        raise UserError(f"inputs of {len(x)} networks were given for {len(teacher)} teachers: give one set for each")
    shared = x.to(teacher.device, torch.float64) if x.ndim == 2 else None
    for n in range(len(teacher)):
        yield teacher[n], x[n].to(teacher.device, torch.float64) if shared is None else shared


def double(layer: Layer) -> tuple[Float[Tensor, "out in"], Float[Tensor, "out"]]:
    """The only network's weights and biases in float64, biases of 0 where there are none."""
    weight = layer.weight[0].double()
    return weight, weight.new_zeros(len(weight)) if layer.bias is None else layer.bias[0].double()


def indices(chosen: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in chosen.nonzero().flatten())


def listed(nodes: Sequence[object], most: int = 8) -> str:
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(str(n) for n in nodes[:most]) + more
