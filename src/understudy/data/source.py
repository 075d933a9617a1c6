"""Protocols of a source of inputs, which is a pure function of a seed.

Training and evaluation never share random numbers. Random bits are the same on every device; a normal number drawn on
another device may differ in the last bit of a float64.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError

Device = torch.device | str
Rows = Float[Tensor, "sample dim"]
Inputs = Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
"""Inputs shared by all networks, or one set per network."""


@runtime_checkable
class Source(Protocol):
    """Source of training and evaluation inputs; any object with these attributes can be used for training."""

    @property
    def dim(self) -> int:
        """Numbers per sample."""

    @property
    def train(self) -> int:
        """Training samples of a network; if `fresh`, of one epoch."""

    @property
    def evaluation(self) -> int:
        """Evaluation samples of a network."""

    @property
    def fresh(self) -> bool:
        """Whether every epoch has new training samples."""

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Rows:
        """Training inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1; it matters only if `fresh`.
            dtype: Precision of the result.
            device: Device of the result.
        """

    def evaluating(self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> Rows:
        """Evaluation inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            dtype: Precision of the result.
            device: Device of the result.
        """


@runtime_checkable
class Labelled(Protocol):
    """Source whose samples belong to classes, numbered from 0."""

    @property
    def classes(self) -> int:
        """Number of classes."""

    def training_labels(self, seed: int, epoch: int = 1) -> Int[Tensor, "train"]:
        """Class of each row of `training`.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1.
        """

    def evaluation_labels(self, seed: int) -> Int[Tensor, "evaluation"]:
        """Class of each row of `evaluating`.

        Args:
            seed: Seed of the network.
        """


def require_counts(**fields: int) -> None:
    """Raise a `UserError` unless all fields are integers of at least 1."""
    for field, value in fields.items():
        if not isinstance(value, int) or value < 1:
            raise UserError(f"{field} must be a whole number of at least 1, got {value}")


def require_positive(**fields: float) -> None:
    """Raise a `UserError` unless all fields are finite numbers above 0."""
    for field, value in fields.items():
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"{field} must be a finite number above 0, got {value}")
