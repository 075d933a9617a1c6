"""Networks of every kind, convolutions and BatchNorm among them: autograd finds the way back."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets import MOMENTUM, Shape, training_pass
from understudy.training.engines.chunks import CHUNK, drawn, gathered, in_chunks
from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing, State
from understudy.training.problem import Problem

_ENOUGH = 1 << 22
"""Numbers in the maps of a batch that keep a card busy."""


def supports(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    return True


def autograd(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Engine (see `Engine`): on a card networks together, as many as it takes to keep it busy; on a processor one by
    one, so that company changes no rounding."""
    if problem.inputs.device.type == "cpu" and len(problem) > 1:
        losses = []
        for each in torch.arange(len(problem)).unsqueeze(1):
            alone = state.pick(each)
            losses.append(autograd(problem.pick(each), alone, first, count))
            state.put(each, alone)
        return torch.cat(losses)
    indices = drawn(problem, first, count)
    chunk = CHUNK if problem.optimiser.batch else 1
    return in_chunks(_Work(problem, state, min(chunk, count), indices.shape[2]), problem, state, first, indices, chunk)


class _Work:
    """The samples of a step, the losses of some, and the parameters as what gradients are of."""

    def __init__(self, problem: Problem, state: State, chunk: int, batch: int) -> None:
        nets, shape, like = len(problem), problem.packing.shape, problem.inputs
        # Of one step: were there several in a row, BLAS would find each at another alignment.
        self.inputs = like.new_empty(1, nets, batch, shape.inputs)
        self.targets = like.new_empty(1, nets, batch, shape.sizes[-1])
        self.losses = like.new_empty(chunk, nets)
        self.rate = problem.rate.to(like.dtype).view(nets, 1)
        # Not copies: a step changes what the next one starts from.
        self.parts = [
            (
                part,
                tuple(block[part].detach().requires_grad_() for block in state.blocks),
                tuple(block[part] for block in state.running),
            )
            for part in _parts(shape, nets, batch)
        ]

    def take(self, problem: Problem, state: State, first: int | Tensor, indices: Int[Tensor, "net step batch"]) -> None:
        for slot, rows in enumerate(indices.transpose(0, 1).split(1)):
            gathered(problem.inputs, problem.set_of, rows, self.inputs)
            gathered(problem.targets, problem.teacher_of, rows, self.targets)
            found = [self._gradients(problem, *some, self.losses[slot]) for some in self.parts]
            # Of all networks at once: there are many parameters, and most are small.
            for i, (block, *parts) in enumerate(zip(state.blocks, *found, strict=True)):
                slots = tuple(kept[i] for kept in state.slots)
                problem.optimiser.update(block, torch.cat(parts), slots, self.rate, first + slot)

    def _gradients(
        self, problem: Problem, part: slice, leaves: tuple[Tensor, ...], running: tuple[Tensor, ...], losses: Tensor
    ) -> tuple[Tensor, ...]:
        inputs, targets = self.inputs[0, part], self.targets[0, part]
        with torch.enable_grad():
            students = problem.packing.population(leaves, problem.seeds[part], running)
            activations, statistics = training_pass(students, inputs)
            # The sum over networks: each gets the gradient of its own mean.
            loss = problem.objective.losses(activations.output, targets).mean(1).sum()
            gradients = torch.autograd.grad(loss, leaves)
        for norm, found in zip(students.norms, statistics, strict=True):
            norm.mean.lerp_(found.mean, MOMENTUM)
            norm.variance.lerp_(found.variance, MOMENTUM)
        losses[part] = problem.objective.reported(activations.output.detach(), targets).mean(1)
        return gradients

    def reported(self, problem: Problem, steps: int) -> Float[Tensor, "step net"]:
        return self.losses[:steps]


def _parts(shape: Shape, nets: int, batch: int) -> list[slice]:
    """Networks to take together.

    Of convolutions few: cuDNN takes the groups of one convolution apart again and copies all maps for it, and what one
    network alone needs of the card's memory is less.
    """
    width = max(1, _ENOUGH // (batch * shape.activations)) if shape.image else nets
    return [slice(start, start + width) for start in range(0, nets, width)]
