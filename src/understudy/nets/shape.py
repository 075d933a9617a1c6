"""Shape of the networks of a population: sizes, image, convolutions, BatchNorm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from understudy._errors import UserError


class Convolution(NamedTuple):
    """Square kernel, stride and zero padding of a convolution, in pixels."""

    kernel: int = 3
    stride: int = 1
    padding: int = 0

    def __call__(self, side: int) -> int:
        """Output side for an input side; below 1 if the kernel does not fit."""
        return (side + 2 * self.padding - self.kernel) // self.stride + 1


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
        convolutions: (kernel, stride, padding) of the lowest hidden layers of a convolutional network; hidden layers
            above them are fully connected. None: every hidden layer is a 3×3 convolution without padding.

    Raises:
        UserError: The image is too small for the convolutions, or these do not fit the sizes.
    """

    sizes: tuple[int, ...]
    slope: float = 0.0
    bias: bool = True
    image: tuple[int, int] | None = None
    norm: Literal["before", "after"] | None = None
    affine: bool = True
    convolutions: tuple[tuple[int, int, int], ...] | None = None

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
            kernel, stride, padding = self.resolved_convolutions[small]
            raise UserError(
                f"images of {format_size(self.image)} are too small for convolution {small + 1}: a {kernel} × {kernel} "
                f"kernel with stride {stride} and padding {padding} on a map of "
                f"{format_size(self.spatial_sizes[small])}; give larger images, smaller kernels or more padding"
            )

    def _validate_convolutions(self, given: tuple[tuple[int, int, int], ...]) -> None:
        hidden = len(self.sizes) - 2
        if not 1 <= len(given) <= hidden:
            raise UserError(f"give 1 to {hidden} convolutions for {hidden} hidden layers, got {len(given)}")
        for each in given:
            if len(each) != 3 or any(type(n) is not int or n < least for n, least in zip(each, (1, 1, 0), strict=True)):
                raise UserError(
                    "a convolution is (kernel, stride, padding), whole numbers with kernel and stride at least 1 and "
                    f"padding at least 0, got {tuple(each)}"
                )
        # One representation per shape, so that equal networks compare as equal however they were described.
        usual = len(given) == hidden and all(tuple(each) == Convolution() for each in given)
        object.__setattr__(self, "convolutions", None if usual else tuple(Convolution(*each) for each in given))

    @property
    def inputs(self) -> int:
        """Numbers per sample."""
        return self.sizes[0] * math.prod(self.image or ())

    @property
    def resolved_convolutions(self) -> tuple[Convolution, ...]:
        """Every convolution, from the lowest up, defaults filled in; empty for a fully connected network."""
        if self.image is None:
            return ()
        if self.convolutions is None:
            return (Convolution(),) * (len(self.sizes) - 2)
        return tuple(Convolution(*each) for each in self.convolutions)

    @property
    def spatial_sizes(self) -> tuple[tuple[int, int], ...]:
        """Height and width of the image and of each convolution's feature map; empty if fully connected."""
        if self.image is None:
            return ()
        sizes = [self.image]
        for convolution in self.resolved_convolutions:
            height, width = sizes[-1]
            sizes.append((convolution(height), convolution(width)))
        return tuple(sizes)

    @property
    def maps(self) -> tuple[tuple[int, int], ...]:
        """Height and width of each convolution's feature map; empty for a fully connected network."""
        return self.spatial_sizes[1:]

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each layer's weight, without the leading network axis."""
        pairs, convolutions = tuple((out, into) for into, out in pairwise(self.sizes)), self.resolved_convolutions
        if not convolutions:
            return pairs
        filters = ((*pair, each.kernel, each.kernel) for pair, each in zip(pairs, convolutions, strict=False))
        (nodes, channels), *above = pairs[len(convolutions) :]
        return *filters, (nodes, channels * math.prod(self.maps[-1])), *above

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
