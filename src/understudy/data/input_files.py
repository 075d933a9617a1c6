"""The user's own inputs: a matrix of samples from .npy, .npz or .parquet, refused in words where it is not one."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from understudy.errors import UserError
from understudy.nets.io import existing_file

_ENDINGS = (".npy", ".npz", ".parquet")
_NEEDED = f"a file of inputs ({', '.join(_ENDINGS)}) is needed"
_NUMERIC = "biuf"  # numpy's letters for bool, integers and floating point


def read_inputs(
    path: str | os.PathLike[str], *, name: str | None = None, image: tuple[int, int, int] | None = None
) -> Float[Tensor, "sample in"]:
    """Inputs as stored in float32 or float64; float16, integers and bool become float32.

    `.npy` holds one array; of `.npz` the array `name` is read, else the only one, else `x`; arrays of more than two
    axes are flattened for each sample. Of `.parquet` the column `name` is read, else every column is one input, or one
    column of lists of equal length holds them all; an index that pandas stored is no input. Samples that come as
    pictures, not flat, must have the channels, height and width of `image`, in that order.
    """
    file = existing_file(path, _NEEDED)
    ending = file.suffix.lower()
    if ending not in _ENDINGS:
        raise UserError(
            f"{file}: files with {f'the ending {ending}' if ending else 'no ending'} are not read, only "
            f"{', '.join(_ENDINGS)}; convert it, for example with numpy.save."
        )
    if ending == ".npy" and name is not None:
        raise UserError(f"{file}: the array {name!r} was asked for, but .npy holds one without a name; leave it out.")
    found = _read_parquet(file, name) if ending == ".parquet" else _read_numpy(file, name)
    if image is not None and found.ndim > 2 and _sides(found.shape[1:]) != _sides(image):
        raise UserError(
            f"{file}: the array has shape {found.shape}, but [samples, {', '.join(map(str, image))}] is needed, "
            "channels before height and width; bring it there, for example with array.transpose(0, 3, 1, 2) where "
            "channels are last."
        )
    return _checked(file, found)


def read_labels(path: str | os.PathLike[str], *, name: str = "y") -> Shaped[Tensor, "sample"]:
    """Numbers that name classes, one a sample: the array `name` of an `.npz`."""
    file = existing_file(path, "a file of labelled inputs (.npz) is needed")
    if file.suffix.lower() != ".npz":
        raise UserError(
            f"{file}: labels are read from .npz alone, which holds inputs and labels side by side; write it with "
            f"numpy.savez(…, x=inputs, {name}=labels)."
        )
    found = _read_numpy(file, name)
    if found.dtype.kind not in _NUMERIC or found.squeeze().ndim > 1 or not np.isfinite(found).all():
        raise UserError(
            f"{file}: the array {name!r} holds {found.dtype} values with shape {found.shape}, but one finite number a "
            "sample is needed; number the classes."
        )
    return torch.from_numpy(found.reshape(-1).astype(np.float64))


def _read_numpy(file: Path, name: str | None) -> NDArray[Any]:
    try:
        # Opened here, because numpy leaves a damaged archive open.
        with open(file, "rb") as source, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers written by Python 2, which are read well
            found = np.load(source, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            with found:
                return np.asarray(found[_chosen(file, found.files, name)])
    except UserError:
        raise
    except MemoryError as error:
        raise UserError(f"{file}: the array does not fit into memory; store fewer samples, or as float32.") from error
    except Exception as error:  # whatever the decoder makes of arbitrary bytes
        # numpy takes what it does not recognise for a pickle, so only its word for arrays of objects counts.
        if "Object arrays" in str(error) or _is_pickle(file):
            raise UserError(
                f"{file}: the file holds Python objects, which are never read, but an array of numbers is needed; "
                "store it as numbers, for example with array.astype('float32')."
            ) from error
        raise UserError(
            f"{file}: the file is cut short, damaged or not written by numpy; write or download it again."
        ) from error


def _is_pickle(file: Path) -> bool:
    with open(file, "rb") as source:
        return source.read(1) == b"\x80"


def _chosen(file: Path, names: list[str], name: str | None) -> str:
    """Which of several arrays was meant."""
    if name is None and len(names) == 1:
        return names[0]
    wanted = "x" if name is None else name
    if wanted in names:
        return wanted
    held = f"the arrays {', '.join(names)}" if names else "no arrays"
    if name is None:
        raise UserError(
            f"{file}: the file holds {held}, but one array, or one called x, is needed; name the one to read."
        )
    raise UserError(f"{file}: the array {name!r} was asked for, but the file holds {held}; name one that it holds.")


def _read_parquet(file: Path, name: str | None) -> NDArray[Any]:
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as source:
            table = source.read()
        index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    except Exception as error:  # whatever the decoder makes of arbitrary bytes
        raise UserError(
            f"{file}: the Parquet file is cut short, damaged or not Parquet; write or download it again."
        ) from error
    columns = [(field.name, table.column(i)) for i, field in enumerate(table.schema) if field.name not in index]
    if name is not None:
        columns = [column for column in columns if column[0] == name]
    if not columns:
        raise UserError(
            f"{file}: the file holds the columns {', '.join(table.column_names) or '(none)'}, but "
            f"{'at least one input' if name is None else f'the column {name!r}'} is needed; name one that it holds."
        )
    for title, column in columns:
        if column.null_count:
            raise UserError(
                f"{file}: the column '{title}' has {column.null_count} null values in {len(column)} rows, but every "
                "value must be given; fill or drop them."
            )
    if len(columns) == 1 and _is_list(columns[0][1].type):
        return _list_matrix(file, *columns[0])
    return _column_matrix(file, columns)


def _column_matrix(file: Path, columns: list[tuple[str, Any]]) -> NDArray[Any]:
    """One input a column, in the precision of the widest."""
    other = [f"'{title}' ({column.type})" for title, column in columns if not _is_numeric(column.type)]
    if other:
        raise UserError(
            f"{file}: the columns {', '.join(other)} are not numeric, but all columns must be numbers, or one column "
            "lists of numbers; drop or encode them."
        )
    dtype = np.float64 if any(str(column.type) == "double" for _, column in columns) else np.float32
    return np.stack([column.to_numpy().astype(dtype) for _, column in columns], axis=1)


def _list_matrix(file: Path, title: str, column: Any) -> NDArray[Any]:
    """One sample a list."""
    import pyarrow.compute

    if not _is_numeric(column.type.value_type):
        raise UserError(
            f"{file}: the column '{title}' ({column.type}) is not numeric, but lists of numbers are needed; convert it."
        )
    values = pyarrow.compute.list_flatten(column)
    if values.null_count:
        raise UserError(
            f"{file}: the lists of column '{title}' have {values.null_count} null values, but every value must be "
            "given; fill or drop them."
        )
    lengths = pyarrow.compute.list_value_length(column).to_numpy()
    if len(lengths) and lengths.min() != lengths.max():
        raise UserError(
            f"{file}: the lists of column '{title}' have {lengths.min()} to {lengths.max()} values, but equal lengths "
            "are needed; pad or cut them."
        )
    return values.to_numpy().reshape(len(column), int(lengths[0]) if len(lengths) else 0)


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _sides(shape: tuple[int, ...]) -> list[int]:
    """Without those of one: pictures of one channel may leave it out."""
    return [side for side in shape if side != 1]


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _checked(file: Path, found: NDArray[Any]) -> Tensor:
    """Samples by inputs, in float32 or float64, all finite."""
    if found.dtype.kind not in _NUMERIC:
        raise UserError(
            f"{file}: the array holds {found.dtype} values, but real numbers are needed (bool, integers or floating "
            "point); convert it."
        )
    if found.ndim < 2:
        raise UserError(
            f"{file}: the array is {found.ndim}-D with shape {found.shape}, but 2-D [samples, inputs] is needed; "
            "reshape it, for example with array.reshape(-1, 1) for one input."
        )
    if not found.size:
        raise UserError(
            f"{file}: the array has shape {found.shape}, but at least one sample (row) of one input is needed; "
            "store some."
        )
    # Native byte order and memory of our own come with the conversion; anything wider than float64 is cut to it.
    wide = found.dtype.kind == "f" and found.dtype.itemsize >= 8
    with np.errstate(over="ignore"):
        matrix = np.array(found, dtype=np.float64 if wide else np.float32, order="C").reshape(len(found), -1)
    finite = np.isfinite(matrix)
    if not finite.all():
        rows = np.flatnonzero(~finite.all(axis=1))
        raise UserError(
            f"{file}: {int((~finite).sum())} of {matrix.size} values are NaN or infinite, the first in row {rows[0]} "
            "(counted from 0), but all must be finite; fill or drop them."
        )
    return torch.from_numpy(matrix)
