"""A run, read back from its folder without the code that wrote it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from understudy._errors import UserError
from understudy.store.claims import Claim
from understudy.store.config import Config, from_toml

if TYPE_CHECKING:
    from understudy.nets import Population


@dataclass(frozen=True, eq=False)
class Run:
    """A run that has been made: its configuration, tables, claims and weights."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        if not (self.folder / "config.toml").is_file():
            raise UserError(
                f"{self.folder}: is not a run (it has no config.toml); give a folder such as runs/two-layer/3f2a…, "
                "which `understudy run` prints at its end"
            )
        for file in ("networks.parquet", "metrics.parquet", "nodes.parquet", "weights.safetensors", "environment.json"):
            if not (self.folder / file).is_file():
                study = self.config.get("study", "STUDY")
                raise UserError(f"{self.folder}: has not finished; run `understudy run {study}` with its options again")

    @cached_property
    def config(self) -> Config:
        return from_toml(self.folder / "config.toml")

    @property
    def options(self) -> dict[str, Any]:
        return self.config["options"]

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self._json("environment.json")

    @cached_property
    def claims(self) -> list[Claim]:
        rows = self._json("claims.json") if (self.folder / "claims.json").is_file() else []
        return [Claim.from_dict(row) for row in rows]

    def _json(self, name: str) -> Any:
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{path}: is not JSON ({error}); move the folder away and run the same command") from error

    @cached_property
    def networks(self) -> pa.Table:
        return self._table("networks")

    @cached_property
    def metrics(self) -> pa.Table:
        return self._table("metrics")

    @cached_property
    def nodes(self) -> pa.Table:
        return self._table("nodes")

    def _table(self, name: str) -> pa.Table:
        path = self.folder / f"{name}.parquet"
        try:
            return pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"{path}: cannot be read ({error}); move the folder away and run the same command"
            ) from error

    def column(self, name: str) -> np.ndarray:
        """A column of `networks`, in the order of the networks."""
        return self.networks[name].to_numpy()

    @cached_property
    def epochs(self) -> np.ndarray:
        return np.unique(self.metrics["epoch"].to_numpy())

    def series(self, metric: str, layer: int = -1) -> np.ndarray:
        """[network, epoch] of one metric; NaN where nothing was recorded."""
        rows = self.metrics.filter((pc.field("metric") == metric) & (pc.field("layer") == layer))
        dense = np.full((self.networks.num_rows, len(self.epochs)), np.nan)
        dense[rows["network"].to_numpy(), np.searchsorted(self.epochs, rows["epoch"].to_numpy())] = rows["value"]
        return dense

    @cached_property
    def _node_counts(self) -> dict[tuple[str, int], int]:
        """Nodes by role and layer, over all epochs: the widest networks may not live to the last."""
        most = self.nodes.group_by(["role", "layer"]).aggregate([("teacher", "max"), ("student", "max")])
        return {(row["role"], row["layer"]): (row.get(f"{row['role']}_max") or 0) + 1 for row in most.to_pylist()}

    def matched(self, role: str, column: str, layer: int = 0, epoch: int | None = None) -> np.ndarray:
        """[network, epoch, node] of one column of `nodes` (or [network, node] of one epoch), NaN where there is none.

        Role `teacher`: nodes are teacher nodes, each with its best student; role `student` the other way round.
        """
        wanted = (pc.field("role") == role) & (pc.field("layer") == layer)
        rows = self.nodes.filter(wanted if epoch is None else wanted & (pc.field("epoch") == epoch))
        node, epochs = rows[role].to_numpy(), self.epochs if epoch is None else np.array([epoch])
        dense = np.full((self.networks.num_rows, len(epochs), self._node_counts.get((role, layer), 0)), np.nan)
        dense[rows["network"].to_numpy(), np.searchsorted(epochs, rows["epoch"].to_numpy()), node] = rows[column]
        return dense if epoch is None else dense[:, 0]

    def pairs(self, network: int, layer: int = 0) -> np.ndarray:
        """[epoch, teacher, student] correlations of one network, where the study recorded every pair."""
        wanted = (pc.field("role") == "pair") & (pc.field("layer") == layer) & (pc.field("network") == network)
        rows = self.nodes.filter(wanted)
        where = [np.searchsorted(self.epochs, rows["epoch"]), rows["teacher"].to_numpy(), rows["student"].to_numpy()]
        dense = np.full((len(self.epochs), where[1].max() + 1, where[2].max() + 1), np.nan)
        dense[tuple(where)] = rows["correlation"]
        return dense

    def weights(self, who: str) -> list[Population]:
        """The populations, a group each, of `teacher` or of the students at `epoch.N` (first, last and kept ones)."""
        from understudy.store.weights import read_weights

        return read_weights(self.folder / "weights.safetensors", who)
