"""Runs made by hand in memory: given metrics and values of nodes, read as a run reads its tables."""

import numpy as np
import pyarrow as pa

from understudy.store import Run
from understudy.store.memory import Memory


def run_of(tables, epochs, weights, config):
    """A run of the given tables, whose epochs need not have rows."""
    run = Run(Memory(config, tables, weights or {}, measure_environment=lambda: {"seconds": 1.0}))
    run.__dict__["epochs"] = np.asarray(epochs)
    return run


def made_run(networks, epochs=(0,), metrics=None, nodes=None, weights=None, config=None, **tables):
    """A run of networks given as dictionaries of their parameters (and `diverged_at`, by default none).

    `metrics` are [network, epoch] by name or by (name, layer); `nodes` are [network, epoch, node] by (role, column) or
    (role, column, layer), for the role `pair` [network, epoch, teacher, student]. NaN is not recorded. Other tables are
    given by name.
    """
    rows = [{"network": i} | {"diverged_at": None} | row for i, row in enumerate(networks)]
    names = [name for name in rows[0] if name != "diverged_at"] if rows else ["network"]
    columns = {name: pa.array([row[name] for row in rows]) for name in names}
    columns["diverged_at"] = pa.array([row["diverged_at"] for row in rows], pa.int64())
    whole = {
        "networks": pa.table(columns),
        "metrics": _metric_rows(metrics or {}, np.asarray(epochs)),
        "nodes": _node_rows(nodes or {}, np.asarray(epochs)),
    }
    return run_of(whole | tables, epochs, weights, config or {"study": "made", "format": 3, "options": {}})


def _metric_rows(metrics, epochs):
    parts = [_empty(metric=pa.string(), value=pa.float64())]
    for key, values in metrics.items():
        name, layer = key if isinstance(key, tuple) else (key, -1)
        values = np.asarray(values, float)
        network, epoch = np.nonzero(~np.isnan(values))
        parts.append(
            pa.table(
                _places(network, epochs[epoch], layer)
                | {"metric": [name] * len(network), "value": values[network, epoch]}
            )
        )
    return pa.concat_tables(parts, promote_options="permissive")


def _node_rows(nodes, epochs):
    parts = [_empty(role=pa.string(), teacher=pa.int32(), student=pa.int32())]
    groups = {}
    for key, values in nodes.items():
        role, column, layer = (*key, 0)[:3]
        groups.setdefault((role, layer), {})[column] = np.asarray(values, float)
    for (role, layer), columns in groups.items():
        there = ~np.isnan(np.stack(list(columns.values()))).all(0)
        network, epoch, *node = places = np.nonzero(there)
        names = ("teacher", "student") if role == "pair" else (role,)
        rows = _places(network, epochs[epoch], layer) | {"role": [role] * len(network)}
        rows |= {name: numbers.astype(np.int32) for name, numbers in zip(names, node, strict=True)}
        rows |= {
            name: values[places].astype(np.int32 if name in ("teacher", "student") else float)
            for name, values in columns.items()
        }
        parts.append(pa.table(rows))
    return pa.concat_tables(parts, promote_options="permissive")


def _places(network, epoch, layer):
    return {
        "network": network.astype(np.int32),
        "epoch": epoch.astype(np.int32),
        "layer": np.full(len(network), layer, np.int16),
    }


def _empty(**more):
    kinds = {"network": pa.int32(), "epoch": pa.int32(), "layer": pa.int16()} | more
    return pa.table({name: pa.array([], kind) for name, kind in kinds.items()})
