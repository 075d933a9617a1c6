"""What a network is: always a population, E networks of one shape in stacked tensors, of which one is E = 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets.activation import activate


class Layer(NamedTuple):
    """An affine map of every network. Convolutions and normalisations will stand beside it, not inside it."""

    weight: Float[Tensor, "net out in"]
    bias: Float[Tensor, "net out"] | None


class Activations(NamedTuple):
    """What every node gives on every sample: hidden layers from the lowest up, then the outputs."""

    hidden: tuple[Float[Tensor, "net sample node"], ...]
    output: Float[Tensor, "net sample out"]


@dataclass(frozen=True)
class Shape:
    """What networks of one population have in common: sizes from input to output, activation and biases."""

    sizes: tuple[int, ...]
    slope: float = 0.0
    bias: bool = True


@dataclass(frozen=True, eq=False)
class Population:
    """E fully connected networks; the activation x ↦ x for x ≥ 0, slope·x below, follows every layer but the last.

    ReLU is slope 0, leaky ReLU any slope, |·| slope −1 (S0 sec 3, S4 sec 2). `seeds` names each network: what is
    random about its data and batch order follows from it.
    """

    layers: tuple[Layer, ...]
    seeds: Int[Tensor, "net"]
    slope: float = 0.0

    def __post_init__(self) -> None:
        nets, into = len(self.seeds), self.layers[0].weight.shape[2]
        for weight, bias in self.layers:
            if weight.ndim != 3 or weight.shape[0] != nets or weight.shape[2] != into:
                raise ValueError(
                    f"a layer of shape {tuple(weight.shape)} does not follow {nets} networks of {into} nodes"
                )
            if bias is not None and bias.shape != weight.shape[:2]:
                raise ValueError(f"a bias of shape {tuple(bias.shape)} does not fit weights {tuple(weight.shape)}")
            into = weight.shape[1]

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes from the inputs to the outputs: (d, n_1, …, C)."""
        return (self.layers[0].weight.shape[2], *(layer.weight.shape[1] for layer in self.layers))

    @property
    def shape(self) -> Shape:
        return Shape(self.sizes, self.slope, self.layers[0].bias is not None)

    @property
    def dtype(self) -> torch.dtype:
        return self.layers[0].weight.dtype

    @property
    def device(self) -> torch.device:
        return self.layers[0].weight.device

    def __getitem__(self, which: int | slice | Sequence[int] | Tensor) -> Population:
        """Some of the networks, as a population again."""
        if isinstance(which, int):
            which = [which]
        layers = tuple(Layer(w[which], None if b is None else b[which]) for w, b in self.layers)
        return replace(self, layers=layers, seeds=self.seeds[which])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Population:
        layers = tuple(
            Layer(w.to(device=device, dtype=dtype), None if b is None else b.to(device=device, dtype=dtype))
            for w, b in self.layers
        )
        return replace(self, layers=layers, seeds=self.seeds.to(device))

    def activations(self, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Activations:
        """Every layer on inputs shared by all networks, or on each network's own."""
        h = x if x.ndim == 3 else x.unsqueeze(0).expand(len(self), *x.shape)
        hidden = []
        for i, (weight, bias) in enumerate(self.layers):
            across = weight.transpose(1, 2)
            h = torch.bmm(h, across) if bias is None else torch.baddbmm(bias.unsqueeze(1), h, across)
            if i < len(self.layers) - 1:
                h = activate(h, self.slope)
                hidden.append(h)
        return Activations(tuple(hidden), h)

    def __call__(self, x: Float[Tensor, "..."]) -> Float[Tensor, "net sample out"]:
        return self.activations(x).output


def stack(populations: Sequence[Population]) -> Population:
    """One population of the networks of several of one shape."""
    first = populations[0]
    if any(p.shape != first.shape for p in populations):
        raise ValueError(f"only networks of one shape stack, got {sorted({str(p.shape) for p in populations})}")
    layers = tuple(
        Layer(
            torch.cat([p.layers[i].weight for p in populations]),
            None if layer.bias is None else torch.cat([b for p in populations if (b := p.layers[i].bias) is not None]),
        )
        for i, layer in enumerate(first.layers)
    )
    return Population(layers, torch.cat([p.seeds for p in populations]), first.slope)
