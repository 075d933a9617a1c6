"""Networks of every kind, fully connected or convolutional, with or without BatchNorm, and the same in torch."""

import math

import torch
from torch import Tensor, nn

from support.problems import gaussians
from understudy.nets import Layer, Norm, Population, Shape

KINDS = {
    "fc": Shape((4, 7, 5, 3), 0.1),
    "fc-before": Shape((4, 7, 5, 3), 0.0, norm="before"),
    "fc-after": Shape((4, 7, 5, 3), -1.0, bias=False, norm="after", affine=False),
    "conv": Shape((2, 4, 3, 5), 0.1, image=(7, 6)),
    "conv-one": Shape((1, 3, 2), 0.0, bias=False, image=(4, 5)),
    "conv-before": Shape((3, 4, 3, 2, 5), 0.1, image=(8, 8), norm="before"),
    "conv-before-plain": Shape((2, 3, 4), 0.0, image=(5, 4), norm="before", affine=False),
    "conv-after": Shape((2, 5, 3, 4), 0.0, image=(6, 7), norm="after"),
    "conv-strided": Shape((2, 4, 3, 6, 5), 0.1, image=(7, 6), convolutions=((3, 1, 1), (5, 2, 2))),
    "conv-strided-after": Shape((1, 3, 4, 5, 2), 0.2, image=(6, 5), norm="after", convolutions=((2, 2, 1),)),
}


class Line(nn.Module):
    """Piece-wise linear activation of slope 1 above zero."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x >= 0, x, self.slope * x)


def made(shape: Shape, nets: int, *, seed: int = 1, dtype: torch.dtype = torch.float64) -> Population:
    """Networks with Gaussian weights that keep the scale of activations, and generic statistics and affine parts."""
    draws = iter(range(10_000 * seed, 10_000 * (seed + 1)))

    def numbers(*size: int) -> Tensor:
        return gaussians(next(draws), nets, *size, dtype=dtype)

    layers = tuple(
        Layer(numbers(*size) / math.sqrt(math.prod(size[1:])), numbers(size[0]) / 2 if shape.bias else None)
        for size in shape.weights
    )
    norms = tuple(
        Norm(numbers(n), 0.3 + numbers(n).abs(), *((numbers(n), numbers(n)) if shape.affine else (None, None)))
        for n in shape.sizes[1:-1]
    )
    order = shape.norm == "before"
    kept = norms if shape.norm else ()
    return Population(layers, torch.arange(nets), shape.slope, kept, order, shape.image, shape.convolutions)


def module(population: Population, which: int) -> nn.Sequential:
    """Build one network from torch modules: one part per layer, flat inputs."""
    shape, dtype = population.shape, population.dtype
    parts: list[nn.Module] = []
    for i, (weight, bias) in enumerate(population.layers):
        out, into, *kernel = weight.shape[1:]
        options = {"bias": bias is not None, "dtype": dtype}
        linear = (
            nn.Conv2d(into, out, *shape.resolved_convolutions[i][:3], **options)
            if kernel
            else nn.Linear(into, out, **options)
        )
        linear.weight.data = weight[which].clone()
        if bias is not None:
            linear.bias.data = bias[which].clone()
        if i == len(population.layers) - 1:
            parts.append(nn.Sequential(nn.Flatten(), linear))
            continue
        steps: list[nn.Module] = [Line(shape.slope)]
        if shape.norm:
            make = nn.BatchNorm2d if kernel else nn.BatchNorm1d
            batch_norm = make(out, affine=shape.affine, dtype=dtype)
            load_norm(batch_norm, population.norms[i], which)
            steps.insert(0 if shape.norm == "before" else 1, batch_norm)
        flat = [nn.Flatten()] if shape.image and not kernel else []
        parts.append(nn.Sequential(*flat, linear, *steps))
    if shape.image:
        parts[0].insert(0, nn.Unflatten(1, (shape.sizes[0], *shape.image)))
    return nn.Sequential(*parts)


def load_norm(batch_norm: nn.Module, norm: Norm, which: int) -> None:
    names = ("running_mean", "running_var", "weight", "bias")
    for name, part in zip(names, norm, strict=True):
        if part is not None:
            getattr(batch_norm, name).data = part[which].clone()


def batch_norms(network: nn.Module) -> list[nn.Module]:
    return [part for part in network.modules() if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d)]


def rows(hidden: Tensor) -> Tensor:
    """Reshape [sample, node] or [sample, channel, height, width] to [row, node]."""
    return hidden if hidden.ndim == 2 else hidden.permute(0, 2, 3, 1).flatten(0, 2)


def tensors(population: Population) -> list[Tensor]:
    """All parameters and running statistics."""
    return [t for part in (*population.layers, *population.norms) for t in part if t is not None]


def same(a: Population, b: Population) -> bool:
    """Whether two populations are equal bit for bit, seeds included."""
    return (
        a.shape == b.shape
        and torch.equal(a.seeds, b.seeds)
        and all(s.dtype == t.dtype and torch.equal(s, t) for s, t in zip(tensors(a), tensors(b), strict=True))
    )
