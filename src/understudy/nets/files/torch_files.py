"""Files that `torch.save` wrote, read as tensors and containers.

`torch.load(weights_only=True)` runs no code, but allocates what a file declares: a `bytearray` of any size, a tensor of
any number of rows over one number. Here the description is read by `PlainUnpickler`, each storage must be in the file,
and all tensors together may be a few times as large as the file.
"""

from __future__ import annotations

import math
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from understudy._reading import require_records, require_text
from understudy.nets.files.pickles import PlainUnpickler, require_keys

_STORAGES = {
    f"{kind}Storage": dtype
    for kind, dtype in {
        "Double": torch.float64,
        "Float": torch.float32,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
        "ComplexDouble": torch.complex128,
        "ComplexFloat": torch.complex64,
        "Untyped": torch.uint8,
    }.items()
}
_DTYPES = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
_ABSENT = (
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_sparse_csr_tensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
)
"""Tensors without plain numbers: they are read as tensors on the device meta, whatever shape they declare."""
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_TIMES, _SLACK = 4, 2**20
"""Bytes of all tensors together: so many times the size of the file (tensors share storages), and so many more."""
_PIECE = 2**20
_MOST_ARGUMENTS = 8
AGAIN = "copy or save it again"


class TorchScriptError(Exception):
    """The file is a TorchScript archive, which contains a program."""


def read_torch(file: Path) -> Any:
    """Read what `torch.save` wrote, in the present format or the one before version 1.6.

    Args:
        file: An existing file.

    Returns:
        The contents: tensors on the CPU, numbers, texts and containers of them.

    Raises:
        UnpicklingError: Code, or objects other than tensors; nothing is executed.
        TorchScriptError: A TorchScript archive.
        Exception: Of any kind, for a damaged file.
    """
    with open(file, "rb") as source:
        if source.read(4) != b"PK\x03\x04":
            source.seek(0)
            return _read_legacy(file, source)
    with zipfile.ZipFile(file) as archive:
        return _TorchArchive(file, archive).load()


class _Tensors(PlainUnpickler):
    """Unpickle tensors whose storages `storage` finds."""

    def __init__(self, source: Any, size: int, file: Path, storage: Callable[..., Tensor]) -> None:
        super().__init__(source, size)
        self._storage = storage
        self._most = _TIMES * file.stat().st_size + _SLACK
        self._known: dict[str, Any] = {
            "collections.OrderedDict": self._ordered,
            "collections.Counter": lambda *given: Counter(dict(self._ordered(*given))),
            "builtins.set": self._set,
            "builtins.complex": complex,
            "__builtin__.set": self._set,
            "torch.Size": lambda sides=(): tuple(sides),
            "torch.device": lambda *given: ":".join(str(each)[:32] for each in given),
            "torch.Tensor": "Tensor",
            "torch.nn.parameter.Parameter": "Parameter",
            "torch.serialization._get_layout": lambda name: str(name)[:32],
            "_codecs.encode": self._encode,
            "torch._utils._rebuild_tensor": self._tensor,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": self._typed_tensor,
            "torch._utils._rebuild_parameter": lambda data, *_: data,
            "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
            "torch._tensor._rebuild_from_type_v2": lambda make, _kind, given, _state: make(*given[:_MOST_ARGUMENTS]),
        }

    def find_class(self, module: str, name: str) -> Any:
        place = f"{module}.{name}"
        if place in self._known:
            return self._known[place]
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and name in _DTYPES:
            return name
        if place in _ABSENT:
            return lambda *_: torch.empty((1, 1), device="meta")
        raise pickle.UnpicklingError(f"{place} is not a tensor, a number, a text or a container")

    def persistent_load(self, given: Any) -> Tensor:
        kind, dtype, key, _location, count, *_ = given
        if kind != "storage" or not isinstance(dtype, torch.dtype) or type(key) is not str or type(count) is not int:
            raise pickle.UnpicklingError("an object that is not a storage")
        return self._storage(key, dtype, count)

    def _ordered(self, given: Any = (), /) -> OrderedDict[Any, Any]:
        self.spend(len(given))
        pairs = list(given.items() if isinstance(given, dict) else given)
        require_keys([key for key, _ in pairs])
        return OrderedDict(pairs)

    def _set(self, given: list[Any] | tuple[Any, ...] = (), /) -> set[Any]:
        self.spend(len(given))
        require_keys(list(given))
        return set(given)

    def _encode(self, text: str, _: str) -> bytes:
        self.spend(len(text))
        return str.encode(text, "latin1")

    def _typed_tensor(
        self, storage: Tensor, offset: int, size: Any, stride: Any, _gradient: Any, _hooks: Any, dtype: str, *rest: Any
    ) -> Tensor:
        return self._tensor(storage.view(_DTYPES[dtype]), offset, size, stride, _gradient, _hooks, *rest)

    def _tensor(
        self,
        storage: Tensor,
        offset: int,
        size: Any,
        stride: Any,
        _gradient: Any = None,
        _hooks: Any = None,
        marks: Any = None,
    ) -> Tensor:
        if marks:  # conjugate or negative views
            raise ValueError("a tensor that is not as it is stored")
        numbers = (offset, *size, *stride)
        if not all(type(each) is int and each >= 0 for each in numbers) or len(size) != len(stride) or len(size) > 32:
            raise ValueError("a tensor with a shape that is not one")
        last = offset + sum((side - 1) * by for side, by in zip(size, stride, strict=True)) if 0 not in size else -1
        if last >= len(storage):
            raise ValueError("a tensor that is larger than its storage")
        self._most -= math.prod(size) * storage.element_size()
        if self._most < 0:
            raise ValueError("tensors that declare far more numbers than the file contains")
        return storage.as_strided(tuple(size), tuple(stride), offset if last >= 0 else 0)


