"""Networks that classify two digits of MNIST: their options, images and shapes (Phuong 2021, table 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, Positive, Sizes, validate_batch
from understudy.lab.study import Dtype, Study

if TYPE_CHECKING:
    from understudy.data import Mnist

CONVOLUTIONS = ((3, 1, 1), (3, 1, 1), (5, 2, 2)) * 2
"""Kernel, stride and padding of the convolutions of Phuong 2021, table 3.1."""
_BLOCK = len(CONVOLUTIONS) // 2


@dataclass(frozen=True)
class OnMnist(Study):
    """Options of networks with six convolutions and two linear layers that classify two digits of MNIST."""

    seeds: Count = 10
    """Number of seeds, counted from 1: each is a network's initial weights and the order of its images."""
    dtype: Dtype = "tf32"
    """Training precision. tf32: float32 with TF32 matrix products on the GPU (faster, 11-bit mantissa)."""
    data: str = ""
    """Folder of MNIST's files, or its parent folder; by default $UNDERSTUDY_DATA, else ~/.cache/understudy."""
    digits: Annotated[tuple[int, ...], Ge(0), Le(9), Distinct()] = (0, 1)
    """The two digits; outputs above 0 stand for the second."""
    train: Annotated[int, Ge(0)] = 0
    """Training images of each network, drawn by its seed if they are fewer than all; 0 for all."""
    evaluation: Annotated[int, Ge(0)] = 0
    """Test images of each network, likewise."""
    channels: Sizes = (32, 64)
    """Channels of the three lower and of the three upper convolutions."""
    nodes: Count = 128
    """Nodes of the first linear layer."""
    batch: Count = 128
    """Images per step, drawn with replacement; an epoch has as many steps as batches fit into the training images."""
    epochs: Count = 50
    """Number of epochs; networks are probed after each."""
    lr: Positive = 0.001
    """Learning rate of Adam."""
    start: Positive = 0.05
    """Factor on the initial weights and biases of the two linear layers."""

    def validate(self) -> None:
        for name in ("digits", "channels"):
            if len(given := getattr(self, name)) != 2:
                raise UserError(f"--{name} must be two numbers, got {' '.join(map(str, given))}")
        counts = us.data.Mnist.image_counts(self.digits)
        for name, most in zip(("train", "evaluation"), counts, strict=True):
            if (given := getattr(self, name)) > most:
                raise UserError(f"--{name} must be at most the number of images ({most:,}), got {given}")
        validate_batch(self.train or counts[0], self.batch)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Channels and nodes of all layers, from the input to the output."""
        low, high = self.channels
        return (1, *(low,) * _BLOCK, *(high,) * _BLOCK, self.nodes, 1)

    def network_options(self) -> dict[str, Any]:
        """The options that fix how networks are trained."""
        return {field.name: getattr(self, field.name) for field in fields(OnMnist)}

    def require_data(self) -> None:
        self.source()

    def source(self) -> Mnist:
        """The images of the two digits."""
        counts = {name: count for name in ("train", "evaluation") if (count := int(getattr(self, name)))}
        try:
            return us.data.Mnist(self.data or None, self.digits, **counts)
        except UserError as error:
            raise UserError(f"--data: {error}") from None
