"""Reference training loop: one network, autograd, float64, torch.optim. Every engine must agree with it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from understudy.nets import EPS, MOMENTUM, Layer, Norm, Population, activate
from understudy.training.objectives import Objective
from understudy.training.optimisers import SGD, Adam, Optimiser, rates
from understudy.training.problem import batch_indices

Tensors = list[tuple[Tensor | None, ...]]
"""Weight and bias of each layer, or the tensors of each BatchNorm, of one network."""


def _forward(student: Population, layers: Tensors, norms: Tensors, x: Float[Tensor, "sample in"]) -> Tensor:
    """Compute outputs in training mode, which updates running statistics."""
    x = x.unflatten(1, (student.sizes[0], *student.image)) if student.image else x
    convolutions = student.shape.resolved_convolutions
    for i, (weight, bias) in enumerate(layers):
        assert weight is not None
        if i < len(convolutions):
            x = functional.conv2d(x, weight, bias, convolutions[i].stride, convolutions[i].padding)
        else:
            x = functional.linear(x.flatten(1), weight, bias)
        if i == len(layers) - 1:
            return x
        x = x if student.norm_first else activate(x, student.slope)
        if norms:
            mean, variance, scale, shift = norms[i]
            x = functional.batch_norm(x, mean, variance, scale, shift, True, MOMENTUM, EPS)
        x = activate(x, student.slope) if student.norm_first else x
    raise AssertionError("a network has a layer")


def _torch_optimiser(optimiser: Optimiser, parameters: list[Tensor], lr: float) -> torch.optim.Optimizer:
    if isinstance(optimiser, SGD):
        return torch.optim.SGD(parameters, lr, optimiser.momentum, 0, optimiser.decay, optimiser.nesterov)
    if isinstance(optimiser, Adam):
        return torch.optim.AdamW(parameters, lr, optimiser.betas, optimiser.eps, optimiser.decay)
    raise TypeError(f"the reference loop supports SGD and Adam, got {type(optimiser).__name__}")


def reference(
    student: Population,
    inputs: Float[Tensor, "sample in"],
    target: Float[Tensor, "sample out"],
    optimiser: Optimiser,
    objective: Objective,
    *,
    epochs: int,
    steps: int,
) -> tuple[Population, Float[Tensor, "step"]]:
    """Train the only network of a population; return it and the reported loss of every step's batch."""
    student = student.to(dtype=torch.float64)
    inputs, target = inputs.double(), target.double()
    layers, norms = (
        [tuple(None if t is None else t[0].clone() for t in layer) for layer in each]
        for each in (student.layers, student.norms)
    )
    learned = [*(t for layer in layers for t in layer), *(t for norm in norms for t in norm[2:])]
    parameters = [t.requires_grad_() for t in learned if t is not None]
    torch_optimiser = _torch_optimiser(optimiser, parameters, lr=float(rates(optimiser, 1, 1)))
    reported = []
    for step in range(epochs * steps):
        torch_optimiser.param_groups[0]["lr"] = float(rates(optimiser, 1, step // steps + 1))
        rows: Tensor | slice = slice(None)
        if optimiser.batch is not None:
            rows = batch_indices(student.seeds, step, 1, optimiser.batch, len(inputs))[0, 0]
        output = _forward(student, layers, norms, inputs[rows])
        torch_optimiser.zero_grad()
        objective.losses(output, target[rows]).mean().backward()
        reported.append(objective.reported_loss(output.detach(), target[rows]).mean())
        torch_optimiser.step()
    ended, held = (
        [tuple(None if t is None else t.detach()[None] for t in layer) for layer in each] for each in (layers, norms)
    )
    network = Population(
        tuple(map(Layer._make, ended)),
        student.seeds,
        student.slope,
        tuple(map(Norm._make, held)),
        student.norm_first,
        student.image,
        student.convolutions,
    )
    return network, torch.stack(reported)
