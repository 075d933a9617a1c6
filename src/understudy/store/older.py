"""Read units other than networks from runs that stored them as rows of `networks` and `metrics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.store.run import Run


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
