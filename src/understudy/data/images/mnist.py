"""MNIST (LeCun, Cortes and Burges 1998) as a source of inputs and labels, from the four published files.

The files may be compressed or not. Normalised values are the same bits on every device.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from understudy._errors import UserError
from understudy.data.images.base import AGAIN, Images, ImageSource, data_folder, require_at_most, require_folder
from understudy.nets.files.io import existing_file

_IMAGE = (1, 28, 28)
_DIM = 784
_DIGITS = tuple(range(10))
_FOLDERS = (".", "mnist", "MNIST/raw")
"""Subfolders that may contain the files; the last is that of torchvision."""
_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"


class _IdxFile(NamedTuple):
    """One of the published files, and the numbers of its header, beginning with the magic number."""

    name: str
    head: tuple[int, ...]
    md5: str
    """MD5 of the compressed file, as published."""

    @property
    def size(self) -> int:
        """Bytes of the uncompressed file."""
        return 4 * len(self.head) + int(np.prod(self.head[1:], dtype=np.int64))


class _DigitSet(NamedTuple):
    """Training or test set: its files, and its number of images per digit."""

    images: _IdxFile
    labels: _IdxFile
    counts: tuple[int, ...]


_TRAIN = _DigitSet(
    _IdxFile("train-images-idx3-ubyte", (0x803, 60_000, 28, 28), "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    _IdxFile("train-labels-idx1-ubyte", (0x801, 60_000), "d53e105ee54ea40749a09fcbcd1e9432"),
    (5_923, 6_742, 5_958, 6_131, 5_842, 5_421, 5_918, 6_265, 5_851, 5_949),
)
_TEST = _DigitSet(
    _IdxFile("t10k-images-idx3-ubyte", (0x803, 10_000, 28, 28), "9fb629c4189551a2d022fa330f9573f3"),
    _IdxFile("t10k-labels-idx1-ubyte", (0x801, 10_000), "ec29112dd5afa0611ce80d1b7f02629c"),
    (980, 1_135, 1_032, 1_010, 982, 892, 958, 1_028, 974, 1_009),
)
_FILES = (*_TRAIN[:2], *_TEST[:2])
_HEAD = ("magic number", "number of items", "number of rows", "number of columns")


@dataclass(frozen=True)
class Mnist(ImageSource):
    """Images of MNIST as flat rows (row, column); a label is the index of the digit in `digits`.

    All images come in their original order; a smaller number is drawn, and ordered, by the seed.

    Values in [0, 1] become (value − mean) / std. Phuong 2021 does not state mean and std; the default, which maps to
    [−1, 1], fits the axis of fig. 3.3 (inner products of images from 250 to 760; with the moments of the training set,
    0.1307 and 0.3081, they would range from −180 to 1,950).

    Args:
        folder: Folder with the published files, or with a folder mnist or MNIST/raw that contains them. Default:
            $UNDERSTUDY_DATA, else ~/.cache/understudy.
        digits: Digits to use.
        train: Training images. Default: all of these digits.
        evaluation: Evaluation images. Default: all of these digits.
        mean: Mean for normalisation.
        std: Standard deviation for normalisation.

    Raises:
        UserError: Files are missing or damaged (the message states how to get them), or an option is out of range.
    """

    folder: str | Path | None = None
    digits: tuple[int, ...] = _DIGITS
    train: int = None  # type: ignore[assignment]  # a number after __post_init__
    evaluation: int = None  # type: ignore[assignment]
    mean: float = 0.5
    std: float = 0.5

    image: ClassVar[tuple[int, int, int]] = _IMAGE

    def __post_init__(self) -> None:
        digits = tuple(self.digits)
        if not digits or not all(type(d) is int and d in _DIGITS for d in digits) or len(set(digits)) < len(digits):
            raise UserError(f"digits must be different whole numbers from 0 to 9, one or more, got {digits}")
        object.__setattr__(self, "digits", digits)
        if not (np.isfinite(self.mean) and np.isfinite(self.std) and self.std > 0):
            raise UserError(f"mean must be finite and std finite and above 0, got {self.mean} and {self.std}")
        for field, most in zip(("train", "evaluation"), self._available, strict=True):
            if getattr(self, field) is None:
                object.__setattr__(self, field, most)
            of = f"MNIST of the digits {', '.join(map(str, self.digits))}" if self.classes < len(_DIGITS) else "MNIST"
            require_at_most(of, **{field: (getattr(self, field), most)})
        self._stored()

    @property
    def classes(self) -> int:
        """Number of classes: one per digit."""
        return len(self.digits)

    @property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (self.mean,), (self.std,)

    @property
    def _available(self) -> tuple[int, int]:
        return self.image_counts(self.digits)

    @cached_property
    def _folder(self) -> Path:
        return _find(data_folder(self.folder))

    def _stored(self) -> Images:
        return _select_digits(self._folder, self.digits)

    @staticmethod
    def image_counts(digits: Sequence[int]) -> tuple[int, int]:
        """Number of training and of test images of some digits in MNIST.

        Args:
            digits: The digits.
        """
        train, test = (sum(part.counts[digit] for digit in digits) for part in (_TRAIN, _TEST))
        return train, test


@lru_cache(maxsize=4)
def _select_digits(folder: Path, digits: tuple[int, ...]) -> Images:
    """Select the images of some digits, in their order, with the index of each one's digit."""
    pixels, labels = _read(folder)
    places = torch.full((len(_DIGITS),), -1)
    places[list(digits)] = torch.arange(len(digits))
    found = places[labels]
    return Images(pixels[found >= 0], found[found >= 0])


