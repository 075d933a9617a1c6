"""A run, read back from its folder without the code that wrote it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy._errors import UserError
from understudy.store.arrays import Networks
from understudy.store.claims import Claim
from understudy.store.config import Config, from_toml
from understudy.store.tables import Stored, Table

if TYPE_CHECKING:
    import xarray as xr
    from pandas import DataFrame

    from understudy.nets import Population


_SHOWN = 5
"""Rows that a notebook shows."""


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished run: its configuration, tables, claims and weights.

    Args:
        folder: The run's folder, as `understudy run` printed it.

    Raises:
        UserError: If the folder is no run, or the run has not finished.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        if not (self.folder / "config.toml").is_file():
            raise UserError(
                f"{self.folder} is not a run (it has no config.toml); give a folder such as runs/two-layer/3f2a…, "
                "which `understudy run` prints at its end"
            )
        complete = (self.folder / "environment.json").is_file() and (self.folder / "weights.safetensors").is_file()
        if not complete or any(not (self.folder / f"{name}.parquet").is_file() for name in self.tables):
            study = self.config.get("study", "STUDY")
            raise UserError(f"{self.folder} has not finished; run `understudy run {study}` with its options again")

    @cached_property
    def config(self) -> Config:
        """What fixed the run: the study's name, the format and the options."""
        return from_toml(self.folder / "config.toml")

    @property
    def options(self) -> dict[str, Any]:
        """The options of the study."""
        return self.config["options"]

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where and when the run was made: machine, versions, commit, seconds."""
        return self._json("environment.json")

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the run's tables."""
        return tuple(self.environment.get("tables", ("networks", "metrics", "nodes")))

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """The groups of networks, each with the number of its networks and a description of its inputs."""
        return self._json("groups.json") if (self.folder / "groups.json").is_file() else []

    @cached_property
    def claims(self) -> list[Claim]:
        """The claims that the run decided."""
        rows = self._json("claims.json") if (self.folder / "claims.json").is_file() else []
        return [Claim.from_dict(row) for row in rows]

    def _json(self, name: str) -> Any:
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{path} is not JSON ({error}); move the folder away and run the same command") from error

    @cached_property
    def networks(self) -> Table:
        """One row per network: its swept parameters, its seed, and the step at which it diverged."""
        return self.table("networks")

    @cached_property
    def metrics(self) -> Table:
        """One row per network, epoch, layer and metric; layer −1 is the whole network."""
        return self.table("metrics")

    @cached_property
    def nodes(self) -> Table:
        """One row per node of every network at every epoch, with its partner."""
        return self.table("nodes")

    def table(self, name: str) -> Table:
        """A table of the run by name.

        Raises:
            UserError: If the run has no such table.
        """
        if name not in self.tables:
            raise UserError(f"{self.folder} has no table {name}; it has {', '.join(self.tables)}")
        return self._stored(name).read()

    def to_pandas(self, table: str = "nodes") -> DataFrame:
        """A table of the run as a data frame, with what distinguishes the networks in further columns.

        Args:
            table: `networks`, `metrics`, `nodes`, or another table of the run.

        Returns:
            The rows of the table; where it has a column `network`, also the columns of `networks`, such as `seed`.

        Raises:
            UserError: If the run has no such table.
        """
        frame = self.table(table).to_pandas()
        if table == "networks" or "network" not in frame or "networks" not in self.tables:
            return frame
        networks = self.networks.to_pandas().drop(columns=["diverged_at"], errors="ignore")
        return frame.merge(networks, on="network", how="left", suffixes=("", "_of_network"), validate="many_to_one")

    def __repr__(self) -> str:
        if "networks" not in self.tables:
            return f"Run({self.config.get('study')}: tables {', '.join(self.tables)}, {self.folder})"
        swept = ", ".join(f"{len(self.networks[name].unique())} {name}" for name in self.swept)
        count = f"{self.networks.num_rows:,} networks ({swept})"
        return f"Run({self.config.get('study')}: {count}, {self.folder})"

    def _repr_html_(self) -> str:
        """Show the headline and the first rows of the first table in a notebook."""
        headline = self.folder / "headline.txt"
        words = headline.read_text(encoding="utf-8").strip() if headline.is_file() else ""
        rows = self.table(self.tables[0]).slice(0, _SHOWN).to_pandas().to_html(index=False)
        return f"<p><b>{escape(repr(self))}</b></p><p>{escape(words)}</p>{rows}"

    def _stored(self, name: str) -> Stored:
        if name not in self._files:
            self._files[name] = Stored(self.folder / f"{name}.parquet")
        return self._files[name]

    @cached_property
    def _files(self) -> dict[str, Stored]:
        return {}

    def column(self, name: str) -> np.ndarray:
        """A column of `networks`, in the order of the networks."""
        return self.networks[name].to_numpy()

    @cached_property
    def swept(self) -> list[str]:
        """The columns of `networks` in which networks differ, seeds among them."""
        names = [name for name in self.networks.column_names if name not in ("network", "diverged_at")]
        return [name for name in names if len(self.networks[name].unique()) > 1] or names[:1]

    @cached_property
    def epochs(self) -> np.ndarray:
        """All epochs (or steps) at which anything was recorded."""
        return np.unique(self.metrics["epoch"].to_numpy())

    @cached_property
    def metric_names(self) -> frozenset[str]:
        """The metrics that the run recorded."""
        return frozenset(self.metrics["metric"].unique().to_pylist())

    def select(self, **where: Any) -> Networks:
        """Select networks by columns of `networks`.

        Args:
            **where: The value of each column, or a list, tuple or array of allowed values.

        Returns:
            The networks, from which `array`, `end`, `column` and `values` read.
        """
        return Networks(self, np.arange(self.networks.num_rows)).select(**where)

    def array(self, metric: str, dims: str = "network epoch", *, diverged: bool = False, **where: Any) -> xr.DataArray:
        """One metric as a labelled array: see `Networks.array`."""
        return self.select().array(metric, dims, diverged=diverged, **where)

    @cached_property
    def _cache(self) -> dict[tuple[Any, ...], np.ndarray]:
        return {}

    def series(self, metric: str, layer: int = -1) -> np.ndarray:
        """[network, epoch] of one metric, read-only; NaN where nothing was recorded."""
        key = ("series", metric, layer)
        if key not in self._cache:
            rows = self.metrics.filter((pc.field("metric") == metric) & (pc.field("layer") == layer))
            self._cache[key] = self._dense(rows, self.epochs, (), "value")
        return self._cache[key]

    def matched(self, role: str, column: str, layer: int = 0, epoch: int | None = None) -> np.ndarray:
        """[network, epoch, node] of one column of `nodes` (or [network, node] of one epoch), read-only.

        Role `teacher`: nodes are teacher nodes, each with its best student; role `student` the other way round. NaN
        where a network has fewer nodes or nothing was recorded.
        """
        key = ("matched", role, column, layer, epoch)
        if key not in self._cache:
            wanted = {"role": role, "layer": layer} | ({} if epoch is None else {"epoch": epoch})
            rows = self._stored("nodes").read(("network", "epoch", role, column), **wanted)
            epochs = self.epochs if epoch is None else np.array([epoch])
            dense = self._dense(rows, epochs, (role,), column, (self._node_count(role, layer),))
            self._cache[key] = dense if epoch is None else dense[:, 0]
        return self._cache[key]

    def _node_count(self, role: str, layer: int) -> int:
        """Nodes of the widest network, which may diverge, but has rows at the first epoch."""
        first = self._stored("nodes").read((role,), role=role, layer=layer, epoch=int(self.epochs[0]))
        return (pc.max(first[role]).as_py() if first.num_rows else -1) + 1

    def _dense(
        self, rows: pa.Table, epochs: np.ndarray, nodes: Sequence[str], column: str, shape: tuple[int, ...] = ()
    ) -> np.ndarray:
        """[network, epoch, node …] of a column of rows."""
        dense = np.full((self.networks.num_rows, len(epochs), *shape), np.nan)
        place = np.zeros(int(epochs.max(initial=0)) + 1, int)
        place[epochs] = np.arange(len(epochs))
        where = rows["network"].to_numpy(), place[rows["epoch"].to_numpy()], *(rows[name].to_numpy() for name in nodes)
        dense[where] = rows[column].to_numpy()
        dense.flags.writeable = False
        return dense

    def pairs(self, network: int, layer: int = 0) -> np.ndarray:
        """[epoch, teacher, student] correlations of one network, where the study recorded every pair."""
        rows = self._pairs.filter((pc.field("layer") == layer) & (pc.field("network") == network))
        where = [np.searchsorted(self.epochs, rows["epoch"]), rows["teacher"].to_numpy(), rows["student"].to_numpy()]
        dense = np.full((len(self.epochs), where[1].max() + 1, where[2].max() + 1), np.nan)
        dense[tuple(where)] = rows["correlation"]
        return dense

    @cached_property
    def _pairs(self) -> pa.Table:
        columns = ("network", "epoch", "layer", "teacher", "student", "correlation")
        return self._stored("nodes").read(columns, role="pair")

    def weights(self, who: str) -> list[Population]:
        """The saved populations, one per group.

        Args:
            who: `teacher`, or the students of an epoch, `epoch.N` (the first, the last and those the study saves); for
                computed studies the names that they save, such as `teacher`, `start` and `end`.
        """
        from understudy.store.weights import read_weights

        return read_weights(self.folder / "weights.safetensors", who)
