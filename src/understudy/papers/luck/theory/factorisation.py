"""Matrix dynamics of deep networks under factorised expectations (Tian et al. 2019, assumption 1 and theorem 2).

With weights stored as [out, in] and student nodes as the rows of L* and H*, eqn 6 of the paper reads
Ẇ_l = H*_{l+1} W*_l L*_lᵀ − H_{l+1} W_l L_l (as printed, a transposition of H* and the index l+1 of its D are missing).

Biases are the weights of a constant node: every layer below the outputs gets a last node with value 1, which passes on
to the next layer. The paper has a constant input only. The sums over j° and j' in eqn 15 then include the constant
nodes, without which the effect of biases in higher layers would be lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.measures import correlation, modulation
from understudy.nets import Layer, Population, gate, incoming, outgoing
from understudy.theory.gradient_flow import Velocity, descent, velocity
from understudy.theory.result import Finding, Hypothesis, at_most, result

EXACT = 1e-6
"""Relative error up to which eqns 4 and 5 count as exact; computed from squares, it is accurate to about 1e−8."""
_WORK = 1e10
"""Maximum number of products that the check of assumption 1 computes at one layer."""
_PIECE = 1 << 22
"""Numbers held in memory at once by this check."""
_ROUNDINGS = 1e4
"""Rounding error of sums over samples, in units in the last place."""


class _WithoutBiases(NamedTuple):
    """Teacher, student and inputs, with biases as the weights of constant nodes."""

    teacher: Population
    student: Population
    x: Float[Tensor, "*net sample in"]


def absorb_biases(population: Population) -> Population:
    """Turn biases into weights of constant nodes: the same function of (x, 1), each hidden layer ending in a node 1."""
    layers = []
    for i, (weight, bias) in enumerate(population.layers):
        column = torch.zeros_like(weight[..., :1]) if bias is None else bias.unsqueeze(2)
        wide = torch.cat((weight, column), 2)
        if i < len(population.layers) - 1:
            wide = F.pad(wide, (0, 0, 0, 1))
            wide[:, -1, -1] = 1.0
        layers.append(Layer(wide, None))
    return Population(tuple(layers), population.seeds, population.slope)


def _without_biases(teacher: Population, student: Population, x: Tensor) -> _WithoutBiases:
    if teacher.image or student.image:
        raise UserError("S2 theorem 2 is about fully connected layers: give networks without convolutions")
    if all(layer.bias is None for network in (teacher, student) for layer in network.layers):
        return _WithoutBiases(teacher, student, x)
    return _WithoutBiases(absorb_biases(teacher), absorb_biases(student), F.pad(x, (0, 1), value=1.0))


@torch.no_grad()
def matrix_gradient(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> Population:
    """Velocity Ẇ of every weight and bias by Tian et al. 2019, eqn 6, with expectations over x.

    It is the negative gradient at the highest layer, where H is the identity, and wherever no gate changes over x.
    """
    moves = [pull - push for pull, push in _terms(teacher, student, x)]
    layers = [
        Layer(move[..., : own.weight.shape[2]], None if own.bias is None else move[..., -1])
        for move, own in zip(moves, student.layers, strict=True)
    ]
    return Population(tuple(layers), student.seeds, student.slope)


def _terms(teacher: Population, student: Population, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """H* W* L*ᵀ and H W L at every layer, for the student's own nodes; biases are the last column."""
    theirs, ours, inputs = _without_biases(teacher, student, x)
    found = modulation(theirs, ours, inputs, ("h_star", "h", "l_star", "l"))
    first = inputs.mT @ inputs / inputs.shape[-2]
    terms = []
    for i, (star, new) in enumerate(zip(theirs.layers, ours.layers, strict=True)):
        pull, push = star.weight, new.weight
        if i < len(found):
            pull, push = _present(found[i].h_star) @ pull, _present(found[i].h) @ push
        pull = pull @ (_present(found[i - 1].l_star).mT if i else first)
        push = push @ (_present(found[i - 1].l) if i else first)
        rows = student.sizes[i + 1]
        terms.append((pull[:, :rows], push[:, :rows]))
    return terms


def _present(part: Tensor | None) -> Tensor:
    assert part is not None, "`modulation` computes the requested parts"
    return part