@lru_cache(maxsize=2)
def _read(folder: Path) -> Images:
    """Read all images of a folder; reject an incomplete or damaged set."""
    pixels = np.concatenate([_numbers(folder, part.images).reshape(-1, _DIM) for part in (_TRAIN, _TEST)])
    labels = np.concatenate([_labels(folder, part) for part in (_TRAIN, _TEST)])
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels))


def _labels(folder: Path, part: _DigitSet) -> NDArray[np.int64]:
    labels = _numbers(folder, part.labels).astype(np.int64)
    unknown = np.flatnonzero(labels > _DIGITS[-1])
    file = _path(folder, part.labels)
    if len(unknown):
        raise UserError(f"{file}: label {unknown[0]} (counted from 0) is {labels[unknown[0]]}, outside 0 to 9, {AGAIN}")
    counts = np.bincount(labels, minlength=len(_DIGITS)).tolist()
    off = [
        f"{found:,} of digit {digit} instead of {wanted:,}"
        for digit, (found, wanted) in enumerate(zip(counts, part.counts, strict=True))
        if found != wanted
    ]
    if off:
        raise UserError(f"{file}: it has {', '.join(off)}, so it is damaged or a different file; download it again.")
    return labels


def _numbers(folder: Path, wanted: _IdxFile) -> NDArray[np.uint8]:
    """Read the content of a file after its header; validate header and size."""
    file = _path(folder, wanted)
    existing_file(file, f"{wanted.size:,} bytes of MNIST, compressed or not, are needed")
    content = _content(file, wanted.size)
    complete = len(content) // 4  # header numbers that a truncated file still has
    head = np.frombuffer(content, ">u4", min(complete, len(wanted.head))).tolist()
    for what, needed, found in zip(_HEAD, wanted.head, head, strict=False):
        if needed != found:
            raise UserError(f"{file}: the {what} must be {needed:,}, got {found:,}, {AGAIN}")
    if len(content) != wanted.size:
        found = f"{len(content):,}" if len(content) < wanted.size else "more"
        raise UserError(f"{file}: the file must have {wanted.size:,} bytes, got {found}, {AGAIN}")
    return np.frombuffer(content, np.uint8, offset=4 * len(wanted.head))


def _content(file: Path, needed: int) -> bytes:
    """Read the uncompressed content, at most one byte more than needed."""
    if file.suffix != ".gz":
        with open(file, "rb") as plain:
            return plain.read(needed + 1)
    try:
        with gzip.open(file) as packed:
            return packed.read(needed + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(
            f"{file}: {needed:,} bytes compressed by gzip are needed, but it is truncated or a different file, {AGAIN}"
        ) from error


def _path(folder: Path, wanted: _IdxFile) -> Path:
    """Path of the file, or of the compressed one if only that exists."""
    plain, packed = folder / wanted.name, folder / f"{wanted.name}.gz"
    return packed if packed.exists() and not plain.exists() else plain


def _find(root: Path) -> Path:
    """Find the folder of the files: the given one, or a subfolder."""
    require_folder(root, "MNIST", _how_to_get(root, _FILES))
    missing: dict[Path, list[_IdxFile]] = {}
    for folder in (root / inside for inside in _FOLDERS):
        absent = [file for file in _FILES if not _path(folder, file).exists()]
        if not absent:
            return folder.resolve()
        if len(absent) < len(_FILES):
            missing[folder] = absent
    if not missing:
        raise UserError(f"{root}: the folder contains no files of MNIST; {_how_to_get(root, _FILES)}")
    folder, absent = min(missing.items(), key=lambda item: len(item[1]))
    names = ", ".join(file.name for file in absent)
    raise UserError(f"{folder}: the files {names} of MNIST are missing; {_how_to_get(folder, absent)}")


def _how_to_get(folder: Path, files: Sequence[_IdxFile]) -> str:
    each = ", ".join(f"{file.name}.gz (MD5 {file.md5})" for file in files)
    return (
        f"download {each} from {_ADDRESS} into the folder {folder}; they need not be unpacked; or give the folder "
        "with the files, by --data or $UNDERSTUDY_DATA."
    )
