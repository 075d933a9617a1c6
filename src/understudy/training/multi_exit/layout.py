"""Layout of the fused engine: which convolutions there are, and where their features, parameters and gradients lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from understudy.nets.multi_exit.grid import Grid, GridConvolution

_SPLITS, _STEP, _MOST = 32, 128, 1024
"""Parts in which the gradient of weights is computed; pixels of a part: a multiple of so many, and at most."""
_NARROW = 16
_ALIGNMENT = 16
"""Numbers to a multiple of which rows of features and lists of parameters are padded."""


@dataclass(eq=False)
class Features:
    """Outputs of convolutions before BatchNorm, whose channels are appended.

    Attributes:
        size: Rows and columns.
        shared: Whether several convolutions may read the same channels, so that their gradients are added.
        channels: Number of channels.
        at: Place of its first channel among all channels that have BatchNorm.
    """

    size: int
    shared: bool
    channels: int = 0
    at: int = 0

    @property
    def row(self) -> int:
        """Numbers from one pixel to the next."""
        return _padded(self.channels)


@dataclass(eq=False)
class JoinedConvolution:
    """A convolution, or several that read the same channels, with neighbouring outputs.

    Attributes:
        parts: Name in the module `MSDNet`, and outputs, of each.
        source: Features that it reads.
        first: First channel that it reads.
        inputs: Channels that it reads.
        target: Features that it writes.
        offset: First channel that it writes.
        outputs: Channels that it writes.
        kernel: Rows and columns of the kernel.
        stride: 1 or 2.
        weights: Place of its weights (tap, output, input) among the parameters of a network.
        copied: Place of their copy, with padded rows, among all copies.
        length: Pixels over which one part of the gradient of the weights is computed.
        splits: Number of these parts.
        gradients: Place of these parts among the gradients of a network.
    """

    parts: list[tuple[str, int]]
    source: Features
    first: int
    inputs: int
    target: Features
    offset: int
    outputs: int
    kernel: int
    stride: int = 1
    weights: int = 0
    copied: int = 0
    length: int = 1
    splits: int = 1
    gradients: int = 0

    @property
    def numbers(self) -> int:
        """Number of weights."""
        return self.kernel**2 * self.outputs * self.inputs

    @property
    def copied_row(self) -> int:
        """Numbers from one output to the next in the copy of its weights."""
        return _padded(self.inputs)

    @property
    def narrow(self) -> bool:
        """Whether a 3×3 convolution has so few outputs that the gradients of all taps are computed together."""
        return self.kernel == 3 and self.outputs <= _NARROW

    @property
    def gradient_row(self) -> int:
        """Numbers from one pixel to the next in the gradient of its outputs before BatchNorm."""
        return 8 if self.outputs <= 8 else _padded(self.outputs)

    @property
    def channel(self) -> int:
        """Place of its first output among all channels that have BatchNorm."""
        return self.target.at + self.offset


@dataclass(frozen=True)
class Region:
    """Neighbouring parameters, and where the parts of their gradient lie."""

    at: int
    numbers: int
    gradients: int
    splits: int = 1


@dataclass
class Layout:
    """The network as the fused engine computes it.

    Args:
        grid: The architecture.
        rows: Images per batch.

    Attributes:
        image: The images, as features without BatchNorm.
        features: All other features.
        phases: Convolutions of the grid; those of one phase can be computed at the same time.
        heads: The two convolutions of each exit.
        channels: Number of channels that have BatchNorm.
        parameters: Number of parameters of a network, rounded up.
        gradients: Numbers needed for the gradients of a network, rounded up.
        regions: All parameters, region by region: weights of convolutions, then of classifiers, their biases, scales
            and shifts of BatchNorm.
    """

    grid: Grid
    rows: int
    image: Features = field(init=False)
    features: list[Features] = field(init=False)
    phases: list[list[JoinedConvolution]] = field(init=False)
    heads: list[list[JoinedConvolution]] = field(init=False)
    channels: int = field(init=False, default=0)
    parameters: int = field(init=False, default=0)
    gradients: int = field(init=False, default=0)
    regions: list[Region] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.image = Features(self.grid.image, False, self.grid.colours)
        self._named: dict[str, tuple[Features, int]] = {"image": (self.image, 0)}
        self.phases = [self._join(phase) for phase in self._grid_phases()]
        self.heads = [self._head(exit) for exit in range(len(self.grid.exits))]
        self.features = list(dict.fromkeys(each.target for each in self.convolutions))
        for each in self.features:
            each.at, self.channels = self.channels, self.channels + each.channels
        self._place()

    @property
    def convolutions(self) -> list[JoinedConvolution]:
        """All convolutions in the order in which they are computed."""
        return [each for phase in (*self.phases, *self.heads) for each in phase]

    @property
    def classifiers(self) -> Region:
        """Weights (exit, class, channel) of the linear layers."""
        return self.regions[-4]

    @property
    def biases(self) -> Region:
        """Biases (exit, class) of the linear layers."""
        return self.regions[-3]

    @property
    def scales(self) -> Region:
        """Scales of BatchNorm, in the order of all channels."""
        return self.regions[-2]

    @property
    def shifts(self) -> Region:
        """Shifts of BatchNorm, in the order of all channels."""
        return self.regions[-1]

    def pixels(self, features: Features) -> int:
        """Pixels of all images of a batch.

        Args:
            features: Where.
        """
        return self.rows * features.size**2

    def tensors(self, weights: Tensor, mean: Tensor, variance: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor of a network by its name in `MSDNet`'s state dict, as a view of the flat ones.

        Args:
            weights: All parameters of the network.
            mean: Running mean of all channels.
            variance: Running variance of all channels.
        """
        for each in self.convolutions:
            taps = weights[each.weights :][: each.numbers].view(each.kernel, each.kernel, each.outputs, each.inputs)
            first = 0
            for name, count in each.parts:
                yield f"{name}.convolution.weight", taps[:, :, first : first + count].permute(2, 3, 0, 1)
                at = slice(each.channel + first, each.channel + first + count)
                yield f"{name}.norm.weight", weights[self.scales.at :][at]
                yield f"{name}.norm.bias", weights[self.shifts.at :][at]
                yield f"{name}.norm.running_mean", mean[at]
                yield f"{name}.norm.running_var", variance[at]
                first += count
        exits, classes = len(self.heads), self.grid.classes
        linear = weights[self.classifiers.at :][: self.classifiers.numbers].view(exits, classes, self.grid.head)
        bias = weights[self.biases.at :][: self.biases.numbers].view(exits, classes)
        for m in range(exits):
            yield f"exits.{m}.classifier.weight", linear[m]
            yield f"exits.{m}.classifier.bias", bias[m]

    def update_table(self, block: int) -> Tensor:
        """Rows (first parameter, parameters, first number of its gradient, parts, numbers per part), block by block.

        Args:
            block: Most parameters of a row.
        """
        rows = [
            (each.at + k, min(block, each.numbers - k), each.gradients + k, each.splits, each.numbers)
            for each in self.regions
            for k in range(0, each.numbers, block)
        ]
        return torch.tensor(rows, dtype=torch.int32)

    def copy_index(self) -> Tensor:
        """Which parameter each number of the copied weights is; −1 for zeros."""
        parts = []
        for each in self.convolutions:
            rows = torch.arange(each.weights, each.weights + each.numbers, dtype=torch.int32).view(-1, each.inputs)
            padding = torch.full((len(rows), each.copied_row - each.inputs), -1, dtype=torch.int32)
            parts.append(torch.cat((rows, padding), dim=1).flatten())
        return torch.cat(parts)

    def _grid_phases(self) -> Iterator[list[GridConvolution]]:
        """Group convolutions whose inputs are known at the same time."""
        for name, group in groupby(self.grid.convolutions, lambda each: each.name.rsplit(".", 1)[0].split(".")[:2]):
            steps = list(group)
            if name[0] == "layers":
                yield [each for each in steps if each.kernel == 1]
                yield [each for each in steps if each.kernel == 3]
            elif name[0] == "first":
                yield from ([each] for each in steps)
            else:
                yield steps

    def _join(self, steps: list[GridConvolution]) -> list[JoinedConvolution]:
        """Join the bottlenecks of a layer that read the same features."""
        joined: dict[str, JoinedConvolution] = {}
        for step in steps:
            source, first = self._named[step.source]
            bottleneck = step.name.startswith("layers") and step.kernel == 1
            if bottleneck and step.source in joined:
                made = joined[step.source]
                made.parts.append((step.name, step.outputs))
                self._named[step.target] = made.target, made.outputs
                made.outputs += step.outputs
            else:
                size = -(-source.size // step.stride)
                target, _ = self._named.setdefault(step.target, (Features(size, not bottleneck), 0))
                made = JoinedConvolution(
                    [(step.name, step.outputs)], source, first, step.inputs, target, step.offset, step.outputs,
                    step.kernel, step.stride,
                )  # fmt: skip
                joined[step.source if bottleneck else step.name] = made
            made.target.channels = max(made.target.channels, made.offset + made.outputs)
        return list(joined.values())

    def _head(self, exit: int) -> list[JoinedConvolution]:
        name, inputs = self.grid.exit_inputs(exit)
        source, _ = self._named[name]
        made = []
        for k in range(2):
            # No convolution reads the second one's outputs, so that nothing else adds up what BatchNorm needs.
            target = Features(-(-source.size // 2), k == 1, self.grid.head)
            part = (f"exits.{exit}.convolutions.{k}", self.grid.head)
            made.append(JoinedConvolution([part], source, 0, inputs, target, 0, self.grid.head, 3, 2))
            source, inputs = target, self.grid.head
        return made

    def _place(self) -> None:
        sizes = []
        for each in self.convolutions:
            # Where all taps are computed together, pixels are those of the inputs.
            pixels = self.pixels(each.source if each.narrow else each.target)
            wide = each.kernel == 3 and not each.narrow
            each.length = _MOST if wide else min(-(-pixels // (_SPLITS * _STEP)) * _STEP, _MOST)
            each.splits = -(-pixels // each.length)
            sizes.append((each.numbers, each.splits))
        exits, classes = len(self.heads), self.grid.classes
        sizes += [(exits * classes * self.grid.head, 1), (exits * classes, 1), (self.channels, 1), (self.channels, 1)]
        for numbers, splits in sizes:
            self.regions.append(Region(self.parameters, numbers, self.gradients, splits))
            self.parameters += numbers
            self.gradients += numbers * splits
        copied = 0
        for each, region in zip(self.convolutions, self.regions, strict=False):
            each.weights, each.gradients, each.copied = region.at, region.gradients, copied
            copied += each.kernel**2 * each.outputs * each.copied_row
        self.parameters, self.gradients = _padded(self.parameters), _padded(self.gradients)


def _padded(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
