"""Synthetic inputs: Gaussian and uniform."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.data.source import Device, Rows, require_counts, require_positive


@dataclass(frozen=True)
class _Synthetic:
    dim: int
    std: float = 1.5
    train: int = 10_000
    evaluation: int = 10_000
    fresh: bool = False

    def __post_init__(self) -> None:
        require_counts(dim=self.dim, train=self.train, evaluation=self.evaluation)
        require_positive(std=self.std)

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
        x = self._standard(seed, Stream.TRAIN, epoch if self.fresh else 0, self.train * self.dim, str(device))
        return (self.std * x).view(self.train, self.dim).to(dtype)

    def evaluating(self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> Rows:
        """Evaluation inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            dtype: Precision of the result.
            device: Device of the result.
        """
        x = self._standard(seed, Stream.EVALUATION, 0, self.evaluation * self.dim, str(device))
        return (self.std * x).view(self.evaluation, self.dim).to(dtype)

    def _standard(self, seed: int, stream: Stream, step: int, count: int, device: str) -> Float[Tensor, "count"]:
        """Draw numbers of mean 0 and variance 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class Gaussian(_Synthetic):
    """Inputs from N(0, std² I).

    Args:
        dim: Numbers per sample.
        std: Standard deviation; 1.5 in the figures of Tian 2020 and Tian 2019.
        train: Training samples (of one epoch, if `fresh`).
        evaluation: Evaluation samples.
        fresh: Whether every epoch has new training samples.

    Raises:
        UserError: A count below 1 or a standard deviation that is not positive.
    """

    def _standard(self, seed: int, stream: Stream, step: int, count: int, device: str) -> Float[Tensor, "count"]:
        return normal(seed, stream, step, count, device)


@dataclass(frozen=True)
class Uniform(_Synthetic):
    """Inputs from U[−a, a] with a = √3 std; arguments are those of `Gaussian`, with which it is comparable."""

    @classmethod
    def within(
        cls, half_width: float, dim: int, *, train: int = 10_000, evaluation: int = 10_000, fresh: bool = False
    ) -> Uniform:
        """Inputs from U[−half_width, half_width].

        Args:
            half_width: a, the largest absolute value.
            dim: Numbers per sample.
            train: Training samples (of one epoch, if `fresh`).
            evaluation: Evaluation samples.
            fresh: Whether every epoch has new training samples.

        Raises:
            UserError: A count below 1 or a half-width that is not positive.
        """
        require_positive(half_width=half_width)
        return cls(dim, half_width / math.sqrt(3.0), train, evaluation, fresh)

    @property
    def half_width(self) -> float:
        """a, the largest absolute value."""
        return self.std * math.sqrt(3.0)

    def _standard(self, seed: int, stream: Stream, step: int, count: int, device: str) -> Float[Tensor, "count"]:
        return (2.0 * uniform(seed, stream, step, count, device) - 1.0) * math.sqrt(3.0)
