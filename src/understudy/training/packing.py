"""Parameters as blocks, one a weight matrix or bias: what optimisers, engines and checkpoints work on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.nets import Layer, Population, Shape

ALIGN = 16
"""Every matrix of every network starts on a multiple of this many numbers.

BLAS picks its kernels by alignment, and kernels differ in rounding: only when all networks are aligned alike does a
network get the same bits alone and in company.
"""

Block = Float[Tensor, "net _"]


def padded(count: int) -> int:
    return -(-count // ALIGN) * ALIGN


@dataclass(frozen=True)
class Packing:
    """The blocks of networks of one shape: weight, bias, weight, bias, … each network's numbers followed by zeros."""

    shape: Shape

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        pairs = zip(self.shape.sizes, self.shape.sizes[1:], strict=False)
        both = [((out, into), (out,)) for into, out in pairs]
        return tuple(size for pair in both for size in (pair if self.shape.bias else pair[:1]))

    @property
    def numbers(self) -> int:
        """How many numbers a network takes."""
        return sum(padded(math.prod(size)) for size in self.sizes)

    def empty(self, nets: int, like: Tensor) -> tuple[Block, ...]:
        return tuple(like.new_zeros(nets, padded(math.prod(size))) for size in self.sizes)

    def layers(self, blocks: tuple[Block, ...]) -> tuple[Layer, ...]:
        """Views of the blocks: what is written to them is written to the blocks."""
        views = [block[:, : math.prod(size)].unflatten(1, size) for block, size in zip(blocks, self.sizes, strict=True)]
        if not self.shape.bias:
            return tuple(Layer(weight, None) for weight in views)
        return tuple(Layer(weight, bias) for weight, bias in zip(views[0::2], views[1::2], strict=True))

    def population(self, blocks: tuple[Block, ...], seeds: Int[Tensor, "net"]) -> Population:
        return Population(self.layers(blocks), seeds, self.shape.slope)

    def blocks(self, population: Population) -> tuple[Block, ...]:
        """A copy of the population's parameters."""
        blocks = self.empty(len(population), population.layers[0].weight)
        for into, layer in zip(self.layers(blocks), population.layers, strict=True):
            into.weight.copy_(layer.weight)
            if into.bias is not None and layer.bias is not None:
                into.bias.copy_(layer.bias)
        return blocks


@dataclass(eq=False)
class State:
    """What training changes: the parameters, and what the optimiser keeps of each."""

    blocks: tuple[Block, ...]
    slots: tuple[tuple[Block, ...], ...]

    def __len__(self) -> int:
        return len(self.blocks[0])

    def pick(self, which: Int[Tensor, "some"]) -> State:
        """A copy of some of the networks."""
        return State(tuple(b[which] for b in self.blocks), tuple(tuple(b[which] for b in slot) for slot in self.slots))

    def put(self, which: Int[Tensor, "some"], state: State, only: Bool[Tensor, "some"] | None = None) -> None:
        """Write back what `pick` took out; `only` those, where it says so."""
        for mine, other in zip((self.blocks, *self.slots), (state.blocks, *state.slots), strict=True):
            for block, new in zip(mine, other, strict=True):
                block[which] = new if only is None else torch.where(only.unsqueeze(1), new, block[which])

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name, for a checkpoint."""
        named = {f"block.{i}": b for i, b in enumerate(self.blocks)}
        return named | {f"slot.{s}.{i}": b for s, slot in enumerate(self.slots) for i, b in enumerate(slot)}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, block in self.tensors().items():
            block.copy_(tensors[name])
