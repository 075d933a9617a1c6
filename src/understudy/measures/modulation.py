"""Modulation of nodes by the layers above: averages of V, A, B (Tian 2020) and β*, β, D, H, L (Tian et al. 2019).

In the linear region of a sample the outputs are V_l f_l, for the activations f_l of any hidden layer l (with a constant
node for the biases). From the top down, V_{l−1} = V_l D_l W_l with the gates D_l = f'_l (Tian 2020, Definition 2 and
eq. 3; weights here are [out, in]). Then A_l = V_lᵀ V*_l and B_l = V_lᵀ V_l, and g_l = D_l (A_l f*_l − B_l f_l) is the
gradient that backpropagation brings to layer l (Tian 2020, Lemma 1).

β* and β of Tian et al. 2019 (Theorem 1, eq. 3) are A and B: the recursion is the same, and both omit the layer's own
gates, which enter with D* = E[f' f*'ᵀ] and H* = E[β*] ∘ D* (Theorem 2). Rows are students, columns teachers or
students.

Nodes of a convolution are channels, and V_l is indexed by channel and position. As for correlations, a row of data is a
sample at a position: β*_jk is the mean over both of Σ_c V_c(j, p) V*_c(k, p), the part of VᵀV* of two channels at the
same position, and E in D, H and L is over both too. A fully connected layer has one position.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.data.source import Inputs
from understudy.nets import Layer, Population, Shape, batch_norm, evaluation_scale, gate, incoming, outgoing
from understudy.nets.shape import pair

_OF_V = {"v_star", "v", "energy", "beta_star", "beta"}
# Numbers in memory per piece of work.
_CPU_PIECE, _GPU_PIECE = 1 << 20, 1 << 28


class LayerModulation(NamedTuple):
    """Averages over samples and positions at one hidden layer; parts that were not requested are None.

    `v_star` and `v` are E[V*] and E[V]; `beta_star` and `beta` are E[A] and E[B]. `energy` is E[β_kk], the diagonal of
    `beta`, at a much lower cost. `d_star` and `d` are D* = E[f' f*'ᵀ] and D = E[f' f'ᵀ], the overlap of gates; `h_star`
    and `h` are E[β*] ∘ D* and E[β] ∘ D; `l_star` and `l` are E[f f*ᵀ] and E[f fᵀ].
    """

    v_star: Float[Tensor, "net out teacher"] | None = None
    v: Float[Tensor, "net out student"] | None = None
    energy: Float[Tensor, "net student"] | None = None
    beta_star: Float[Tensor, "net student teacher"] | None = None
    beta: Float[Tensor, "net student student"] | None = None
    d_star: Float[Tensor, "net student teacher"] | None = None
    d: Float[Tensor, "net student student"] | None = None
    h_star: Float[Tensor, "net student teacher"] | None = None
    h: Float[Tensor, "net student student"] | None = None
    l_star: Float[Tensor, "net student teacher"] | None = None
    l: Float[Tensor, "net student student"] | None = None  # noqa: E741


PARTS = LayerModulation._fields


def modulation(
    teacher: Population, student: Population, x: Inputs, parts: Collection[str] = PARTS
) -> tuple[LayerModulation, ...]:
    """Compute the requested averages at every hidden layer (Tian et al. 2019, Theorems 1 and 2).

    Memory is bounded: samples are processed in pieces, and no matrix of node pairs is stored per sample, since E[VᵀV]
    is one matrix product over samples, outputs and positions. Pieces are summed in float64.

    Args:
        teacher: Teachers, paired with the students by index.
        student: Students with as many layers, outputs and positions.
        x: Inputs shared by all pairs, or one set per pair.
        parts: Names of the averages to compute.

    Returns:
        One result per hidden layer, the lowest first, in the dtype of the networks.

    Raises:
        UserError: An unknown part, or networks and inputs that do not fit.
    """
    if unknown := sorted(set(parts) - set(PARTS)):
        raise UserError(f"parts must be among {', '.join(PARTS)}, got {', '.join(unknown)}")
    require_comparable(teacher, student, x)
    needed = set(parts)
    for side in ("", "_star"):
        if f"h{side}" in parts:
            needed |= {f"beta{side}", f"d{side}"}
    sides = {"": student}
    if any(part.endswith("_star") for part in parts):
        sides["_star"] = teacher
    layers = _averages(sides, x, needed)
    for side, averages in itertools.product(sides, layers):
        if f"h{side}" in parts:
            averages[f"h{side}"] = averages[f"beta{side}"] * averages[f"d{side}"]
    return tuple(LayerModulation(**{part: averages[part] for part in parts}) for averages in layers)


def modulated_fan_out(student: Population, x: Inputs) -> tuple[Float[Tensor, "net _"], ...]:
    """Modulated fan-out √E[β_kk] of every node at every hidden layer (y axis of Tian 2019, fig. 4).

    At the highest hidden layer it equals `fan_out`; for channels, divided by the root of the number of positions.

    Args:
        student: The networks.
        x: Inputs shared by all networks, or one set per network.

    Returns:
        One tensor per hidden layer, the lowest first.

    Raises:
        UserError: Inputs that do not fit, or networks without a hidden layer.
    """
    require_comparable(student, student, x)
    return tuple(averages["energy"].sqrt() for averages in _averages({"": student}, x, {"energy"}))


def require_comparable(teacher: Population, student: Population, x: Tensor) -> None:
    """Raise a `UserError` unless teachers and students are paired and have the same inputs, layers and positions."""
    if len(teacher) != len(student):
        raise UserError(
            f"students are paired with teachers by index, got {len(teacher)} teachers and {len(student)} students: "
            "repeat teachers with teacher[indices]"
        )
    if teacher.inputs != student.inputs or x.shape[-1] != teacher.inputs:
        raise UserError(
            "teacher, student and data must have equally many inputs, got "
            f"{teacher.inputs}, {student.inputs} and {x.shape[-1]}"
        )
    if len(student.layers) < 2 or len(teacher.layers) < 2:
        raise UserError("networks without a hidden layer have no nodes to compare; give networks of two or more layers")
    if len(teacher.layers) != len(student.layers) or teacher.sizes[-1] != student.sizes[-1]:
        raise UserError(
            "teacher and student must have equally many layers and outputs, got sizes "
            f"{teacher.sizes} and {student.sizes}"
        )
    # A fully connected layer has a map of 1 × 1.
    maps = [s.maps + ((1, 1),) * (len(s.positions) - len(s.maps)) for s in (teacher.shape, student.shape)]
    if maps[0] != maps[1]:
        theirs, ours = (", ".join(f"{height} × {width}" for height, width in each) for each in maps)
        raise UserError(
            "modulation compares nodes at the same positions, so teacher and student need feature maps of equal sizes "
            f"at each layer, got {theirs} and {ours}"
        )
    if x.ndim == 3 and len(x) != len(student):
        raise UserError(f"give one set of inputs, or one per network ({len(student)}), got {len(x)}")
    if not x.shape[-2]:
        raise UserError("there are no samples to average over: give at least one")


class GatedActivations(NamedTuple):
    """f and f' of every hidden layer, the lowest first; a row is a sample at a position, position varying fastest."""

    hidden: tuple[Float[Tensor, "net row node"], ...]
    gates: tuple[Float[Tensor, "net row node"], ...]


