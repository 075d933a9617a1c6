"""Initial weights of multi-scale DenseNets as a function of the seed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from understudy._random import Stream, normal, uniform
from understudy.nets.multi_exit.grid import Grid
from understudy.nets.multi_exit.msdnet import MSDNet


def initial_weights(grid: Grid, seed: int) -> dict[str, Tensor]:
    """Draw the initial weights of a network as Huang et al. (2018) do.

    Convolutions are drawn from N(0, 2 / (k² · outputs)) and the weights of linear layers from U(−1/√inputs, 1/√inputs);
    their biases are 0. BatchNorm starts with scale 1, shift 0, mean 0 and variance 1.

    Args:
        grid: The architecture.
        seed: Seed of the network; the weights depend on nothing else.

    Returns:
        Weights and running statistics on the CPU, in float32, by their names in the state dict of `MSDNet`.
    """
    with torch.device("meta"):
        network = MSDNet(grid)
    drawn = {}
    layers = [(name, part) for name, part in network.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    for step, (name, part) in enumerate(layers):
        shape, count = part.weight.shape, part.weight.numel()
        if isinstance(part, nn.Conv2d):
            numbers = normal(seed, Stream.STUDENT, step, count) * math.sqrt(2 / (shape[0] * shape[2] * shape[3]))
        else:
            numbers = (2 * uniform(seed, Stream.STUDENT, step, count) - 1) / math.sqrt(shape[1])
        drawn[f"{name}.weight"] = numbers.float().view(shape)
    return {name: drawn.get(name, _constant(name, like)) for name, like in network.state_dict().items()}


def _constant(name: str, like: Tensor) -> Tensor:
    """Ones for scales and running variances of BatchNorm, zeros for the rest."""
    fill = torch.ones if name.endswith((".norm.weight", ".norm.running_var")) else torch.zeros
    return fill(like.shape, dtype=like.dtype)
