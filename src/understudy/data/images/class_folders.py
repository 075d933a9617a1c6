"""Image sets that are folders of class folders, such as ImageNet: `train/<class>/*.jpg` and `val/<class>/*.jpg`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from PIL import Image
from torch import Tensor

from understudy._errors import UserError, first_line
from understudy.data.image_files import require_intact
from understudy.data.images.base import require_folder
from understudy.data.images.normalisation import normalise
from understudy.data.images.resized_crops import central_crop, draw_words, random_crop
from understudy.data.source import require_counts

_NEEDED = "give the folder that contains train/<class>/*.jpg and val/<class>/*.jpg."
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
_MOST_NAMED = 5


class _FolderPart(NamedTuple):
    """Files of the training or validation images, sorted by class and name, and the class of each."""

    files: tuple[Path, ...]
    labels: Int64[Tensor, "image"]


@dataclass(frozen=True)
class ClassFolders:
    """Photographs in class folders, read when they are needed and cropped to squares.

    Classes are numbered in the order of the folders' names, and images in the order of class and file name. Pixels
    are normalised by the moments of ImageNet.

    Args:
        folder: Folder that contains train/<class>/*.jpg and val/<class>/*.jpg, as ImageNet (jpg, jpeg, png, webp or
            bmp).
        size: Side of the square images in pixels.

    Raises:
        UserError: No such folder, no class folders, a class without images, a file of another kind, different classes
            in train and val, or a size out of range.
    """

    folder: str | Path
    size: int = 224

    mean: ClassVar[tuple[float, ...]] = (0.485, 0.456, 0.406)
    std: ClassVar[tuple[float, ...]] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        require_counts(size=self.size)
        require_folder(self._root, "the image set", _NEEDED)
        _require_same_classes(self._root, self.names, _class_names(self._root / "val"))
        _ = self._train, self._validation

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the class folders, sorted."""
        return _class_names(self._root / "train")

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.names)

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return 3, self.size, self.size

    @property
    def train_labels(self) -> Int64[Tensor, "train"]:
        """Class of each training image."""
        return self._train.labels.clone()

    @property
    def validation_labels(self) -> Int64[Tensor, "validation"]:
        """Class of each validation image."""
        return self._validation.labels.clone()

    def train_images(
        self, index: Int[Tensor, "row"], *, seed: int, epoch: int
    ) -> Float[Tensor, "row 3 {self.size} {self.size}"]:
        """Read training images, with a random crop of 8 to 100% of each, resized, and half of them mirrored.

        The crop depends only on the seed, the epoch and the image.

        Args:
            index: Indices of the images.
            seed: Seed of the network.
            epoch: Epoch, counted from 1.

        Returns:
            The normalised images in float32.

        Raises:
            UserError: An index out of range, or a file that is not an image; the message names it.
        """
        require_counts(epoch=epoch)
        bits = draw_words(seed, epoch, index.cpu())
        crops = (lambda image, row=row: random_crop(image, row, self.size) for row in bits)
        return self._read(self._train.files, index, crops)

    def validation_images(self, index: Int[Tensor, "row"]) -> Float[Tensor, "row 3 {self.size} {self.size}"]:
        """Read validation images: the shorter side resized to 256/224 of the size, then the central square.

        Args:
            index: Indices of the images.

        Returns:
            The normalised images in float32.

        Raises:
            UserError: An index out of range, or a file that is not an image; the message names it.
        """
        crops = (lambda image: central_crop(image, self.size) for _ in index)
        return self._read(self._validation.files, index, crops)

    def _read(
        self,
        files: tuple[Path, ...],
        index: Int[Tensor, "row"],
        crops: Iterable[Callable[[Image.Image], Image.Image]],
    ) -> Float[Tensor, "row 3 {self.size} {self.size}"]:
        pixels = torch.empty(len(index), *self.image, dtype=torch.uint8)
        for row, i, crop in zip(pixels, index.tolist(), crops, strict=True):
            if not 0 <= i < len(files):
                raise UserError(f"index must be from 0 to {len(files) - 1:,}, the last image, got {i:,}")
            row[:] = torch.from_numpy(np.array(crop(_open(files[i])))).permute(2, 0, 1)
        return normalise(pixels, self.mean, self.std)

    @property
    def _root(self) -> Path:
        return Path(self.folder).expanduser()

    @cached_property
    def _train(self) -> _FolderPart:
        return _list_files(self._root / "train", self.names)

    @cached_property
    def _validation(self) -> _FolderPart:
        return _list_files(self._root / "val", self.names)


def _class_names(folder: Path) -> tuple[str, ...]:
    require_folder(folder, "the classes", _NEEDED)
    names = sorted(each.name for each in os.scandir(folder) if each.is_dir() and not each.name.startswith("."))
    if not names:
        raise UserError(f"{folder}: there are no class folders in this folder; {_NEEDED}")
    return tuple(names)


def _require_same_classes(root: Path, train: tuple[str, ...], validation: tuple[str, ...]) -> None:
    only = {"train": sorted({*train} - {*validation}), "val": sorted({*validation} - {*train})}
    if any(only.values()):
        each = " and ".join(f"{_enumerate(names)} only in {part}" for part, names in only.items() if names)
        raise UserError(f"{root}: train and val must have the same class folders, but {each}; add or remove folders.")


def _enumerate(names: list[str]) -> str:
    more = [f"{len(names) - _MOST_NAMED:,} more"] if len(names) > _MOST_NAMED else []
    return f"{', '.join([*names[:_MOST_NAMED], *more])} {'is' if len(names) == 1 else 'are'}"


def _list_files(folder: Path, names: tuple[str, ...]) -> _FolderPart:
    """List the images of all classes without opening them."""
    files: list[Path] = []
    counts = []
    for name in names:
        here = sorted(each.name for each in os.scandir(folder / name) if not each.name.startswith("."))
        if not here:
            raise UserError(f"{folder / name}: the class has no images; add some, or remove the folder.")
        for each in here:
            if not each.lower().endswith(_SUFFIXES):
                raise _not_an_image(folder / name / each, f"its name ends in none of {', '.join(_SUFFIXES)}")
        files += (folder / name / each for each in here)
        counts.append(len(here))
    return _FolderPart(tuple(files), torch.arange(len(names)).repeat_interleave(torch.tensor(counts)))


def _open(file: Path) -> Image.Image:
    try:
        require_intact(file)
        with Image.open(file, formats=_FORMATS) as image:
            return image.convert("RGB")
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise _not_an_image(file, first_line(error)) from error


def _not_an_image(file: Path, reason: str) -> UserError:
    return UserError(f"{file}: this is not an image that can be read ({reason}); replace or remove the file.")
