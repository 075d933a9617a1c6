"""Reads runs of the studies of codes of one coordinate: exact values of every network, and means of settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from understudy.papers.autoencoder.settings import METHOD_NAMES, CodeSetting
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.autoencoder.shared import CodeStudy

VALUES = ("information", "bound", "likelihood", "elbo", "gap", "kl", "aggregate", "posterior_kl", "posterior_entropy")
"""Exact values, in nats; some studies have not all of them."""

_DIGITS = 4
"""Decimals of the table of settings."""


def results(run: Run) -> pd.DataFrame:
    """Final values of every network: the columns of `networks`, and one column for each metric; NaN if it diverged.

    Args:
        run: A run of a `CodeStudy`.
    """
    networks, metrics = run.networks.to_pandas(), run.metrics.to_pandas()
    last = metrics[metrics["epoch"] == metrics["epoch"].max()]
    found = last.pivot(index="network", columns="metric", values="value")
    found = found.reindex(columns=[*VALUES, *(name for name in found.columns if name not in VALUES)])
    return networks.join(found, on="network")


def values_of(found: pd.DataFrame, setting: CodeSetting, name: str) -> np.ndarray:
    """Values of the networks of a setting, in the order of their seeds.

    Args:
        found: Rows, as `results` returns them.
        setting: The setting.
        name: Name of the metric.

    Returns:
        One value per network, NaN where it has none.
    """
    return found[found["setting"] == setting.label].sort_values("seed")[name].to_numpy(float)


def curves_of(run: Run, setting: CodeSetting, name: str) -> pd.DataFrame:
    """Values during training, one row per step and one column per network.

    Args:
        run: The run.
        setting: The setting.
        name: Name of the metric, such as `training information`.
    """
    networks, metrics = run.networks.to_pandas(), run.metrics.to_pandas()
    own = networks[networks["setting"] == setting.label]["network"]
    metrics = metrics[(metrics["metric"] == name) & metrics["network"].isin(own)]
    return metrics.pivot(index="epoch", columns="network", values="value")


def rows_of(run: Run, table: str, settings: Sequence[CodeSetting]) -> list[pd.DataFrame]:
    """Rows of a table that belong to the first network of each setting that has any; empty where none has.

    Args:
        run: The run.
        table: Name of the table.
        settings: The settings.
    """
    networks = run.networks.to_pandas()
    rows = run.table(table).to_pandas() if table in run.tables else pd.DataFrame({"network": []})
    found = []
    for setting in settings:
        own = rows[rows["network"].isin(networks[networks["setting"] == setting.label]["network"])]
        found.append(own[own["network"] == own["network"].min()])
    return found


def setting_table(study: CodeStudy, run: Run) -> pa.Table:
    """Arrange the exact values of all settings for a reader.

    Args:
        study: The study.
        run: The run.

    Returns:
        One row per setting: means over networks, in nats.
    """
    found, rows = results(run), []
    for setting in study.settings():
        own = {name: values_of(found, setting, name) for name in VALUES}
        known = {name: values[np.isfinite(values)] for name, values in own.items()}
        information = known.pop("information")
        row: dict[str, Any] = {
            "setting": setting.label,
            "method": METHOD_NAMES[setting.method],
            "networks": len(information),
            "target": setting.target,
        }
        if len(information):
            row |= {"information": information.mean(), "least": information.min(), "most": information.max()}
            row |= {"off target": None if setting.target is None else row["information"] - setting.target}
        row |= {name.replace("_", " "): values.mean() for name, values in known.items() if len(values)}
        rows.append(row)
    columns = dict.fromkeys(name for row in rows for name in row)
    shown = [
        {name: round(value, _DIGITS) if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]
    return pa.table({name: pa.array([row.get(name) for row in shown], from_pandas=True) for name in columns})
