"""Input files of the user: a matrix of samples from .npy, .npz, .parquet or .csv."""

import csv
import math
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from understudy._errors import UserError
from understudy._reading import require_plausible, require_records
from understudy.data.parquet_footer import declared_values
from understudy.nets.files.io import existing_file

_ENDINGS = (".npy", ".npz", ".parquet", ".csv")
_NEEDED = f"a file of inputs ({', '.join(_ENDINGS)}) is needed"
_NUMERIC = "biuf"  # numpy kinds: bool, integers, floating point
_STORED = _NUMERIC + "cSUmM"  # those that numpy stores as they are in memory
_PIECE = 2**20
_MOST_COLUMNS = 10**5
_MOST_HEADER = 2**24
"""Bytes of the names of all columns."""
_Bytes = IO[bytes] | zipfile.ZipExtFile
"""A file, or a record of an archive."""


def read_inputs(
    path: str | os.PathLike[str], *, name: str | None = None, image: tuple[int, int, int] | None = None
) -> Float[Tensor, "sample in"]:
    """Read inputs in float32 or float64 as stored; float16, integers and bool become float32.

    Arrays with more than two axes are flattened per sample. In `.parquet` every column is one input, or one column of
    lists of equal length contains them all; an index stored by pandas is ignored. In `.csv` every column is one input,
    separated by commas and read in float64. Its first line contains names unless all of its values are numbers; the
    numbers 0, 1, 2 … in this order are names too, as pandas writes them, and a first column without a name is an index.

    Args:
        path: The file (.npy, .npz, .parquet or .csv).
        name: Array of a `.npz` (default: the only one, else `x`), or column of a `.parquet` or `.csv` (default: all).
        image: (channels, height, width) that samples with more than one axis must have.

    Raises:
        UserError: The file cannot be read, or is not a non-empty matrix of finite numbers.
    """
    file = existing_file(path, _NEEDED)
    ending = file.suffix.lower()
    if ending not in _ENDINGS:
        raise UserError(
            f"{file}: the suffix must be one of {', '.join(_ENDINGS)}, got {ending or 'none'}; convert the file, for "
            "example with numpy.save."
        )
    if ending == ".npy" and name is not None:
        raise UserError(f"{file}: .npy contains one array without a name; omit the name {name!r}.")
    readers = {".parquet": _read_parquet, ".csv": _read_csv}
    found = readers.get(ending, read_numpy)(file, name)
    if image is not None and found.ndim > 2 and _sides(found.shape[1:]) != _sides(image):
        raise UserError(
            f"{file}: the array must have shape [samples, {', '.join(map(str, image))}], channels before height and "
            f"width, got {found.shape}; if channels are last, convert it with array.transpose(0, 3, 1, 2)."
        )
    return to_matrix(file, found)


def read_labels(path: str | os.PathLike[str], *, name: str = "y") -> Shaped[Tensor, "sample"]:
    """Read class labels, one number per sample, from an array of a `.npz`, in float64.

    Raises:
        UserError: The file cannot be read, or the array is not one finite number per sample.
    """
    file = existing_file(path, "a file of labelled inputs (.npz) is needed")
    if file.suffix.lower() != ".npz":
        raise UserError(
            f"{file}: labels are only read from .npz, which contains inputs and labels; write it with "
            f"numpy.savez(…, x=inputs, {name}=labels)."
        )
    found = read_numpy(file, name)
    if found.dtype.kind not in _NUMERIC or found.squeeze().ndim > 1 or not np.isfinite(found).all():
        raise UserError(
            f"{file}: the array {name!r} must have one finite number per sample, got {found.dtype} values with shape "
            f"{found.shape}; number the classes."
        )
    return torch.from_numpy(found.reshape(-1).astype(np.float64))


