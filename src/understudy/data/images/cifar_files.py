"""Files of CIFAR-10 and CIFAR-100 (Krizhevsky 2009): where they lie, how to get them, and how to read each layout.

Both sets are published as binary records and as pickles. From a pickle only numbers are taken; nothing is executed.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy._errors import UserError
from understudy.data.images.base import AGAIN, require_folder
from understudy.nets.files.io import existing_file
from understudy.nets.files.pickles import PlainUnpickler

IMAGE = (3, 32, 32)
DIM = 3072
_ADDRESS = "https://www.cs.toronto.edu/~kriz/"
_MOST_NAMED = 10


class CifarLayout(NamedTuple):
    """A published layout: the archive, the folder in it and the files in that, training files first."""

    archive: str
    folder: str
    files: tuple[str, ...]


class Place(NamedTuple):
    """The folder with the files, and their layout."""

    folder: Path
    layout: CifarLayout


class Publication(NamedTuple):
    """A data set as its author publishes it: both layouts, with size and MD5 of the binary archive."""

    name: str
    binary: CifarLayout
    python: CifarLayout
    size: int
    md5: str

    @property
    def layouts(self) -> tuple[CifarLayout, CifarLayout]:
        """Both layouts, in the order in which they are searched."""
        return self.binary, self.python


class CifarRecords(NamedTuple):
    """Contents of a file: each kind of label of every image, and its pixels."""

    labels: NDArray[np.int64]
    pixels: NDArray[np.uint8]


def find(root: Path, publication: Publication) -> Place:
    """Find the files: in the given folder, or in the folder of the archive in it.

    Args:
        root: The folder.
        publication: The data set.

    Returns:
        The folder with all files, and their layout.

    Raises:
        UserError: No such folder, or files are missing; the message states how to get them.
    """
    named_archive = root.name in (layout.archive for layout in publication.layouts)
    instead = _how_to_get(root.parent, publication) if named_archive else "give its path."
    require_folder(root, publication.name, _how_to_get(root, publication), instead)
    missing: dict[Place, list[str]] = {}
    for layout in publication.layouts:
        for folder in (root / layout.folder, root):
            absent = [name for name in layout.files if not (folder / name).exists()]
            if not absent:
                return Place(folder.resolve(), layout)
            if len(absent) < len(layout.files):
                missing[Place(folder, layout)] = absent
    if not missing:
        raise UserError(f"{root}: the folder contains no files of {publication.name}; {_how_to_get(root, publication)}")
    place, absent = min(missing.items(), key=lambda item: len(item[1]))
    noun, verb = ("file", "is") if len(absent) == 1 else ("files", "are")
    raise UserError(
        f"{place.folder}: the {noun} {', '.join(absent)} of {publication.name} {verb} missing; "
        f"{_how_to_get(place.folder, publication)}"
    )


def _how_to_get(folder: Path, publication: Publication) -> str:
    """Instructions to get the files: unpack an archive that exists, else download one."""
    if folder.name in (layout.folder for layout in publication.layouts):  # created by unpacking the archive
        folder = folder.parent
    for layout in publication.layouts:
        if (folder / layout.archive).is_file():
            return f"the archive exists: {_unpack(folder, layout)}."
    return (
        f"download {_ADDRESS}{publication.binary.archive} ({publication.size:,} bytes, MD5 {publication.md5}) into the "
        f"folder {folder} and {_unpack(folder, publication.binary)}; or give the folder with the files, by --data or "
        "$UNDERSTUDY_DATA."
    )


def _unpack(folder: Path, layout: CifarLayout) -> str:
    where, archive = shlex.quote(str(folder)), shlex.quote(str(folder / layout.archive))
    return f"unpack it with `tar -xzf {archive} -C {where}`"


def read_binary(file: Path, images: int, kinds: int) -> CifarRecords:
    """Read a file of records: one byte for each kind of label, then the pixels.

    Args:
        file: The file.
        images: Records that it must have.
        kinds: Labels of each image.

    Returns:
        Labels [kind, image] and pixels [image, 3072].

    Raises:
        UserError: No such file, or one of another size.
    """
    expected = images * (kinds + DIM)
    existing_file(file, f"a file of {expected:,} bytes is needed")
    found = file.stat().st_size
    if found != expected:
        raise UserError(f"{file}: the file must have {expected:,} bytes, got {found:,}, {AGAIN}")
    records = np.fromfile(file, np.uint8).reshape(images, kinds + DIM)
    return CifarRecords(records[:, :kinds].T.astype(np.int64), records[:, kinds:])


class Recorded:
    """Placeholder for an object that a pickle refers to; records arguments and state, and executes nothing."""

    def __init__(self, name: str, given: tuple[Any, ...] = ()) -> None:
        self.name, self.given = name, given
        self.state: Any = None

    def __call__(self, *given: Any) -> Any:
        return Recorded(self.name, given)

    def keep_state(self, state: Any) -> None:
        self.state = state


class _SafeUnpickler(PlainUnpickler):
    """Unpickle dicts, lists, numbers and strings, and record how an array was built, without executing anything."""

    allowed: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }
    )

    def __init__(self, content: bytes, publication: Publication) -> None:
        # The published files were written by Python 2, whose strings are bytes.
        super().__init__(io.BytesIO(content), len(content), encoding="bytes")
        self.publication = publication

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        if (module, name) not in self.allowed:
            raise UserError(
                f"the file refers to {f'{module}.{name}'!r}, but {self.publication.name} is a dict of numbers and "
                "strings; nothing was executed. Download the archive again from its author: "
                f"{_ADDRESS}{self.publication.python.archive}."
            )
        return Recorded(name)

    def _encode(self, text: str, _: str) -> bytes:
        """Bytes, as Python 3 writes them for Python 2."""
        self.spend(len(text))
        return str.encode(text, "latin1")


def read_pickle(file: Path, images: int, needed: str) -> bytes:
    """Read the bytes of a pickle, which has little besides its pixels.

    Args:
        file: The file.
        images: Images that it must have.
        needed: What is needed, for errors.

    Raises:
        UserError: No such file, or one that is larger than twice its pixels.
    """
    size, most = existing_file(file, needed).stat().st_size, 2 * images * DIM
    if size > most:
        raise UserError(f"{file}: the file must have at most {most:,} bytes, got {size:,}, {AGAIN}")
    return file.read_bytes()


def parse_pickle(
    content: bytes, file: Path, publication: Publication, *, images: int, kinds: Sequence[str], checksum: str = ""
) -> CifarRecords:
    """Take labels and pixels from a pickled dict, without executing anything in it.

    Args:
        content: The pickle.
        file: Its file, which errors name.
        publication: The data set.
        images: Images that it must have.
        kinds: Keys of the labels in the dict.
        checksum: What errors state about the checksum of the file.

    Returns:
        Labels [kind, image] and pixels [image, 3072].

    Raises:
        UserError: The pickle refers to code, or is something other than such a dict.
    """
    try:
        found = _SafeUnpickler(content, publication).load()
        labels, pixels = [_entry(found, kind) for kind in kinds], _entry(found, "data")
        for kind, each in zip(kinds, labels, strict=True):
            if len(each) != images or not all(type(label) is int for label in each):
                raise ValueError(kind)
        return CifarRecords(np.array(labels, np.int64), _array(pixels, images))
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        needed = ", ".join(f"{images:,} {kind.replace('_', ' ')}" for kind in kinds)
        raise UserError(
            f"{file}: a pickled dict of {needed} and {images:,} × {DIM:,} pixels is needed, but the file, of "
            f"{len(content):,} bytes{checksum}, is truncated or a different file, {AGAIN}"
        ) from error


def _entry(found: dict[str | bytes, Any], key: str) -> Any:
    return found[key.encode()] if key.encode() in found else found[key]


def _array(recorded: Recorded, images: int) -> NDArray[np.uint8]:
    """Build the array of pixels from its recorded state, as numpy would."""
    _, shape, kind, columns_first, raw = recorded.state
    if shape != (images, DIM) or kind.given[0] not in ("u1", b"u1"):
        raise ValueError("data")
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if columns_first else "C")


def require_labels(file: Path, labels: NDArray[np.int64], classes: int, kind: str = "label") -> None:
    """Raise a `UserError` unless all labels of a file are numbers of classes.

    Args:
        file: The file, which the error names.
        labels: Its labels.
        classes: Number of classes.
        kind: What the error calls a label.

    Raises:
        UserError: A label out of range.
    """
    unknown = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(unknown):
        raise UserError(
            f"{file}: record {unknown[0]} (counted from 0) has the {kind} {labels[unknown[0]]}, outside 0 to "
            f"{classes - 1}, {AGAIN}"
        )


def require_balance(folder: Path, files: str, labels: NDArray[np.int64], names: Sequence[str]) -> None:
    """Raise a `UserError` unless all classes have equally many images.

    Args:
        folder: The folder, which the error names.
        files: What the error calls the files.
        labels: Their labels.
        names: Name of each class.

    Raises:
        UserError: Classes of different sizes.
    """
    each = len(labels) // len(names)
    counts = np.bincount(labels, minlength=len(names)).tolist()
    off = [f"{count:,} of {name}" for name, count in zip(names, counts, strict=True) if count != each]
    if off:
        if len(off) > _MOST_NAMED:
            off[_MOST_NAMED:] = [f"other numbers of {len(off) - _MOST_NAMED} more classes"]
        raise UserError(
            f"{folder}: {files} must have {each:,} images per class, got {', '.join(off)}, so a file is damaged or "
            "replaced by another; unpack or download them again."
        )
