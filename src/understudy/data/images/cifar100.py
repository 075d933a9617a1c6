"""CIFAR-100 (Krizhevsky 2009) as a source of inputs and labels, from the published files.

Both published layouts are read, binary and Python; from the latter, a pickle, only numbers are taken and nothing is
executed. Sizes, labels and numbers of images per class are validated, checksums are not: files with the published
images in another order are read too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from understudy._errors import UserError
from understudy.data.images import cifar_files
from understudy.data.images.base import AGAIN, Images, data_folder, require_at_most
from understudy.data.images.cifar100_names import COARSE, FINE
from understudy.data.images.cifar_files import IMAGE, CifarLayout, CifarRecords, Place, Publication
from understudy.data.images.crops import CroppedImages
from understudy.data.images.labelled_split import LabelledSplit, split_classes

_TRAIN, _TEST = 50_000, 10_000
_MEAN, _STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
_BINARY = CifarLayout("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin", "test.bin"))
_PYTHON = CifarLayout("cifar-100-python.tar.gz", "cifar-100-python", ("train", "test"))
_PUBLICATION = Publication("CIFAR-100", _BINARY, _PYTHON, 168_513_733, "03b5dce01913d631647c71ecec9e9cb8")

_KINDS = {"fine": FINE, "coarse": COARSE}


class StoredImages(NamedTuple):
    """All images of a set as stored, training images before test images, and the moments that normalise them.

    Attributes:
        pixels: The images, 0 to 255.
        labels: Class of each.
        mean: Mean of each channel over the training images, for values in [0, 1].
        std: Standard deviation of each channel.
    """

    pixels: UInt8[Tensor, "image channel height width"]
    labels: Int64[Tensor, "image"]
    mean: tuple[float, ...]
    std: tuple[float, ...]


class _Contents(NamedTuple):
    """What the files contain, training images first."""

    pixels: UInt8[Tensor, "image dim"]
    labels: dict[str, Int64[Tensor, "image"]]


@dataclass(frozen=True)
class Cifar100(CroppedImages):
    """Images of CIFAR-100 as flat rows (channel, row, column), normalised by the channel moments of the training set.

    All images come in the order of the files; a smaller number is drawn, and ordered, by the seed.

    Args:
        folder: Folder with the published files, or with the folder that their archive unpacks to. Default:
            $UNDERSTUDY_DATA, else ~/.cache/understudy.
        augment: Whether every epoch crops each training image at random after padding by four black pixels, and flips
            half of them. The crop depends only on the seed, the epoch and the image.
        train: Training images, at most 50,000.
        evaluation: Evaluation images, at most 10,000.
        labels: Which labels to use: "fine" for 100 classes, "coarse" for 20.

    Raises:
        UserError: Files are missing or damaged (the message states how to get them), or a count is out of range.
    """

    folder: str | Path | None = None
    augment: bool = False
    train: int = _TRAIN
    evaluation: int = _TEST
    labels: str = "fine"

    image: ClassVar[tuple[int, int, int]] = IMAGE

    def __post_init__(self) -> None:
        if self.labels not in _KINDS:
            raise UserError(f"labels must be 'fine' or 'coarse', got {self.labels!r}")
        require_at_most("CIFAR-100", train=(self.train, _TRAIN), evaluation=(self.evaluation, _TEST))
        self._stored()

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each class, as published."""
        return _KINDS[self.labels]

    @property
    def classes(self) -> int:
        """Number of classes: 100, or 20 coarse ones."""
        return len(self.names)

    def split(self, seed: int, per_class: int = 150, selection: int = 50) -> LabelledSplit:
        """Draw CIFAR(X): X labelled training images of each fine class, the others unlabelled (Phuong 2021, ch. 6).

        With one seed, images for model selection are the same for every `per_class`, and more labelled images contain
        fewer ones.

        Args:
            seed: Seed of the split.
            per_class: X, the labelled images of each fine class, those for model selection included.
            selection: Images of each fine class for model selection.

        Returns:
            Indices, into the 50,000 training images, of those to train on, those for model selection, and the rest.

        Raises:
            UserError: `per_class` not above `selection`, or above 500.
        """
        fine = _read(self._place).labels["fine"][:_TRAIN]
        return split_classes(fine, seed, per_class=per_class, selection=selection)

    def pictures(self) -> StoredImages:
        """Return all 60,000 images as stored, test images from index 50,000 on, and the moments that normalise them."""
        pixels, labels = self._stored()
        return StoredImages(pixels.view(-1, *self.image), labels, *self._moments)

    @property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return _MEAN, _STD

    @property
    def _available(self) -> tuple[int, int]:
        return _TRAIN, _TEST

    @cached_property
    def _place(self) -> Place:
        return cifar_files.find(data_folder(self.folder), _PUBLICATION)

    def _stored(self) -> Images:
        contents = _read(self._place)
        return Images(contents.pixels, contents.labels[self.labels])


@lru_cache(maxsize=2)
def _read(place: Place) -> _Contents:
    """Read all images of a folder; reject an incomplete or damaged set."""
    files = [place.folder / name for name in place.layout.files]
    parts = [_read_file(file, count, place.layout) for file, count in zip(files, (_TRAIN, _TEST), strict=True)]
    _require_hierarchy(files, [part.labels for part in parts])
    labels = np.concatenate([part.labels for part in parts], axis=1)
    pixels = np.concatenate([part.pixels for part in parts])
    return _Contents(torch.from_numpy(pixels), dict(zip(_KINDS, torch.from_numpy(labels), strict=True)))


def _read_file(file: Path, images: int, layout: CifarLayout) -> CifarRecords:
    """Read one file; its labels are [fine or coarse, image]."""
    if layout == _BINARY:
        coarse_first, pixels = cifar_files.read_binary(file, images, kinds=2)
        labels = coarse_first[::-1].copy()
    else:
        content = cifar_files.read_pickle(file, images, f"{images:,} images of CIFAR-100 are needed")
        keys = ("fine_labels", "coarse_labels")
        labels, pixels = cifar_files.parse_pickle(content, file, _PUBLICATION, images=images, kinds=keys)
    for (kind, names), each in zip(_KINDS.items(), labels, strict=True):
        cifar_files.require_labels(file, each, len(names), f"{kind} label")
    cifar_files.require_balance(file.parent, file.name, labels[0], FINE)
    return CifarRecords(labels, pixels)


def _require_hierarchy(files: list[Path], labels: list[NDArray[np.int64]]) -> None:
    """Raise a `UserError` unless each fine class is in one coarse class, and five are in each of these."""
    first = np.unique(labels[0][0], return_index=True)[1]
    parent = labels[0][1][first]
    for file, (fine, coarse) in zip(files, labels, strict=True):
        off = np.flatnonzero(coarse != parent[fine])
        if len(off):
            i = off[0]
            raise UserError(
                f"{file}: record {i} (counted from 0), of fine class {FINE[fine[i]]}, is in the coarse class "
                f"{COARSE[coarse[i]]}, but other images of that fine class in {COARSE[parent[fine[i]]]}, {AGAIN}"
            )
    each, counts = len(FINE) // len(COARSE), np.bincount(parent, minlength=len(COARSE))
    unequal = np.flatnonzero(counts != each)
    if len(unequal):
        raise UserError(
            f"{files[0]}: each coarse class must have {each} fine classes, but {COARSE[unequal[0]]} has "
            f"{counts[unequal[0]]}, {AGAIN}"
        )
