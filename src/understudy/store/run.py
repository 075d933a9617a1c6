"""A run: trained in memory, or read back from its folder without the code that wrote it."""

from __future__ import annotations

import os
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy._atomic import atomic_folder, disk_errors
from understudy._errors import UserError
from understudy.store.arrays import Networks
from understudy.store.claims import Claim
from understudy.store.config import Config
from understudy.store.files import Files
from understudy.store.memory import Memory
from understudy.store.tables import Held, Stored, Table, dense, same_rows

if TYPE_CHECKING:
    import xarray as xr
    from pandas import DataFrame

    from understudy.data import Source
    from understudy.nets import Population


_SHOWN = 5
"""Rows that a notebook shows."""


class Run:
    """A finished run: its configuration, tables, weights and claims.

    `us.train` returns a run in memory, and `us.run` one in a folder; both have the same tables and methods. `save`
    writes a run to a folder.

    Args:
        folder: The run's folder, as `understudy run` printed it; or the contents of a run in memory.

    Raises:
        UserError: If the folder is not a run, or the run has not finished.
    """

    def __init__(self, folder: str | os.PathLike[str] | Memory) -> None:
        self._contents = folder if isinstance(folder, Memory) else Files(Path(folder))
        self._tables: dict[str, Stored | Held] = {}
        self._cache: dict[tuple[Any, ...], np.ndarray] = {}

    @property
    def in_memory(self) -> bool:
        """Whether the run is in memory only."""
        return isinstance(self._contents, Memory)

    @property
    def folder(self) -> Path:
        """The run's folder.

        Raises:
            UserError: If the run is in memory only.
        """
        if isinstance(self._contents, Memory):
            raise UserError("a run in memory has no folder; write it to one with run.save(FOLDER)")
        return self._contents.folder

    @property
    def where(self) -> str:
        """The run's folder, or that it is in memory, for messages."""
        return str(self._contents)

    @property
    def config(self) -> Config:
        """What fixed the run: the study's name (`train` for runs of `us.train`), the format and the options."""
        return self._contents.config

    @property
    def options(self) -> dict[str, Any]:
        """The options of the study, or how `us.train` was called.

        Raises:
            UserError: The configuration has none.
        """
        if "options" not in self.config:
            raise UserError(f"{self.where}: config.toml has no options; restore it, or move the folder away")
        options: dict[str, Any] = self.config["options"]
        return options

    @property
    def environment(self) -> dict[str, Any]:
        """Where and when the run was made: machine, versions, commit, seconds."""
        return self._contents.environment

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the run's tables."""
        return self._contents.tables

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The groups of networks, each with the number of its networks and a description of its inputs."""
        return self._contents.groups

    @cached_property
    def claims(self) -> list[Claim]:
        """The claims that the run decided."""
        file = "claims" if self.in_memory else str(self.folder / "claims.json")
        return [Claim.from_dict(row, file) for row in self._contents.claims]

    def require_sound(self) -> None:
        """Read what is small in the run, and the schema of its tables and weights.

        Raises:
            UserError: A file of the run cannot be read, or has other contents than it must have; the message names it.
        """
        if isinstance(self._contents, Files):
            _ = self.options
            self._contents.require_sound()

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

        Args:
            name: `networks`, `metrics`, `nodes`, or another table of the run.

        Raises:
            UserError: If the run has no such table.
        """
        if name not in self.tables:
            raise UserError(f"{self.where} has no table {name}; it has {', '.join(self.tables)}")
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
        at = "in memory" if self.in_memory else self.where
        if "networks" not in self.tables:
            return f"Run({self.config.get('study')}: tables {', '.join(self.tables)}, {at})"
        swept = ", ".join(f"{len(self.networks[name].unique())} {name}" for name in self.swept)
        count = f"{self.networks.num_rows:,} networks ({swept})"
        return f"Run({self.config.get('study')}: {count}, {at})"

    def _repr_html_(self) -> str:
        """Show the headline and the first rows of the first table, with the last losses, in a notebook."""
        rows = self.table(self.tables[0]).slice(0, _SHOWN).to_pandas()
        if self.tables[0] == "networks" and "metrics" in self.tables:
            for metric in sorted(self.metric_names & {"train_loss", "eval_loss"}):
                rows[metric] = self.series(metric)[:_SHOWN, -1]
        words = f"<p><b>{escape(repr(self))}</b></p><p>{escape(self._contents.headline)}</p>"
        return words + rows.to_html(index=False)

    def _stored(self, name: str) -> Stored | Held:
        if name not in self._tables:
            self._tables[name] = self._contents.table(name)
        return self._tables[name]

    def column(self, name: str) -> np.ndarray:
        """A column of `networks`, in the order of the networks.

        Args:
            name: Name of the column.
        """
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
        """One metric as a labelled array; NaN where a network diverged or does not exist.

        Args:
            metric: A metric of the table `metrics`; or a column of `nodes`, if `teacher` or `student` is among `dims`.
            dims: Names of dimensions separated by spaces, in the order wanted: columns of `networks`, or `network`;
                `epoch`; `layer`; and `teacher` or `student` for values of nodes. Without `epoch` the last recorded
                value is taken.
            diverged: Whether networks that diverged keep the values that they recorded before.
            **where: Columns of `networks` to select by, and `layer` or `epoch` to read one of them only.

        Returns:
            An array with the values of each dimension as coordinates.

        Raises:
            UserError: Several networks would have the same place, or a name is unknown.
        """
        return self.select().array(metric, dims, diverged=diverged, **where)

    def series(self, metric: str, layer: int = -1) -> np.ndarray:
        """Values [network, epoch] of one metric, read-only; NaN where nothing was recorded.

        Args:
            metric: Name of the metric.
            layer: Layer, counted from 0; −1 is the whole network.
        """
        key = ("series", metric, layer)
        if key not in self._cache:
            rows = self.metrics.filter((pc.field("metric") == metric) & (pc.field("layer") == layer))
            self._cache[key] = dense(rows, "value", self.networks.num_rows, self.epochs)
        return self._cache[key]

    def matched(self, role: str, column: str, layer: int = 0, epoch: int | None = None) -> np.ndarray:
        """Values [network, epoch, node] of one column of `nodes` (or [network, node] of one epoch), read-only.

        NaN where a network has fewer nodes or nothing was recorded.

        Args:
            role: `teacher`: nodes are teacher nodes, each with its best student; `student`: student nodes, each with
                its best teacher.
            column: Column of `nodes`, such as `correlation`.
            layer: Layer, counted from 0.
            epoch: One epoch. Default: all.
        """
        key = ("matched", role, column, layer, epoch)
        if key not in self._cache:
            wanted = {"role": role, "layer": layer} | ({} if epoch is None else {"epoch": epoch})
            rows = self._stored("nodes").read(("network", "epoch", role, column), **wanted)
            epochs = self.epochs if epoch is None else np.array([epoch])
            nodes = {role: self._node_count(role, layer)}
            values = dense(rows, column, self.networks.num_rows, epochs, nodes)
            self._cache[key] = values if epoch is None else values[:, 0]
        return self._cache[key]

    def _node_count(self, role: str, layer: int) -> int:
        """Nodes of the widest network, which may diverge, but has rows at the first epoch."""
        first = self._stored("nodes").read((role,), role=role, layer=layer, epoch=int(self.epochs[0]))
        return (pc.max(first[role]).as_py() if first.num_rows else -1) + 1

    def pairs(self, network: int | None = None, layer: int = 0) -> np.ndarray:
        """Correlations of every pair of nodes, where the study recorded them.

        Args:
            network: Index of the network. Default: all networks.
            layer: Layer, counted from 0.

        Returns:
            [epoch, teacher, student] of one network, or [network, epoch, teacher, student] of all.
        """
        rows = self._pairs.filter(pc.field("layer") == layer)
        if network is None:
            nodes = {role: (pc.max(rows[role]).as_py() or 0) + 1 for role in ("teacher", "student")}
            return dense(rows, "correlation", self.networks.num_rows, self.epochs, nodes)
        rows = rows.filter(pc.field("network") == network)
        where = [np.searchsorted(self.epochs, rows["epoch"]), rows["teacher"].to_numpy(), rows["student"].to_numpy()]
        found = np.full((len(self.epochs), where[1].max() + 1, where[2].max() + 1), np.nan)
        found[tuple(where)] = rows["correlation"]
        return found

    @cached_property
    def _pairs(self) -> pa.Table:
        columns = ("network", "epoch", "layer", "teacher", "student", "correlation")
        return self._stored("nodes").read(columns, role="pair")

    @property
    def saved(self) -> list[str]:
        """The names under which networks are kept; none for studies that keep only what they measured."""
        return self._contents.saved

    def weights(self, epoch: int | str) -> list[Population]:
        """The networks at an epoch, one population per group.

        Args:
            epoch: An epoch: the first and the last of training are kept, and those that a study saves. Or a name:
                `teacher`, `epoch.N`, and for computed studies the names that they save, such as `start` and `end`.

        Raises:
            UserError: If no weights of this name were kept.
        """
        return self._contents.weights(f"epoch.{epoch}" if isinstance(epoch, int) else epoch)

    @property
    def students(self) -> Population | list[Population]:
        """The students after the last epoch, a diverged network as it was before it diverged.

        One population, or several: as `us.train` was called, or the groups of a study.

        Raises:
            UserError: If the run trained no students.
        """
        epochs = [int(name[6:]) for name in self._contents.saved if name.startswith("epoch.") and name[6:].isdigit()]
        if not epochs:
            raise UserError(
                f"{self.where} has no trained students; it has weights of {', '.join(self._contents.saved)}"
            )
        groups = self.weights(max(epochs))
        return groups if len(groups) > 1 or isinstance(self.options.get("students"), list) else groups[0]

    @property
    def teacher(self) -> Population:
        """The teachers, paired by index with the students of each group; or one teacher of all students.

        Raises:
            UserError: If the groups have different teachers.
        """
        from understudy.store.weights import shared_networks

        shared = shared_networks(self.weights("teacher"))
        if shared is None:
            raise UserError(f"the groups of {self.where} have different teachers; see run.weights('teacher')")
        return shared

    @property
    def sources(self) -> list[Source]:
        """The inputs of each group, which a folder describes.

        Raises:
            UserError: If the folder does not describe them.
        """
        return self._contents.sources

    @property
    def data(self) -> Source:
        """The inputs of all networks.

        Raises:
            UserError: If the folder does not describe them, or the groups have different inputs.
        """
        if any(group["data"] != self.groups[0]["data"] for group in self.groups):
            raise UserError(f"the groups of {self.where} have different inputs; see run.sources")
        return self.sources[0]

    def save(self, folder: str | os.PathLike[str]) -> Run:
        """Write the run to a folder, complete or not at all.

        Args:
            folder: The folder, which must not exist or be empty. Where it holds this run already, nothing is written.

        Returns:
            The run in the folder.

        Raises:
            UserError: The folder holds something else, or cannot be written.
        """
        path = Path(folder)
        with disk_errors(path, "choose another folder"):
            if path.is_dir() and any(path.iterdir()):
                if (path / "config.toml").is_file() and self._equals(Run(path)):
                    return Run(path)
                raise UserError(f"{path} holds other files or another run; choose a folder that is empty, or a new one")
            with atomic_folder(path) as temporary:
                self._contents.write(temporary)
        return Run(path)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the report: what was found, figures, and a table of which student learned which teacher node.

        Args:
            path: File to write, such as `run.html`: one page that opens without a network. Default: `report.html` in
                the run's folder, together with its figures for print and, for a study, its claims.

        Returns:
            The page.

        Raises:
            UserError: A run in memory without a path, a study that is not known, or a file that cannot be written.
        """
        # By name: the lab, which knows the studies, imports this package.
        page: Path = import_module("understudy.lab.write_report").report(self, path)
        return page

    def _equals(self, other: Run) -> bool:
        """Whether another run has the same configuration and the same rows."""
        return (self.config, self.tables) == (other.config, other.tables) and all(
            same_rows(self.table(name), other.table(name)) for name in self.tables
        )
