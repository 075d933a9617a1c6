"""Tables of a run as parquet: written at once or epoch by epoch, and read in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from understudy._atomic import atomic_path
from understudy._errors import UserError, first_line

if TYPE_CHECKING:
    from pandas import DataFrame


class Table(Protocol):
    """A `pyarrow.Table`, as type checkers see it: pyarrow has no type hints of its own.

    `to_pandas()` gives a data frame, `table["column"].to_numpy()` an array.
    """

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""

    @property
    def schema(self) -> Any:
        """Names and types of the columns (`pyarrow.Schema`)."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: str | int) -> Any:
        """A column (`pyarrow.ChunkedArray`), with `to_numpy()`, `to_pylist()` and `unique()`."""

    def select(self, columns: Sequence[str]) -> Table:
        """Some of the columns."""

    def append_column(self, field: Any, column: Any) -> Table:
        """The table with one more column."""

    def drop_columns(self, columns: Sequence[str]) -> Table:
        """All other columns."""

    def filter(self, mask: Any) -> Table:
        """Rows for which an expression such as `pc.field("epoch") == 5` holds."""

    def cast(self, target_schema: Any) -> Table:
        """The table with other types of columns."""

    def take(self, indices: Any) -> Table:
        """Rows at these places."""

    def slice(self, offset: int = 0, length: int | None = None) -> Table:
        """Consecutive rows."""

    def sort_by(self, sorting: str | list[tuple[str, str]]) -> Table:
        """Rows in the order of columns."""

    def group_by(self, keys: str | list[str]) -> Any:
        """Groups of rows (`pyarrow.TableGroupBy`)."""

    def to_pandas(self) -> DataFrame:
        """A pandas data frame."""

    def to_pylist(self) -> list[dict[str, Any]]:
        """One dict per row."""

    def to_pydict(self) -> dict[str, list[Any]]:
        """One list per column."""


_REMEDY = "move the folder away and run the same command"
_WHERE = {"network": pa.types.is_integer, "epoch": pa.types.is_integer, "layer": pa.types.is_integer}


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


_NEEDED: dict[str, dict[str, Callable[[Any], bool]]] = {
    "networks": {"network": pa.types.is_integer},
    "metrics": {**_WHERE, "metric": _is_text, "value": _is_number},
    "nodes": _WHERE,
}
"""Columns that tables have in every run, and their types."""
_FLOATS = ("correlation", "sin_angle", "bias_gap", "fanout", "value")
_ENOUGH = 1 << 16
"""Rows from which waiting epochs are written as a row group."""


def _form(names: Sequence[str]) -> dict[str, Any]:
    """Parquet options that are fast and widely supported: byte streams for floats, dictionaries for other columns."""
    floats = [name for name in names if name in _FLOATS]
    others = [name for name in names if name not in _FLOATS]
    coding = {"compression": "snappy", "use_dictionary": others, "use_byte_stream_split": floats}
    return coding | {"write_page_checksum": True}


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as parquet; the same rows give the same bytes."""
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, **_form(table.column_names))


def by_epoch(table: pa.Table) -> Iterator[pa.Table]:
    """Split a table, whose rows are in the order of epochs, into one table per epoch."""
    epoch = table["epoch"].to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(epoch)) + 1).tolist(), table.num_rows]
    yield from (table.slice(start, stop - start) for start, stop in pairwise(cuts) if stop > start)


class Growing:
    """A table that is written epoch by epoch, and appears under its name when it is closed.

    Row groups hold whole epochs and, where rows have roles, one role each, so that reading one epoch or one role
    touches little other data. Which epochs share a row group depends only on their rows.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._stack = path, ExitStack()
        self._file: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        if sum(part.num_rows for part in self._waiting) >= _ENOUGH:
            self._put()

    def _put(self) -> None:
        rows = pa.concat_tables([_coded(part) for part in self._waiting], promote_options="none").combine_chunks()
        self._waiting = []
        if self._file is None:
            temporary = self._stack.enter_context(atomic_path(self._path))
            self._file = pq.ParquetWriter(temporary, rows.schema, **_form(rows.column_names))
        for part in _by_role(rows):
            self._file.write_table(part, row_group_size=max(1, part.num_rows))

    def close(self) -> None:
        """Complete the table."""
        if self._waiting:
            self._put()
        if self._file is not None:
            self._file.close()
        self._file = None
        self._stack.close()

    def drop(self) -> None:
        """Discard the table."""
        if self._file is not None:
            with suppress(OSError, pa.ArrowException):
                self._file.close()
            self._file = None
        error = InterruptedError()
        self._stack.__exit__(InterruptedError, error, None)  # removes the temporary file, as a failed write does


