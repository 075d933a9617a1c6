"""CIFAR-10 (Krizhevsky 2009) as a source of inputs and labels, from the published files.

Both published layouts are read, binary and Python; from the latter, a pickle, only numbers are taken and nothing is
executed. Normalised values, crops and flips are the same bits on every device.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from understudy._errors import UserError
from understudy.data.images import cifar_files
from understudy.data.images.base import AGAIN, Images, data_folder, require_at_most
from understudy.data.images.cifar_files import DIM, IMAGE, CifarLayout, Place, Publication, parse_pickle, read_binary
from understudy.data.images.crops import CroppedImages

_TRAIN, _TEST, _BATCH = 50_000, 10_000, 10_000
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_BINARY = CifarLayout("cifar-10-binary.tar.gz", "cifar-10-batches-bin", tuple(f"{batch}.bin" for batch in _BATCHES))
_PYTHON = CifarLayout("cifar-10-python.tar.gz", "cifar-10-batches-py", _BATCHES)
_PUBLICATION = Publication("CIFAR-10", _BINARY, _PYTHON, 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530")

PUBLISHED = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
"""MD5 of the published files, in either layout."""


@dataclass(frozen=True)
class Cifar10(CroppedImages):
    """Images of CIFAR-10 as flat rows (channel, row, column), normalised by the channel moments of the training set.

    All images come in their original order; a smaller number is drawn, and ordered, by the seed.

    Args:
        folder: Folder with the published files, or with the folder that their archive unpacks to. Default:
            $UNDERSTUDY_DATA, else ~/.cache/understudy.
        augment: Whether every epoch crops each training image at random after padding by four black pixels, and flips
            half of them. The crop depends only on the seed, the epoch and the image.
        train: Training images, at most 50,000.
        evaluation: Evaluation images, at most 10,000.

    Raises:
        UserError: Files are missing or damaged (the message states how to get them), or a count is out of range.
    """

    folder: str | Path | None = None
    augment: bool = False
    train: int = _TRAIN
    evaluation: int = _TEST

    classes: ClassVar[int] = 10
    image: ClassVar[tuple[int, int, int]] = IMAGE
    names: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
    )  # fmt: skip

    def __post_init__(self) -> None:
        require_at_most("CIFAR-10", train=(self.train, _TRAIN), evaluation=(self.evaluation, _TEST))
        self._stored()

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
        return _read(self._place)


@lru_cache(maxsize=2)
def _read(place: Place) -> Images:
    """Read all images of a folder; reject an incomplete or damaged set."""
    pixels = np.empty((_TRAIN + _TEST, DIM), np.uint8)
    labels = np.empty(_TRAIN + _TEST, np.int64)
    read = _read_binary if place.layout == _BINARY else _read_pickle
    for i, name in enumerate(place.layout.files):
        file, piece = place.folder / name, slice(i * _BATCH, (i + 1) * _BATCH)
        labels[piece], pixels[piece] = read(file)
        cifar_files.require_labels(file, labels[piece], Cifar10.classes)
    for files, part in (("data_batch_1 to data_batch_5", labels[:_TRAIN]), ("test_batch", labels[_TRAIN:])):
        cifar_files.require_balance(place.folder, files, part, Cifar10.names)
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels))


def _read_binary(file: Path) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    (labels,), pixels = read_binary(file, _BATCH, kinds=1)
    if file.name in PUBLISHED and (here := _md5(_joined(labels, pixels))) != PUBLISHED[file.name]:
        raise UserError(f"{file}: the published file has MD5 {PUBLISHED[file.name]}, but this one has {here}, {AGAIN}")
    return labels, pixels


def _joined(labels: NDArray[np.int64], pixels: NDArray[np.uint8]) -> memoryview:
    """Records of the binary layout: each label before its image."""
    return np.column_stack((labels.astype(np.uint8), pixels)).data


def _md5(data: bytes | memoryview) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _read_pickle(file: Path) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    content = cifar_files.read_pickle(file, _BATCH, "a batch of CIFAR-10 is needed")
    published = PUBLISHED.get(file.name)
    here, known = _md5(content), f"; the published one has {published}" if published else ""
    checksum = f" (MD5 {here}{known})"
    (labels,), pixels = parse_pickle(content, file, _PUBLICATION, images=_BATCH, kinds=("labels",), checksum=checksum)
    # A file that is not the published one, such as a new pickle, must have its labels and images.
    wanted = None if here == published else PUBLISHED.get(f"{file.name}.bin")
    if wanted and (here := _md5(_joined(labels, pixels))) != wanted:
        raise UserError(
            f"{file}: the labels and images of the published file have MD5 {wanted} (each label before its image), "
            f"but those of this one have {here}, {AGAIN}"
        )
    return labels, pixels