def gated_activations(population: Population, x: Float[Tensor, "..."]) -> GatedActivations:
    """Compute f and f' of every hidden layer; f' is read from pre-activations, since it is 1 at 0 (Tian 2020, sec. 3).

    In evaluation mode BatchNorm is an affine map of each node, whose scale is part of f'.
    """
    h, hidden, gates = x, [], []
    for i in range(len(population.layers) - 1):
        before = incoming(population, i, h)
        h, _ = outgoing(population, i, before)
        if population.norms and population.norm_first:
            before, _ = batch_norm(before, population.norms[i], training=False)
        through = gate(before, population.slope).to(before.dtype)
        gates.append(through * evaluation_scale(population.norms[i]).unsqueeze(1) if population.norms else through)
        hidden.append(h)
    return GatedActivations(tuple(hidden), tuple(gates))


def backpropagate(
    layers: Sequence[Layer], gates: Sequence[Tensor], shape: Shape
) -> Iterator[Float[Tensor, "net row node"]]:
    """Yield V of every hidden layer, the highest first; a row is (sample, output, position), position varying fastest.

    At the highest layer V is the matrix of output weights for every sample, and is yielded once for all of them.
    """
    if shape.pooled:
        raise UserError(
            "V, β, H and fan-outs are computed layer by layer, which pooling does not allow: choose networks without "
            "pooling, or with strides in its place"
        )
    outputs, positions = layers[-1].weight.shape[1], shape.positions
    v = _by_position(layers[-1].weight, positions[-1])
    yield v
    for i in range(len(layers) - 2, 0, -1):
        gated = v.unflatten(1, (-1, outputs, positions[i])) * gates[i].unflatten(1, (-1, 1, positions[i]))
        v, weight = gated.flatten(1, 3), layers[i].weight
        if weight.ndim == 5:
            v = _transposed_convolution(v, weight, shape, i)
        else:
            v = _by_position(torch.bmm(v, weight), positions[i - 1])
        yield v


def _by_position(v: Float[Tensor, "net row flat"], positions: int) -> Float[Tensor, "net _ node"]:
    """Split rows of complete feature maps (channel by channel) into one row per position."""
    return v.unflatten(2, (-1, positions)).transpose(2, 3).flatten(1, 2)


