"""A run, read back from its folder without the code that wrote it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import UserError
from understudy.store.claims import Claim
from understudy.store.config import Config, from_toml
from understudy.store.tables import Stored

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
        return self._stored(name).read()

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
        """The columns of `networks` that set networks apart, seeds among them: not those with one value for all."""
        names = [name for name in self.networks.column_names if name not in ("network", "diverged_at")]
        return [name for name in names if len(self.networks[name].unique()) > 1] or names[:1]

    @cached_property
    def epochs(self) -> np.ndarray:
        return np.unique(self.metrics["epoch"].to_numpy())

    @cached_property
    def _kept(self) -> dict[tuple[Any, ...], np.ndarray]:
        """What was read before, and is asked for again and again."""
        return {}

    def series(self, metric: str, layer: int = -1) -> np.ndarray:
        """[network, epoch] of one metric, not to be written to; NaN where nothing was recorded."""
        key = ("series", metric, layer)
        if key not in self._kept:
            rows = self.metrics.filter((pc.field("metric") == metric) & (pc.field("layer") == layer))
            self._kept[key] = self._dense(rows, self.epochs, (), "value")
        return self._kept[key]

    def matched(self, role: str, column: str, layer: int = 0, epoch: int | None = None) -> np.ndarray:
        """[network, epoch, node] of one column of `nodes` (or [network, node] of one epoch), NaN where there is none.

        Role `teacher`: nodes are teacher nodes, each with its best student; role `student` the other way round. Not to
        be written to.
        """
        key = ("matched", role, column, layer, epoch)
        if key not in self._kept:
            wanted = {"role": role, "layer": layer} | ({} if epoch is None else {"epoch": epoch})
            rows = self._stored("nodes").read(("network", "epoch", role, column), **wanted)
            epochs = self.epochs if epoch is None else np.array([epoch])
            dense = self._dense(rows, epochs, (role,), column, (self._node_count(role, layer),))
            self._kept[key] = dense if epoch is None else dense[:, 0]
        return self._kept[key]

    def _node_count(self, role: str, layer: int) -> int:
        """Of the widest network, which may not live to the last epoch, but is there at the first."""
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
        """The populations, a group each, of `teacher` or of the students at `epoch.N` (first, last and kept ones); of
        studies on exact losses `teacher`, `start` and `end`."""
        from understudy.store.weights import read_weights

        return read_weights(self.folder / "weights.safetensors", who)
