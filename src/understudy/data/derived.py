"""Sources made from another source: its samples with labels, those of a teacher or random ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.source import Device, Rows, Source, require_counts
from understudy.nets import Population


@dataclass(frozen=True, eq=False)
class Derived:
    """Source with the samples of another one; subclasses change them or add labels."""

    source: Source

    @property
    def dim(self) -> int:
        """Numbers per sample."""
        return self.source.dim

    @property
    def train(self) -> int:
        """Training samples of a network; if `fresh`, of one epoch."""
        return self.source.train

    @property
    def evaluation(self) -> int:
        """Evaluation samples of a network."""
        return self.source.evaluation

    @property
    def fresh(self) -> bool:
        """Whether every epoch has new training samples."""
        return self.source.fresh

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
        return self.source.training(seed, epoch, dtype=dtype, device=device)

    def evaluating(self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> Rows:
        """Evaluation inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            dtype: Precision of the result.
            device: Device of the result.
        """
        return self.source.evaluating(seed, dtype=dtype, device=device)


@dataclass(frozen=True, eq=False)
class TeacherLabels(Derived):
    """Samples of another source, labelled by a teacher: the class of its largest output, or the sign of a single one.

    Args:
        source: The other source.
        teacher: Teachers with different seeds; a network's labels are those of the teacher of its seed.
    """

    teacher: Population

    @property
    def classes(self) -> int:
        """Number of classes."""
        return max(2, self.teacher.sizes[-1])

    def training_labels(self, seed: int, epoch: int = 1) -> Int[Tensor, "train"]:
        """Class of each row of `training`.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1.
        """
        return self._label(seed, self.training(seed, epoch, dtype=self.teacher.dtype))

    def evaluation_labels(self, seed: int) -> Int[Tensor, "evaluation"]:
        """Class of each row of `evaluating`.

        Args:
            seed: Seed of the network.
        """
        return self._label(seed, self.evaluating(seed, dtype=self.teacher.dtype))

    def _label(self, seed: int, x: Rows) -> Int[Tensor, "sample"]:
        found = (self.teacher.seeds == seed).nonzero().flatten().tolist()
        if len(found) != 1:
            raise UserError(f"labels need one teacher of seed {seed}, got {len(found)}")
        output = self.teacher[found[0]](x.to(self.teacher.device))[0].cpu()
        return output.argmax(1) if output.shape[1] > 1 else (output[:, 0] > 0).long()


@dataclass(frozen=True, eq=False)
class RandomLabels(Derived):
    """Samples of another source with labels drawn at random, which do not depend on the samples.

    Args:
        source: The other source.
        classes: Number of classes, which are equally likely.

    Raises:
        UserError: Fewer than two classes.
    """

    classes: int

    def __post_init__(self) -> None:
        require_counts(classes=self.classes)
        if self.classes < 2:
            raise UserError(f"classes must be at least 2, got {self.classes}")

    def training_labels(self, seed: int, epoch: int = 1) -> Int[Tensor, "train"]:
        """Class of each row of `training`.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1; it matters only if `fresh`.
        """
        return self._draw(seed, 1 + (epoch if self.fresh else 0), self.train)

    def evaluation_labels(self, seed: int) -> Int[Tensor, "evaluation"]:
        """Class of each row of `evaluating`.

        Args:
            seed: Seed of the network.
        """
        return self._draw(seed, 0, self.evaluation)

    def _draw(self, seed: int, step: int, count: int) -> Int[Tensor, "sample"]:
        return words(seed, Stream.LABELS, step, count) % self.classes
