"""Reads the tables of a run of `movie-sentences`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Float

from understudy.store import Run


def by_setting(run: Run, table: str, column: str, **where: str) -> dict[str, Float[np.ndarray, "net"]]:
    """Values of a column of a table with a row per network, by setting and seed by seed.

    Args:
        run: The run.
        table: Name of the table.
        column: Name of the column.
        **where: Values that other columns of the table must have, such as `set="test"`.

    Returns:
        Values by label of the setting, in the order of the networks; NaN for networks that diverged.
    """
    networks = run.networks.to_pandas()
    found = run.table(table).to_pandas() if table in run.tables else pd.DataFrame({"network": [], column: []})
    for name, value in where.items():
        found = found[found[name] == value]
    values = networks["network"].map(found.set_index("network")[column]).astype(float)
    return {str(setting): values[rows.index].to_numpy() for setting, rows in networks.groupby("setting", sort=False)}


def targets(run: Run) -> dict[str, float]:
    """Targets of the settings that have one, in nats.

    Args:
        run: The run.
    """
    networks = run.networks.to_pandas().drop_duplicates("setting").dropna(subset="target")
    return dict(zip(networks["setting"], networks["target"].astype(float), strict=True))


def sentence_table(run: Run) -> pa.Table:
    """Arrange reconstructions of test sentences for a reader: one row per network and reconstruction.

    Args:
        run: The run.
    """
    if "sentences" not in run.tables:
        return pa.table({})
    networks = run.networks.to_pandas().set_index("network")
    rows = run.table("sentences").to_pandas()
    rows = rows[rows["kind"].isin(("mean", "drawn"))]
    about = networks.loc[rows["network"]]
    columns = {
        "network": rows["network"].to_numpy(np.int32),
        "setting": about["setting"].to_list(),
        "seed": about["seed"].to_numpy(),
        "code": rows["kind"].to_list(),
        "sentence": rows["given"].to_list(),
        "reconstruction": rows["text"].to_list(),
        "in place": rows["matching"].to_numpy(),
        "exact": rows["exact"].map({True: "yes", False: "no"}).to_list(),
    }
    return pa.table(columns)
