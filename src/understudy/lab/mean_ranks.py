"""Mean rank of the final winners over training, from the ranks of all students at some epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from understudy.store.tables import write_table

_NAME = "mean_rank"


def add_mean_ranks(folder: Path) -> None:
    """Add the mean rank of winners (Tian et al. 2019, sec. 5.1) to a run's metrics, and remove the table of all ranks.

    A winner is the student that correlates best with a teacher node at the end of its network's training; its rank is
    its position among all students, from 0, divided by n − 1.
    """
    table = folder / "ranks.parquet"
    if not table.is_file():
        return
    metrics, ranks = pq.read_table(folder / "metrics.parquet"), pq.read_table(table)
    if not ranks.num_rows:  # every network had diverged
        table.unlink()
        return
    rows = pa.table(_mean_ranks(ranks), schema=metrics.schema.remove_metadata())
    others = metrics.filter(pc.not_equal(metrics["metric"].cast(pa.string()), _NAME))
    both = pa.concat_tables([_plain(others), _plain(rows)]).sort_by([("epoch", "ascending")])
    coded = both.set_column(both.schema.get_field_index("metric"), "metric", both["metric"].dictionary_encode())
    write_table(folder / "metrics.parquet", coded.unify_dictionaries())
    table.unlink()


def _plain(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("metric")
    return table.set_column(at, "metric", table["metric"].cast(pa.string()))


def _mean_ranks(ranks: pa.Table) -> dict[str, np.ndarray | pa.Array]:
    """One row per network, epoch and layer."""
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
    mean = np.bincount(place.ravel(), weights=rank) / count
    return {
        "network": each[0].astype(np.int32),
        "epoch": each[1].astype(np.int32),
        "layer": each[2].astype(np.int16),
        "metric": pa.array([_NAME] * len(mean)).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        "value": mean,
    }
