"""Final losses and recovered nodes of a run, one row per setting, for the terminal."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from understudy.store import Run


class SummaryRow(NamedTuple):
    """Networks that differ only in their seed, and how they ended."""

    parameters: dict[str, Any]
    networks: int
    diverged: int
    loss: float
    """Median evaluation loss at the end of the networks that did not diverge; NaN where none has one."""
    recovered: float
    """Share of teacher nodes recovered at the end, mean over networks and layers."""


def summarise(run: Run) -> list[SummaryRow]:
    """Summarise a run by settings, in the order of training; empty if the run trained nothing."""
    if "metrics" not in run.tables or "eval_loss" not in run.metric_names:
        return []
    names = [name for name in run.networks.column_names if name not in ("network", "seed", "diverged_at")]
    swept = [name for name in run.swept if name in names] or names[:1]
    rows, alive = run.networks.to_pylist(), run.select().alive
    loss = run.array("eval_loss", "network").to_numpy()
    each = run.array("recovered", "network layer").to_numpy()
    # Some networks of a run may have fewer layers than others.
    recovered = np.nansum(each, axis=1) / np.maximum(np.isfinite(each).sum(axis=1), 1)
    settings: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in rows:
        settings[tuple(row[name] for name in swept)].append(row["network"])
    found = []
    for values, networks in settings.items():
        lost = int((~alive[networks]).sum())
        ended = [n for n in networks if alive[n] and not np.isnan(loss[n])]
        middle, share = (np.median(loss[ended]), np.mean(recovered[ended])) if ended else (np.nan, np.nan)
        parameters = dict(zip(swept, values, strict=True))
        found.append(SummaryRow(parameters, len(networks), lost, float(middle), float(share)))
    return found
