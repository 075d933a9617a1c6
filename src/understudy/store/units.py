"""Tables whose unit is not a network (data sets, settings): labelled arrays of them, and those of earlier formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.store.arrays import spread
from understudy.store.run import Run

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
    rows = np.arange(table.num_rows)
    for name, value in where.items():
        rows = rows[pc.equal(table[name].take(pa.array(rows)), value).fill_null(False).to_numpy()]
    some = table.take(pa.array(rows))
    labels = {name: some[name].to_pylist() for name in dims.split()}
    known = column in table.column_names
    values = some[column].cast(pa.float64()).to_numpy() if known else np.full(len(rows), np.nan)
    return spread(values, labels, ("unit", rows), lambda: "name more columns, or select by one")


def read_units(run: Run, table: str, *, curves: Sequence[str] = (), **where: Any) -> pa.Table:
    """The table of units such as data sets: one row per unit, with its parameters and values as columns.

    Args:
        run: The run.
        table: The name of the table.
        curves: Metrics of which every recorded value is read, as a list, and not only the last.
        **where: In runs of earlier formats, the columns of `networks` that selected these units, such as `part="sets"`.

    Returns:
        The table of the run; in runs of earlier formats, made from the rows of `networks` and the last recorded
        value of each of their metrics.
    """
    if table in run.tables:
        return run.table(table)
    some = run.select(**where)
    found = run.networks.take(pa.array(some.index))
    rows = run.metrics.filter(pc.field("network").isin(pa.array(some.index)))
    place = {int(network): i for i, network in enumerate(some.index)}
    for metric in rows["metric"].unique().to_pylist():
        own = rows.filter(pc.field("metric") == metric).sort_by("epoch")
        if metric in curves:
            lists: list[list[float]] = [[] for _ in some.index]
            for network, value in zip(own["network"].to_pylist(), own["value"].to_pylist(), strict=True):
                lists[place[network]].append(value)
            found = found.append_column(metric, pa.array(lists, pa.list_(pa.float64())))
            continue
        values = np.full(len(some), np.nan)
        values[[place[network] for network in own["network"].to_pylist()]] = own["value"].to_numpy()
        found = found.append_column(metric, pa.array(values))
    return found.drop_columns([name for name in ("network", "diverged_at") if name in found.column_names])
