"""What the layers above make of a node: V, A, B of S0 and S1, β*, β, D, H, L of S2, on data.

Inside a sample's linear region the outputs are V_l f_l, for the activations f_l of any hidden layer l (with a constant
node for the biases). From the top down V_{l−1} = V_l D_l W_l with the gates D_l = f'_l (S0 Definition 2, eqn 3; weights
here are [out, in]). Then A_l = V_lᵀ V*_l and B_l = V_lᵀ V_l, and g_l = D_l (A_l f*_l − B_l f_l) is what backpropagation
brings to layer l (S0 Lemma 1).

S2's β* and β (Theorem 1, eqn 3) are A and B: the recursion is the same, and in both a layer's own gates are left out;
these come in with D* = E[f' f*'ᵀ] and H* = E[β*] ∘ D* (S2 Theorem 2). Rows are students, columns teachers or students.

Nodes of a convolution are channels, and V_l is by channel and position. As for correlations a row of data is a sample
at a position: β*_jk is the mean over both of Σ_c V_c(j, p) V*_c(k, p), the part of VᵀV* where two channels look at the
same place, and E in D, H and L is over both too. A fully connected layer has one position.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.measures.pair import Pair
from understudy.nets import Layer, Population, Shape, gate, incoming, batch_norm, outgoing, evaluation_scale

_OF_V = {"v_star", "v", "energy", "beta_star", "beta"}
# Numbers that one piece of work holds at a time.
_CPU_PIECE, _CARD_PIECE = 1 << 24, 1 << 28


class LayerModulation(NamedTuple):
    """Averages over samples and positions at one hidden layer; what was not asked for is none.

    `v_star` and `v` are E[V*] and E[V]; E[A] and E[B] are `beta_star` and `beta`. `energy` is E[β_kk], the diagonal of
    `beta` at far less than its cost. `l_star` and `l` are E[f f*ᵀ] and E[f fᵀ].
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
    teacher: Population,
    student: Population,
    x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"],
    parts: Collection[str] = PARTS,
) -> tuple[LayerModulation, ...]:
    """The parts asked for at every hidden layer, the lowest first, for networks paired one to one (S2 Theorems 1, 2).

    Samples are taken in pieces of bounded size and no pair of nodes is held per sample: E[VᵀV] is one matrix product
    over samples, outputs and positions. In the dtype of the networks; pieces are added up in float64.
    """
    if unknown := sorted(set(parts) - set(PARTS)):
        raise UserError(f"modulation has no part called {', '.join(unknown)}: choose among {', '.join(PARTS)}")
    _refuse(teacher, student, x)
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


