"""What sources of published images share: bytes kept once a device, a seed that chooses, the same bits everywhere.

The class that inherits finds the files and reads them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int, Int64, UInt8
from torch import Tensor

from understudy._random import Stream, words
from understudy.data.synthetic import Device, require_counts
from understudy.errors import UserError

AGAIN = "so it is damaged; unpack or download it again."
_PIECE = 500
"""Images normalised at once: their float64 copies stay small beside the result."""


class Images(NamedTuple):
    """All images of a set as stored, the training set's before the test set's."""

    pixels: UInt8[Tensor, "image dim"]
    labels: Int64[Tensor, "image"]


Change = Callable[[UInt8[Tensor, "image channel row column"], slice], UInt8[Tensor, "image channel row column"]]
"""Of images, and which of the rows asked for they are, others in their place."""


class Pictures(ABC):
    """Images as flat rows (channel, row, column), each channel normalised by one mean and one standard deviation.

    All images come in their original order; of fewer, the seed draws which and in what order.
    """

    image: ClassVar[tuple[int, int, int]]
    train: int
    evaluation: int

    @property
    def dim(self) -> int:
        return math.prod(self.image)

    @property
    def fresh(self) -> bool:
        return False

    @property
    @abstractmethod
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, of values from 0 to 1."""

    @abstractmethod
    def _stored(self) -> Images:
        """All images and their labels."""

    @abstractmethod
    def _pixels(self, device: Device) -> UInt8[Tensor, "image dim"]:
        """All images, in memory once a device."""

    @abstractmethod
    def _training_order(self, seed: int) -> Int[Tensor, "train"]:
        """Which of all images the training rows are."""

    @abstractmethod
    def _evaluation_order(self, seed: int) -> Int[Tensor, "evaluation"]:
        """Which of all images the rows to evaluate on are."""

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "train dim"]:
        return self._normalised(self._training_order(seed).to(device), dtype, device)

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]:
        return self._normalised(self._evaluation_order(seed).to(device), dtype, device)

    def training_labels(self, seed: int, epoch: int = 1) -> Int[Tensor, "train"]:
        """The class of each row of `training`, in every epoch the same."""
        return self._stored().labels[self._training_order(seed)]

    def evaluation_labels(self, seed: int) -> Int[Tensor, "evaluation"]:
        """The class of each row of `evaluating`."""
        return self._stored().labels[self._evaluation_order(seed)]

    def _normalised(
        self, chosen: Int[Tensor, "row"], dtype: torch.dtype, device: Device, change: Change | None = None
    ) -> Float[Tensor, "row dim"]:
        """Rows of the images chosen. In float64, then rounded: a float32 image is the float64 one to the last bit."""
        pixels = self._pixels(device)
        mean, std = (torch.tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in self._moments)
        # In two steps: fused, a card would round once where a processor rounds twice.
        scale, shift = (each.to(pixels.device) for each in (1.0 / (255.0 * std), mean / std))
        rows = torch.empty(len(chosen), self.dim, dtype=dtype, device=pixels.device)
        for start in range(0, len(chosen), _PIECE):
            piece = slice(start, start + _PIECE)
            images = pixels[chosen[piece]].view(-1, *self.image)
            if change is not None:
                images = change(images, piece)
            rows[piece] = images.double().mul_(scale).sub_(shift).flatten(1)
        return rows


def kept_on(read: Callable[[Any], Images], place: Hashable, device: Device) -> UInt8[Tensor, "image dim"]:
    """The pixels that `read` finds at a place, the same tensor whichever way a device is named."""
    # "cuda" is a card of some number.
    return copied(read, place, torch.empty(0, device=device).device)


@lru_cache(maxsize=4)
def copied(read: Callable[[Any], Images], place: Hashable, device: torch.device) -> UInt8[Tensor, "image dim"]:
    return read(place).pixels.to(device)


def order(seed: int, stream: Stream, wanted: int, there: int) -> Int[Tensor, "wanted"]:
    """Which of the images there are: all in their order, or as many as wanted, which the seed draws."""
    if wanted == there:
        return torch.arange(there)
    return words(seed, stream, 0, there).argsort(stable=True)[:wanted]


def require_at_most(of: str, **fields: tuple[int, int]) -> None:
    """Counts, given and most, that a set of images has room for."""
    require_counts(**{field: given for field, (given, _) in fields.items()})
    for field, (given, most) in fields.items():
        if given > most:
            raise UserError(f"{field} must be at most {most:,}, the images that {of} has for it, got {given:,}")


def data_folder(folder: str | Path | None) -> Path:
    """The folder named, else that of $UNDERSTUDY_DATA, else ~/.cache/understudy."""
    return Path(folder or os.environ.get("UNDERSTUDY_DATA") or "~/.cache/understudy").expanduser()


def require_folder(root: Path, of: str, how_to_get: str, instead: str = "name that.") -> None:
    """A folder that is there and may be read, or an error that says what to do for it to hold the files."""
    if not root.exists():
        raise UserError(f"{root}: there is no such folder; {how_to_get}")
    if not root.is_dir():
        raise UserError(f"{root}: this is a file, but the folder of {of}'s files is needed; {instead}")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UserError(f"{root}: the folder may not be read; change its permissions.")