def read_numpy(file: Path, name: str | None = None) -> NDArray[Any]:
    """Read an array of a `.npy` or `.npz` file as stored; Python objects are never read.

    Args:
        file: An existing file.
        name: Array of a `.npz`. Default: the only one, else `x`.

    Raises:
        UserError: The file is damaged, contains Python objects, or has no such array.
    """
    return read_named_array(file, lambda names: _choose_array(file, names, name))


def read_named_array(file: Path, choose: Callable[[list[str]], str]) -> NDArray[Any]:
    """Read an array of a `.npy` file, or the chosen one of a `.npz`, as stored; Python objects are never read.

    Args:
        file: An existing file.
        choose: Chooses among the names of the arrays of a `.npz`; may raise a `UserError`.

    Raises:
        UserError: The file is damaged, declares an array of another size than it contains, or contains Python objects.
    """
    try:
        with open(file, "rb") as source, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2 are read correctly
            if source.read(2) != b"PK":
                source.seek(0)
                return _read_array(file, source, file.stat().st_size)
        with zipfile.ZipFile(file) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            require_records(file, archive, "write it again with numpy.savez", compressed=True)
            records = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            info = records[choose(list(records))]
            with archive.open(info) as source:
                return _read_array(file, source, info.file_size)
    except UserError:
        raise
    except MemoryError as error:
        raise UserError(f"{file}: the array does not fit into memory; store fewer samples, or as float32.") from error
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        if _is_pickle(file):
            raise _python_objects(file) from error
        raise UserError(
            f"{file}: the file is truncated, damaged or not written by numpy; write or download it again."
        ) from error


def _read_array(file: Path, source: _Bytes, size: int) -> NDArray[Any]:
    """Read an array of so many bytes with its header, whose shape is that of the bytes."""
    header = np.lib.format
    version = header.read_magic(source)
    # Versions 2 and 3 have the same header, but for the encoding of the names of fields, which are refused.
    read = header.read_array_header_1_0 if version == (1, 0) else header.read_array_header_2_0
    shape, columns_first, dtype = read(source)
    if dtype.hasobject:
        raise _python_objects(file)
    if dtype.kind not in _STORED or not dtype.itemsize:
        raise UserError(f"{file}: the array must contain numbers or texts, got {dtype}; convert it.")
    declared, present = math.prod(shape) * dtype.itemsize, size - source.tell()
    if declared > present:
        raise UserError(
            f"{file}: the array declares the shape {shape} of {dtype}, but {present:,} bytes are there; the file is "
            "truncated or damaged, write or download it again."
        )
    flat = np.empty(declared, np.uint8)
    _fill(flat, source)
    found = flat.view(dtype)
    return found.reshape(shape[::-1]).T if columns_first else found.reshape(shape)


def _fill(flat: NDArray[np.uint8], source: _Bytes) -> None:
    for start in range(0, len(flat), _PIECE):
        piece = source.read(min(_PIECE, len(flat) - start))
        flat[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
        if len(piece) < min(_PIECE, len(flat) - start):
            raise EOFError("the values of an array are missing")
    source.read(1)  # the end of a record of an archive, where its checksum is compared


def _python_objects(file: Path) -> UserError:
    return UserError(
        f"{file}: the file contains Python objects, which are never read; an array of numbers is needed, for example "
        "array.astype('float32')."
    )


def _is_pickle(file: Path) -> bool:
    with open(file, "rb") as source:
        return source.read(1) == b"\x80"


def _choose_array(file: Path, names: list[str], name: str | None) -> str:
    """Name of the array to read: `name`, the only one, or "x"."""
    if name is None and len(names) == 1:
        return names[0]
    wanted = "x" if name is None else name
    if wanted in names:
        return wanted
    found = f"the arrays {', '.join(names)}" if names else "no arrays"
    if name is None:
        raise UserError(f"{file}: a single array, or one named x, is needed, but the file has {found}; give its name.")
    raise UserError(f"{file}: there is no array {name!r}; the file has {found}.")


def _read_parquet(file: Path, name: str | None) -> NDArray[Any]:
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(
            file, thrift_string_size_limit=_MOST_HEADER, thrift_container_size_limit=_MOST_HEADER
        ) as source:
            _require_rows(file, source)
            table = source.read()
        index = (table.schema.pandas_metadata or {}).get("index_columns", [])
        index = [each for each in index if isinstance(each, str)]
    except UserError:
        raise
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: the Parquet file is truncated, damaged or not Parquet; write or download it again."
        ) from error
    return _table_matrix(file, table, index, name)