def _coded(rows: pa.Table) -> pa.Table:
    """Encode dictionary columns by the values they contain, so that all parts have the same dictionaries."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            words = _plain(rows[field.name]).combine_chunks().dictionary_encode()
            rows = rows.set_column(place, field.name, words)
    return rows


def _by_role(rows: pa.Table) -> Iterator[pa.Table]:
    if "role" not in rows.column_names or not rows.num_rows:
        yield rows
        return
    roles = rows["role"].combine_chunks().dictionary_encode()
    for code in range(len(roles.dictionary)):
        which = np.flatnonzero(roles.indices.to_numpy() == code)
        yield rows.take(pa.array(which))


class Stored:
    """A table on disk, read in part: only row groups that can contain the wanted rows, and only the wanted columns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _file(self) -> pq.ParquetFile:
        return pq.ParquetFile(self.path, memory_map=True, page_checksum_verification=True)

    def require_schema(self) -> None:
        """Compare the columns of the table with those that it must have.

        Raises:
            UserError: A table that cannot be read, or has other columns.
        """
        try:
            schema, rows = self._file.schema_arrow, self._file.metadata.num_rows
            stored = sum(self._file.metadata.row_group(i).num_rows for i in range(self._file.metadata.num_row_groups))
        except Exception as error:  # arbitrary bytes can raise any exception in a decoder
            raise self._unreadable(error) from error
        for name, fits in _NEEDED.get(self.path.stem, {}).items():
            if schema.names.count(name) != 1 or not fits(_value_type(schema.field(name).type)):
                raise UserError(f"{self.path} has no column {name}, or one of another type; {_REMEDY}")
        if len(set(schema.names)) < len(schema) or rows != stored:
            raise UserError(f"{self.path} has other columns or rows than it declares; {_REMEDY}")

    def _unreadable(self, error: Exception) -> UserError:
        return UserError(f"{self.path} cannot be read ({first_line(error)}); {_REMEDY}")

    def read(self, columns: Sequence[str] | None = None, **wanted: Any) -> pa.Table:
        """Read the rows whose columns have the wanted values."""
        self.require_schema()
        try:
            groups, certain = self._groups(wanted)
            unsure = [name for name in wanted if not certain[name]]
            names = None if columns is None else list(dict.fromkeys((*columns, *unsure)))
            table = self._file.read_row_groups(groups, columns=names)
            for name in unsure:
                table = table.filter(pc.equal(_plain(table[name]), wanted[name]))
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error
        return table if columns is None else table.select(list(columns))

    def _groups(self, wanted: dict[str, Any]) -> tuple[list[int], dict[str, bool]]:
        """Row groups that can contain the wanted values, and for each column whether they contain nothing else."""
        bounds = {name: self._bounds(name) for name in wanted}
        groups = [
            group
            for group in range(self._file.metadata.num_row_groups)
            if all(at[group] is None or at[group][0] <= wanted[name] <= at[group][1] for name, at in bounds.items())
        ]
        only = {name: all(at[group] == (wanted[name],) * 2 for group in groups) for name, at in bounds.items()}
        return groups, only

    def _bounds(self, name: str) -> list[Any]:
        """Smallest and largest value of a column in each row group; None where the file does not record them."""
        if name not in self._known:
            metadata, place = self._file.metadata, self._file.schema_arrow.get_field_index(name)
            found = [metadata.row_group(i).column(place).statistics for i in range(metadata.num_row_groups)]
            self._known[name] = [(s.min, s.max) if s is not None and s.has_min_max else None for s in found]
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, list[Any]]:
        return {}


class Held:
    """A table in memory, read in part as `Stored` reads one on disk."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def read(self, columns: Sequence[str] | None = None, **wanted: Any) -> pa.Table:
        """Select the rows whose columns have the wanted values."""
        table = self._table
        for name, value in wanted.items():
            table = table.filter(pc.equal(_plain(table[name]), value))
        return table if columns is None else table.select(list(columns))


def same_rows(one: Table, other: Table) -> bool:
    """Whether two tables have the same columns and rows; missing values are equal, and so is how words are coded."""
    return one.column_names == other.column_names and all(
        _plain(one[name]).to_pandas().equals(_plain(other[name]).to_pandas()) for name in one.column_names
    )


def dense(
    rows: pa.Table, column: str, networks: int, epochs: np.ndarray, nodes: Mapping[str, int] | None = None
) -> np.ndarray:
    """Values [network, epoch, node …] of a column, read-only; NaN where there is no row.

    Args:
        rows: Rows with the columns `network`, `epoch` and those of `nodes`.
        column: The column of the values.
        networks: Number of networks.
        epochs: Ascending epochs, among them those of the rows.
        nodes: Number of nodes by the name of the column that counts them.
    """
    nodes = nodes or {}
    found = np.full((networks, len(epochs), *nodes.values()), np.nan)
    place = np.zeros(int(epochs.max(initial=0)) + 1, int)
    place[epochs] = np.arange(len(epochs))
    where = rows["network"].to_numpy(), place[rows["epoch"].to_numpy()], *(rows[name].to_numpy() for name in nodes)
    found[where] = rows[column].to_numpy()
    found.flags.writeable = False
    return found


def _value_type(kind: Any) -> Any:
    """Type of the values of a column that may be coded by a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
