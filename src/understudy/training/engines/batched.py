"""Engine `batched`: fully connected networks, many at once by batched matrix products, on the CPU and on a GPU."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets import Layer, activate, gate
from understudy.training.engines.chunks import CHUNK, gather_rows, run_in_chunks
from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import ALIGN, Packing, State, padded
from understudy.training.problem import Problem


def supports(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    """Fully connected networks without BatchNorm."""
    return packing.shape.dense


def run(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Run steps (see `Engine.run`) by manual backpropagation: one batched product per layer for all networks."""
    if len(problem) == 1:
        # BLAS multiplies a single matrix by another kernel than several, with other rounding: train the network twice.
        twice = problem.seeds.new_zeros(2)
        pair = state.pick(twice)
        losses = run(problem.pick(twice), pair, first, count)[:1]
        state.put(twice[:1], pair.pick(twice[:1]))
        return losses
    indices = problem.draw_batches(first, count)
    chunk = CHUNK if problem.optimiser.batch else 1
    work = Workspace(problem, min(chunk, count), indices.shape[2])
    return run_in_chunks(work, problem, state, first, indices, chunk)


def _matrices(nets: int, rows: int, columns: int, like: Tensor) -> Float[Tensor, "net row column"]:
    """Allocate one matrix per network, each at an aligned address."""
    return like.new_zeros(nets, padded(rows * columns))[:, : rows * columns].unflatten(1, (rows, columns))


class Workspace:
    """Buffers of one piece, allocated once and used for every step."""

    def __init__(self, problem: Problem, chunk: int, batch: int) -> None:
        nets, sizes, like = len(problem), problem.packing.shape.sizes, problem.inputs
        self.batch = batch
        # Rows per batch, rounded up so that every network's inputs, targets and outputs start aligned. The additional
        # rows are never read.
        self.stride = next(b for b in range(batch, batch + ALIGN) if b * sizes[0] % ALIGN == b * sizes[-1] % ALIGN == 0)
        self.inputs = like.new_empty(chunk, nets, self.stride, sizes[0])
        self.targets = like.new_empty(chunk, nets, self.stride, sizes[-1])
        self.outputs = like.new_empty(chunk, nets, self.stride, sizes[-1])
        self.before = [_matrices(nets, batch, n, like) for n in sizes[1:-1]]
        self.hidden = [_matrices(nets, batch, n, like) for n in sizes[1:-1]]
        self.deltas = [_matrices(nets, batch, n, like) for n in sizes[1:]]
        self.rate = problem.rate.to(like.dtype).view(nets, 1, 1)
        plain = problem.optimiser.plain
        self.gradient = None if plain else problem.packing.empty(nets, like)
        # Plain updates add −rate × gradient to the parameters during the backward pass; others need the mean gradient.
        self.scale = self.rate * (-1.0 / batch) if plain else torch.full_like(self.rate, 1.0 / batch)

    def _gather(self, problem: Problem, indices: Int[Tensor, "net step batch"]) -> None:
        nets, steps, batch = indices.shape
        rows = indices.new_zeros(steps, nets, self.stride)
        rows[:, :, :batch] = indices.transpose(0, 1)
        gather_rows(problem.inputs, problem.set_of, rows, self.inputs[:steps])
        gather_rows(problem.targets, problem.teacher_of, rows, self.targets[:steps])

    def run(self, problem: Problem, state: State, first: int | Tensor, indices: Int[Tensor, "net step batch"]) -> None:
        """Run several steps of every network, each with its own samples."""
        self._gather(problem, indices)
        for slot in range(indices.shape[1]):
            self._step(problem, state, first + slot, slot)

    def _step(self, problem: Problem, state: State, number: int | Tensor, slot: int) -> None:
        """Run one step of every network, with the samples gathered in `slot`."""
        layers = problem.packing.layers(state.blocks)
        output = self._forward(layers, problem.packing.shape.slope, slot)
        residual = problem.objective.residual(output, self.targets[slot, :, : self.batch])
        torch.mul(residual, self.scale, out=self.deltas[-1])
        if self.gradient is None:
            self._backward(problem, layers, layers, slot, beta=1.0)
            return
        self._backward(problem, layers, problem.packing.layers(self.gradient), slot, beta=0.0)
        for i, (block, gradient) in enumerate(zip(state.blocks, self.gradient, strict=True)):
            kept = tuple(slot[i] for slot in state.slots)
            problem.optimiser.update(block, gradient, kept, self.rate.view(-1, 1), number)

    def _forward(self, layers: tuple[Layer, ...], slope: float, slot: int) -> Float[Tensor, "net sample out"]:
        h = self.inputs[slot, :, : self.batch]
        for (weight, bias), z, after in zip(
            layers, (*self.before, self.outputs[slot, :, : self.batch]), (*self.hidden, None), strict=True
        ):
            if bias is None:
                torch.bmm(h, weight.transpose(1, 2), out=z)
            else:
                torch.baddbmm(bias.unsqueeze(1), h, weight.transpose(1, 2), out=z)
            h = z if after is None else activate(z, slope, out=after)
        return h

    def _backward(
        self, problem: Problem, layers: tuple[Layer, ...], into: tuple[Layer, ...], slot: int, beta: float
    ) -> None:
        """Add the scaled gradients to `into` (beta 1), or write them there (beta 0), from the output layer down."""
        for i in reversed(range(len(layers))):
            delta = self.deltas[i]
            if i:
                # Before the weights change: `into` may be the parameters themselves.
                torch.bmm(delta, layers[i].weight, out=self.deltas[i - 1])
                self.deltas[i - 1].mul_(gate(self.before[i - 1], problem.packing.shape.slope))
            below = self.hidden[i - 1] if i else self.inputs[slot, :, : self.batch]
            into[i].weight.baddbmm_(delta.transpose(1, 2), below, beta=beta)
            bias = into[i].bias
            if bias is not None:
                bias.mul_(beta).add_(delta.sum(1))

    def reported_loss(self, problem: Problem, steps: int) -> Float[Tensor, "step net"]:
        outputs, targets = self.outputs[:steps, :, : self.batch], self.targets[:steps, :, : self.batch]
        return problem.objective.reported_loss(outputs, targets).mean(-1)
