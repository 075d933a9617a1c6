"""Parameters as blocks, one per weight, bias, scale or shift. Optimisers, engines and checkpoints work on blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.nets import Layer, Norm, Population, Shape

ALIGN = 16
"""Every matrix of every network starts at a multiple of this many numbers.

BLAS chooses its kernels by alignment, and kernels differ in rounding. With equal alignment a network gets the same bits
whatever the batch composition.
"""

Block = Float[Tensor, "net _"]


def padded(count: int) -> int:
    """Round up to a multiple of ALIGN."""
    return -(-count // ALIGN) * ALIGN


@dataclass(frozen=True)
class Packing:
    """Layout of networks of one shape in blocks: weight, bias, weight, bias, …, then scale, shift, … of BatchNorm.

    Each network's numbers are padded with zeros.
    """

    shape: Shape

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the parameters, block by block."""
        pairs = [(size, size[:1]) for size in self.shape.weights]
        layers = tuple(size for pair in pairs for size in (pair if self.shape.bias else pair[:1]))
        return layers + (self.buffers if self.shape.affine else ())

    @cached_property
    def buffers(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of BatchNorm's running statistics: mean, variance, mean, variance, … No optimiser changes them."""
        return tuple((nodes,) for nodes in self.shape.sizes[1:-1] for _ in range(2)) if self.shape.norm else ()

    @property
    def numbers(self) -> int:
        """Count the numbers, padding included, of one network's parameters."""
        return sum(padded(math.prod(size)) for size in self.sizes)

    def empty(self, nets: int, like: Tensor) -> tuple[Block, ...]:
        """Allocate blocks of zeros."""
        return _empty(self.sizes, nets, like)

    def layers(self, blocks: tuple[Block, ...]) -> tuple[Layer, ...]:
        """View the blocks as layers; writing to a view changes the block."""
        views = _views(blocks, self.sizes)
        if not self.shape.bias:
            return tuple(Layer(weight, None) for weight in views[: len(self.shape.weights)])
        views = views[: 2 * len(self.shape.weights)]
        return tuple(Layer(weight, bias) for weight, bias in zip(views[0::2], views[1::2], strict=True))

    def norms(self, blocks: tuple[Block, ...], running: tuple[Block, ...]) -> tuple[Norm, ...]:
        """View running statistics, with their scales and shifts, as BatchNorm layers."""
        held = _views(running, self.buffers)
        affine = _views(blocks, self.sizes)[-len(held) :] if held and self.shape.affine else [None] * len(held)
        return tuple(map(Norm, held[0::2], held[1::2], affine[0::2], affine[1::2]))

    def population(
        self, blocks: tuple[Block, ...], seeds: Int[Tensor, "net"], running: tuple[Block, ...] = ()
    ) -> Population:
        """View the blocks as a population."""
        shape, norms = self.shape, self.norms(blocks, running)
        first = shape.norm == "before"
        return Population(self.layers(blocks), seeds, shape.slope, norms, first, shape.image, shape.convolutions)

    def state(self, population: Population, slots: int = 0) -> State:
        """Copy a population's parameters and running statistics to blocks, with this many slots of zeros."""
        nets, like = len(population), population.layers[0].weight
        blocks, running = self.empty(nets, like), _empty(self.buffers, nets, like)
        into = (*self.layers(blocks), *self.norms(blocks, running))
        for views, tensors in zip(into, (*population.layers, *population.norms), strict=True):
            for view, tensor in zip(views, tensors, strict=True):
                if view is not None and tensor is not None:
                    view.copy_(tensor)
        return State(blocks, tuple(self.empty(nets, like) for _ in range(slots)), running)


def _empty(sizes: tuple[tuple[int, ...], ...], nets: int, like: Tensor) -> tuple[Block, ...]:
    return tuple(like.new_zeros(nets, padded(math.prod(size))) for size in sizes)


def _views(blocks: tuple[Block, ...], sizes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    return [block[:, : math.prod(size)].unflatten(1, size) for block, size in zip(blocks, sizes, strict=True)]


@dataclass(eq=False)
class State:
    """Everything that a step changes: parameters, optimiser state and running statistics."""

    blocks: tuple[Block, ...]
    slots: tuple[tuple[Block, ...], ...]
    running: tuple[Block, ...] = ()

    def __len__(self) -> int:
        return len(self.blocks[0])

    def pick(self, which: Int[Tensor, "some"]) -> State:
        """Copy some of the networks."""
        blocks, running, *slots = (tuple(b[which] for b in each) for each in (self.blocks, self.running, *self.slots))
        return State(blocks, tuple(slots), running)

    def put(self, which: Int[Tensor, "some"], state: State, only: Bool[Tensor, "some"] | None = None) -> None:
        """Write back networks copied by `pick`: all of them, or those where `only` is true."""
        for block, new in zip(self.tensors().values(), state.tensors().values(), strict=True):
            block[which] = new if only is None else torch.where(only.unsqueeze(1), new, block[which])

    def tensors(self) -> dict[str, Tensor]:
        """Name all tensors, for a checkpoint."""
        named = {f"block.{i}": b for i, b in enumerate(self.blocks)}
        named |= {f"slot.{s}.{i}": b for s, slot in enumerate(self.slots) for i, b in enumerate(slot)}
        return named | {f"running.{i}": b for i, b in enumerate(self.running)}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Copy tensors, named as by `tensors`, into this state."""
        for name, block in self.tensors().items():
            block.copy_(tensors[name])