def _transposed_convolution(
    v: Float[Tensor, "net row node"], weight: Float[Tensor, "net node below kernel kernel"], shape: Shape, i: int
) -> Float[Tensor, "net _ below"]:
    """Multiply V D of convolution i by W, as one transposed convolution with one group of channels per network."""
    size, below = shape.maps[i], shape.spatial_sizes[i]
    kernel, stride, padding = map(pair, shape.resolved_convolutions[i][:3])
    images = v.unflatten(1, (-1, *size)).permute(1, 0, 4, 2, 3).flatten(1, 2)
    # Pixels at the far sides that no position of the kernel covers.
    missed = [(side + 2 * p - k) % s for side, k, s, p in zip(below, kernel, stride, padding, strict=True)]
    maps = F.conv_transpose2d(images, weight.flatten(0, 1), None, stride, padding, output_padding=missed, groups=len(v))
    return maps.unflatten(1, (len(v), -1)).permute(1, 0, 3, 4, 2).flatten(1, 3)


@torch.no_grad()
def _averages(sides: Mapping[str, Population], x: Float[Tensor, "..."], parts: set[str]) -> list[dict[str, Tensor]]:
    """Means over samples and positions at every hidden layer, the lowest first.

    Sides are the students, with key "", and the teachers, with key "_star", if a part needs them.
    """
    student, samples, positions = sides[""], x.shape[-2], sides[""].shape.positions
    rows, width = _piece_size(sides, samples, bool(parts & _OF_V))
    groups = []
    for e in range(0, max(len(student), 1), width):
        group = {side: population[e : e + width] for side, population in sides.items()}
        totals: list[dict[str, Tensor]] = [{} for _ in student.layers[:-1]]
        for start in range(0, samples, rows):
            inputs = (x[e : e + width] if x.ndim == 3 else x)[..., start : start + rows, :]
            for total, sums in zip(totals, _sums(group, inputs, parts), strict=True):
                for name, value in sums.items():
                    total[name] = value if start == 0 else total[name].add_(value)
        groups.append(
            [
                {name: (value / (samples * places)).to(student.dtype) for name, value in total.items()}
                for total, places in zip(totals, positions, strict=True)
            ]
        )
    layers = zip(*groups, strict=True)
    return [{name: torch.cat([averages[name] for averages in layer]) for name in layer[0]} for layer in layers]


def _piece_size(sides: Mapping[str, Population], samples: int, fans: bool) -> tuple[int, int]:
    """Number of samples and of networks per piece.

    Results do not depend on the batch composition: the cut along samples does not depend on the number of networks, and
    on a CPU each network has its own matrix products, since a batched one may sum in another order.
    """
    numbers = 0
    for population in sides.values():
        nodes = [n * p for n, p in zip(population.sizes[1:-1], population.shape.positions, strict=True)]
        outputs = population.sizes[-1]
        # f and f' of every layer, and three copies of V: of a layer, the same gated, and of the layer below, which a
        # convolution may copy once more; V of the highest layer does not depend on samples.
        at_once = (4 if population.image else 3) * outputs * max(nodes)
        numbers += 2 * sum(nodes) + (at_once if fans and len(nodes) > 1 else 0)
    gpu = sides[""].device.type != "cpu"
    piece = _GPU_PIECE if gpu else _CPU_PIECE
    rows = max(1, piece // numbers)
    return rows, max(1, piece // (min(rows, samples) * numbers)) if gpu else 1


def _sums(sides: Mapping[str, Population], x: Float[Tensor, "..."], parts: set[str]) -> list[dict[str, Tensor]]:
    """Sums over one piece of samples at every hidden layer, the lowest first, in float64."""
    gated = {side: gated_activations(population, x) for side, population in sides.items()}
    ours = gated[""]
    sums: list[dict[str, Tensor]] = [{} for _ in ours.hidden]
    for (layer, total), (side, theirs) in itertools.product(enumerate(sums), gated.items()):
        if f"d{side}" in parts:
            total[f"d{side}"] = torch.bmm(ours.gates[layer].mT, theirs.gates[layer]).double()
        if f"l{side}" in parts:
            total[f"l{side}"] = torch.bmm(ours.hidden[layer].mT, theirs.hidden[layer]).double()
    if not parts & _OF_V:
        return sums
    used = [side for side in sides if not side or parts & {f"v{side}", f"beta{side}"}]
    fans = zip(*(backpropagate(sides[side].layers, gated[side].gates, sides[side].shape) for side in used), strict=True)
    for total, of_layer, positions in zip(reversed(sums), fans, reversed(sides[""].shape.positions), strict=True):
        v, outputs = of_layer[0], sides[""].sizes[-1]
        # At the highest layer V has one row for all samples.
        times = x.shape[-2] * outputs * positions // v.shape[1]
        if "energy" in parts:
            total["energy"] = times * v.square().sum(1).double()
        for side, other in zip(used, of_layer, strict=True):
            if f"v{side}" in parts:
                total[f"v{side}"] = times * other.unflatten(1, (-1, outputs, positions)).sum((1, 3)).double()
            if f"beta{side}" in parts:
                total[f"beta{side}"] = times * torch.bmm(v.mT, other).double()
    return sums
