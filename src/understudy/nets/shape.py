"""The shape of the networks of a population: sizes, convolutions, image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from understudy.errors import UserError


class Convolution(NamedTuple):
    """How a layer goes over a map: the side of its square kernel, pixels a step, and zeros put around the map."""

    kernel: int = 3
    stride: int = 1
    padding: int = 0

    def __call__(self, side: int) -> int:
        """What comes out of a side of so many pixels; below 1: nothing."""
        return (side + 2 * self.padding - self.kernel) // self.stride + 1


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
                f"images of {size_words(self.image)} are too small for {len(self.maps)} convolutions, each of which "
                f"takes two pixels off height and width: give {least} × {least} or more, or fewer layers"
            )
        if small is not None:
            kernel, stride, padding = self.looks[small]
            raise UserError(
                f"images of {size_words(self.image)} are too small for convolution {small + 1}, a kernel of {kernel} × "
                f"{kernel} at stride {stride} with padding {padding}, which sees "
                f"{size_words(self.seen[small])}: give larger images, smaller kernels or more padding"
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


def _seen(image: tuple[int, int], looks: Sequence[Convolution]) -> tuple[tuple[int, int], ...]:
    """Height and width of what each convolution sees, and of the last one's map."""
    sizes = [image]
    for look in looks:
        height, width = sizes[-1]
        sizes.append((look(height), look(width)))
    return tuple(sizes)


def size_words(size: Sequence[int] | None, times: str = " × ") -> str:
    return times.join(map(str, size or ()))
