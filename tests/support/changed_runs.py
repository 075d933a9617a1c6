"""Copies of runs with other values, to test what claims and stories make of them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.store import Run


def with_values(run, folder, metric, which, by):
    """Copy of a run in which the values of one metric of some networks are replaced."""
    for path in run.folder.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    made, rows = Run(folder), run.metrics
    value, name, network = (rows[c].to_numpy(zero_copy_only=False) for c in ("value", "metric", "network"))
    wrong = np.where((name == metric) & np.isin(network, which), by(value), value)
    made.__dict__["metrics"] = _replace(rows, "value", wrong)
    return made


def with_units(run, folder, table, column, by):
    """Copy of a run in which a column of a table of units is replaced by a function of its values."""
    made, rows = with_values(run, folder, "", [], lambda values: values), run.table(table)
    pq.write_table(_replace(rows, column, by(rows[column].to_numpy())), folder / f"{table}.parquet")
    return made


def _replace(rows, column, values):
    return rows.set_column(rows.column_names.index(column), column, pa.array(values))
