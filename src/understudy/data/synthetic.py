"""Where inputs come from. A source is a pure function of a seed: training and evaluation never share random numbers.

Random bits are the same on every device; a normal drawn on another device may differ in the last bit of a float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._random import Stream, normal, uniform, words
from understudy.errors import UserError

Device = torch.device | str


@runtime_checkable
class Source(Protocol):
    """What training asks of any source of inputs."""

    @property
    def dim(self) -> int: ...

    @property
    def train(self) -> int:
        """Training samples of a network (of an epoch, when fresh)."""

    @property
    def evaluation(self) -> int: ...

    @property
    def fresh(self) -> bool:
        """Whether every epoch draws its training samples anew."""

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "train dim"]: ...

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]: ...


@runtime_checkable
class Labelled(Protocol):
    """A source whose samples belong to classes, numbered from 0."""

    @property
    def classes(self) -> int: ...

    def training_labels(self, seed: int, epoch: int = 1) -> Int[Tensor, "train"]: ...

    def evaluation_labels(self, seed: int) -> Int[Tensor, "evaluation"]: ...


@dataclass(frozen=True)
class _Drawn:
    """Independent inputs of mean 0 and standard deviation `std` (1.5 makes the figures of S0 and S1)."""

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
    ) -> Float[Tensor, "train dim"]:
        x = self._standard(seed, Stream.TRAIN, epoch if self.fresh else 0, self.train * self.dim, str(device))
        return (self.std * x).view(self.train, self.dim).to(dtype)

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]:
        x = self._standard(seed, Stream.EVALUATION, 0, self.evaluation * self.dim, str(device))
        return (self.std * x).view(self.evaluation, self.dim).to(dtype)

    def _standard(self, seed: int, stream: Stream, step: int, count: int, device: str) -> Float[Tensor, "count"]:
        """Numbers of mean 0 and variance 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class Gaussian(_Drawn):
    """N(0, std² I) inputs."""

    def _standard(self, seed: int, stream: Stream, step: int, count: int, device: str) -> Float[Tensor, "count"]:
        return normal(seed, stream, step, count, device)


@dataclass(frozen=True)
class Uniform(_Drawn):
    """U[−a, a] inputs with a = √3 std, so that std 1.5 compares with Gaussian inputs of that std."""

    @classmethod
    def within(
        cls, half_width: float, dim: int, *, train: int = 10_000, evaluation: int = 10_000, fresh: bool = False
    ) -> Uniform:
        """U[−half_width, half_width] inputs."""
        require_positive(half_width=half_width)
        return cls(dim, half_width / math.sqrt(3.0), train, evaluation, fresh)

    @property
    def half_width(self) -> float:
        return self.std * math.sqrt(3.0)

    def _standard(self, seed: int, stream: Stream, step: int, count: int, device: str) -> Float[Tensor, "count"]:
        return (2.0 * uniform(seed, stream, step, count, device) - 1.0) * math.sqrt(3.0)


@dataclass(frozen=True)
class File:
    """Rows of the user's file (`name`: which array of it), shuffled by the seed, then cut: training, evaluation."""

    path: str | Path
    train: int
    evaluation: int
    name: str | None = None

    def __post_init__(self) -> None:
        require_counts(train=self.train, evaluation=self.evaluation)
        if self.train + self.evaluation > len(self._rows):
            raise UserError(
                f"train {self.train} + evaluation {self.evaluation} is more than the {len(self._rows)} rows of "
                f"{self.path}: ask for fewer of either"
            )

    @cached_property
    def _rows(self) -> Float[Tensor, "row dim"]:
        from understudy.data.input_files import read_inputs

        return read_inputs(Path(self.path), name=self.name)

    @property
    def dim(self) -> int:
        return self._rows.shape[1]

    @property
    def fresh(self) -> bool:
        return False

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "train dim"]:
        return self._rows[self._order(seed)[: self.train]].to(device=device, dtype=dtype)

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]:
        chosen = self._order(seed)[self.train : self.train + self.evaluation]
        return self._rows[chosen].to(device=device, dtype=dtype)

    def _order(self, seed: int) -> Int[Tensor, "row"]:
        return words(seed, Stream.TRAIN, 0, len(self._rows)).argsort(stable=True)


@dataclass(frozen=True, eq=False)
class Fixed:
    """Inputs given as they are, the same for every seed."""

    train_x: Float[Tensor, "train dim"]
    evaluation_x: Float[Tensor, "evaluation dim"]

    def __post_init__(self) -> None:
        for field, x in (("train_x", self.train_x), ("evaluation_x", self.evaluation_x)):
            if x.ndim != 2 or 0 in x.shape or not x.is_floating_point():
                raise UserError(
                    f"{field} must be [sample, dim] of floating point numbers, got {list(x.shape)} {x.dtype}"
                )
        if self.train_x.shape[1] != self.evaluation_x.shape[1]:
            raise UserError(f"train_x has {self.train_x.shape[1]} columns, evaluation_x {self.evaluation_x.shape[1]}")

    @property
    def dim(self) -> int:
        return self.train_x.shape[1]

    @property
    def train(self) -> int:
        return len(self.train_x)

    @property
    def evaluation(self) -> int:
        return len(self.evaluation_x)

    @property
    def fresh(self) -> bool:
        return False

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "train dim"]:
        return self.train_x.to(device=device, dtype=dtype)

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]:
        return self.evaluation_x.to(device=device, dtype=dtype)


def require_counts(**fields: int) -> None:
    for field, value in fields.items():
        if not isinstance(value, int) or value < 1:
            raise UserError(f"{field} must be a whole number of at least 1, got {value}")


def require_positive(**fields: float) -> None:
    for field, value in fields.items():
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"{field} must be a finite number above 0, got {value}")
