"""Base class of image sources: pixels stored once per device, selection by seed, the same bits on every device."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int, Int64, UInt8
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.source import Device, Rows, require_counts

AGAIN = "so it is damaged; unpack or download it again."
_PIECE = 500
"""Images normalised at once, so that float64 copies stay small compared with the result."""


class Images(NamedTuple):
    """All images of a set as stored, training images before test images."""

    pixels: UInt8[Tensor, "image dim"]
    labels: Int64[Tensor, "image"]


Transform = Callable[[UInt8[Tensor, "image channel row column"], slice], UInt8[Tensor, "image channel row column"]]
"""Function `(images, row_slice) -> images` of the same shape, for example random crops."""


class ImageSource(ABC):
    """Images as flat rows (channel, row, column), each channel normalised by one mean and one standard deviation.

    All images come in their original order; a smaller number is drawn, and ordered, by the seed.
    """

    image: ClassVar[tuple[int, int, int]]
    train: int
    evaluation: int

    @property
    def dim(self) -> int:
        """Numbers per image."""
        return math.prod(self.image)

    @property
    def fresh(self) -> bool:
        """Whether every epoch has new training samples."""
        return False

    @property
    @abstractmethod
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, for values in [0, 1]."""

    @property
    @abstractmethod
    def _available(self) -> tuple[int, int]:
        """Number of training and of test images."""

    @abstractmethod
    def _stored(self) -> Images:
        """All images and their labels."""

    def _pixels(self, device: Device) -> UInt8[Tensor, "image dim"]:
        # Resolves "cuda" to the current device, so that it shares the cache with "cuda:0".
        return copy_pixels(self._stored().pixels, torch.empty(0, device=device).device)

    def _order(self, seed: int, stream: Stream) -> Int[Tensor, "row"]:
        """Indices of the training or evaluation images."""
        train, test = self._available
        if stream is Stream.TRAIN:
            return draw_order(seed, stream, self.train, train)
        return train + draw_order(seed, stream, self.evaluation, test)

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Rows:
        """Training images of the network with this seed.

        Args:
            seed: Seed of the network.
            epoch: Epoch; the result is the same in each.
            dtype: Precision of the result.
            device: Device of the result.
        """
        return self._normalise(self._order(seed, Stream.TRAIN), dtype, device)

    def evaluating(self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> Rows:
        """Evaluation images of the network with this seed.

        Args:
            seed: Seed of the network.
            dtype: Precision of the result.
            device: Device of the result.
        """
        return self._normalise(self._order(seed, Stream.EVALUATION), dtype, device)

    def training_labels(self, seed: int, epoch: int = 1) -> Int[Tensor, "train"]:
        """Class of each row of `training`, the same in every epoch.

        Args:
            seed: Seed of the network.
            epoch: Epoch; the result is the same in each.
        """
        return self._stored().labels[self._order(seed, Stream.TRAIN)]

    def evaluation_labels(self, seed: int) -> Int[Tensor, "evaluation"]:
        """Class of each row of `evaluating`.

        Args:
            seed: Seed of the network.
        """
        return self._stored().labels[self._order(seed, Stream.EVALUATION)]

    def _normalise(
        self, chosen: Int[Tensor, "row"], dtype: torch.dtype, device: Device, transform: Transform | None = None
    ) -> Float[Tensor, "row dim"]:
        """Normalise the chosen images in float64, then round: a float32 image is the rounded float64 image."""
        pixels, chosen = self._pixels(device), chosen.to(device)
        mean, std = (torch.tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in self._moments)
        # In two steps, since a GPU would round a fused operation once where a CPU rounds twice.
        scale, shift = (each.to(pixels.device) for each in (1.0 / (255.0 * std), mean / std))
        rows = torch.empty(len(chosen), self.dim, dtype=dtype, device=pixels.device)
        for start in range(0, len(chosen), _PIECE):
            piece = slice(start, start + _PIECE)
            images = pixels[chosen[piece]].view(-1, *self.image)
            if transform is not None:
                images = transform(images, piece)
            rows[piece] = images.double().mul_(scale).sub_(shift).flatten(1)
        return rows


@lru_cache(maxsize=4)
def copy_pixels(pixels: UInt8[Tensor, "image dim"], device: torch.device) -> UInt8[Tensor, "image dim"]:
    """Copy pixels to a device, where they stay in memory; tensors are told apart by identity."""
    return pixels.to(device)


def draw_order(seed: int, stream: Stream, wanted: int, available: int) -> Int[Tensor, "wanted"]:
    """Indices of the images to use: all in their order, or fewer drawn by the seed."""
    if wanted == available:
        return torch.arange(available)
    return words(seed, stream, 0, available).argsort(stable=True)[:wanted]


def require_at_most(of: str, **fields: tuple[int, int]) -> None:
    """Raise a `UserError` unless every count (given, largest) is at least 1 and at most the largest."""
    require_counts(**{field: given for field, (given, _) in fields.items()})
    for field, (given, most) in fields.items():
        if given > most:
            raise UserError(f"{field} must be at most {most:,}, the number of such images in {of}, got {given:,}")


def data_folder(folder: str | Path | None) -> Path:
    """The given folder, else $UNDERSTUDY_DATA, else ~/.cache/understudy."""
    return Path(folder or os.environ.get("UNDERSTUDY_DATA") or "~/.cache/understudy").expanduser()


def require_folder(root: Path, of: str, how_to_get: str, instead: str = "give its path.") -> None:
    """Raise a `UserError` that states how to get the files unless the folder exists and can be read."""
    if not root.exists():
        raise UserError(f"{root}: there is no such folder; {how_to_get}")
    if not root.is_dir():
        raise UserError(f"{root}: this is a file, but the folder with the files of {of} is needed; {instead}")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UserError(f"{root}: no permission to read the folder; change its permissions.")