def modulated_fan_out(
    student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[Float[Tensor, "net _"], ...]:
    """√E[β_kk] at every hidden layer, the lowest first: the y axis of S1 fig 4.

    At the highest it is `fan_out`, of a channel over the root of how many positions it has.
    """
    _refuse(student, student, x)
    return tuple(averages["energy"].sqrt() for averages in _averages({"": student}, x, {"energy"}))


class SampleModulation(NamedTuple):
    """One hidden layer, sample by sample; each side's last node is the constant 1 that carries biases (S0 sec 3)."""

    v: Float[Tensor, "net sample out student"]
    v_star: Float[Tensor, "net sample out teacher"]
    a: Float[Tensor, "net sample student teacher"]
    b: Float[Tensor, "net sample student student"]
    gate: Float[Tensor, "net sample student"]
    f: Float[Tensor, "net sample student"]
    f_star: Float[Tensor, "net sample teacher"]

    @property
    def gradient(self) -> Float[Tensor, "net sample node"]:
        """g = D (A f* − B f) without the constant node (S0 Lemma 1, eqn 5).

        It is −∂/∂z of ½‖f*_L − f_L‖², where z is what goes into the activation.
        """
        pull = self.a @ self.f_star.unsqueeze(3) - self.b @ self.f.unsqueeze(3)
        return (self.gate * pull.squeeze(3))[..., :-1]


def per_sample(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[SampleModulation, ...]:
    """V, A and B themselves at every hidden layer, the lowest first: for tiny networks, since B takes samples × n²."""
    if teacher.image or student.image:
        # With nodes that are channels A and B would hold the pairs at one position alone, and g needs all of them.
        raise UserError(
            "V, A and B sample by sample are not defined here for convolutions, where the gradient at a position comes "
            "from pairs of nodes at all positions: give fully connected networks, or take the averages of modulation"
        )
    _refuse(teacher, student, x)
    if teacher.norms or student.norms:
        raise UserError("V, A and B sample by sample are not defined here with BatchNorm: give networks without it")
    ours, theirs = _with_constant(student, x), _with_constant(teacher, x)
    return tuple(
        SampleModulation(s.v, t.v, s.v.mT @ t.v, s.v.mT @ s.v, s.gate, s.f, t.f)
        for s, t in zip(ours, theirs, strict=True)
    )


class Reordered(NamedTuple):
    """A matrix whose row j belongs to the student matched to teacher node j, and which student each row is."""

    matrix: Float[Tensor, "net student teacher"]
    order: Int[Tensor, "net student"]


def reordered(matrix: Float[Tensor, "net student teacher"], rho: Float[Tensor, "net teacher student"]) -> Reordered:
    """Students in the order of the teacher nodes they match, as in S2 fig 11; those that match none follow.

    Pairs are made by correlation, the highest first, every student once; of equal ones the lowest teacher node, then
    the lowest student. The others come by their best correlation, the highest first.
    """
    nets, teachers, students = rho.shape
    if students < teachers:
        raise UserError(
            f"{students} students cannot match {teachers} teacher nodes one to one: give as many students or more"
        )
    left, every = rho.clone(), torch.arange(nets, device=rho.device)
    matched = torch.empty(nets, teachers, dtype=torch.long, device=rho.device)
    for _ in range(teachers):
        pair = left.flatten(1).argmax(1)
        j, k = pair // students, pair % students
        matched[every, j] = k
        left[every, j] = left[every, :, k] = -torch.inf
    others = rho.amax(1).scatter(1, matched, -torch.inf).argsort(dim=1, descending=True, stable=True)
    order = torch.cat((matched, others[:, : students - teachers]), 1)
    return Reordered(matrix.gather(1, order.unsqueeze(2).expand_as(matrix)), order)


def diagonal_mass(
    matrix: Float[Tensor, "net student teacher"], order: Int[Tensor, "net student"]
) -> Float[Tensor, "net"]:
    """The share of a matrix's squared entries that lies where student `order[j]` meets teacher node j (S2 fig 11).

    Squared, because in a wide student the many entries near zero would outweigh the few that stand out. Of a matrix of
    zeros it is 0.
    """
    square = matrix.square()
    matched = square.gather(1, order[:, None, : matrix.shape[2]]).sum((1, 2))
    total = square.sum((1, 2))
    return torch.where(total > 0, matched / total, 0.0)


def _refuse(teacher: Population, student: Population, x: Tensor) -> None:
    Pair(teacher, student, x)
    if len(teacher.layers) != len(student.layers) or teacher.sizes[-1] != student.sizes[-1]:
        raise UserError(
            f"a teacher of sizes {teacher.sizes} and a student of sizes {student.sizes} differ in layers or outputs: "
            "modulation needs both equal"
        )
    maps = tuple(_maps(population.shape) for population in (teacher, student))
    if maps[0] != maps[1]:
        raise UserError(
            f"the teacher's layers give maps of {_sides(maps[0])}, the student's of {_sides(maps[1])}: modulation "
            "compares nodes that look at the same places, so give networks with maps of one size at each layer"
        )
    if x.ndim == 3 and len(x) != len(student):
        raise UserError(f"{len(x)} sets of inputs for {len(student)} networks: give one set, or one for each network")
    if not x.shape[-2]:
        raise UserError("no samples, so nothing to average over: give at least one")


def _maps(shape: Shape) -> tuple[tuple[int, int], ...]:
    """Height and width of what every hidden layer gives; a fully connected one has one place."""
    return shape.maps + ((1, 1),) * (len(shape.positions) - len(shape.maps))


def _sides(maps: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{height} × {width}" for height, width in maps)


class _Look(NamedTuple):
    """f and f' of every hidden layer, the lowest first; a row is a sample at a position, position fastest."""

    hidden: tuple[Float[Tensor, "net row node"], ...]
    gates: tuple[Float[Tensor, "net row node"], ...]


def _gates(population: Population, x: Float[Tensor, "..."]) -> _Look:
    """What every hidden layer gives and lets through: f' is read before the activation, for it is 1 at 0 (S0 sec 3).

    Outside training BatchNorm is an affine map of each node, whose slope is part of f'.
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
    return _Look(tuple(hidden), tuple(gates))


def _fans(layers: Sequence[Layer], gates: Sequence[Tensor], shape: Shape) -> Iterator[Float[Tensor, "net row node"]]:
    """V of every hidden layer, the highest first; a row is a sample, an output and a position, position fastest.

    At the highest layer V is the output weights whatever the sample, and comes once for all of them.
    """
    outputs, positions = layers[-1].weight.shape[1], shape.positions
    v = _by_position(layers[-1].weight, positions[-1])
    yield v
    for i in range(len(layers) - 2, 0, -1):
        gated = v.unflatten(1, (-1, outputs, positions[i])) * gates[i].unflatten(1, (-1, 1, positions[i]))
        v, weight = gated.flatten(1, 3), layers[i].weight
        if weight.ndim == 5:
            v = _turned_back(v, weight, shape, i)
        else:
            v = _by_position(torch.bmm(v, weight), positions[i - 1])
        yield v


def _by_position(v: Float[Tensor, "net row flat"], positions: int) -> Float[Tensor, "net _ node"]:
    """Rows with a position each, of rows of whole feature maps, channel by channel."""
    return v.unflatten(2, (-1, positions)).transpose(2, 3).flatten(1, 2)


def _turned_back(
    v: Float[Tensor, "net row node"], weight: Float[Tensor, "net node below kernel kernel"], shape: Shape, i: int
) -> Float[Tensor, "net _ below"]:
    """V D of convolution i times W: the transposed convolution, all networks in one, a group of channels each."""
    size, below, look = shape.spatial_sizes[i + 1], shape.spatial_sizes[i], shape.resolved_convolutions[i]
    images = v.unflatten(1, (-1, *size)).permute(1, 0, 4, 2, 3).flatten(1, 2)
    # Pixels at the far sides that no step of the kernel reaches.
    missed = [(side + 2 * look.padding - look.kernel) % look.stride for side in below]
    maps = F.conv_transpose2d(
        images, weight.flatten(0, 1), None, look.stride, look.padding, output_padding=missed, groups=len(v)
    )
    return maps.unflatten(1, (len(v), -1)).permute(1, 0, 3, 4, 2).flatten(1, 3)


@torch.no_grad()
def _averages(sides: Mapping[str, Population], x: Float[Tensor, "..."], parts: set[str]) -> list[dict[str, Tensor]]:
    """Means over samples and positions, by name, of every hidden layer, the lowest first.

    Sides are the students, under "", and where a part needs them the teachers, under "_star".
    """
    student, samples, positions = sides[""], x.shape[-2], sides[""].shape.positions
    rows, width = _piece(sides, samples, bool(parts & _OF_V))
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


def _piece(sides: Mapping[str, Population], samples: int, fans: bool) -> tuple[int, int]:
    """How many samples and networks to take at a time.

    Company changes no result: the cut along samples does not depend on how many networks there are, and on a processor
    each has matrix products of its own, since a batched one may add up in another order.
    """
    numbers = 0
    for population in sides.values():
        nodes = [n * p for n, p in zip(population.sizes[1:-1], population.shape.positions, strict=True)]
        outputs = population.sizes[-1]
        # f and f' of every layer, and three of V at a time: of a layer, the same gated, and of the layer below, which a
        # convolution may have to lay out again; but V of the highest layer has no samples.
        at_once = (4 if population.image else 3) * outputs * max(nodes)
        numbers += 2 * sum(nodes) + (at_once if fans and len(nodes) > 1 else 0)
    card = sides[""].device.type != "cpu"
    piece = _CARD_PIECE if card else _CPU_PIECE
    rows = max(1, piece // numbers)
    return rows, max(1, piece // (min(rows, samples) * numbers)) if card else 1


def _sums(sides: Mapping[str, Population], x: Float[Tensor, "..."], parts: set[str]) -> list[dict[str, Tensor]]:
    """Sums over a few samples, by name, of every hidden layer, the lowest first, in float64."""
    looks = {side: _gates(population, x) for side, population in sides.items()}
    ours = looks[""]
    sums: list[dict[str, Tensor]] = [{} for _ in ours.hidden]
    for (layer, total), (side, theirs) in itertools.product(enumerate(sums), looks.items()):
        if f"d{side}" in parts:
            total[f"d{side}"] = torch.bmm(ours.gates[layer].mT, theirs.gates[layer]).double()
        if f"l{side}" in parts:
            total[f"l{side}"] = torch.bmm(ours.hidden[layer].mT, theirs.hidden[layer]).double()
    if not parts & _OF_V:
        return sums
    used = [side for side in sides if not side or parts & {f"v{side}", f"beta{side}"}]
    fans = zip(*(_fans(sides[side].layers, looks[side].gates, sides[side].shape) for side in used), strict=True)
    for total, of_layer, positions in zip(reversed(sums), fans, reversed(sides[""].shape.positions), strict=True):
        v, outputs = of_layer[0], sides[""].sizes[-1]
        # At the highest layer V comes once for all the samples.
        times = x.shape[-2] * outputs * positions // v.shape[1]
        if "energy" in parts:
            total["energy"] = times * v.square().sum(1).double()
        for side, other in zip(used, of_layer, strict=True):
            if f"v{side}" in parts:
                total[f"v{side}"] = times * other.unflatten(1, (-1, outputs, positions)).sum((1, 3)).double()
            if f"beta{side}" in parts:
                total[f"beta{side}"] = times * torch.bmm(v.mT, other).double()
    return sums


class _Side(NamedTuple):
    """A hidden layer of the teachers or of the students on every sample, the constant node last."""

    v: Float[Tensor, "net sample out node"]
    gate: Float[Tensor, "net sample node"]
    f: Float[Tensor, "net sample node"]


@torch.no_grad()
def _with_constant(population: Population, x: Float[Tensor, "..."]) -> list[_Side]:
    """Every hidden layer, the lowest first; biases are the weights of a node that is 1 and hands itself on upwards."""
    layers = []
    for i, (weight, bias) in enumerate(population.layers):
        wide = torch.cat((weight, torch.zeros_like(weight[..., :1]) if bias is None else bias.unsqueeze(2)), 2)
        if i < len(population.layers) - 1:
            wide = F.pad(wide, (0, 0, 0, 1))
            wide[:, -1, -1] = 1.0
        layers.append(Layer(wide, None))
    hidden, gates = ([F.pad(value, (0, 1), value=1.0) for value in values] for values in _gates(population, x))
    fans = [
        v.unflatten(1, (-1, population.sizes[-1])).expand(-1, x.shape[-2], -1, -1)
        for v in _fans(layers, gates, population.shape)
    ]
    return [_Side(*of_layer) for of_layer in zip(reversed(fans), gates, hidden, strict=True)]
