"""Shape of the networks of a population: sizes, image, convolutions, BatchNorm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from understudy._errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


Sides = int | tuple[int, int]
"""One number of pixels for height and width, or one for each."""


class Pool(NamedTuple):
    """Pooling of a feature map, by which the layer above reads it: nodes are matched by the map before pooling."""

    kind: Literal["max", "average"]
    kernel: Sides
    stride: Sides
    padding: Sides = 0

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the pooled map; below 1 if the kernel does not fit."""
        return _slide(size, self.kernel, self.stride, self.padding)

    def apply(self, maps: Tensor) -> Tensor:
        """Pool maps [..., channel, height, width].

        Args:
            maps: Maps of a convolution.

        Returns:
            The pooled maps, with the same leading axes.
        """
        import torch.nn.functional as F

        pool = F.max_pool2d if self.kind == "max" else F.avg_pool2d
        return pool(maps.flatten(0, -4), *self[1:]).unflatten(0, maps.shape[:-3])


class Convolution(NamedTuple):
    """Kernel, stride and zero padding of a convolution, in pixels, and how its map is pooled."""

    kernel: Sides = 3
    stride: Sides = 1
    padding: Sides = 0
    pool: Pool | None = None

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the map of an input of this size, before pooling; below 1 if the kernel does not fit."""
        return _slide(size, self.kernel, self.stride, self.padding)


def stored(convolutions: Sequence[tuple[Any, ...]] | None) -> list[tuple[Any, ...]]:
    """Convolutions as files store them; those without pooling as (kernel, stride, padding)."""
    return [tuple(each[:3]) if each.pool is None else tuple(each) for each in map(convolution, convolutions or ())]


def pair(sides: Sides) -> tuple[int, int]:
    """Height and width."""
    return (sides, sides) if isinstance(sides, int) else sides


def _slide(size: tuple[int, int], *how: Sides) -> tuple[int, int]:
    height, width = (
        (side + 2 * padding - kernel) // stride + 1
        for side, kernel, stride, padding in zip(size, *map(pair, how), strict=True)
    )
    return height, width


def convolution(given: Sequence[Any]) -> Convolution:
    """A convolution from (kernel, stride, padding) or (kernel, stride, padding, pool), however it was stored.

    Raises:
        UserError: Something other than whole numbers of pixels.
    """

    def sides(value: Any, least: int) -> Sides:
        both = (value, value) if isinstance(value, int) else tuple(value)
        if len(both) != 2 or any(type(n) is not int or n < least for n in both):
            raise ValueError
        return both[0] if both[0] == both[1] else both

    def slide(values: Sequence[Any]) -> tuple[Sides, Sides, Sides]:
        kernel, stride, padding = values
        return sides(kernel, 1), sides(stride, 1), sides(padding, 0)

    try:
        *filters, pool = given if len(given) == 4 else (*given, None)
        if pool is not None and pool[0] not in ("max", "average"):
            raise ValueError
        return Convolution(*slide(filters), None if pool is None else Pool(pool[0], *slide(pool[1:])))
    except (TypeError, ValueError):
        raise UserError(
            "a convolution is (kernel, stride, padding), whole numbers or pairs of them with kernel and stride at "
            "least 1 and padding at least 0, with or without a pooling (max or average, kernel, stride, padding), got "
            f"{tuple(given) if isinstance(given, Sequence) else given}"
        ) from None


@dataclass(frozen=True)
class Shape:
    """Shape shared by all networks of one population.

    Args:
        sizes: Nodes from the inputs to the outputs, (d, n_1, …, C); channels where layers are convolutions.
        slope: Slope of the activation below zero.
        bias: Whether layers have biases.
        image: Height and width of the inputs of a convolutional network.
        norm: Whether BatchNorm stands before or after the activation, if the networks have it.
        affine: Whether BatchNorm has a scale and a shift.
        convolutions: (kernel, stride, padding), or with a pooling (kernel, stride, padding, pool), of the lowest hidden
            layers of a convolutional network; hidden layers above them are fully connected. None: every hidden layer
            is a 3×3 convolution without padding.

    Raises:
        UserError: The image is too small for the convolutions, or these do not fit the sizes.
    """

    sizes: tuple[int, ...]
    slope: float = 0.0
    bias: bool = True
    image: tuple[int, int] | None = None
    norm: Literal["before", "after"] | None = None
    affine: bool = True
    convolutions: tuple[tuple[Any, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.image is None and self.convolutions is None:
            return
        if self.image is None:
            raise UserError(f"convolutions {self.convolutions} need an image: give its height and width")
        if len(self.image) != 2 or not all(isinstance(side, int) for side in self.image):
            raise UserError(f"an image is (height, width), whole numbers of pixels, got {self.image}")
        if len(self.sizes) < 3:
            raise UserError(
                "a convolutional network needs at least three sizes (input channels, channels of one or more "
                f"convolutions, outputs), got {self.sizes}"
            )
        if self.convolutions is not None:
            self._validate_convolutions(self.convolutions)
        small = next((i for i, size in enumerate(self.maps) if min(size) < 1), None)
        if small is not None and self.convolutions is None:
            least = 2 * len(self.maps) + 1
            raise UserError(
                f"images of {format_size(self.image)} are too small for {len(self.maps)} convolutions, each of which "
                f"reduces height and width by two pixels: give {least} × {least} or more, or fewer layers"
            )
        if small is not None:
            kernel, stride, padding, _ = self.resolved_convolutions[small]
            raise UserError(
                f"images of {format_size(self.image)} are too small for convolution {small + 1}: a "
                f"{format_size(pair(kernel))} kernel with stride {stride} and padding {padding} on a map of "
                f"{format_size(self.spatial_sizes[small])}; give larger images, smaller kernels or more padding"
            )
        small = next((i for i, size in enumerate(self.spatial_sizes[1:]) if min(size) < 1), None)
        if small is not None:
            raise UserError(
                f"the map of convolution {small + 1}, {format_size(self.maps[small])}, is too small for its pooling "
                f"{self.resolved_convolutions[small].pool}: give larger images or a smaller pooling"
            )

    def _validate_convolutions(self, given: tuple[tuple[Any, ...], ...]) -> None:
        hidden = len(self.sizes) - 2
        if not 1 <= len(given) <= hidden:
            raise UserError(f"give 1 to {hidden} convolutions for {hidden} hidden layers, got {len(given)}")
        each = tuple(map(convolution, given))
        # One representation per shape, so that equal networks compare as equal however they were described.
        usual = len(given) == hidden and all(one == Convolution() for one in each)
        object.__setattr__(self, "convolutions", None if usual else each)

    @property
    def inputs(self) -> int:
        """Numbers per sample."""
        return self.sizes[0] * math.prod(self.image or ())

    @property
    def resolved_convolutions(self) -> tuple[Convolution, ...]:
        """Every convolution, from the lowest up, defaults filled in; empty for a fully connected network."""
        if self.image is None:
            return ()
        return tuple(map(convolution, self.convolutions or (Convolution(),) * (len(self.sizes) - 2)))

    @property
    def spatial_sizes(self) -> tuple[tuple[int, int], ...]:
        """Height and width that each layer reads, up to the first above the convolutions; empty if fully connected."""
        if self.image is None:
            return ()
        sizes = [self.image]
        for each in self.resolved_convolutions:
            size = each(sizes[-1])
            sizes.append(each.pool(size) if each.pool and min(size) > 0 else size)
        return tuple(sizes)

    @property
    def maps(self) -> tuple[tuple[int, int], ...]:
        """Height and width of each convolution's feature map, before pooling; empty for a fully connected network."""
        return tuple(each(size) for each, size in zip(self.resolved_convolutions, self.spatial_sizes, strict=False))

    @property
    def pooled(self) -> bool:
        """Whether a feature map is pooled."""
        return any(each.pool for each in self.resolved_convolutions)

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each layer's weight, without the leading network axis."""
        pairs, convolutions = tuple((out, into) for into, out in pairwise(self.sizes)), self.resolved_convolutions
        if not convolutions:
            return pairs
        filters = ((*nodes, *pair(each.kernel)) for nodes, each in zip(pairs, convolutions, strict=False))
        (nodes, channels), *above = pairs[len(convolutions) :]
        return *filters, (nodes, channels * math.prod(self.spatial_sizes[-1])), *above

    @property
    def dense(self) -> bool:
        """Whether the networks are fully connected, without BatchNorm."""
        return self.image is None and self.norm is None

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of each hidden layer's feature map; 1 for a fully connected layer."""
        maps = tuple(map(math.prod, self.maps))
        return maps + (1,) * (len(self.sizes) - 2 - len(maps))

    @property
    def products(self) -> tuple[int, ...]:
        """Multiplications per sample in each layer."""
        return tuple(math.prod(size) * p for size, p in zip(self.weights, (*self.positions, 1), strict=True))

    @property
    def activations(self) -> int:
        """Activations of all nodes per sample, outputs included."""
        return sum(n * p for n, p in zip(self.sizes[1:], (*self.positions, 1), strict=True))


def format_size(size: Sequence[int] | None, times: str = " × ") -> str:
    return times.join(map(str, size or ()))
