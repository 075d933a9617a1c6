"""Inputs given by the user: rows of a file, or arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.input_files import Frame, as_inputs, read_inputs
from understudy.data.source import Device, Rows, require_counts


class _Stored(ABC):
    """Stored inputs, the same in every epoch."""

    fresh: ClassVar[bool] = False

    @abstractmethod
    def _split(self, seed: int) -> tuple[Float[Tensor, "train dim"], Float[Tensor, "evaluation dim"]]:
        """Training and evaluation inputs as they are stored."""

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Rows:
        """Training inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            epoch: Epoch; the result is the same in each.
            dtype: Precision of the result.
            device: Device of the result.
        """
        return self._split(seed)[0].to(device=device, dtype=dtype)

    def evaluating(self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> Rows:
        """Evaluation inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            dtype: Precision of the result.
            device: Device of the result.
        """
        return self._split(seed)[1].to(device=device, dtype=dtype)


@dataclass(frozen=True)
class File(_Stored):
    """Rows of a file, shuffled by the seed, the first for training and the next for evaluation.

    Args:
        path: File of inputs (.npy, .npz, .parquet or .csv).
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

    def _split(self, seed: int) -> tuple[Float[Tensor, "train dim"], Float[Tensor, "evaluation dim"]]:
        order = words(seed, Stream.TRAIN, 0, len(self._rows)).argsort(stable=True)
        return self._rows[order[: self.train]], self._rows[order[self.train : self.train + self.evaluation]]


class Fixed(_Stored):
    """Given inputs, the same for every seed.

    Args:
        train_x: Training inputs [sample, dim]: a tensor, an array or a pandas frame.
        evaluation_x: Evaluation inputs.

    Raises:
        UserError: Inputs that are not finite matrices of numbers with equal numbers of columns.
    """

    def __init__(self, train_x: Tensor | np.ndarray | Frame, evaluation_x: Tensor | np.ndarray | Frame) -> None:
        self.train_x: Float[Tensor, "train dim"] = as_inputs(train_x, "train_x")
        self.evaluation_x: Float[Tensor, "evaluation dim"] = as_inputs(evaluation_x, "evaluation_x")
        if self.train_x.shape[1] != self.evaluation_x.shape[1]:
            raise UserError(
                "train_x and evaluation_x must have equally many columns, got "
                f"{self.train_x.shape[1]} and {self.evaluation_x.shape[1]}"
            )

    def __repr__(self) -> str:
        return f"Fixed({self.train:,} training and {self.evaluation:,} evaluation inputs of {self.dim:,} numbers)"

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

    def _split(self, seed: int) -> tuple[Float[Tensor, "train dim"], Float[Tensor, "evaluation dim"]]:
        return self.train_x, self.evaluation_x
