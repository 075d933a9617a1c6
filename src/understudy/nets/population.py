"""What a network is: always a population, E networks of one shape in stacked tensors, of which one is E = 1.

Fully connected, or convolutional: unless said otherwise as in the papers' released code, where every hidden layer is a
3×3 convolution without padding, which takes two pixels off height and width. The last feature map, flattened channel by
channel, goes into fully connected layers. Inputs are flat in both cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.nets.activation import activate
from understudy.nets.norm import Norm, Statistics, normalised
from understudy.nets.shape import Shape, size_words


class Layer(NamedTuple):
    """An affine map of every network, or a convolution. BatchNorm stands beside it, not inside it."""

    weight: Float[Tensor, "net out in"] | Float[Tensor, "net out in kernel kernel"]
    bias: Float[Tensor, "net out"] | None


_Part = TypeVar("_Part", Layer, Norm)


class Activations(NamedTuple):
    """What every node gives the next layer, hidden layers from the lowest up; then the outputs.

    A row is a sample; where the nodes are channels of a convolution, a sample at a position, position fastest.
    """

    hidden: tuple[Float[Tensor, "net row node"], ...]
    output: Float[Tensor, "net sample out"]


@dataclass(frozen=True, eq=False)
class Population:
    """E networks; the activation x ↦ x for x ≥ 0, slope·x below, follows every layer but the last.

    ReLU is slope 0, leaky ReLU any slope, |·| slope −1 (S0 sec 3, S4 sec 2). `seeds` names each network: what is
    random about its data and batch order follows from it. Convolutional where `image` is given.
    """

    layers: tuple[Layer, ...]
    seeds: Int[Tensor, "net"]
    slope: float = 0.0
    norms: tuple[Norm, ...] = ()
    """None, or one a hidden layer."""
    norm_first: bool = False
    """BatchNorm before the activation; else after it."""
    image: tuple[int, int] | None = None
    """Height and width of the inputs; their channels are the first of `sizes`."""
    convolutions: tuple[tuple[int, int, int], ...] | None = None
    """As in `Shape`."""

    def __post_init__(self) -> None:
        nets, shape = len(self.seeds), self.shape
        for (weight, bias), expected in zip(self.layers, shape.weights, strict=True):
            if weight.shape != (nets, *expected):
                kind = f"channels under {size_words(expected[2:])} kernels" if len(expected) > 2 else "nodes"
                raise ValueError(
                    f"a layer of shape {tuple(weight.shape)} does not follow {nets} networks of {expected[1]} {kind}"
                )
            if bias is not None and bias.shape != weight.shape[:2]:
                raise ValueError(f"a bias of shape {tuple(bias.shape)} does not fit weights {tuple(weight.shape)}")
        hidden = shape.sizes[1:-1]
        if self.norms and len(self.norms) != len(hidden):
            raise ValueError(f"{len(self.norms)} norms do not fit {len(hidden)} hidden layers: give one each, or none")
        for norm, nodes in zip(self.norms, hidden, strict=False):
            for part in norm:
                if part is not None and part.shape != (nets, nodes):
                    raise ValueError(
                        f"a norm of shape {tuple(part.shape)} does not fit {nets} networks of {nodes} nodes"
                    )
            if any((part is not None) != shape.affine for part in norm[2:]):
                raise ValueError("some norms have a scale and a shift and others have not: give both to all or to none")

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes from the inputs to the outputs, or channels: (d, n_1, …, C)."""
        return (self.layers[0].weight.shape[2], *(layer.weight.shape[1] for layer in self.layers))

    @property
    def inputs(self) -> int:
        """Numbers in a sample."""
        return self.layers[0].weight.shape[2] * math.prod(self.image or ())

    @property
    def shape(self) -> Shape:
        return Shape(
            self.sizes,
            self.slope,
            self.layers[0].bias is not None,
            self.image,
            None if not self.norms else "before" if self.norm_first else "after",
            not self.norms or self.norms[0].scale is not None,
            self.convolutions,
        )

    @property
    def dtype(self) -> torch.dtype:
        return self.layers[0].weight.dtype

    @property
    def device(self) -> torch.device:
        return self.layers[0].weight.device

    def __getitem__(self, which: int | slice | Sequence[int] | Tensor) -> Population:
        """Some of the networks, as a population again."""
        some = [which] if isinstance(which, int) else which
        return self._with_each(lambda part: part[some], self.seeds[some])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Population:
        return self._with_each(lambda part: part.to(device=device, dtype=dtype), self.seeds.to(device))

    def _with_each(self, change: Callable[[Tensor], Tensor], seeds: Int[Tensor, "net"]) -> Population:
        def changed(parts: tuple[_Part, ...]) -> tuple[_Part, ...]:
            return tuple(type(part)._make(None if t is None else change(t) for t in part) for part in parts)

        return replace(self, layers=changed(self.layers), norms=changed(self.norms), seeds=seeds)

    def activations(self, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Activations:
        """Every layer on inputs shared by all networks, or on each network's own.

        As used outside training: BatchNorm goes by its running statistics.
        """
        return _through(self, x, training=False)[0]

    def __call__(self, x: Float[Tensor, "..."]) -> Float[Tensor, "net sample out"]:
        return self.activations(x).output


def training_pass(
    population: Population, x: Float[Tensor, "net sample in"]
) -> tuple[Activations, tuple[Statistics, ...]]:
    """Every layer on a batch, where BatchNorm goes by the batch's own statistics, and these, one a hidden layer.

    Autograd finds its way back to all weights, biases, scales and shifts. Networks without BatchNorm give no
    statistics, and the activations they give outside training.
    """
    return _through(population, x, training=True)


def _through(population: Population, x: Tensor, training: bool) -> tuple[Activations, tuple[Statistics, ...]]:
    h = _checked(population, x)
    hidden, statistics = [], []
    for i in range(len(population.layers) - 1):
        h, found = outgoing(population, i, incoming(population, i, h), training)
        hidden.append(h)
        statistics += [found] if found else []
    return Activations(tuple(hidden), incoming(population, len(population.layers) - 1, h)), tuple(statistics)


def _checked(population: Population, x: Tensor) -> Tensor:
    """The inputs themselves, if their size is that of the networks'."""
    if x.shape[-1] != population.inputs:
        image = f"{population.sizes[0]} · {size_words(population.image, ' · ')} = " if population.image else ""
        raise UserError(
            f"the networks take {image}{population.inputs:,} inputs, and the data has {x.shape[-1]:,} a sample: choose "
            "networks and data of one size"
        )
    return x


def incoming(population: Population, i: int, h: Tensor) -> Float[Tensor, "net row node"]:
    """What comes into the nodes of layer i from what the layer below gives; below the lowest are the inputs."""
    weight, bias = population.layers[i]
    if weight.ndim == 5:
        return _convolved(population, i, h)
    if i and population.layers[i - 1].weight.ndim == 5:  # channel by channel, position fastest
        h = h.unflatten(1, (-1, *population.shape.seen[i])).permute(0, 1, 4, 2, 3).flatten(2)
    elif h.ndim == 2:
        h = h.unsqueeze(0).expand(len(population), *h.shape)
    across = weight.transpose(1, 2)
    return torch.bmm(h, across) if bias is None else torch.baddbmm(bias.unsqueeze(1), h, across)


def outgoing(
    population: Population, i: int, h: Float[Tensor, "net row node"], training: bool = False
) -> tuple[Float[Tensor, "net row node"], Statistics | None]:
    """What the nodes of hidden layer i give for what comes in: activation and BatchNorm in their order."""
    if not population.norms:
        return activate(h, population.slope), None
    if population.norm_first:
        h, found = normalised(h, population.norms[i], training)
        return activate(h, population.slope), found
    return normalised(activate(h, population.slope), population.norms[i], training)


def _convolved(population: Population, i: int, h: Tensor) -> Float[Tensor, "net row node"]:
    """All networks in one convolution, a group of channels each; of inputs that they share in one of all filters."""
    weight, bias = population.layers[i]
    nets, shape, shared = len(population), population.shape, h.ndim == 2
    size, look = shape.seen[i], shape.looks[i]
    if i == 0:
        images = h.unflatten(-1, (weight.shape[2], *size))
        images = images if shared else images.transpose(0, 1).flatten(1, 2)
        if shared or nets == 1:
            # Pictures come channel by channel; what follows would have to be turned around again and again.
            images = images.contiguous(memory_format=torch.channels_last)
    else:
        images = h.unflatten(1, (-1, *size)).permute(1, 0, 4, 2, 3).flatten(1, 2)
    filters, shifts = weight.flatten(0, 1), None if bias is None else bias.flatten()
    maps = torch.nn.functional.conv2d(
        images, filters, shifts, stride=look.stride, padding=look.padding, groups=1 if shared else nets
    )
    # With the channels of a pixel next to each other rows of nodes are a view, and so are images of rows.
    maps = maps.contiguous(memory_format=torch.channels_last)
    return maps.unflatten(1, (nets, -1)).permute(1, 0, 3, 4, 2).flatten(1, 3)


def stack(populations: Sequence[Population]) -> Population:
    """One population of the networks of several of one shape."""
    first = populations[0]
    if any(p.shape != first.shape for p in populations):
        raise ValueError(f"only networks of one shape stack, got {sorted({str(p.shape) for p in populations})}")

    def joined(parts: Sequence[_Part]) -> _Part:
        return type(parts[0])._make(None if ts[0] is None else torch.cat(ts) for ts in zip(*parts, strict=True))

    return replace(
        first,
        layers=tuple(map(joined, zip(*(p.layers for p in populations), strict=True))),
        norms=tuple(map(joined, zip(*(p.norms for p in populations), strict=True))),
        seeds=torch.cat([p.seeds for p in populations]),
    )
