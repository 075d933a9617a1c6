"""What a network is: always a population, E networks of one shape in stacked tensors, of which one is E = 1.

Fully connected, or convolutional: unless said otherwise as in the papers' released code, where every hidden layer is a
3×3 convolution without padding, which takes two pixels off height and width. The last feature map, flattened channel by
channel, goes into fully connected layers. Inputs are flat in both cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.nets.activation import activate
from understudy.nets.norm import Norm, Statistics, normalised


class Convolution(NamedTuple):
    """How a layer goes over a map: the side of its square kernel, pixels a step, and zeros put around the map."""

    kernel: int = 3
    stride: int = 1
    padding: int = 0

    def __call__(self, side: int) -> int:
        """What comes out of a side of so many pixels; below 1: nothing."""
        return (side + 2 * self.padding - self.kernel) // self.stride + 1


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


@dataclass(frozen=True)
class Shape:
    """What networks of one population have in common."""

    sizes: tuple[int, ...]
    """Nodes from the inputs to the outputs, or channels: (d, n_1, …, C)."""
    slope: float = 0.0
    bias: bool = True
    image: tuple[int, int] | None = None
    """Height and width of the inputs of a convolutional network."""
    norm: Literal["before", "after"] | None = None
    """BatchNorm before or after the activation."""
    affine: bool = True
    """Whether BatchNorm has a scale and a shift."""
    convolutions: tuple[tuple[int, int, int], ...] | None = None
    """Of a convolutional network: (kernel, stride, padding) of its lowest hidden layers, those above being fully
    connected. None: all hidden layers are convolutions of 3×3 without padding."""

    def __post_init__(self) -> None:
        if self.image is None and self.convolutions is None:
            return
        if self.image is None:
            raise UserError(f"convolutions {self.convolutions} were given without an image: give its height and width")
        if len(self.image) != 2 or not all(isinstance(side, int) for side in self.image):
            raise UserError(f"an image is (height, width), whole numbers of pixels, got {self.image}")
        if len(self.sizes) < 3:
            raise UserError(
                f"a convolutional network of sizes {self.sizes} was asked for, but it has channels of the inputs, "
                "channels of one convolution or more, and outputs: give at least three sizes"
            )
        if self.convolutions is not None:
            self._check_convolutions(self.convolutions)
        small = next((i for i, size in enumerate(self.maps) if min(size) < 1), None)
        if small is not None and self.convolutions is None:
            least = 2 * len(self.maps) + 1
            raise UserError(
                f"images of {_by(self.image)} are too small for {len(self.maps)} convolutions, each of which takes two "
                f"pixels off height and width: give {least} × {least} or more, or fewer layers"
            )
        if small is not None:
            kernel, stride, padding = self.looks[small]
            raise UserError(
                f"images of {_by(self.image)} are too small for convolution {small + 1}, a kernel of {kernel} × "
                f"{kernel} at stride {stride} with padding {padding}, which sees {_by(self.seen[small])}: give larger "
                "images, smaller kernels or more padding"
            )

    def _check_convolutions(self, given: tuple[tuple[int, int, int], ...]) -> None:
        hidden = len(self.sizes) - 2
        if not 1 <= len(given) <= hidden:
            raise UserError(f"{len(given)} convolutions were given for {hidden} hidden layers: give 1 to {hidden}")
        for each in given:
            if len(each) != 3 or any(type(n) is not int or n < least for n, least in zip(each, (1, 1, 0), strict=True)):
                raise UserError(
                    "a convolution is (kernel, stride, padding), whole numbers of which the first two are 1 or more "
                    f"and the last 0 or more, got {tuple(each)}"
                )
        # One name for one shape: networks that are alike compare as equal, whichever way they were described.
        usual = len(given) == hidden and all(tuple(each) == Convolution() for each in given)
        object.__setattr__(self, "convolutions", None if usual else tuple(Convolution(*each) for each in given))

    @property
    def inputs(self) -> int:
        """Numbers in a sample."""
        return self.sizes[0] * math.prod(self.image or ())

    @property
    def looks(self) -> tuple[Convolution, ...]:
        """How each convolution goes over its map, from the lowest up; none in a fully connected network."""
        if self.image is None:
            return ()
        if self.convolutions is None:
            return (Convolution(),) * (len(self.sizes) - 2)
        return tuple(Convolution(*look) for look in self.convolutions)

    @property
    def seen(self) -> tuple[tuple[int, int], ...]:
        """Height and width of what each convolution sees, and of the last one's map."""
        return () if self.image is None else _seen(self.image, self.looks)

    @property
    def maps(self) -> tuple[tuple[int, int], ...]:
        """Height and width of each convolution's feature map; none in a fully connected network."""
        return self.seen[1:]

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Of each layer's weight the shape without the axis of networks."""
        pairs, looks = tuple((out, into) for into, out in pairwise(self.sizes)), self.looks
        if not looks:
            return pairs
        filters = ((*pair, look.kernel, look.kernel) for pair, look in zip(pairs, looks, strict=False))
        (nodes, channels), *above = pairs[len(looks) :]
        return *filters, (nodes, channels * math.prod(self.maps[-1])), *above

    @property
    def dense(self) -> bool:
        """Fully connected, without BatchNorm."""
        return self.image is None and self.norm is None

    @property
    def positions(self) -> tuple[int, ...]:
        """How often the nodes of each hidden layer look at a sample: once, or at every place of their feature map."""
        maps = tuple(map(math.prod, self.maps))
        return maps + (1,) * (len(self.sizes) - 2 - len(maps))

    @property
    def products(self) -> tuple[int, ...]:
        """Multiplications that each layer takes for a sample."""
        return tuple(math.prod(size) * p for size, p in zip(self.weights, (*self.positions, 1), strict=True))

    @property
    def activations(self) -> int:
        """Numbers that all nodes give for a sample, the outputs' among them."""
        return sum(n * p for n, p in zip(self.sizes[1:], (*self.positions, 1), strict=True))


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
                kind = f"channels under {_by(expected[2:])} kernels" if len(expected) > 2 else "nodes"
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
        image = f"{population.sizes[0]} · {_by(population.image, ' · ')} = " if population.image else ""
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


def _seen(image: tuple[int, int], looks: Sequence[Convolution]) -> tuple[tuple[int, int], ...]:
    """Height and width of what each convolution sees, and of the last one's map."""
    sizes = [image]
    for look in looks:
        height, width = sizes[-1]
        sizes.append((look(height), look(width)))
    return tuple(sizes)


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


def _by(size: Sequence[int] | None, times: str = " × ") -> str:
    return times.join(map(str, size or ()))
