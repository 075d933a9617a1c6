"""The multi-scale DenseNet as a module: the plain form of what the grid says (Huang et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from understudy._errors import UserError, kind_of
from understudy.nets.multi_exit.grid import Grid, GridConvolution, require_exit


class ConvNormReLU(nn.Module):
    """A convolution without bias, BatchNorm, ReLU. The bias would be removed by BatchNorm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the three in turn."""
        return torch.relu(self.norm(self.convolution(x)))


class ExitHead(nn.Module):
    """Classifier of an exit: two 3×3 convolutions with stride 2, average pooling, a linear layer.

    Args:
        inputs: Channels of the features that it reads.
        classes: Number of classes.
        width: Channels of the two convolutions.
    """

    def __init__(self, inputs: int, classes: int, width: int = 128) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(ConvNormReLU(inputs, width, 3, 2), ConvNormReLU(width, width, 3, 2))
        self.classifier = nn.Linear(width, classes)

    def features(self, x: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image feature height width"]:
        """Outputs of the last convolution, after its BatchNorm and ReLU."""
        return self.convolutions(x)

    def forward(self, x: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image class"]:
        """Logits of the classes."""
        return self.classifier(self.features(x).mean((2, 3)))


class MSDNet(nn.Module):
    """A multi-scale DenseNet; called with images, it returns the logits of every exit (exit, image, class).

    Args:
        grid: Its architecture; by default that of Phuong (2021, ch. 6) for CIFAR-100.
    """

    def __init__(self, grid: Grid | None = None) -> None:
        super().__init__()
        if not isinstance(grid, Grid | None):
            raise UserError(f"must be a Grid, got {kind_of(grid)}; give Grid(classes=10), for example", "grid")
        self.grid = grid = grid or Grid()
        for step in grid.convolutions:
            self._place(step.name, ConvNormReLU(step.inputs, step.outputs, step.kernel, step.stride))
        self.exits = nn.ModuleList(
            ExitHead(grid.exit_inputs(m)[1], grid.classes, grid.head) for m in range(len(grid.exits))
        )
        initialise(self)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.grid.classes

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, rows and columns of an image."""
        return self.grid.colours, self.grid.image, self.grid.image

    @property
    def exit_names(self) -> tuple[str, ...]:
        """Where each exit is."""
        return tuple(f"layer {layer}" for layer in self.grid.exits)

    def forward(self, x: Float[Tensor, "image channel row column"]) -> Float[Tensor, "exit image class"]:
        """Logits of every exit."""
        return torch.stack(list(self.iterate(x)))

    def iterate(
        self, x: Float[Tensor, "image channel row column"], only: int | None = None
    ) -> Iterator[Float[Tensor, "image class"]]:
        """Logits of one exit after the other; nothing beyond an exit is computed before the next is asked for.

        Args:
            x: The images.
            only: An exit, counted from 0: only its logits are computed, and only from what they depend on.

        Raises:
            UserError: There is no such exit.
        """
        for exit, features in self._exit_inputs(x, only):
            yield self.exits[exit](features)

    def exit_features(
        self, x: Float[Tensor, "image channel row column"]
    ) -> list[Float[Tensor, "image feature height width"]]:
        """Features of each exit's head: the outputs of its last convolution, after BatchNorm and ReLU.

        The classifier of an exit reads their means over rows and columns.

        Args:
            x: The images.
        """
        heads = cast(list[ExitHead], list(self.exits))
        return [heads[exit].features(features) for exit, features in self._exit_inputs(x)]

    def _exit_inputs(self, x: Tensor, only: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Yield one exit after the other, or only one, with the features that it reads."""
        require_exit(only, len(self.exits))
        steps: Iterable[GridConvolution | int] = (
            self.grid.steps if only is None else chain(self.grid.paths[only], [only])
        )
        features: dict[str, list[Tensor]] = {"image": [x]}
        joined: dict[str, Tensor] = {}
        for step in steps:
            if isinstance(step, GridConvolution):
                if step.source not in joined:
                    joined[step.source] = torch.cat(features[step.source], 1)
                source = joined[step.source][:, : step.inputs]
                made = self.get_submodule(step.name)(source)
                if step.name == "first.0" and self.grid.stem == "imagenet":
                    made = nn.functional.max_pool2d(made, 3, 2, 1)
                features.setdefault(step.target, []).append(made)
                joined.pop(step.target, None)
                if step.source.startswith("layers"):  # a bottleneck, read once
                    del features[step.source], joined[step.source]
            else:
                name, channels = self.grid.exit_inputs(step)
                yield step, torch.cat(features[name], 1)[:, :channels]

    def _place(self, name: str, module: nn.Module) -> None:
        """Register a module under a dotted name, with plain modules between."""
        at: nn.Module = self
        *path, last = name.split(".")
        for part in path:
            if part not in at._modules:
                at.add_module(part, nn.Module())
            at = at.get_submodule(part)
        at.add_module(last, module)


def initialise(module: nn.Module) -> None:
    """Draw weights as Huang et al. (2018): convolutions from N(0, 2 / (k² · outputs)), biases of linear layers zero."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d) and not part.weight.is_meta:  # drawing without values loads half of torch
            nn.init.normal_(part.weight, 0.0, math.sqrt(2 / (part.kernel_size[0] ** 2 * part.out_channels)))
        elif isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
