"""Engine `autograd`: networks of every kind, convolutions and BatchNorm included; gradients by torch.autograd."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets import MOMENTUM, Shape, training_pass
from understudy.training.engines.chunks import CHUNK, gather_rows, run_in_chunks
from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing, State
from understudy.training.problem import Problem

_ENOUGH = 1 << 22
"""Activations of a batch that keep a GPU busy."""


def supports(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    """All networks."""
    return True


def run(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Run steps (see `Engine.run`).

    On a GPU, train as many networks together as keep it busy. On the CPU, train one at a time, so that rounding does
    not depend on the batch composition.
    """
    if problem.inputs.device.type == "cpu" and len(problem) > 1:
        losses = []
        for each in torch.arange(len(problem)).unsqueeze(1):
            alone = state.pick(each)
            losses.append(run(problem.pick(each), alone, first, count))
            state.put(each, alone)
        return torch.cat(losses)
    indices = problem.draw_batches(first, count)
    chunk = CHUNK if problem.optimiser.batch else 1
    work = _Workspace(problem, state, min(chunk, count), indices.shape[2])
    return run_in_chunks(work, problem, state, first, indices, chunk)


class _Workspace:
    """Buffers for the samples of one step and the losses of a chunk, and the parameters as leaves of autograd."""

    def __init__(self, problem: Problem, state: State, chunk: int, batch: int) -> None:
        nets, shape, like = len(problem), problem.packing.shape, problem.inputs
        # Samples of one step only: those of several steps in one buffer would differ in alignment for BLAS.
        self.inputs = like.new_empty(1, nets, batch, shape.inputs)
        self.targets = like.new_empty(1, nets, batch, shape.sizes[-1])
        self.losses = like.new_empty(chunk, nets)
        self.rate = problem.rate.to(like.dtype).view(nets, 1)
        # Views, not copies: each step starts from the parameters that the last one changed.
        self.slices = [
            (
                some,
                tuple(block[some].detach().requires_grad_() for block in state.blocks),
                tuple(block[some] for block in state.running),
            )
            for some in _slices(shape, nets, batch)
        ]

    def run(self, problem: Problem, state: State, first: int | Tensor, indices: Int[Tensor, "net step batch"]) -> None:
        for slot, rows in enumerate(indices.transpose(0, 1).split(1)):
            gather_rows(problem.inputs, problem.set_of, rows, self.inputs)
            gather_rows(problem.targets, problem.teacher_of, rows, self.targets)
            found = [self._gradients(problem, *some, self.losses[slot]) for some in self.slices]
            # Update all networks at once: there are many blocks, and most are small.
            for i, (block, *gradients) in enumerate(zip(state.blocks, *found, strict=True)):
                slots = tuple(kept[i] for kept in state.slots)
                problem.optimiser.update(block, torch.cat(gradients), slots, self.rate, first + slot)

    def _gradients(
        self, problem: Problem, nets: slice, leaves: tuple[Tensor, ...], running: tuple[Tensor, ...], losses: Tensor
    ) -> tuple[Tensor, ...]:
        inputs, targets = self.inputs[0, nets], self.targets[0, nets]
        with torch.enable_grad():
            students = problem.packing.population(leaves, problem.seeds[nets], running)
            activations, statistics = training_pass(students, inputs)
            # Summed over networks, so that each gets the gradient of its own mean loss.
            loss = problem.objective.losses(activations.output, targets).mean(1).sum()
            gradients = torch.autograd.grad(loss, leaves)
        for norm, found in zip(students.norms, statistics, strict=True):
            norm.mean.lerp_(found.mean, MOMENTUM)
            norm.variance.lerp_(found.variance, MOMENTUM)
        losses[nets] = problem.objective.reported_loss(activations.output.detach(), targets).mean(1)
        return gradients

    def reported_loss(self, problem: Problem, steps: int) -> Float[Tensor, "step net"]:
        return self.losses[:steps]


def _slices(shape: Shape, nets: int, batch: int) -> list[slice]:
    """Slices of networks to train together: few convolutional ones, all others at once.

    cuDNN splits a grouped convolution into its groups again and copies all feature maps for that, which takes more
    memory than one network at a time.
    """
    width = max(1, _ENOUGH // (batch * shape.activations)) if shape.image else nets
    return [slice(start, start + width) for start in range(0, nets, width)]
