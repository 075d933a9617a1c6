"""Read tables whose unit is not a network (data sets, settings) as labelled arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy._errors import UserError

if TYPE_CHECKING:
    import xarray as xr


def unit_array(table: pa.Table, column: str, dims: str, **where: Any) -> xr.DataArray:
    """One column of a table of units as a labelled array; NaN where there is no unit, or no value.

    Args:
        table: A table with one row per unit, such as `run.table("sets")`.
        column: The column with the values; NaN everywhere if the table does not have it.
        dims: Names of columns separated by spaces, in the order wanted; together they must tell the units apart.
        **where: Columns to select by, each with its value.

    Returns:
        An array with the values of each dimension as coordinates (numbers in their order, words as they first appear),
        and a coordinate `unit` with the number of each unit's row (−1 where there is none).

    Raises:
        UserError: If several units would have the same place.
    """
    import xarray as xr

    rows = np.arange(table.num_rows)
    for name, value in where.items():
        rows = rows[pc.equal(table[name].take(pa.array(rows)), value).fill_null(False).to_numpy()]
    names = dims.split()
    labels = [table[name].take(pa.array(rows)).to_pylist() for name in names]
    axes = [_values(each) for each in labels]
    known = [{value: place for place, value in enumerate(axis)} for axis in axes]
    places = tuple([place[value] for value in each] for place, each in zip(known, labels, strict=True))
    if len(set(zip(*places, strict=True))) < len(rows):
        raise UserError(f"several units have the same {', '.join(names)}; name more columns, or select by one")
    values = np.full([len(axis) for axis in axes], np.nan)
    if column in table.column_names:
        values[places] = table[column].take(pa.array(rows)).cast(pa.float64()).to_numpy()
    number = np.full(values.shape, -1)
    number[places] = rows
    found = xr.DataArray(values, dict(zip(names, axes, strict=True)), names)
    return found.assign_coords(unit=(names, number))


def _values(labels: list[Any]) -> list[Any]:
    """The different values: numbers in their order, words as they first appear."""
    found = list(dict.fromkeys(labels))
    return found if any(isinstance(value, str) or value is None for value in found) else sorted(found)
