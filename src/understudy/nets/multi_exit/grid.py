"""The grid of a multi-scale DenseNet (Huang et al. 2018): which convolution reads which features.

The convolutions are listed in the order in which they are computed. The module `MSDNet` and the engine that trains
populations on a GPU are both built from this list, so that they cannot differ.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from understudy._errors import UserError

SMALLEST = 4
"""Rows and columns that features must have for the convolutions of an exit."""


@dataclass(frozen=True)
class GridConvolution:
    """A convolution without bias, followed by BatchNorm and ReLU.

    It reads the first `inputs` channels of one set of features and appends `outputs` channels to another.

    Attributes:
        name: Where the module `MSDNet` has it.
        source: Features that it reads.
        target: Features to which it appends.
        inputs: Channels that it reads.
        outputs: Channels that it appends.
        kernel: Height and width of the kernel: 1, 3, or 7 for the first one of ImageNet; padded by half of it.
        stride: 1 or 2.
        offset: Channel of `target` at which its outputs begin.
    """

    name: str
    source: str
    target: str
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    offset: int = 0


@dataclass(frozen=True)
class Grid:
    """Architecture of a multi-scale DenseNet: a grid of scales (rows) and layers (columns), with exits on the coarsest.

    Layer l appends `channels[s]` features to scale s. Half of them come from the same scale and half, with stride 2,
    from the next finer one; the finest scale has only its own. Each half is a 1×1 bottleneck and a 3×3 convolution.
    After one and two thirds of the layers, 1×1 transitions halve the features of each scale. Near the end, a scale is
    dropped as soon as the layers left can no longer carry it to the coarsest one.

    Args:
        classes: Number of classes.
        image: Height and width of the images.
        colours: Channels of the images.
        channels: Features that a layer appends to each scale, finest first; even, except for the finest.
        layers: Number of layers after the initial one.
        exits: Layers, counted from 1, after which there is an exit; increasing, and the last layer among them.
        bottleneck: Features of a bottleneck per feature that it leads to, at most as many as it reads.
        head: Channels of the two 3×3 convolutions of an exit.
        stem: "plain" for a 3×3 convolution, or "imagenet" for a 7×7 convolution with stride 2, BatchNorm, ReLU and 3×3
            max pooling with stride 2.

    Raises:
        UserError: Sizes that do not fit together; the message names the argument.
    """

    classes: int = 100
    image: int = 32
    colours: int = 3
    channels: tuple[int, ...] = (6, 12, 24)
    layers: int = 24
    exits: tuple[int, ...] = tuple(range(4, 25, 2))
    bottleneck: int = 4
    head: int = 128
    stem: str = "plain"

    def __post_init__(self) -> None:
        for name in ("classes", "image", "colours", "layers", "bottleneck", "head", "channels", "exits"):
            given = getattr(self, name)
            if name in ("channels", "exits"):
                if not isinstance(given, Iterable):
                    raise UserError(f"must be several whole numbers, as in (6, 12, 24), got {given!r}", name)
                object.__setattr__(self, name, tuple(given))  # lists and ranges are taken too
            for value in getattr(self, name) if name in ("channels", "exits") else (given,):
                if type(value) is not int or value < 1:
                    raise UserError(f"must be a whole number of at least 1, got {value!r}", name)
        if not self.channels:
            raise UserError("must have a number for each scale, got none", "channels")
        if odd := [c for c in self.channels[1:] if c % 2]:
            raise UserError(
                f"must be even for every scale but the finest, got {odd[0]}: half of them come from the next finer "
                "scale",
                "channels",
            )
        if self.layers < len(self.channels):
            raise UserError(
                f"must be at least the number of scales ({len(self.channels)}), got {self.layers}: the finest scale "
                "needs that many to reach the exits",
                "layers",
            )
        _require_exits(self.exits, self.layers)
        if self.stem not in ("plain", "imagenet"):
            raise UserError(f"must be plain or imagenet, got {self.stem!r}", "stem")
        if self.coarsest < SMALLEST:
            least = (SMALLEST - 1) * 2 ** (self.scales - 1) * (4 if self.stem == "imagenet" else 1) + 1
            raise UserError(
                f"must be at least {least} pixels wide for {self.scales} scales, got {self.image}: exits need "
                f"{SMALLEST} × {SMALLEST} features at the coarsest scale",
                "image",
            )

    @staticmethod
    def imagenet(classes: int = 1000) -> Grid:
        """The network for 224 × 224 images: 4 scales, 38 layers, 5 exits (Phuong 2021, sec. 6.3.1).

        The number of features that a layer appends is that of Huang et al. (2018).

        Args:
            classes: Number of classes.
        """
        return Grid(classes, 224, 3, (16, 32, 64, 64), 38, tuple(range(10, 39, 7)), stem="imagenet")

    @staticmethod
    def from_json(text: str) -> Grid:
        """The grid that `to_json` wrote.

        Args:
            text: What `to_json` returned.
        """
        given = json.loads(text).items()
        arguments: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given}
        return Grid(**arguments)

    def to_json(self) -> str:
        """The arguments as one JSON object."""
        return json.dumps(asdict(self))

    @property
    def scales(self) -> int:
        """Number of scales."""
        return len(self.channels)

    @property
    def coarsest(self) -> int:
        """Height and width of the features that exits read."""
        return self.sizes[-1]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Height and width of the features of each scale."""
        size = -(-self.image // 4) if self.stem == "imagenet" else self.image
        sizes = [size]
        for _ in self.channels[1:]:
            sizes.append(-(-sizes[-1] // 2))
        return tuple(sizes)

    @property
    def transitions(self) -> tuple[int, int]:
        """Layers after which the features of each scale are halved."""
        return self.layers // 3, 2 * self.layers // 3

    def scales_after(self, layer: int) -> range:
        """Scales that a layer computes.

        Args:
            layer: The layer, counted from 1.
        """
        return range(max(0, self.scales - 1 - (self.layers - layer)), self.scales)

    @cached_property
    def convolutions(self) -> tuple[GridConvolution, ...]:
        """All convolutions of features, in the order in which they are computed; without those of exits."""
        return tuple(step for step in self.steps if isinstance(step, GridConvolution))

    @cached_property
    def steps(self) -> tuple[GridConvolution | int, ...]:
        """Convolutions in the order in which they are computed, with the index of each exit where it can be."""
        return tuple(self._steps())

    @cached_property
    def paths(self) -> tuple[tuple[GridConvolution, ...], ...]:
        """The convolutions that each exit depends on, in the order in which they are computed."""
        return tuple(self._path(exit) for exit in range(len(self.exits)))

    def exit_inputs(self, exit: int) -> tuple[str, int]:
        """Features that an exit reads, and how many of their channels.

        Args:
            exit: The exit, counted from 0.
        """
        at = self.steps.index(exit)
        last = next(
            step
            for step in reversed(self.steps[:at])
            if isinstance(step, GridConvolution) and step.target.endswith(f"scale{self.scales - 1}")
        )
        return last.target, last.offset + last.outputs

    def _steps(self) -> Iterator[GridConvolution | int]:
        channels = self.channels
        stage = 0
        yield GridConvolution("first.0", "image", "stage0.scale0", self.colours, channels[0], *self._stem)
        for s in range(1, self.scales):
            source, target = (f"stage0.scale{each}" for each in (s - 1, s))
            yield GridConvolution(f"first.{s}", source, target, channels[s - 1], channels[s], 3, 2)
        have = list(channels)
        for layer in range(1, self.layers + 1):
            before = tuple(have)
            for s in self.scales_after(layer):
                for name, origin, inputs, outputs, stride, offset in self._halves(s, before):
                    mid = min(inputs, self.bottleneck * outputs)
                    at = f"layers.{layer - 1}.{s}.{name}"
                    target = f"stage{stage}.scale{s}"
                    yield GridConvolution(f"{at}.0", f"stage{stage}.scale{origin}", at, inputs, mid, 1)
                    yield GridConvolution(f"{at}.1", at, target, mid, outputs, 3, stride, before[s] + offset)
                have[s] += channels[s]
            if layer in self.transitions:
                for s in self.scales_after(layer):
                    halved = have[s] // channels[s] // 2 * channels[s]
                    source, target = (f"stage{each}.scale{s}" for each in (stage, stage + 1))
                    yield GridConvolution(f"transitions.{stage}.{s}", source, target, have[s], halved, 1)
                    have[s] = halved
                stage += 1
            if layer in self.exits:
                yield self.exits.index(layer)

    def _path(self, exit: int) -> tuple[GridConvolution, ...]:
        name, channels = self.exit_inputs(exit)
        needed = {name: channels}
        path = []
        for step in reversed(self.steps[: self.steps.index(exit)]):
            if isinstance(step, GridConvolution) and needed.get(step.target, 0) > step.offset:
                needed[step.source] = max(needed.get(step.source, 0), step.inputs)
                path.append(step)
        return tuple(reversed(path))

    def _halves(self, s: int, have: tuple[int, ...]) -> list[tuple[str, int, int, int, int, int]]:
        new = self.channels[s]
        if s == 0:
            return [("same", 0, have[0], new, 1, 0)]
        return [("same", s, have[s], new // 2, 1, 0), ("finer", s - 1, have[s - 1], new // 2, 2, new // 2)]

    @property
    def _stem(self) -> tuple[int, int]:
        return (7, 2) if self.stem == "imagenet" else (3, 1)


def _require_exits(exits: tuple[int, ...], layers: int) -> None:
    """Raise a `UserError` unless exits are on existing layers, increase, and end with the last layer."""
    if not exits:
        raise UserError("must name at least one layer, got none", "exits")
    if outside := [e for e in exits if e > layers]:
        raise UserError(f"must be layers from 1 to {layers}, got {outside[0]}", "exits")
    if any(a >= b for a, b in itertools.pairwise(exits)):
        raise UserError(f"must be in increasing order, each layer once, got {', '.join(map(str, exits))}", "exits")
    if exits[-1] != layers:
        raise UserError(
            f"must end with the last layer ({layers}), got {exits[-1]}: layers after the last exit have no use", "exits"
        )


def parse_grid(text: str, where: str) -> Grid:
    """The grid that a file states, or a `UserError` that names the file."""
    try:
        return Grid.from_json(text)
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: its architecture cannot be read ({error}); save the network again") from None


def require_exit(only: int | None, exits: int) -> None:
    """Raise a `UserError` unless the only exit to compute, where there is one, is among a number of exits."""
    if only is not None and not 0 <= only < exits:
        raise UserError(f"must be an exit from 0 to {exits - 1}, got {only}", "only")
