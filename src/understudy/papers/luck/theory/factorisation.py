"""Factorisation of expectations over β, gates and activations (Tian et al. 2019, assumption 1).

Biases are the weights of a constant node: every layer below the outputs gets a last node with value 1, which passes on
to the next layer. The paper has a constant input only. The sums over j° and j' in eqn 15 then include the constant
nodes, without which the effect of biases in higher layers would be lost.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.measures.modulation import backpropagate, gated_activations
from understudy.measures.sample_modulation import absorb_biases
from understudy.nets import Population

_NEAR = 1e-4
"""Relative error below which a difference of squares is not precise enough."""
_PIECE = 1 << 22
"""Numbers held in memory at once by this check."""


def without_biases(teacher: Population, student: Population, x: Tensor) -> tuple[Population, Population, Tensor]:
    """Absorb the biases of teacher and student, if there are any, and append a constant 1 to the inputs."""
    if teacher.image or student.image:
        raise UserError("matrix dynamics are defined for fully connected layers: give networks without convolutions")
    if all(layer.bias is None for network in (teacher, student) for layer in network.layers):
        return teacher, student, x
    return absorb_biases(teacher), absorb_biases(student), F.pad(x, (0, 1), value=1.0)


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

    @property
    def gated(self) -> Float[Tensor, "sample out node"]:
        """V of the nodes that pass the sample."""
        return self.v * self.gates.unsqueeze(1)


@torch.no_grad()
def factorisation_gaps(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[FactorisationGap, ...]:
    """Measure the errors of assumption 1 at every layer but the highest, where it always holds; lowest first."""
    *networks, inputs = without_biases(teacher, student, x)
    each = []
    for net in range(len(student)):
        theirs, ours = (_layer_signals(network[net], inputs[net] if x.ndim == 3 else inputs) for network in networks)
        each.append([_gaps_and_sizes(*layer) for layer in zip(ours, theirs, student.sizes[1:], strict=False)])
    found = []
    for i, layer in enumerate(zip(*each, strict=True)):
        gaps, sizes = (torch.stack(part, 1) for part in zip(*layer, strict=True))
        theirs_w, ours_w = (network.layers[i].weight.flatten(1).norm(dim=1) for network in networks)
        star, plain = torch.where(gaps == 0, 0.0, gaps / sizes)  # 0 at a dead layer, where both sides are 0
        found.append(FactorisationGap(star, plain, theirs_w * gaps[0] + ours_w * gaps[1]))
    return tuple(found)


def _layer_signals(network: Population, x: Float[Tensor, "sample in"]) -> list[_LayerSignals]:
    """Signals of every hidden layer of one network, lowest first."""
    hidden, gates = gated_activations(network, x)
    rows = (v[0].unflatten(0, (-1, network.sizes[-1])) for v in backpropagate(network.layers, gates, network.shape))
    fans = reversed([v.expand(len(x), -1, -1) for v in rows])
    below = (x, *(h[0] for h in hidden[:-1]))
    return [_LayerSignals(v, slopes[0], f) for v, slopes, f in zip(fans, gates, below, strict=True)]


def _gaps_and_sizes(ours: _LayerSignals, theirs: _LayerSignals, nodes: int) -> tuple[Tensor, Tensor]:
    """Norms of the differences in eqns 4 and 5, and of their left sides, over the student's own `nodes`."""
    own = _LayerSignals(ours.v[..., :nodes], ours.gates[:, :nodes], ours.below)
    pairs = [_gap_and_size(own, side) for side in (theirs, ours)]
    return torch.stack([gap for gap, _ in pairs]), torch.stack([size for _, size in pairs])


