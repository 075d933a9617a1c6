"""S2 theorem 2: the dynamics of deep networks as products of matrices, where expectations separate.

With weights as [out, in], and rows of L* and H* students as they are defined, eqn 6 reads
Ẇ_l = H*_{l+1} W*_l L*_lᵀ − H_{l+1} W_l L_l (printed, H* lacks a transposition, and its D the index l+1).

Every layer here has a last node that is constantly 1, hands itself on to the next layer, and carries the biases as its
weights: S2's constant input, at each layer. So j° and j' of eqn 15 run over the constant node too, without which what
biases above a layer do would be lost.
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
from understudy.theory.result import Finding, Hypothesis, result

EXACT = 1e-6
"""Relative error from which on eqns 4 and 5 do not hold. Taken from squares it is no finer than 1e−8."""
_WORK = 1e10
"""Products that the check of Assumption 1 may take at one layer."""
_PIECE = 1 << 22
"""Numbers that one piece of it holds."""
_ROUNDINGS = 1e4
"""How many units in the last place sums over samples may be off."""


class _Extended(NamedTuple):
    """Teacher, student and inputs without biases, which constant nodes carry where there are any."""

    teacher: Population
    student: Population
    x: Float[Tensor, "*net sample in"]


def with_constant(population: Population) -> Population:
    """The same function of (x, 1), without biases: of every layer below the outputs the last node is constantly 1."""
    layers = []
    for i, (weight, bias) in enumerate(population.layers):
        column = torch.zeros_like(weight[..., :1]) if bias is None else bias.unsqueeze(2)
        wide = torch.cat((weight, column), 2)
        if i < len(population.layers) - 1:
            wide = F.pad(wide, (0, 0, 0, 1))
            wide[:, -1, -1] = 1.0
        layers.append(Layer(wide, None))
    return Population(tuple(layers), population.seeds, population.slope)


def _extended(teacher: Population, student: Population, x: Tensor) -> _Extended:
    if teacher.image or student.image:
        raise UserError("theorem 2 of S2 speaks of fully connected layers: give networks without convolutions")
    if all(layer.bias is None for network in (teacher, student) for layer in network.layers):
        return _Extended(teacher, student, x)
    return _Extended(with_constant(teacher), with_constant(student), F.pad(x, (0, 1), value=1.0))


@torch.no_grad()
def matrix_gradient(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> Population:
    """Ẇ of S2 eqn 6 at every layer, expectations taken over x: the velocity in the place of each weight and bias.

    At the highest layer, where H is the identity, and wherever gates do not change over x, it is minus the gradient.
    """
    moves = [pull - push for pull, push in _terms(teacher, student, x)]
    layers = [
        Layer(move[..., : own.weight.shape[2]], None if own.bias is None else move[..., -1])
        for move, own in zip(moves, student.layers, strict=True)
    ]
    return Population(tuple(layers), student.seeds, student.slope)


def _terms(teacher: Population, student: Population, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """H* W* L*ᵀ and H W L at every layer, rows of the student's own nodes; the last column is that of the biases."""
    theirs, ours, inputs = _extended(teacher, student, x)
    found = modulation(theirs, ours, inputs, ("h_star", "h", "l_star", "l"))
    first = inputs.mT @ inputs / inputs.shape[-2]
    terms = []
    for i, (star, new) in enumerate(zip(theirs.layers, ours.layers, strict=True)):
        pull, push = star.weight, new.weight
        if i < len(found):
            pull, push = _there(found[i].h_star) @ pull, _there(found[i].h) @ push
        pull = pull @ (_there(found[i - 1].l_star).mT if i else first)
        push = push @ (_there(found[i - 1].l) if i else first)
        rows = student.sizes[i + 1]
        terms.append((pull[:, :rows], push[:, :rows]))
    return terms


def _there(part: Tensor | None) -> Tensor:
    assert part is not None, "it was asked for"
    return part


class Comparison(NamedTuple):
    """The velocity of eqn 6 beside that of backpropagation, at one layer, biases included."""

    distance: Float[Tensor, "net"]
    """Length of the difference, relative to the length of the true one."""
    cosine: Float[Tensor, "net"]
    gap: Float[Tensor, "net"]
    """Length of the difference itself."""
    rounding: Float[Tensor, "net"]
    """Below this two lengths are one: eqn 6 may be far smaller than what it is the difference of."""


