"""Inputs given by the user: rows of a file, or tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.input_files import read_inputs
from understudy.data.source import Device, require_counts


@dataclass(frozen=True)
class File:
    """Rows of a file, shuffled by the seed, the first for training and the next for evaluation.

    Args:
        path: File of inputs (.npy, .npz or .parquet).
        train: Training samples.
        evaluation: Evaluation samples.
        name: Array or column to read, if the file has several.

    Raises:
        UserError: The file cannot be read, or has too few rows.
    """

    path: str | Path
    train: int
    evaluation: int
    name: str | None = None

    def __post_init__(self) -> None:
        require_counts(train=self.train, evaluation=self.evaluation)
        if self.train + self.evaluation > len(self._rows):
            raise UserError(
                f"train {self.train} + evaluation {self.evaluation} is more than the {len(self._rows)} rows of "
                f"{self.path}: choose fewer of either"
            )

    @cached_property
    def _rows(self) -> Float[Tensor, "row dim"]:
        return read_inputs(Path(self.path), name=self.name)

    @property
    def dim(self) -> int:
        """Numbers per sample."""
        return self._rows.shape[1]

    @property
    def fresh(self) -> bool:
        """Always false: every epoch has the same training samples."""
        return False

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "train dim"]:
        """Training inputs of the network with this seed."""
        return self._rows[self._order(seed)[: self.train]].to(device=device, dtype=dtype)

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]:
        """Evaluation inputs of the network with this seed."""
        chosen = self._order(seed)[self.train : self.train + self.evaluation]
        return self._rows[chosen].to(device=device, dtype=dtype)

    def _order(self, seed: int) -> Int[Tensor, "row"]:
        return words(seed, Stream.TRAIN, 0, len(self._rows)).argsort(stable=True)


@dataclass(frozen=True, eq=False)
class Fixed:
    """Given tensors, the same for every seed.

    Args:
        train_x: Training inputs.
        evaluation_x: Evaluation inputs.

    Raises:
        UserError: Tensors that are not matrices of floating-point numbers with equal numbers of columns.
    """

    train_x: Float[Tensor, "train dim"]
    evaluation_x: Float[Tensor, "evaluation dim"]

    def __post_init__(self) -> None:
        for field, x in (("train_x", self.train_x), ("evaluation_x", self.evaluation_x)):
            if x.ndim != 2 or 0 in x.shape or not x.is_floating_point():
                raise UserError(
                    f"{field} must be [sample, dim] of floating-point numbers, got {list(x.shape)} {x.dtype}"
                )
        if self.train_x.shape[1] != self.evaluation_x.shape[1]:
            raise UserError(
                "train_x and evaluation_x must have equally many columns, got "
                f"{self.train_x.shape[1]} and {self.evaluation_x.shape[1]}"
            )

    @property
    def dim(self) -> int:
        """Numbers per sample."""
        return self.train_x.shape[1]

    @property
    def train(self) -> int:
        """Training samples."""
        return len(self.train_x)

    @property
    def evaluation(self) -> int:
        """Evaluation samples."""
        return len(self.evaluation_x)

    @property
    def fresh(self) -> bool:
        """Always false: every epoch has the same training samples."""
        return False

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "train dim"]:
        """Training inputs, the same for every seed."""
        return self.train_x.to(device=device, dtype=dtype)

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]:
        """Evaluation inputs, the same for every seed."""
        return self.evaluation_x.to(device=device, dtype=dtype)
