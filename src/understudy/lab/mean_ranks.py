"""Mean and median rank of the final winners over training, from the ranks of all students at some epochs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from understudy._recorded import RANKS
from understudy.store.tables import write_table


def add_mean_ranks(folder: Path, names: Collection[str] = RANKS) -> None:
    """Add the ranks of winners (Tian et al. 2019, sec. 5.1) to a run's metrics, and remove the table of all ranks.

    A winner is the student that correlates best with a teacher node at the end of its network's training; its rank is
    its position among all students, from 0, divided by n − 1. `mean_rank` and `median_rank` are over teacher nodes.
    """
    table = folder / "ranks.parquet"
    if not table.is_file():
        return
    metrics, ranks = pq.read_table(folder / "metrics.parquet"), pq.read_table(table)
    if ranks.num_rows:  # else every network had diverged
        write_table(folder / "metrics.parquet", with_ranks(metrics, ranks, names))
    table.unlink()


def with_ranks(metrics: pa.Table, ranks: pa.Table, names: Collection[str] = RANKS) -> pa.Table:
    """The metrics with the ranks of winners of these names, in the order of epochs.

    Args:
        metrics: Rows of the table `metrics`.
        ranks: Rows of the table `ranks`.
        names: `mean_rank`, `median_rank` or both.
    """
    schema = metrics.schema.remove_metadata()
    places, values = _ranks_of_winners(ranks)
    word = schema.field("metric").type
    tables = [
        pa.table(places | {"metric": pa.array([name] * len(values[name])).cast(word), "value": values[name]})
        for name in RANKS
        if name in names
    ]
    others = metrics.filter(pc.invert(pc.is_in(metrics["metric"].cast(pa.string()), pa.array(RANKS))))
    every = [_plain(others), *(_plain(rows.select(schema.names).cast(schema)) for rows in tables)]
    both = pa.concat_tables(every).sort_by([("epoch", "ascending")])
    coded = both.set_column(both.schema.get_field_index("metric"), "metric", both["metric"].dictionary_encode())
    return coded.unify_dictionaries()


def _plain(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("metric")
    return table.set_column(at, "metric", table["metric"].cast(pa.string()))


def _ranks_of_winners(ranks: pa.Table) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Network, epoch and layer of every row, and its values by the name of the metric."""
    network, epoch, layer, teacher = (
        ranks[name].to_numpy().astype(np.int64) for name in ("network", "epoch", "layer", "teacher")
    )
    lists = ranks["ranks"].combine_chunks()
    places, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
    starts, sizes = offsets[:-1], np.diff(offsets)
    # Group the rows of one teacher node, in the order of epochs.
    order = np.lexsort((epoch, teacher, layer, network))
    node = np.stack((network, layer, teacher))[:, order]
    first = np.concatenate(([True], (np.diff(node) != 0).any(0)))
    last = np.concatenate((first[1:], [True]))
    group = np.cumsum(first) - 1
    winners = np.array([int(places[starts[i] : starts[i] + sizes[i]].argmin()) for i in order[last]])
    rank = places[starts[order] + winners[group]] / np.maximum(sizes[order] - 1, 1)
    key = np.stack((network, epoch, layer))[:, order]
    each, place, count = np.unique(key, axis=1, return_inverse=True, return_counts=True)
    place = place.ravel()
    rising = rank[np.lexsort((rank, place))]
    firsts = np.cumsum(count) - count
    middle = (rising[firsts + (count - 1) // 2] + rising[firsts + count // 2]) / 2
    where = {name: row.astype(np.int32) for name, row in zip(("network", "epoch", "layer"), each, strict=True)}
    return where, {"mean_rank": np.bincount(place, weights=rank) / count, "median_rank": middle}
