"""Small teachers and students for the tests of the theorems."""

from itertools import pairwise

import torch
from torch import Tensor

from understudy.nets import Layer, Population


def network(*layers: tuple[Tensor | list, Tensor | list | None], slope: float = 0.0) -> Population:
    """One network in float64 from (weight, bias) pairs; None for a layer without biases."""
    made = tuple(Layer(_row(weight), None if bias is None else _row(bias)) for weight, bias in layers)
    return Population(made, torch.tensor([1]), slope)


def _row(values: Tensor | list) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64).unsqueeze(0)


def gaussian(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_network(seed: int, *sizes: int, slope: float = 0.0) -> Population:
    layers = [
        (gaussian(100 * seed + i, out, into) / into**0.5, 0.3 * gaussian(100 * seed + 50 + i, out))
        for i, (into, out) in enumerate(pairwise(sizes))
    ]
    return network(*layers, slope=slope)


def near_copy(teacher: Population, idle: int, delta: float, seed: int = 0) -> Population:
    """A student equal to a two-layer teacher up to δ, with additional idle nodes of tiny fan-out."""
    (w, b), (v, c) = ((layer.weight[0], layer.bias[0]) for layer in teacher.layers)
    into, nodes, outputs = w.shape[1], len(w) + idle, len(v)
    w = torch.cat((w, gaussian(seed, idle, into))) + delta * gaussian(seed + 1, nodes, into)
    b = torch.cat((b, gaussian(seed + 2, idle))) + delta * gaussian(seed + 3, nodes)
    v = torch.cat((v, 1e-9 * gaussian(seed + 4, outputs, idle)), 1)
    return network((w, b), (v, c), slope=teacher.slope)
