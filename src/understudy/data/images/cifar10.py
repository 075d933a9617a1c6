"""CIFAR-10 (Krizhevsky 2009) as a source of inputs and labels, from the published files.

Both published layouts are read, binary and Python; from the latter, a pickle, only numbers are taken and nothing is
executed. Normalised values, crops and flips are the same bits on every device.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import shlex
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from understudy._errors import UserError
from understudy._random import Stream, integers, words
from understudy.data.images.base import AGAIN, Images, ImageSource, data_folder, require_at_most, require_folder
from understudy.data.source import Device, Rows
from understudy.nets.files.io import existing_file

_TRAIN, _TEST, _BATCH = 50_000, 10_000, 10_000
_IMAGE = (3, 32, 32)
_DIM = 3072
_RECORD = 1 + _DIM
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_BORDER = 4

_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_ADDRESS, _BYTES, _MD5 = "https://www.cs.toronto.edu/~kriz/", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"


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


class _Layout(NamedTuple):
    """A published layout: the archive, the folder in it and the suffix of its files."""

    archive: str
    folder: str
    ending: str

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(batch + self.ending for batch in _BATCHES)


_BINARY = _Layout("cifar-10-binary.tar.gz", "cifar-10-batches-bin", ".bin")
_PYTHON = _Layout("cifar-10-python.tar.gz", "cifar-10-batches-py", "")


class _Place(NamedTuple):
    """The folder with the files, and their layout."""

    folder: Path
    layout: _Layout


@dataclass(frozen=True)
class Cifar10(ImageSource):
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
    image: ClassVar[tuple[int, int, int]] = _IMAGE
    names: ClassVar[tuple[str, ...]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
    )  # fmt: skip

    def __post_init__(self) -> None:
        require_at_most("CIFAR-10", train=(self.train, _TRAIN), evaluation=(self.evaluation, _TEST))
        self._stored()

    @property
    def fresh(self) -> bool:
        """Whether every epoch has new training samples."""
        return self.augment

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Rows:
        """Training images of the network with this seed, augmented for this epoch if requested.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1; it matters only with `augment`.
            dtype: Precision of the result.
            device: Device of the result.
        """
        if not self.augment:
            return super().training(seed, epoch, dtype=dtype, device=device)
        chosen = self._order(seed, Stream.TRAIN)
        crops = _draw_crops(seed, epoch, str(device))[chosen.to(device)]
        return self._normalise(chosen, dtype, device, lambda images, piece: _crop_and_flip(images, crops[piece]))

    @property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return _MEAN, _STD

    @property
    def _available(self) -> tuple[int, int]:
        return _TRAIN, _TEST

    @cached_property
    def _place(self) -> _Place:
        return _find(data_folder(self.folder))

    def _stored(self) -> Images:
        return _read(self._place)


def _draw_crops(seed: int, epoch: int, device: str) -> Int[Tensor, "image 3"]:
    """Draw for each training image the first row and column of its crop in the padded image, and whether to flip it."""
    bits = words(seed, Stream.AUGMENTATION, epoch, 4 * _TRAIN, device).view(_TRAIN, 4)
    down, right = (integers(bits[:, i], 2 * _BORDER + 1) for i in (0, 1))
    return torch.stack((down, right, integers(bits[:, 2], 2)), dim=1)


def _crop_and_flip(
    images: UInt8[Tensor, "image 3 32 32"], crops: Int[Tensor, "image 3"]
) -> UInt8[Tensor, "image 3 32 32"]:
    down, right, flipped = crops.unbind(1)
    height, width = images.shape[2:]
    windows = pad(images, (_BORDER,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    cropped = windows[torch.arange(len(images), device=images.device), :, down, right]
    return torch.where(flipped.bool().view(-1, 1, 1, 1), cropped.flip(3), cropped)


@lru_cache(maxsize=2)
def _read(place: _Place) -> Images:
    """Read all images of a folder; reject an incomplete or damaged set."""
    pixels = np.empty((_TRAIN + _TEST, _DIM), np.uint8)
    labels = np.empty(_TRAIN + _TEST, np.int64)
    read = _read_binary if place.layout == _BINARY else _read_pickle
    for i, name in enumerate(place.layout.files):
        file, piece = place.folder / name, slice(i * _BATCH, (i + 1) * _BATCH)
        labels[piece], pixels[piece] = read(file)
        found = labels[piece]
        unknown = np.flatnonzero((found < 0) | (found >= Cifar10.classes))
        if len(unknown):
            raise UserError(
                f"{file}: record {unknown[0]} (counted from 0) has the label {found[unknown[0]]}, outside 0 "
                f"to {Cifar10.classes - 1}, {AGAIN}"
            )
    _require_balance(place, "data_batch_1 to data_batch_5", labels[:_TRAIN])
    _require_balance(place, "test_batch", labels[_TRAIN:])
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels))


def _require_balance(place: _Place, files: str, labels: NDArray[np.int64]) -> None:
    each = len(labels) // Cifar10.classes
    counts = np.bincount(labels, minlength=Cifar10.classes).tolist()
    off = [f"{count:,} of {name}" for name, count in zip(Cifar10.names, counts, strict=True) if count != each]
    if off:
        raise UserError(
            f"{place.folder}: {files} must have {each:,} images per class, got {', '.join(off)}, so a file is damaged "
            "or replaced by another; unpack or download them again."
        )


def _read_binary(file: Path) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    expected = _BATCH * _RECORD
    existing_file(file, f"a file of {expected:,} bytes is needed")
    found = file.stat().st_size
    if found != expected:
        raise UserError(f"{file}: the file must have {expected:,} bytes, got {found:,}, {AGAIN}")
    records = np.fromfile(file, np.uint8).reshape(_BATCH, _RECORD)
    if file.name in PUBLISHED and (here := _md5(records.data)) != PUBLISHED[file.name]:
        raise UserError(f"{file}: the published file has MD5 {PUBLISHED[file.name]}, but this one has {here}, {AGAIN}")
    return records[:, 0].astype(np.int64), records[:, 1:]


def _md5(data: bytes | memoryview) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class _Recorded:
    """Placeholder for an object that a pickle refers to; records arguments and state, and executes nothing."""

    def __init__(self, name: str, given: tuple[Any, ...] = ()) -> None:
        self.name, self.given = name, given
        self.state: Any = None

    def __call__(self, *given: Any) -> Any:
        if self.name == "encode":  # bytes, as Python 3 writes them for Python 2
            text, _ = given
            return str.encode(text, "latin1")
        return _Recorded(self.name, given)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _SafeUnpickler(pickle._Unpickler):
    """Unpickle dicts, lists, numbers and strings, and record how an array was built, without executing anything.

    Derived from the Python implementation, since the C one allocates as much memory as a pickle asks for, whatever
    the size of the file. A bytearray does so in both, and is not supported.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }
    allowed: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise UserError(
                f"the file refers to {f'{module}.{name}'!r}, but CIFAR-10 is a dict of numbers and strings; nothing "
                f"was executed. Download the archive again from its author: {_ADDRESS}{_PYTHON.archive}."
            )
        return _Recorded(name)