def _require_rows(file: Path, source: Any) -> None:
    """Compare the rows that a Parquet file declares with its size: a constant column of any length takes no space."""
    metadata = source.metadata
    _require_columns(file, metadata.num_columns)
    declared = 8 * max(declared_values(file), metadata.num_rows * max(1, metadata.num_columns))
    require_plausible(file, declared, f"the table of {metadata.num_rows:,} rows", "write or download it again.")


def _require_columns(file: Path, count: int) -> None:
    if count > _MOST_COLUMNS:
        raise UserError(
            f"{file}: the table has {count:,} columns, at most {_MOST_COLUMNS:,} are read; store an array as .npy."
        )


def _read_csv(file: Path, name: str | None) -> NDArray[Any]:
    import pyarrow.csv

    try:
        with open(file, newline="", encoding="utf-8-sig") as lines:
            first = next(csv.reader(iter(lambda: lines.readline(_MOST_HEADER), "")), [])
        _require_columns(file, len(first))
        counted = [str(i) for i in range(len(first))]
        named = not _all_numbers(first) or (first == counted and len(first) > 1)
        names = first if named else counted
        table = pyarrow.csv.read_csv(
            file,
            read_options=pyarrow.csv.ReadOptions(column_names=names, skip_rows=int(named)),
            # Given types: those that pyarrow infers hold for the first megabyte only. An index may be anything.
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={each: pyarrow.float64() if each else pyarrow.string() for each in names}
            ),
        )
    except UserError:
        raise
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        why = str(error).partition("\n")[0].rstrip(".")
        raise UserError(
            f"{file}: the file is not a table of numbers separated by commas: {why}; correct it, or write it again, "
            "for example with pandas.DataFrame.to_csv(index=False)."
        ) from error
    return _table_matrix(file, table, names[:1] if names[:1] == [""] else [], name)


