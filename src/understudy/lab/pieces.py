"""Tables of a piece of a computed study, and the steps at which its networks are probed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.nets import Population


def log_probes(steps: int, count: int = 60) -> tuple[int, ...]:
    """Steps to probe at: 0, then about evenly on a logarithmic axis, the last among them."""
    return (0, *np.unique(np.geomspace(1, max(1, steps), max(2, count)).round().astype(int)).tolist())


def network_tables(
    first: int,
    seeds: Sequence[int],
    parameters: Mapping[str, Any],
    probes: Sequence[int],
    values: Mapping[str, np.ndarray],
    nodes: pa.Table | None = None,
    weights: dict[str, Population] | None = None,
) -> Tables:
    """A piece's rows: of parameters one a network, or one for all; values are [probe, net].

    What is NaN is left out, but for the `loss`, so that every probe is there. A network diverged at the first probe at
    which its loss is not finite.
    """
    count = len(seeds)
    network = np.arange(first, first + count, dtype=np.int32)
    rows = []
    for name, value in values.items():
        probe, net = np.nonzero(~np.isnan(value) | (name == "loss"))
        numbers = np.asarray(value, np.float64)[probe, net]
        rows.append(table_rows(network[net], np.asarray(probes)[probe], -1, metric=name, value=numbers))
    lost = ~np.isfinite(values["loss"]) if "loss" in values else np.zeros((1, count), bool)
    diverged = [probes[int(np.argmax(column))] if column.any() else None for column in lost.T]
    columns = {k: v if isinstance(v, list | np.ndarray) else [v] * count for k, v in parameters.items()}
    ended = {"diverged_at": pa.array(diverged, pa.int64())}
    return {
        "networks": pa.table({"network": network, "seed": list(seeds)} | columns | ended),
        "metrics": pa.concat_tables(rows),
        "nodes": table_rows([], [], []) if nodes is None else nodes,
        "weights": weights or {},
    }


def network_rows(
    first: int, seeds: Sequence[int], diverged: Sequence[int | None] | None = None, **parameters: Any
) -> pa.Table:
    """Rows of `networks`, numbered from `first`: of parameters one a network, or one for all.

    `diverged` are the steps at which networks diverged, None for those that did not; by default none did.
    """
    rows = unit_table(network=np.arange(first, first + len(seeds), dtype=np.int32), seed=list(seeds), **parameters)
    return rows.append_column("diverged_at", pa.array(diverged or [None] * len(seeds), pa.int64()))


def table_rows(network: Any, epoch: Any, layer: Any, **columns: Any) -> pa.Table:
    """Rows of `metrics` or `nodes`, such as `table_rows(networks, step, 0, metric="loss", value=losses)`.

    Each argument has one value per row, or one for all rows. Layer −1 is the whole network.
    """
    where = {"network": np.asarray(network, np.int32), "epoch": np.asarray(epoch, np.int32)}
    return unit_table(**where, layer=np.asarray(layer, np.int16), **columns)


def blocks(numbers: range, size: int) -> Iterator[range]:
    """Consecutive ranges of at most `size` numbers."""
    yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def unit_table(**columns: Any) -> pa.Table:
    """Rows of a unit that is not a network, from columns with one value per row, or one for all rows."""
    each = np.broadcast_arrays(*(np.asarray(values) for values in columns.values()))
    return pa.table(dict(zip(columns, each, strict=True)))