class VelocityComparison(NamedTuple):
    """The velocity of eqn 6 compared with that of backpropagation, at one layer, biases included."""

    distance: Float[Tensor, "net"]
    """Length of the difference, relative to the velocity of backpropagation."""
    cosine: Float[Tensor, "net"]
    """Cosine of the two velocities."""
    gap: Float[Tensor, "net"]
    """Length of the difference."""
    rounding: Float[Tensor, "net"]
    """Rounding error of `gap`: eqn 6 may be far smaller than the two terms it is the difference of."""


@torch.no_grad()
def compare_velocities(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[VelocityComparison, ...]:
    """Compare eqn 6 with backpropagation on the same inputs, at every layer, lowest first."""
    layers = zip(_terms(teacher, student, x), velocity(teacher, student, x).layers, strict=True)
    return tuple(_compare(pull, push, true) for (pull, push), true in layers)


def _compare(pull: Float[Tensor, "net out in"], push: Float[Tensor, "net out in"], layer: Layer) -> VelocityComparison:
    true = layer.weight if layer.bias is None else torch.cat((layer.weight, layer.bias.unsqueeze(2)), 2)
    matrix = (pull - push)[..., : true.shape[2]]
    gap, length, other, whole = (part.flatten(1).norm(dim=1) for part in (matrix - true, true, matrix, push))
    rounding = _ROUNDINGS * torch.finfo(whole.dtype).eps * whole
    # Two velocities within rounding of 0 count as equal; a velocity of 0 has no direction, and cosine 0.
    still = torch.maximum(length, other) <= rounding
    cosine = torch.where(other * length == 0, 0.0, (matrix * true).sum((1, 2)) / (other * length))
    return VelocityComparison(torch.where(still, 0.0, gap / length), torch.where(still, 1.0, cosine), gap, rounding)


class FactorisationGap(NamedTuple):
    """Errors of eqns 4 and 5 at one layer, as norms over all four indices."""

    star: Float[Tensor, "net"]
    """Norm of the difference of both sides of eqn 4, relative to the left side."""
    plain: Float[Tensor, "net"]
    """Norm of the difference of both sides of eqn 5, relative to the left side."""
    bound: Float[Tensor, "net"]
    """Bound on the error of eqn 6 by Cauchy-Schwarz: ‖W*‖ and ‖W‖ times the two norms, summed (see eqn 15)."""


class _LayerSignals(NamedTuple):
    """A hidden layer on every sample: V, the gates, and the activations of the layer below."""

    v: Float[Tensor, "sample out node"]
    gates: Float[Tensor, "sample node"]
    below: Float[Tensor, "sample under"]


@torch.no_grad()
def factorisation_gaps(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[FactorisationGap, ...]:
    """Measure the errors of assumption 1 at every layer but the highest, where it always holds; lowest first."""
    networks = _without_biases(teacher, student, x)
    each = []
    for net in range(len(student)):
        inputs = networks.x[net] if x.ndim == 3 else networks.x
        theirs, ours = (_layer_signals(population[net], inputs) for population in networks[:2])
        each.append([_gaps_and_sizes(*layer) for layer in zip(ours, theirs, student.sizes[1:], strict=False)])
    found = []
    for i, layer in enumerate(zip(*each, strict=True)):
        (star, plain), (star_size, plain_size) = (torch.stack(part, 1) for part in zip(*layer, strict=True))
        theirs_w, ours_w = (population.layers[i].weight.flatten(1).norm(dim=1) for population in networks[:2])
        bound = theirs_w * star + ours_w * plain
        found.append(FactorisationGap(_relative(star, star_size), _relative(plain, plain_size), bound))
    return tuple(found)


def _relative(gap: Float[Tensor, "net"], size: Float[Tensor, "net"]) -> Float[Tensor, "net"]:
    """gap / size; 0 at a dead layer, where both sides are 0."""
    return torch.where(gap == 0, 0.0, gap / size)


def _layer_signals(network: Population, x: Float[Tensor, "sample in"]) -> list[_LayerSignals]:
    """Signals of every hidden layer of one network, lowest first."""
    h, below, gates = x, [], []
    for i in range(len(network.layers) - 1):
        before = incoming(network, i, h)
        below.append(h if i == 0 else h[0])
        gates.append(gate(before, network.slope).to(h.dtype)[0])
        h, _ = outgoing(network, i, before)
    v = network.layers[-1].weight.expand(len(x), -1, -1)
    fans = [v]
    for layer, slopes in zip(network.layers[-2:0:-1], gates[:0:-1], strict=True):
        v = (v * slopes.unsqueeze(1)) @ layer.weight[0]
        fans.append(v)
    return [_LayerSignals(*layer) for layer in zip(reversed(fans), gates, below, strict=True)]


def _gaps_and_sizes(ours: _LayerSignals, theirs: _LayerSignals, nodes: int) -> tuple[Tensor, Tensor]:
    """Norms of the differences in eqns 4 and 5, and of their left sides, over the student's own `nodes`."""
    own = _LayerSignals(ours.v[..., :nodes], ours.gates[:, :nodes], ours.below)
    pairs = [_gap_and_size(own, side) for side in (theirs, ours)]
    return torch.stack([gap for gap, _ in pairs]), torch.stack([size for _, size in pairs])


def _gap_and_size(ours: _LayerSignals, other: _LayerSignals) -> tuple[Tensor, Tensor]:
    """‖E[a ⊗ b] − E[β]∘D ⊗ L‖ and ‖E[a ⊗ b]‖ for a = β ∘ gates and b = f f°ᵀ (eqns 4 and 5)."""
    samples, outputs, nodes = ours.v.shape
    u, w = (side.v * side.gates.unsqueeze(1) for side in (ours, other))
    beta = ours.v.flatten(0, 1).T @ other.v.flatten(0, 1) / samples
    h = beta * (ours.gates.T @ other.gates / samples)
    lower = ours.below.T @ other.below / samples
    pairs = [nodes, w.shape[2], ours.below.shape[1], other.below.shape[1]]
    few = math.prod(pairs) < samples * outputs**2 * (nodes + w.shape[2])
    return (_over_nodes if few else _over_samples)(u, w, ours.below, other.below, h, lower)


def _over_nodes(
    u: Tensor, w: Tensor, f: Tensor, g: Tensor, h: Float[Tensor, "node other"], lower: Float[Tensor, "under below"]
) -> tuple[Tensor, Tensor]:
    """Compute the four-index arrays explicitly, a few nodes at a time."""
    samples, gap, size = len(u), u.new_zeros(()), u.new_zeros(())
    few = max(1, _PIECE // (max(samples, h.shape[0] * h.shape[1]) * g.shape[1]))
    a = (u.mT @ w).flatten(1)
    for k in range(0, f.shape[1], few):
        b = (f[:, k : k + few].unsqueeze(2) * g.unsqueeze(1)).flatten(1)
        whole = a.T @ b / samples
        size += whole.square().sum()
        gap += (whole - torch.outer(h.flatten(), lower[k : k + few].flatten())).square().sum()
    return gap.sqrt(), size.sqrt()


def _over_samples(
    u: Tensor, w: Tensor, f: Tensor, g: Tensor, h: Float[Tensor, "node other"], lower: Float[Tensor, "under below"]
) -> tuple[Tensor, Tensor]:
    """Use inner products of samples: ‖E[a ⊗ b]‖² is the mean of ⟨a, a'⟩⟨b, b'⟩ over pairs of samples.

    Computed as a difference of squares, a norm is accurate to about 1e−8 of its size.
    """
    samples, outputs = u.shape[:2]
    whole = u.new_zeros(())
    rows = max(1, _PIECE // (samples * outputs**2))
    for start in range(0, samples, rows):
        some = slice(start, start + rows)
        a = (_inner(u[some], u) * _inner(w[some], w)).sum((1, 3))
        whole += (a * (f[some] @ f.T) * (g[some] @ g.T)).sum()
    whole /= samples**2
    met = (((u @ h) * w).sum((1, 2)) * ((f @ lower) * g).sum(1)).mean()
    gap = whole - 2 * met + h.square().sum() * lower.square().sum()
    return gap.clamp_min(0).sqrt(), whole.sqrt()


def _inner(
    some: Float[Tensor, "few out node"], every: Float[Tensor, "sample out node"]
) -> Float[Tensor, "few out sample out"]:
    product = some.flatten(0, 1) @ every.flatten(0, 1).T
    return product.view(*some.shape[:2], *every.shape[:2])


class DescentReading(NamedTuple):
    """Measurements of students during training, on evaluation inputs."""

    step: int
    loss: Float[Tensor, "net"]
    """Squared error averaged over samples and outputs."""
    rho: tuple[Float[Tensor, "net teacher student"], ...]
    """Correlations at every hidden layer."""
    velocities: tuple[VelocityComparison, ...]
    gaps: tuple[FactorisationGap, ...]


def probe_descent(
    teacher: Population,
    student: Population,
    batches: Iterable[Float[Tensor, "net sample in"]],
    lr: float,
    along: Velocity,
    x: Float[Tensor, "net evaluation in"],
    every: int,
    few: int,
) -> Iterator[DescentReading]:
    """Train and probe at the start and every `every` steps; assumption 1 on the first `few` evaluation inputs."""
    for step, now in enumerate(chain((student,), descent(teacher, student, batches, lr, along))):
        if step % every == 0:
            theirs, ours = teacher.activations(x), now.activations(x)
            loss = (theirs.output - ours.output).square().mean((1, 2))
            rho = tuple(correlation(*pair) for pair in zip(theirs.hidden, ours.hidden, strict=True))
            velocities, gaps = compare_velocities(teacher, now, x), factorisation_gaps(teacher, now, x[:, :few])
            yield DescentReading(step, loss, rho, velocities, gaps)


def _affordable_samples(student: Population, samples: int) -> int:
    """Number of samples on which assumption 1 can be checked."""
    widest = max(student.sizes[:-1]) + 1
    over_nodes = _WORK / widest**4
    over_samples = (_WORK / (2 * widest)) ** 0.5 / student.sizes[-1]
    return min(samples, max(2, int(max(over_nodes, over_samples))))


@result(
    "S2 theorem 2",
    title="Matrix dynamics",
    statement="where the expectations of β, of gates and of activations factorise, the weights of a layer move by Ẇ = "
    "L*W*H* − LWH",
    measured="the errors of the two factorisations (eqns 4 and 5), then the difference between Ẇ and minus the "
    "gradient, next to the bound that these errors give",
    subject="dynamics",
)
def matrix_dynamics(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Check theorem 2 at every layer: eqns 4 and 5 on as many samples as affordable, the velocities on all."""
    some = x[: _affordable_samples(student, len(x))]
    whole, part = (compare_velocities(teacher, student, inputs) for inputs in (x, some))
    gaps = (*factorisation_gaps(teacher, student, some), None)
    return [_finding(i, *each, len(some)) for i, each in enumerate(zip(whole, part, gaps, strict=True))]


def _finding(
    layer: int, found: VelocityComparison, part: VelocityComparison, gap: FactorisationGap | None, samples: int
) -> Finding:
    """Report the velocities on all samples; they agree with the bound on the samples for which it was computed."""
    bound = float(gap.bound) if gap else 0.0
    return Finding(
        "S2 theorem 2",
        f"the weights of layer {layer}" + ("" if gap else " (the outputs)"),
        _hypotheses(gap, samples) if gap else (),
        "L*W*H* − LWH is the negative gradient"
        + (f"; with the measured errors of eqns 4 and 5 it differs by at most {bound:.1e}" if gap else ""),
        f"they differ by {float(found.gap):.1e}, which is {float(found.distance):.1e} of the gradient; "
        f"cosine {float(found.cosine):.3f}",
        float(part.gap) <= bound + float(part.rounding),
    )


def _hypotheses(layer: FactorisationGap, samples: int) -> tuple[Hypothesis, ...]:
    return tuple(
        at_most(
            f"Assumption 1, eqn {number}",
            float(error),
            EXACT,
            shown=f"relative error {float(error):.1e} on {samples:,} samples",
            requirement=f"0 (at most {EXACT:g})",
            change="data on which no gate changes, or a network without gates",
        )
        for number, error in ((4, layer.star), (5, layer.plain))
    )
