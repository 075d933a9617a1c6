"""Select networks of a run by their parameters, and read metrics as labelled arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from understudy._errors import UserError

if TYPE_CHECKING:
    import xarray as xr

    from understudy.store.run import Run

_ROLES = ("teacher", "student")


@dataclass(frozen=True, eq=False)
class Networks:
    """Some of the networks of a run, in the order of its table `networks`."""

    run: Run
    index: np.ndarray
    """Their numbers."""

    def __len__(self) -> int:
        return len(self.index)

    def select(self, **where: Any) -> Networks:
        """Select the networks whose columns have the given value, or one of the given values."""
        keep = np.ones(len(self.index), bool)
        for name, value in where.items():
            several = isinstance(value, list | tuple | set | np.ndarray)
            allowed = list(value) if several else [value]
            keep &= np.array([item in allowed for item in self.column(name).tolist()], bool)
        return Networks(self.run, self.index[keep])

    def column(self, name: str) -> np.ndarray:
        """A column of `networks`."""
        if name not in self.run.networks.column_names:
            known = ", ".join(self.run.networks.column_names)
            raise UserError(f"{self.run.folder}: networks have no column {name}; they have {known}")
        return self.run.column(name)[self.index]

    def values(self, name: str) -> list[Any]:
        """The different values of a column: numbers in their order, words as they first appear."""
        found = list(dict.fromkeys(self.column(name).tolist()))
        return found if any(isinstance(value, str) or value is None for value in found) else sorted(found)

    @property
    def alive(self) -> np.ndarray:
        """Which of them did not diverge."""
        return self.run.networks["diverged_at"].is_null().to_numpy()[self.index]

    def array(self, metric: str, dims: str = "network epoch", *, diverged: bool = False, **where: Any) -> xr.DataArray:
        """One metric as a labelled array; NaN where a network diverged or does not exist.

        Args:
            metric: A metric of the table `metrics`; or a column of `nodes`, if `teacher` or `student` is among `dims`.
            dims: Names of dimensions separated by spaces, in the order wanted: columns of `networks` (together they
                must tell the networks apart), or `network` for all of them; `epoch`; `layer`; and `teacher` or
                `student` for values of nodes. Without `epoch` the last recorded value of each network is taken.
            diverged: Whether networks that diverged keep the values that they recorded before.
            **where: Columns of `networks` to select by, and `layer` or `epoch` to read one of them only. Without
                `layer` the lowest recorded layer is read (−1 for metrics of whole networks).

        Returns:
            An array with the values of each dimension as coordinates, and where networks are spread over several
            dimensions a coordinate `network` with their numbers (−1 where there is none or it diverged).

        Raises:
            UserError: If several networks would have the same place, or a name is unknown.
        """
        import xarray as xr

        names = dims.split()
        layer, epoch = where.pop("layer", None), where.pop("epoch", None)
        some = self.select(**where)
        role = next((name for name in names if name in _ROLES and name not in self.run.networks.column_names), None)
        read = _read_nodes if role else _read_metric
        values, coordinates = read(some, metric, role or "", layer if "layer" not in names else "all", epoch)
        if "epoch" not in names:
            values, coordinates = _last(values, coordinates)
        shown = some.alive | diverged
        values = np.where(shown.reshape(-1, *(1,) * (values.ndim - 1)), values, np.nan)
        swept = [name for name in names if name not in coordinates]
        if swept == ["network"]:
            found = xr.DataArray(values, {"network": some.index} | coordinates, ("network", *coordinates))
            return found.transpose(*names)
        axes = {name: some.values(name) for name in swept}
        places = some._places(axes)
        spread = np.full((*map(len, axes.values()), *values.shape[1:]), np.nan)
        spread[places] = values
        number = np.full([len(axis) for axis in axes.values()], -1)
        number[places] = np.where(shown, some.index, -1)
        found = xr.DataArray(spread, axes | coordinates, (*axes, *coordinates))
        return found.assign_coords(network=(list(axes), number)).transpose(*names)

    def _places(self, axes: dict[str, list[Any]]) -> tuple[list[int], ...]:
        """The place of each network along the axes."""
        places = tuple([axis.index(value) for value in self.column(name).tolist()] for name, axis in axes.items())
        if len(set(zip(*places, strict=True))) < len(self):
            others = [name for name in self.run.swept if name not in axes and len(self.values(name)) > 1]
            raise UserError(
                f"several networks have the same {', '.join(axes) or 'place'}; name {' or '.join(others) or 'more'} "
                "among the dimensions, or select one value of it"
            )
        return places

    def end(self, metric: str, layer: int = -1) -> np.ndarray:
        """[network]: the last recorded value of a metric; NaN where a network diverged."""
        return self.array(metric, "network", layer=layer).to_numpy()

    def start(self, metric: str, layer: int = -1) -> np.ndarray:
        """[network]: the first recorded value of a metric; NaN where a network diverged."""
        return self.array(metric, "network epoch", layer=layer).isel(epoch=0).to_numpy()


def _read_metric(some: Networks, metric: str, role: str, layer: Any, epoch: int | None) -> tuple[np.ndarray, Any]:
    """[network, (layer), epoch] of a metric, with the epochs and layers at which these networks have rows."""
    run = some.run
    key = ("rows", metric)
    if key not in run._cache:
        rows = run.metrics.filter(pc.field("metric") == metric).select(["network", "epoch", "layer"])
        run._cache[key] = np.stack([rows[name].to_numpy() for name in rows.column_names])
    _, epochs_of, layers_of = run._cache[key][:, np.isin(run._cache[key][0], some.index)]
    if metric not in run.metric_names:
        raise UserError(f"{run.folder} has no metric {metric}; it has {', '.join(sorted(run.metric_names))}")
    epochs = np.unique(epochs_of) if epoch is None else np.array([epoch])
    at = np.searchsorted(run.epochs, epochs)
    if layer == "all":
        layers = np.unique(layers_of[layers_of >= 0])
        each = [run.series(metric, int(one))[np.ix_(some.index, at)] for one in layers]
        stacked = np.stack(each, 1) if each else np.zeros((len(some), 0, len(at)))
        return stacked, {"layer": layers, "epoch": epochs}
    lowest = layers_of.min() if len(layers_of) else 0
    return run.series(metric, int(lowest if layer is None else layer))[np.ix_(some.index, at)], {"epoch": epochs}


def _read_nodes(some: Networks, column: str, role: str, layer: Any, epoch: int | None) -> tuple[np.ndarray, Any]:
    """[network, epoch, node] of a column of `nodes` in one layer."""
    run = some.run
    if layer == "all":
        raise UserError("values of nodes are read one layer at a time: give layer=… instead of the dimension layer")
    values = run.matched(role, column, layer or 0, epoch)[some.index]
    if epoch is None:
        return values, {"epoch": run.epochs, role: np.arange(values.shape[-1])}
    return values[:, None], {"epoch": np.array([epoch]), role: np.arange(values.shape[-1])}


def _last(values: np.ndarray, coordinates: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """The values at the last epoch that each network recorded, without the dimension of epochs."""
    axis = 1 + list(coordinates).index("epoch")
    if not values.shape[axis]:
        values = np.full((*values.shape[:axis], 1, *values.shape[axis + 1 :]), np.nan)
    there = ~np.isnan(values)
    last = values.shape[axis] - 1 - np.argmax(np.flip(there, axis), axis)
    taken = np.take_along_axis(values, np.expand_dims(last, axis), axis).squeeze(axis)
    return taken, {name: value for name, value in coordinates.items() if name != "epoch"}
