"""The plain loop: one network, autograd, float64, torch.optim. Every engine must give what it gives."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Layer, Population, activate
from understudy.training.batches import batch_indices
from understudy.training.objectives import Objective
from understudy.training.optimisers import SGD, Adam, Optimiser, rates


def _forward(layers: list[tuple[Tensor, Tensor | None]], slope: float, x: Float[Tensor, "sample in"]) -> Tensor:
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight.T if bias is None else x @ weight.T + bias
        x = activate(x, slope) if i < len(layers) - 1 else x
    return x


def _torch_optimiser(optimiser: Optimiser, parameters: list[Tensor], lr: float) -> torch.optim.Optimizer:
    if isinstance(optimiser, SGD):
        return torch.optim.SGD(parameters, lr=lr, momentum=optimiser.momentum, nesterov=optimiser.nesterov)
    if isinstance(optimiser, Adam):
        return torch.optim.Adam(parameters, lr=lr, betas=optimiser.betas, eps=optimiser.eps)
    raise TypeError(f"the reference loop knows SGD and Adam, not {type(optimiser).__name__}")


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
    """Train the one network of a population; returns it, and the reported loss of every step's batch."""
    student = student.to(dtype=torch.float64)
    inputs, target = inputs.double(), target.double()
    layers = [(w[0].clone(), None if b is None else b[0].clone()) for w, b in student.layers]
    parameters = [p.requires_grad_() for layer in layers for p in layer if p is not None]
    way = _torch_optimiser(optimiser, parameters, lr=float(rates(optimiser, 1, 1)))
    reported = []
    for step in range(epochs * steps):
        way.param_groups[0]["lr"] = float(rates(optimiser, 1, step // steps + 1))
        rows: Tensor | slice = slice(None)
        if optimiser.batch is not None:
            rows = batch_indices(student.seeds, step, 1, optimiser.batch, len(inputs))[0, 0]
        output = _forward(layers, student.slope, inputs[rows])
        way.zero_grad()
        objective.losses(output, target[rows]).mean().backward()
        reported.append(objective.reported(output.detach(), target[rows]).mean())
        way.step()
    ended = tuple(Layer(w.detach()[None], None if b is None else b.detach()[None]) for w, b in layers)
    return Population(ended, student.seeds, student.slope), torch.stack(reported)
