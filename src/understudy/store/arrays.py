"""Select networks of a run by their parameters, and read metrics as labelled arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
            raise UserError(f"{self.run.where}: networks have no column {name}; they have {known}")
        return self.run.column(name)[self.index]

    def values(self, name: str) -> list[Any]:
        """The different values of a column: numbers in their order, words as they first appear."""
        return distinct(self.column(name).tolist())

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
        labels = {name: some.column(name).tolist() for name in swept}

        def advice() -> str:
            others = [name for name in self.run.swept if name not in swept and len(some.values(name)) > 1]
            return f"name {' or '.join(others) or 'more'} among the dimensions, or select one value of it"

        found = spread(values, labels, ("network", np.where(shown, some.index, -1)), advice, coordinates)
        return found.transpose(*names)

    def end(self, metric: str, layer: int = -1) -> np.ndarray:
        """Last recorded value of a metric, [network]; NaN where a network diverged."""
        return self.array(metric, "network", layer=layer).to_numpy()

    def start(self, metric: str, layer: int = -1) -> np.ndarray:
        """First recorded value of a metric, [network]; NaN where a network diverged."""
        return self.array(metric, "network epoch", layer=layer).isel(epoch=0).to_numpy()


def distinct(labels: Sequence[Any]) -> list[Any]:
    """The different labels: numbers in their order, words as they first appear."""
    found = list(dict.fromkeys(labels))
    return found if any(isinstance(label, str) or label is None for label in found) else sorted(found)


def spread(
    values: np.ndarray,
    labels: Mapping[str, Sequence[Any]],
    numbers: tuple[str, np.ndarray],
    advice: Callable[[], str],
    coordinates: Mapping[str, Any] | None = None,
) -> xr.DataArray:
    """Spread rows of values over one axis per kind of label, with the (named) number of each row as a coordinate."""
    import xarray as xr

    axes = {name: distinct(each) for name, each in labels.items()}
    known = [{label: place for place, label in enumerate(axis)} for axis in axes.values()]
    places = tuple([place[label] for label in each] for place, each in zip(known, labels.values(), strict=True))
    if len(set(zip(*places, strict=True))) < len(values):
        raise UserError(f"several {numbers[0]}s have the same {', '.join(axes) or 'place'}; {advice()}")
    shape = tuple(map(len, axes.values()))
    dense, number = np.full((*shape, *values.shape[1:]), np.nan), np.full(shape, -1)
    dense[places], number[places] = values, numbers[1]
    found = xr.DataArray(dense, axes | dict(coordinates or {}), (*axes, *(coordinates or ())))
    return found.assign_coords({numbers[0]: (list(axes), number)})


def _read_metric(some: Networks, metric: str, role: str, layer: Any, epoch: int | None) -> tuple[np.ndarray, Any]:
    """Values [network, (layer), epoch] of a metric, with the epochs and layers at which these networks have rows."""
    run = some.run
    key = ("rows", metric)
    if key not in run._cache:
        rows = run.metrics.filter(pc.field("metric") == metric).select(["network", "epoch", "layer"])
        run._cache[key] = np.stack([rows[name].to_numpy() for name in rows.column_names])
    _, epochs_of, layers_of = run._cache[key][:, np.isin(run._cache[key][0], some.index)]
    if metric not in run.metric_names:
        raise UserError(f"{run.where} has no metric {metric}; it has {', '.join(sorted(run.metric_names))}")
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
    """Values [network, epoch, node] of a column of `nodes` in one layer."""
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
