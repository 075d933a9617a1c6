"""V, A and B of every sample (Tian 2020, Definition 2 and Lemma 1), for small networks."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.data.source import Inputs
from understudy.measures.modulation import backpropagate, gated_activations, require_comparable
from understudy.nets import Layer, Population


class SampleModulation(NamedTuple):
    """V, A and B of one hidden layer per sample; the last node is the constant 1 of the biases (Tian 2020, sec. 3)."""

    v: Float[Tensor, "net sample out student"]
    v_star: Float[Tensor, "net sample out teacher"]
    a: Float[Tensor, "net sample student teacher"]
    b: Float[Tensor, "net sample student student"]
    gate: Float[Tensor, "net sample student"]
    f: Float[Tensor, "net sample student"]
    f_star: Float[Tensor, "net sample teacher"]

    @property
    def gradient(self) -> Float[Tensor, "net sample node"]:
        """Gradient g = D (A f* − B f) without the constant node (Tian 2020, Lemma 1, eq. 5).

        It is −∂/∂z of ½‖f*_L − f_L‖² for the pre-activations z.
        """
        pull = self.a @ self.f_star.unsqueeze(3) - self.b @ self.f.unsqueeze(3)
        return (self.gate * pull.squeeze(3))[..., :-1]


def sample_modulation(teacher: Population, student: Population, x: Inputs) -> tuple[SampleModulation, ...]:
    """Compute V, A and B of every sample at every hidden layer (Tian 2020, Definition 2, Lemma 1).

    For small networks, since B has samples × n² entries.

    Args:
        teacher: Fully connected teachers without BatchNorm, paired with the students by index.
        student: Students with as many layers and outputs.
        x: Inputs shared by all pairs, or one set per pair.

    Returns:
        One result per hidden layer, the lowest first.

    Raises:
        UserError: Networks with convolutions or BatchNorm, or networks and inputs that do not fit.
    """
    if teacher.image or student.image:
        # With channels as nodes, A and B would contain pairs at one position only, but g needs all pairs.
        raise UserError(
            "V, A and B per sample are not defined for convolutions, where the gradient at a position depends on pairs "
            "of nodes at all positions: give fully connected networks, or use the averages of modulation"
        )
    require_comparable(teacher, student, x)
    if teacher.norms or student.norms:
        raise UserError("V, A and B per sample are not defined with BatchNorm: give networks without it")
    ours, theirs = _add_constant_node(student, x), _add_constant_node(teacher, x)
    return tuple(
        SampleModulation(s.v, t.v, _products(s.v, t.v), _products(s.v, s.v), s.gate, s.f, t.f)
        for s, t in zip(ours, theirs, strict=True)
    )


def _products(
    v: Float[Tensor, "net sample out node"], other: Float[Tensor, "net sample out other"]
) -> Float[Tensor, "net sample node other"]:
    """Vᵀ V° of every sample; once where both are the same for all samples, as below the outputs."""
    if v.stride(1) == other.stride(1) == 0:
        return (v[:, :1].mT @ other[:, :1]).expand(-1, v.shape[1], -1, -1)
    return v.mT @ other


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


class _Side(NamedTuple):
    """One hidden layer of the teachers or of the students on every sample, with the constant node last."""

    v: Float[Tensor, "net sample out node"]
    gate: Float[Tensor, "net sample node"]
    f: Float[Tensor, "net sample node"]


@torch.no_grad()
def _add_constant_node(population: Population, x: Float[Tensor, "..."]) -> list[_Side]:
    """Compute every hidden layer, the lowest first, with biases as weights of a node that is always 1."""
    layers = absorb_biases(population).layers
    hidden, gates = (
        [F.pad(value, (0, 1), value=1.0) for value in values] for values in gated_activations(population, x)
    )
    fans = [
        v.unflatten(1, (-1, population.sizes[-1])).expand(-1, x.shape[-2], -1, -1)
        for v in backpropagate(layers, gates, population.shape)
    ]
    return [_Side(*of_layer) for of_layer in zip(reversed(fans), gates, hidden, strict=True)]