def _gap_and_size(ours: _LayerSignals, other: _LayerSignals) -> tuple[Tensor, Tensor]:
    """‖E[a ⊗ b] − E[β]∘D ⊗ L‖ and ‖E[a ⊗ b]‖ for a = β ∘ gates and b = f f°ᵀ (eqns 4 and 5)."""
    samples, outputs, nodes = ours.v.shape
    beta = ours.v.flatten(0, 1).T @ other.v.flatten(0, 1) / samples
    h = beta * (ours.gates.T @ other.gates / samples)
    lower = ours.below.T @ other.below / samples
    over_nodes = math.prod((nodes, other.v.shape[2], ours.below.shape[1], other.below.shape[1]))
    few = over_nodes < samples * outputs**2 * (nodes + other.v.shape[2])
    if few and not (_has_one_v(ours, other) and samples * nodes * other.v.shape[2] < over_nodes):
        return _over_nodes(ours, other, h, lower)
    gap, size = _over_samples(ours, other, h, lower)
    # What is left of two nearly equal sums of squares is not precise.
    return _over_nodes(ours, other, h, lower) if few and gap < _NEAR * size else (gap, size)


def _over_nodes(ours: _LayerSignals, other: _LayerSignals, h: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the four-index arrays explicitly, a few nodes at a time."""
    f, g, samples = ours.below, other.below, len(ours.gates)
    gap, size = f.new_zeros(()), f.new_zeros(())
    few = max(1, _PIECE // (max(samples, h.shape[0] * h.shape[1]) * g.shape[1]))
    a = (ours.gated.mT @ other.gated).flatten(1)
    for k in range(0, f.shape[1], few):
        b = (f[:, k : k + few].unsqueeze(2) * g.unsqueeze(1)).flatten(1)
        whole = a.T @ b / samples
        size += whole.square().sum()
        gap += (whole - torch.outer(h.flatten(), lower[k : k + few].flatten())).square().sum()
    return gap.sqrt(), size.sqrt()


def _has_one_v(ours: _LayerSignals, other: _LayerSignals) -> bool:
    """Whether V is stored once for all samples, as it is below the outputs."""
    return ours.v.stride(0) == other.v.stride(0) == 0


Products = Iterator[tuple[slice, Float[Tensor, "some sample"]]]
"""Inner products ⟨a, a'⟩ of some samples with all, and which these are."""


def _products(u: Float[Tensor, "sample out node"], w: Float[Tensor, "sample out other"]) -> Products:
    """⟨a, a'⟩ of a = uᵀw, a few samples at a time."""
    samples, outputs = u.shape[:2]
    for some in _slices(samples, samples * outputs**2):
        inner = [torch.tensordot(part[some], part, ([2], [2])) for part in (u, w)]  # [some, out, sample, out]
        yield some, (inner[0] * inner[1]).sum((1, 3))


def _products_of_gates(ours: _LayerSignals, other: _LayerSignals) -> Products:
    """⟨a, a'⟩ where V is the same for all samples: a is β ∘ gates, so that Σ β² z z' z° z°' remains."""
    z, y, squares = ours.gates, other.gates, (ours.v[0].T @ other.v[0]).square()
    for some in _slices(len(z), len(z) * (z.shape[1] + y.shape[1])):
        both = (z[some].unsqueeze(1) * z) @ squares
        yield some, (both * (y[some].unsqueeze(1) * y)).sum(2)


def _slices(samples: int, numbers: int) -> Iterator[slice]:
    """Some samples at a time, each of which takes this many numbers."""
    rows = max(1, _PIECE // numbers)
    return (slice(start, start + rows) for start in range(0, samples, rows))


def _over_samples(ours: _LayerSignals, other: _LayerSignals, h: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
    """Use inner products of samples: ‖E[a ⊗ b]‖² is the mean of ⟨a, a'⟩⟨b, b'⟩ over pairs of samples.

    Computed as a difference of squares, a norm is accurate to about 10⁻⁸ of its size.
    """
    u, w, f, g = ours.gated, other.gated, ours.below, other.below
    samples, whole = len(u), u.new_zeros(())
    outputs, nodes, others = u.shape[1], u.shape[2], w.shape[2]
    by_gates = _has_one_v(ours, other) and nodes * others < outputs**2 * (nodes + others)
    for some, a in _products_of_gates(ours, other) if by_gates else _products(u, w):
        whole += (a * (f[some] @ f.T) * (g[some] @ g.T)).sum()
    whole /= samples**2
    met = (((u @ h) * w).sum((1, 2)) * ((f @ lower) * g).sum(1)).mean()
    gap = whole - 2 * met + h.square().sum() * lower.square().sum()
    return gap.clamp_min(0).sqrt(), whole.sqrt()