def _read_pickle(file: Path) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    existing_file(file, "a batch of CIFAR-10 is needed")
    content, published = file.read_bytes(), PUBLISHED.get(file.name)
    here, known = _md5(content), f"; the published one has {published}" if published else ""
    try:
        # The published files were written by Python 2, whose strings are bytes.
        found = _SafeUnpickler(io.BytesIO(content), encoding="bytes").load()
        labels = found[b"labels"] if b"labels" in found else found["labels"]
        pixels = found[b"data"] if b"data" in found else found["data"]
        if len(labels) != _BATCH or not all(type(label) is int for label in labels):
            raise ValueError("labels")
        batch = np.array(labels, np.int64), _array(pixels)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: a pickled dict of {_BATCH:,} labels and {_BATCH:,} × {_DIM:,} pixels is needed, but the file, of "
            f"{len(content):,} bytes (MD5 {here}{known}), is truncated or a different file, {AGAIN}"
        ) from error
    # A file that is not the published one, such as a new pickle, must have its labels and images.
    wanted = None if here == published else PUBLISHED.get(f"{file.name}.bin")
    if wanted and (here := _md5(np.column_stack((batch[0].astype(np.uint8), batch[1])).data)) != wanted:
        raise UserError(
            f"{file}: the labels and images of the published file have MD5 {wanted} (each label before its image), "
            f"but those of this one have {here}, {AGAIN}"
        )
    return batch


def _array(recorded: _Recorded) -> NDArray[np.uint8]:
    """Build the array of pixels from its recorded state, as numpy would."""
    _, shape, kind, columns_first, raw = recorded.state
    if shape != (_BATCH, _DIM) or kind.given[0] not in ("u1", b"u1"):
        raise ValueError("data")
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if columns_first else "C")


def _find(root: Path) -> _Place:
    """Find the files: in the given folder, or in the folder of the archive in it."""
    named_archive = root.name in (_BINARY.archive, _PYTHON.archive)
    instead = _how_to_get(root.parent) if named_archive else "give its path."
    require_folder(root, "CIFAR-10", _how_to_get(root), instead)
    missing: dict[_Place, list[str]] = {}
    for layout in (_BINARY, _PYTHON):
        for folder in (root / layout.folder, root):
            absent = [name for name in layout.files if not (folder / name).exists()]
            if not absent:
                return _Place(folder.resolve(), layout)
            if len(absent) < len(layout.files):
                missing[_Place(folder, layout)] = absent
    if not missing:
        raise UserError(f"{root}: the folder contains no files of CIFAR-10; {_how_to_get(root)}")
    place, absent = min(missing.items(), key=lambda item: len(item[1]))
    raise UserError(
        f"{place.folder}: the files {', '.join(absent)} of CIFAR-10 are missing; {_how_to_get(place.folder)}"
    )


def _how_to_get(folder: Path) -> str:
    """Instructions to get the files: unpack an archive that exists, else download one."""
    if folder.name in (_BINARY.folder, _PYTHON.folder):  # created by unpacking the archive
        folder = folder.parent
    for layout in (_BINARY, _PYTHON):
        if (folder / layout.archive).is_file():
            return f"the archive exists: {_unpack(folder, layout)}."
    return (
        f"download {_ADDRESS}{_BINARY.archive} ({_BYTES:,} bytes, MD5 {_MD5}) into the folder {folder} and "
        f"{_unpack(folder, _BINARY)}; or give the folder with the files, by --data or $UNDERSTUDY_DATA."
    )


def _unpack(folder: Path, layout: _Layout) -> str:
    where, archive = shlex.quote(str(folder)), shlex.quote(str(folder / layout.archive))
    return f"unpack it with `tar -xzf {archive} -C {where}`"
