"""Population: E networks of one shape in stacked tensors; a single network is E = 1.

Networks are fully connected or convolutional. By default every hidden layer of a convolutional network is a 3×3
convolution without padding, as in the released code of Tian (2020). The last feature map, flattened channel by channel,
enters the fully connected layers. Inputs are flat in both cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets.activation import activate
from understudy.nets.norm import Norm, Statistics, batch_norm
from understudy.nets.shape import Shape, format_size


class Layer(NamedTuple):
    """Affine map or convolution of every network; BatchNorm is kept separately, in `Population.norms`."""

    weight: Float[Tensor, "net out in"] | Float[Tensor, "net out in kernel kernel"]
    bias: Float[Tensor, "net out"] | None


_Part = TypeVar("_Part", Layer, Norm)


class Activations(NamedTuple):
    """Activations of every hidden layer, from the lowest up, and the outputs.

    A row is a sample; where nodes are channels of a convolution, a sample at a position, with position varying fastest.
    """

    hidden: tuple[Float[Tensor, "net row node"], ...]
    output: Float[Tensor, "net sample out"]


@dataclass(frozen=True, eq=False)
class Population:
    """E networks of one shape; the activation x ↦ x for x ≥ 0, slope·x below, follows every layer but the last.

    ReLU is slope 0, leaky ReLU any slope, |·| slope −1 (Tian 2020, sec. 3; Zhou, Ge & Jin 2021, sec. 2).

    Args:
        layers: Weights and biases, from the inputs to the outputs.
        seeds: One seed per network, from which the randomness of its data and batch order follows.
        slope: Slope of the activation below zero.
        norms: BatchNorm, one per hidden layer; empty for networks without it.
        norm_first: Whether BatchNorm stands before the activation instead of after it.
        image: Height and width of the inputs of convolutional networks, whose channels are the first of `sizes`.
        convolutions: Kernel, stride, padding and pooling of the lowest hidden layers, as in `Shape`.

    Raises:
        ValueError: Tensors whose shapes do not fit together.
        UserError: An image or convolutions that do not fit the layers.
    """

    layers: tuple[Layer, ...]
    seeds: Int[Tensor, "net"]
    slope: float = 0.0
    norms: tuple[Norm, ...] = ()
    norm_first: bool = False
    image: tuple[int, int] | None = None
    convolutions: tuple[tuple[Any, ...], ...] | None = None

    def __post_init__(self) -> None:
        nets, shape = len(self.seeds), self.shape
        for (weight, bias), expected in zip(self.layers, shape.weights, strict=True):
            if weight.shape != (nets, *expected):
                raise ValueError(f"a weight must have shape {(nets, *expected)}, got {tuple(weight.shape)}")
            if bias is not None and bias.shape != weight.shape[:2]:
                raise ValueError(f"a bias must have shape {tuple(weight.shape[:2])}, got {tuple(bias.shape)}")
        hidden = shape.sizes[1:-1]
        if self.norms and len(self.norms) != len(hidden):
            raise ValueError(f"norms must be empty or one per hidden layer ({len(hidden)}), got {len(self.norms)}")
        for norm, nodes in zip(self.norms, hidden, strict=False):
            for part in norm:
                if part is not None and part.shape != (nets, nodes):
                    raise ValueError(f"a norm must have shape {(nets, nodes)}, got {tuple(part.shape)}")
            if any((part is not None) != shape.affine for part in norm[2:]):
                raise ValueError("either all norms have a scale and a shift, or none has either")

    def __len__(self) -> int:
        """Number of networks."""
        return len(self.seeds)

    def __repr__(self) -> str:
        shape = self.shape
        parts = [f"sizes {'-'.join(map(str, shape.sizes))}", self._activation]
        parts += [f"image {format_size(self.image, '×')}"] if self.image else []
        parts += [f"BatchNorm {shape.norm} activation"] if shape.norm else []
        count = f"{len(self):,} network{'' if len(self) == 1 else 's'}"
        return f"Population({count}, {', '.join(parts)}, {dtype_name(self.dtype)}, {self.device})"

    def _repr_html_(self) -> str:
        """Show the sizes of the layers in a notebook."""
        rows = [("networks", f"{len(self):,}"), ("layers", " → ".join(map(str, self.sizes)))]
        rows += [("activation", self._activation)]
        rows += [("image", format_size(self.image))] if self.image else []
        rows += [("BatchNorm", f"{self.shape.norm} the activation")] if self.shape.norm else []
        rows += [("dtype, device", f"{dtype_name(self.dtype)}, {self.device}")]
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<p><b>Population</b></p><table>{cells}</table>"

    @property
    def _activation(self) -> str:
        return {0.0: "ReLU", 1.0: "linear", -1.0: "|·|"}.get(
            self.slope, f"leaky ReLU (slope {number(self.slope, 'g')})"
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes (or channels) from the inputs to the outputs: (d, n_1, …, C)."""
        return (self.layers[0].weight.shape[2], *(layer.weight.shape[1] for layer in self.layers))

    @property
    def inputs(self) -> int:
        """Numbers per sample."""
        return self.layers[0].weight.shape[2] * math.prod(self.image or ())

    @property
    def shape(self) -> Shape:
        """Shape shared by all networks."""
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
        """Precision of the weights."""
        return self.layers[0].weight.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.layers[0].weight.device

    def __getitem__(self, which: int | slice | Sequence[int] | Tensor) -> Population:
        """Select networks by index, slice, list or tensor; the result is again a population."""
        some = [which] if isinstance(which, int) else which
        return self._with_each(lambda part: part[some], self.seeds[some])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Population:
        """Move the networks to a device, or convert them to a precision.

        Args:
            device: Device of the result. Default: the present one.
            dtype: Precision of the result. Default: the present one.

        Returns:
            The networks there; seeds move with them.
        """
        return self._with_each(lambda part: part.to(device=device, dtype=dtype), self.seeds.to(device))

    def to_module(self, which: int = 0) -> torch.nn.Sequential:
        """Convert one network to a module in evaluation mode; `understudy.from_module` goes back.

        Args:
            which: Index of the network.

        Returns:
            The layers in order. It takes [sample, input], or for convolutions [sample, channel, height, width]; where
            images have height 1, as those of `nn.Conv1d`, also [sample, channel, length].

        Raises:
            UserError: There is no such network.
        """
        from understudy.nets.graphs.modules import to_module

        return to_module(self, which)

    def _with_each(self, change: Callable[[Tensor], Tensor], seeds: Int[Tensor, "net"]) -> Population:
        def change_all(parts: tuple[_Part, ...]) -> tuple[_Part, ...]:
            return tuple(type(part)._make(None if t is None else change(t) for t in part) for part in parts)

        return replace(self, layers=change_all(self.layers), norms=change_all(self.norms), seeds=seeds)

    def activations(self, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Activations:
        """Compute every layer in evaluation mode (BatchNorm uses its running statistics).

        Args:
            x: Inputs shared by all networks, or one set per network.

        Returns:
            Activations of the hidden layers, and the outputs.

        Raises:
            UserError: The inputs have another size than the networks take.
        """
        return _forward(self, x, training=False)[0]

    def __call__(self, x: Float[Tensor, "..."]) -> Float[Tensor, "net sample out"]:
        """Compute the outputs in evaluation mode; `x` as in `activations`."""
        return self.activations(x).output


def training_pass(
    population: Population, x: Float[Tensor, "net sample in"]
) -> tuple[Activations, tuple[Statistics, ...]]:
    """Compute every layer in training mode (BatchNorm uses the statistics of the batch), with gradients.

    Args:
        population: The networks.
        x: One batch per network.

    Returns:
        Activations of the hidden layers and the outputs, and the batch statistics of each hidden layer (none for
        networks without BatchNorm).

    Raises:
        UserError: Inputs of another size than the networks take, or a batch of one sample with BatchNorm.
    """
    return _forward(population, x, training=True)


def _forward(population: Population, x: Tensor, training: bool) -> tuple[Activations, tuple[Statistics, ...]]:
    _validate_inputs(population, x)
    h = x
    hidden, statistics = [], []
    for i in range(len(population.layers) - 1):
        h, found = outgoing(population, i, incoming(population, i, h), training)
        hidden.append(h)
        statistics += [found] if found else []
    return Activations(tuple(hidden), incoming(population, len(population.layers) - 1, h)), tuple(statistics)


def _validate_inputs(population: Population, x: Tensor) -> None:
    if x.shape[-1] != population.inputs:
        image = f"{population.sizes[0]} · {format_size(population.image, ' · ')} = " if population.image else ""
        raise UserError(
            f"the networks take {image}{population.inputs:,} inputs, but the data has {x.shape[-1]:,} per sample: "
            "choose networks and data of one size"
        )


def incoming(population: Population, i: int, h: Tensor) -> Float[Tensor, "net row node"]:
    """Pre-activations of layer `i`.

    Args:
        population: The networks.
        i: Layer, 0 is the lowest.
        h: Activations of the layer below; for layer 0 the inputs, shared or one set per network.

    Returns:
        Pre-activations; a row is a sample, or a sample at a position.
    """
    weight, bias = population.layers[i]
    if weight.ndim == 5:
        return _convolve(population, i, h)
    if i and population.layers[i - 1].weight.ndim == 5:  # flattened channel by channel, position varying fastest
        h = _read_maps(population, i, h).flatten(2)
    elif h.ndim == 2:
        h = h.unsqueeze(0).expand(len(population), *h.shape)
    across = weight.transpose(1, 2)
    return torch.bmm(h, across) if bias is None else torch.baddbmm(bias.unsqueeze(1), h, across)


def outgoing(
    population: Population, i: int, h: Float[Tensor, "net row node"], training: bool = False
) -> tuple[Float[Tensor, "net row node"], Statistics | None]:
    """Activations of hidden layer `i` from its pre-activations: activation and BatchNorm, in their order.

    Args:
        population: The networks.
        i: Hidden layer, 0 is the lowest.
        h: Pre-activations of the layer.
        training: Whether BatchNorm uses the statistics of these rows instead of the running ones.

    Returns:
        Activations, and the statistics that BatchNorm used (None without BatchNorm).
    """
    if not population.norms:
        return activate(h, population.slope), None
    if population.norm_first:
        h, found = batch_norm(h, population.norms[i], training)
        return activate(h, population.slope), found
    return batch_norm(activate(h, population.slope), population.norms[i], training)


def _read_maps(population: Population, i: int, h: Float[Tensor, "net row node"]) -> Tensor:
    """Feature maps [net, sample, channel, height, width] that layer `i` reads from the convolution below, pooled."""
    shape = population.shape
    maps = h.unflatten(1, (-1, *shape.maps[i - 1])).permute(0, 1, 4, 2, 3)
    pool = shape.resolved_convolutions[i - 1].pool
    return maps if pool is None else pool.apply(maps)


def _convolve(population: Population, i: int, h: Tensor) -> Float[Tensor, "net row node"]:
    """Convolve all networks at once, as groups of channels; inputs that all share need no groups."""
    weight, bias = population.layers[i]
    nets, shape, shared = len(population), population.shape, h.ndim == 2
    size, convolution = shape.spatial_sizes[i], shape.resolved_convolutions[i]
    if i == 0:
        images = h.unflatten(-1, (weight.shape[2], *size))
        images = images if shared else images.transpose(0, 1).flatten(1, 2)
        if shared or nets == 1:
            # Inputs are stored channel by channel; convert the layout once instead of in every layer.
            images = images.contiguous(memory_format=torch.channels_last)
    else:
        images = _read_maps(population, i, h).transpose(0, 1).flatten(1, 2)
    filters, shifts = weight.flatten(0, 1), None if bias is None else bias.flatten()
    maps = torch.nn.functional.conv2d(
        images, filters, shifts, stride=convolution.stride, padding=convolution.padding, groups=1 if shared else nets
    )
    # With the channels of a pixel contiguous, rows of nodes are a view of the maps, and maps a view of the rows.
    maps = maps.contiguous(memory_format=torch.channels_last)
    return maps.unflatten(1, (nets, -1)).permute(1, 0, 3, 4, 2).flatten(1, 3)


def stack(populations: Sequence[Population]) -> Population:
    """Concatenate populations of one shape.

    Args:
        populations: Populations of equal shape, at least one.

    Returns:
        One population with all their networks, in order.

    Raises:
        ValueError: The shapes differ.
    """
    first = populations[0]
    if any(p.shape != first.shape for p in populations):
        raise ValueError(f"only networks of one shape stack, got {sorted({str(p.shape) for p in populations})}")

    def concatenate(parts: Sequence[_Part]) -> _Part:
        return type(parts[0])._make(None if ts[0] is None else torch.cat(ts) for ts in zip(*parts, strict=True))

    return replace(
        first,
        layers=tuple(map(concatenate, zip(*(p.layers for p in populations), strict=True))),
        norms=tuple(map(concatenate, zip(*(p.norms for p in populations), strict=True))),
        seeds=torch.cat([p.seeds for p in populations]),
    )


def dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype without the prefix "torch."."""
    return str(dtype).removeprefix("torch.")