class _TorchArchive:
    """The zip archive that `torch.save` writes."""

    def __init__(self, file: Path, archive: zipfile.ZipFile) -> None:
        self._file, self._archive = file, archive
        self._records = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        self._read: dict[str, Tensor] = {}

    def load(self) -> Any:
        if "constants.pkl" in self._records:
            raise TorchScriptError
        require_records(self._file, self._archive, AGAIN)
        if "byteorder" in self._records and self._archive.read(self._records["byteorder"]) != b"little":
            raise ValueError("numbers in big-endian order")
        info = self._records["data.pkl"]
        require_text(self._file, info.file_size, "its description of tensors", AGAIN)
        with self._archive.open(info) as source:
            return _Tensors(_Bounded(source, info.file_size), info.file_size, self._file, self._storage).load()

    def _storage(self, key: str, dtype: torch.dtype, count: int) -> Tensor:
        if key not in self._read:
            info = self._records[f"data/{key}"]
            numbers = count if dtype.itemsize == 1 and count == info.file_size else info.file_size // dtype.itemsize
            if not 0 <= count <= numbers:
                raise ValueError("a storage that is larger than its record")
            self._read[key] = torch.empty(info.file_size, dtype=torch.uint8)
            with self._archive.open(info) as source:
                _fill(self._read[key], source)
        return self._read[key][: count * dtype.itemsize].view(dtype)


def _read_legacy(file: Path, source: BinaryIO) -> Any:
    """Read the format of torch before version 1.6: five pickles, then the numbers of each storage."""
    size = file.stat().st_size
    bounded = _Bounded(source, size)

    def plain() -> Any:
        return _Tensors(bounded, size, file, _no_storage).load()

    first = plain()
    if first != _MAGIC or plain() != _PROTOCOL:
        raise pickle.UnpicklingError("a pickle that torch.save did not write")
    if plain().get("little_endian") is not True:
        raise ValueError("numbers in big-endian order")
    storages: dict[str, Tensor] = {}
    left = size

    def storage(key: str, dtype: torch.dtype, count: int) -> Tensor:
        nonlocal left
        if key not in storages:
            left -= count * dtype.itemsize
            if count < 0 or left < 0:
                raise ValueError("a storage that is larger than the file")
            storages[key] = torch.zeros(count, dtype=dtype)
        if storages[key].dtype != dtype or len(storages[key]) != count:
            raise ValueError("a storage of two sizes")
        return storages[key]

    found = _Tensors(bounded, size, file, storage).load()
    keys = plain()
    if type(keys) is not list or not all(type(key) is str for key in keys) or sorted(keys) != sorted(storages):
        raise ValueError("storages that are not those of the tensors")
    for key in keys:
        (count,) = struct.unpack("<q", bounded.read(8))
        if count != len(storages[key]):
            raise ValueError("a storage of another size")
        _fill(storages[key].view(torch.uint8), bounded)
    return found


def _no_storage(*_: object) -> Tensor:
    raise pickle.UnpicklingError("tensors where there are none")


def _fill(flat: Tensor, source: Any) -> None:
    """Fill a tensor of bytes from a file."""
    into = flat.numpy()
    for start in range(0, len(into), _PIECE):
        piece = source.read(min(_PIECE, len(into) - start))
        into[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
        if len(piece) < min(_PIECE, len(into) - start):
            raise EOFError("the numbers of a tensor are missing")
    source.read(1) if isinstance(source, zipfile.ZipExtFile) else None  # the end, where the checksum is compared


class _Bounded:
    """A file that never allocates more than it contains, whatever a pickle asks for."""

    def __init__(self, source: Any, size: int) -> None:
        self._source, self._left = source, size

    def read(self, count: int = -1) -> bytes:
        found: bytes = self._source.read(min(count, self._left) if count >= 0 else self._left)
        self._left -= len(found)
        return found

    def readline(self) -> bytes:
        found: bytes = self._source.readline(_PIECE)
        self._left -= len(found)
        return found