@torch.no_grad()
def compared(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[Comparison, ...]:
    """How far eqn 6 is from the expected gradient on the same inputs, at every layer, the lowest first."""
    layers = zip(_terms(teacher, student, x), velocity(teacher, student, x).layers, strict=True)
    return tuple(_comparison(pull, push, true) for (pull, push), true in layers)


def _comparison(pull: Float[Tensor, "net out in"], push: Float[Tensor, "net out in"], layer: Layer) -> Comparison:
    true = layer.weight if layer.bias is None else torch.cat((layer.weight, layer.bias.unsqueeze(2)), 2)
    separated = (pull - push)[..., : true.shape[2]]
    gap, length, other, whole = (part.flatten(1).norm(dim=1) for part in (separated - true, true, separated, push))
    rounding = _ROUNDINGS * torch.finfo(whole.dtype).eps * whole
    # Two velocities of nothing but rounding are equal; where one of them is nothing, there is no direction to share.
    still = torch.maximum(length, other) <= rounding
    cosine = torch.where(other * length == 0, 0.0, (separated * true).sum((1, 2)) / (other * length))
    return Comparison(torch.where(still, 0.0, gap / length), torch.where(still, 1.0, cosine), gap, rounding)


class Separation(NamedTuple):
    """How far eqn 4 (`star`) and eqn 5 are from holding at one layer, as lengths over all four indices."""

    star: Float[Tensor, "net"]
    plain: Float[Tensor, "net"]
    """Length of the difference of both sides, relative to the length of the left one."""
    bound: Float[Tensor, "net"]
    """‖W*‖ and ‖W‖ times these lengths, added up: by Cauchy and Schwarz eqn 6 is no further off (see eqn 15)."""


class _Seen(NamedTuple):
    """A hidden layer on every sample: V, the gates, and what comes from below."""

    v: Float[Tensor, "sample out node"]
    gates: Float[Tensor, "sample node"]
    below: Float[Tensor, "sample under"]


@torch.no_grad()
def separation(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[Separation, ...]:
    """Assumption 1 on the data at every layer but the highest, where it is no assumption; the lowest first."""
    extended = _extended(teacher, student, x)
    each = []
    for net in range(len(student)):
        inputs = extended.x[net] if x.ndim == 3 else extended.x
        theirs, ours = (_seen(population[net], inputs) for population in extended[:2])
        each.append([_separation(*layer) for layer in zip(ours, theirs, student.sizes[1:], strict=False)])
    found = []
    for i, layer in enumerate(zip(*each, strict=True)):
        (star, plain), (star_size, plain_size) = (torch.stack(part, 1) for part in zip(*layer, strict=True))
        theirs_w, ours_w = (population.layers[i].weight.flatten(1).norm(dim=1) for population in extended[:2])
        bound = theirs_w * star + ours_w * plain
        found.append(Separation(_relative(star, star_size), _relative(plain, plain_size), bound))
    return tuple(found)


def _relative(gap: Float[Tensor, "net"], size: Float[Tensor, "net"]) -> Float[Tensor, "net"]:
    """Where a layer is dead both sides are 0, and equal."""
    return torch.where(gap == 0, 0.0, gap / size)


def _seen(network: Population, x: Float[Tensor, "sample in"]) -> list[_Seen]:
    """Every hidden layer of one network, the lowest first."""
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
    return [_Seen(*layer) for layer in zip(reversed(fans), gates, below, strict=True)]


def _separation(ours: _Seen, theirs: _Seen, nodes: int) -> tuple[Tensor, Tensor]:
    """Lengths of the differences of eqns 4 and 5, and of their left sides, over the student's own `nodes`."""
    own = _Seen(ours.v[..., :nodes], ours.gates[:, :nodes], ours.below)
    pairs = [_apart(own, side) for side in (theirs, ours)]
    return torch.stack([gap for gap, _ in pairs]), torch.stack([size for _, size in pairs])


def _apart(ours: _Seen, other: _Seen) -> tuple[Tensor, Tensor]:
    """‖E[a ⊗ b] − E[β]∘D ⊗ L‖ and ‖E[a ⊗ b]‖, where a = β ∘ gates and b = f f°ᵀ: both sides of eqns 4 and 5."""
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
    """The four-index arrays themselves, a few nodes at a time."""
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
    """By inner products of samples: ‖E[a ⊗ b]‖² is the mean over pairs of them of ⟨a, a'⟩⟨b, b'⟩.

    Differences of squares leave no more than 1e−8 of a length.
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


class Look(NamedTuple):
    """Students on their way, seen on evaluation inputs."""

    step: int
    loss: Float[Tensor, "net"]
    """Squared error averaged over samples and outputs."""
    rho: tuple[Float[Tensor, "net teacher student"], ...]
    """Correlations at every hidden layer."""
    velocities: tuple[Comparison, ...]
    apart: tuple[Separation, ...]


def path(
    teacher: Population,
    student: Population,
    batches: Iterable[Float[Tensor, "net sample in"]],
    lr: float,
    along: Velocity,
    x: Float[Tensor, "net evaluation in"],
    every: int,
    few: int,
) -> Iterator[Look]:
    """A look at the start and every so many steps; Assumption 1 is seen on the first few of the evaluation inputs."""
    for step, now in enumerate(chain((student,), descent(teacher, student, batches, lr, along))):
        if step % every == 0:
            theirs, ours = teacher.activations(x), now.activations(x)
            loss = (theirs.output - ours.output).square().mean((1, 2))
            rho = tuple(correlation(*pair) for pair in zip(theirs.hidden, ours.hidden, strict=True))
            yield Look(step, loss, rho, compared(teacher, now, x), separation(teacher, now, x[:, :few]))


def _affordable(student: Population, samples: int) -> int:
    """How many samples Assumption 1 can be checked on."""
    widest = max(student.sizes[:-1]) + 1
    over_nodes = _WORK / widest**4
    over_samples = (_WORK / (2 * widest)) ** 0.5 / student.sizes[-1]
    return min(samples, max(2, int(max(over_nodes, over_samples))))


@result(
    "S2 theorem 2",
    title="Matrix dynamics",
    statement="where the expectations of β, of gates and of activations separate, the weights of a layer move by Ẇ = "
    "L*W*H* − LWH",
    measured="the errors of the two factorisations (eqns 4 and 5), then the difference between Ẇ and minus the "
    "gradient, next to the bound that these errors give",
    subject="dynamics",
)
def matrix_dynamics(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """A finding a layer: eqns 4 and 5 on as many samples as can be afforded, the two velocities on all."""
    some = x[: _affordable(student, len(x))]
    whole, part = (compared(teacher, student, inputs) for inputs in (x, some))
    apart = (*separation(teacher, student, some), None)
    return [_finding(i, *each, len(some)) for i, each in enumerate(zip(whole, part, apart, strict=True))]


def _finding(layer: int, found: Comparison, part: Comparison, apart: Separation | None, samples: int) -> Finding:
    """What is found on all samples; whether it is as the bound says, on those that the bound is of."""
    bound = float(apart.bound) if apart else 0.0
    return Finding(
        "S2 theorem 2",
        f"the weights of layer {layer}" + ("" if apart else ", those of the outputs"),
        _hypotheses(apart, samples) if apart else (),
        "L*W*H* − LWH is minus the gradient"
        + (f"; with the errors of eqns 4 and 5 as they are, no further off than {bound:.1e}" if apart else ""),
        f"{float(found.gap):.1e} apart, which is {float(found.distance):.1e} of the gradient; "
        f"cosine {float(found.cosine):.3f}",
        float(part.gap) <= bound + float(part.rounding),
    )


def _hypotheses(layer: Separation, samples: int) -> tuple[Hypothesis, ...]:
    return tuple(
        Hypothesis(
            f"Assumption 1, eqn {number}",
            f"relative error {float(error):.1e} on {samples:,} samples",
            f"0 (at most {EXACT:g})",
            float(error) <= EXACT,
            "" if float(error) <= EXACT else "data on which no gate changes, or a network without gates",
            max(1.0, float(error) / EXACT),
        )
        for number, error in ((4, layer.star), (5, layer.plain))
    )