def _all_numbers(cells: list[str]) -> bool:
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def _table_matrix(file: Path, table: Any, index: list[str], name: str | None) -> NDArray[Any]:
    """Combine the columns of a table other than its index, or the one of this name."""
    import pyarrow

    columns = [(field.name, table.column(i)) for i, field in enumerate(table.schema) if field.name not in index]
    if name is not None:
        columns = [column for column in columns if column[0] == name]
    if not columns:
        raise UserError(
            f"{file}: {'at least one input' if name is None else f'the column {name!r}'} is needed, but the file has "
            f"the columns {', '.join(table.column_names) or '(none)'}."
        )
    for title, column in columns:
        if column.null_count:
            raise UserError(
                f"{file}: the column '{title}' has {column.null_count} null values in {len(column)} rows; fill or drop "
                "them."
            )
    kind, types = columns[0][1].type, pyarrow.types
    if len(columns) == 1 and (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return _list_matrix(file, *columns[0])
    return _column_matrix(file, columns)


def _column_matrix(file: Path, columns: list[tuple[str, Any]]) -> NDArray[Any]:
    """Combine numeric columns, one per input, in the precision of the widest."""
    other = [f"'{title}' ({column.type})" for title, column in columns if not _is_numeric(column.type)]
    if other:
        raise UserError(
            f"{file}: all columns must be numeric, or a single column must contain lists of numbers; drop or encode "
            f"{', '.join(other)}."
        )
    dtype = np.float64 if any(str(column.type) == "double" for _, column in columns) else np.float32
    return np.stack([column.to_numpy().astype(dtype) for _, column in columns], axis=1)


def _list_matrix(file: Path, title: str, column: Any) -> NDArray[Any]:
    """Combine lists of equal length, one per sample."""
    import pyarrow.compute

    if not _is_numeric(column.type.value_type):
        raise UserError(f"{file}: the column '{title}' ({column.type}) must contain lists of numbers; convert it.")
    values = pyarrow.compute.list_flatten(column)
    if values.null_count:
        raise UserError(
            f"{file}: the lists of column '{title}' have {values.null_count} null values; fill or drop them."
        )
    lengths = pyarrow.compute.list_value_length(column).to_numpy()
    if len(lengths) and lengths.min() != lengths.max():
        raise UserError(
            f"{file}: the lists of column '{title}' must have equal lengths, got {lengths.min()} to {lengths.max()} "
            "values; pad or cut them."
        )
    return values.to_numpy().reshape(len(column), int(lengths[0]) if len(lengths) else 0)


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _sides(shape: tuple[int, ...]) -> list[int]:
    """Sides other than 1, since images of one channel may omit it."""
    return [side for side in shape if side != 1]


@runtime_checkable
class Frame(Protocol):
    """A pandas frame, or anything else that converts to an array."""

    def to_numpy(self) -> np.ndarray:
        """Return the numbers as an array."""
        ...


def as_inputs(data: Any, name: str, kinds: str = "a tensor, an array or a pandas frame") -> Float[Tensor, "sample in"]:
    """Convert a tensor, an array or a pandas frame to a finite matrix of samples.

    It is in float32, or float64 if the data is. Samples with several axes, such as images, are flattened. A tensor of
    such a matrix stays where it is.

    Args:
        data: The samples.
        name: Name of the argument, for errors.
        kinds: What the argument may be, for errors.

    Returns:
        One row per sample.

    Raises:
        UserError: Something else, or values that are not finite numbers.
    """
    if isinstance(data, Tensor):
        data = data.detach()
        if data.dtype in (torch.float32, torch.float64) and data.ndim == 2 and data.numel() and data.isfinite().all():
            return data
        data = data.cpu()
        data = (data.float() if data.dtype in (torch.bfloat16, torch.float16) else data).numpy()
    elif isinstance(data, Frame):
        data = data.to_numpy()
    if not isinstance(data, np.ndarray):
        raise UserError(f"must be {kinds}, got {type(data).__name__}", name)
    return to_matrix(name, data)


def to_matrix(file: Path | str, found: NDArray[Any]) -> Tensor:
    """Convert to a finite matrix [sample, input] in float32 or float64; errors begin with the name of the file."""
    if found.dtype.kind not in _NUMERIC:
        raise UserError(
            f"{file}: the array must contain real numbers (bool, integers or floating point), got {found.dtype}; "
            "convert it."
        )
    if found.ndim < 2:
        raise UserError(
            f"{file}: the array must be 2-D [samples, inputs], got {found.ndim}-D with shape {found.shape}; reshape "
            "it, for example with array.reshape(-1, 1) for one input."
        )
    if not found.size:
        raise UserError(
            f"{file}: the array must have at least one sample (row) and one input, got shape {found.shape}."
        )
    # The conversion also copies and gives native byte order; wider types become float64.
    wide = found.dtype.kind == "f" and found.dtype.itemsize >= 8
    with np.errstate(over="ignore"):
        matrix = np.array(found, dtype=np.float64 if wide else np.float32, order="C").reshape(len(found), -1)
    finite = np.isfinite(matrix)
    if not finite.all():
        rows = np.flatnonzero(~finite.all(axis=1))
        raise UserError(
            f"{file}: all values must be finite, but {int((~finite).sum())} of {matrix.size} are NaN or infinite, the "
            f"first in row {rows[0]} (counted from 0); fill or drop them."
        )
    return torch.from_numpy(matrix)
