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
    nodes: Mapping[str, Any] | None = None,
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
        rows.append(
            {
                "network": network[net],
                "epoch": np.asarray(probes, np.int32)[probe],
                "layer": np.full(len(net), -1, np.int16),
                "metric": pa.array([name] * len(net), pa.string()),
                "value": np.asarray(value, np.float64)[probe, net],
            }
        )
    lost = ~np.isfinite(values["loss"]) if "loss" in values else np.zeros((1, count), bool)
    diverged = [probes[int(np.argmax(column))] if column.any() else None for column in lost.T]
    none = {"network": np.zeros(0, np.int32), "epoch": np.zeros(0, np.int32), "layer": np.zeros(0, np.int16)}
    columns = {k: v if isinstance(v, list | np.ndarray) else [v] * count for k, v in parameters.items()}
    return {
        "networks": pa.table(
            {"network": network, "seed": list(seeds), **columns, "diverged_at": pa.array(diverged, pa.int64())}
        ),
        "metrics": pa.concat_tables(map(pa.table, rows)),
        "nodes": pa.table(dict(nodes or none)),
        "weights": weights or {},
    }


def table_rows(network: Any, epoch: Any, layer: Any, **columns: Any) -> pa.Table:
    """Rows of `metrics` or `nodes`, such as `table_rows(networks, step, 0, metric="loss", value=losses)`.

    Args:
        network: Numbers of networks; like all other arguments one per row, or one for all rows.
        epoch: Epochs or steps.
        layer: Layers; −1 for the whole network.
        **columns: The other columns.
    """
    kinds = {"network": np.int32, "epoch": np.int32, "layer": np.int16}
    given = {"network": network, "epoch": epoch, "layer": layer} | columns
    each = np.broadcast_arrays(*(np.asarray(values, kinds.get(name)) for name, values in given.items()))
    return pa.table(dict(zip(given, each, strict=True)))


def blocks(numbers: range, size: int) -> Iterator[range]:
    """Consecutive ranges of at most `size` numbers."""
    yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def unit_table(**columns: Any) -> pa.Table:
    """Rows of a unit that is not a network, from columns with one value per row, or one for all rows."""
    each = np.broadcast_arrays(*(np.asarray(values) for values in columns.values()))
    return pa.table(dict(zip(columns, each, strict=True)))
