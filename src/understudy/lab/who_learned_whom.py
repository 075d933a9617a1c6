"""Which student learned which teacher node, and when: the table of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from understudy.lab.recovery import first_epochs, strengths
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.store.tables import Table

_MATCHED = ("student", "correlation", "sin_angle", "bias_gap")


def who_learned_whom(run: Run) -> Table:
    """One row per teacher node of every network at the end: its best student, and when it was recovered."""
    layers = sorted(set(run.metrics["layer"].unique().to_pylist()) - {-1})
    rows = pa.concat_tables([_layer_rows(run, layer, layer == layers[-1]) for layer in layers])
    return rows.sort_by([(name, "ascending") for name in ("network", "layer", "teacher")])


def _layer_rows(run: Run, layer: int, top: bool) -> pa.Table:
    """The rows of one layer; only the top layer has strengths, and only the lowest layer angles."""
    columns = {name: _at_end(run, name, layer) for name in _MATCHED}
    network, teacher = np.nonzero(~np.isnan(columns["correlation"]))
    strength = strengths(run)[network, teacher] if top else np.full(len(network), np.nan)
    since = first_epochs(run, layer)[network, teacher]

    def numbers(values: np.ndarray) -> pa.Array:
        return pa.array(values.astype(np.float32), from_pandas=True)  # NaN becomes null

    return pa.table(
        {"network": network.astype(np.int32)}
        | {name: run.networks[name].take(pa.array(network)) for name in run.swept}
        | {
            "layer": np.full(len(network), layer + 1, np.int16),  # pages count layers from 1
            "teacher": teacher.astype(np.int32),
            "strength": numbers(strength),
            "student": columns["student"][network, teacher].astype(np.int32),
            **{name: numbers(columns[name][network, teacher]) for name in _MATCHED[1:]},
            "recovered_at": pa.array([None if np.isinf(s) else int(s) for s in since], pa.int32()),
        }
    )


def _at_end(run: Run, column: str, layer: int) -> np.ndarray:
    """Values [network, teacher] of a column of `nodes` at the last epoch of each network; NaN where it diverged."""
    last = int(run.epochs[-1])
    values = run.matched("teacher", column, layer, last)
    if "stop" not in run.networks.column_names:
        return values
    values, stops = values.copy(), run.column("stop")
    for epoch in np.unique(stops[stops < last]).tolist():
        values[stops == epoch] = run.matched("teacher", column, layer, epoch)[stops == epoch]
    return values
