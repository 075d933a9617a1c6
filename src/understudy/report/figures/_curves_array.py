"""Curves from labelled arrays: summaries over networks, arranged in panels and lines."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from understudy._numbers import number
from understudy.report import style
from understudy.report.figures.curves import Panel, Series
from understudy.report.story import counted

if TYPE_CHECKING:
    import xarray as xr

Dimensions = str | tuple[str, ...] | None
"""Name of a dimension, names of several that are taken together, or none."""
Colours = Literal["layers", "categories", "multiples"] | Sequence[str]


def arrange(
    array: xr.DataArray,
    *,
    name: str,
    roles: tuple[Dimensions, Dimensions, Dimensions, Dimensions, str],
    band: str | None,
    titles: Mapping[Any, str],
    labels: Mapping[Any, str],
    x_name: str,
    colours: Colours,
    axes: dict[str, Any],
) -> tuple[Panel, ...]:
    """Panels of summarised series; `roles` are the dimensions of panels, lines, styles, networks and x."""
    groups = [_names(role) for role in roles]
    _validate(array, groups)
    dims = [dim for group in groups for dim in group]
    sizes = [int(np.prod([array.sizes[dim] for dim in group])) for group in groups]
    values = array.transpose(*dims).values.reshape(sizes)
    network = None
    if "network" in array.coords and groups[3]:
        numbers = array.coords["network"].broadcast_like(array).transpose(*dims).values.reshape(sizes)
        network = np.where(np.isnan(numbers), -1, numbers).astype(int)
    there = np.isfinite(values).any(axis=(0, 1, 2, 3))
    values, x = values[..., there], _coordinate(array, groups[4][0])[there]
    middle, low, high = _summaries(values, band if groups[3] else None, log=bool(axes.get("log_y")))
    panels_at, lines_at, styles_at = (_coordinates(array, group) for group in groups[:3])
    shades = _colours(colours, lines_at)
    panels = []
    for p, title in enumerate(panels_at):
        series = tuple(
            Series(
                _words(labels, label),
                x,
                middle[p, i, s],
                None if low is None else low[p, i, s],
                None if high is None else high[p, i, s],
                dashed=s > 0,
                colour=shades[i],
                part=_words(labels, part),
                network=None if network is None else network[p, i, s][:, there],
                network_y=None if network is None else values[p, i, s],
            )
            for s, part in enumerate(styles_at)
            for i, label in enumerate(lines_at)
            if np.isfinite(middle[p, i, s]).any()
        )
        panels.append(Panel(_words(titles, title), x_name, name, series, **axes))
    return tuple(panel for panel in panels if panel.series) or tuple(panels)


def count(array: xr.DataArray, over: Dimensions) -> str:
    """Number of networks that a line summarises, such as `n = 8 seeds`."""
    return ", ".join(f"n = {counted(array.sizes[dim], dim)}" for dim in _names(over))


def quantiles(values: np.ndarray, shares: Sequence[float], axis: int) -> list[np.ndarray]:
    """Quantiles that ignore NaN, equal to those of `numpy.nanquantile`, which is slow where values are missing."""
    ordered = np.sort(values, axis=axis)  # NaN last
    last = np.maximum((~np.isnan(values)).sum(axis=axis, keepdims=True) - 1, 0)

    def quantile(share: float) -> np.ndarray:
        below = np.floor(share * last).astype(int)
        low, high = (np.take_along_axis(ordered, np.minimum(at, last), axis) for at in (below, below + 1))
        with np.errstate(invalid="ignore"):  # infinite values have no distance
            t, step = share * last - below, high - low
            return np.where(t < 0.5, low + step * t, high - step * (1 - t)).squeeze(axis)

    return [quantile(share) for share in shares]


def _summaries(values: np.ndarray, band: str | None, log: bool) -> tuple[np.ndarray, ...] | tuple[Any, None, None]:
    """Middle, low and high over networks, the fourth axis."""
    if band == "deviation":
        of = np.log10(values) if log else values
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no network left
            mean, deviation = np.nanmean(of, axis=3), np.nanstd(of, axis=3)
        found = (mean, mean - deviation, mean + deviation)
        return tuple(10**each for each in found) if log else found
    if band == "mean":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no network left
            return np.nanmean(values, axis=3), None, None
    middle, low, high = quantiles(values, (0.5, 0.0, 1.0) if band == "range" else (0.5, 0.25, 0.75), axis=3)
    return (middle, low, high) if band else (middle, None, None)


def _names(role: Dimensions) -> tuple[str, ...]:
    return (role,) if isinstance(role, str) else tuple(role or ())


def _validate(array: xr.DataArray, groups: Sequence[Sequence[str]]) -> None:
    """Raise ValueError unless every dimension has exactly one role."""
    named = [dim for group in groups for dim in group]
    if missing := [dim for dim in named if dim not in array.dims]:
        raise ValueError(f"the array has no dimension {missing[0]!r}: it has {', '.join(map(str, array.dims))}")
    if (styles := int(np.prod([array.sizes[dim] for dim in groups[2]]))) > 2:
        raise ValueError(f"style must have at most two values, one solid and one dashed, got {styles}")
    if spare := [str(dim) for dim in array.dims if dim not in named]:
        raise ValueError(
            f"dimension {spare[0]!r} has no role: select one of its values, or name it in panel, line, style or over"
        )


def _coordinate(array: xr.DataArray, dim: str) -> np.ndarray:
    return np.asarray(array.coords[dim].values) if dim in array.coords else np.arange(array.sizes[dim])


def _coordinates(array: xr.DataArray, dims: Sequence[str]) -> list[tuple[Any, ...]]:
    """All combinations of values of some dimensions, the last one fastest."""
    return list(itertools.product(*(_coordinate(array, dim).tolist() for dim in dims)))


def _words(words: Mapping[Any, str], values: tuple[Any, ...]) -> str:
    """Words for all values together, or for each, or the values themselves."""
    if values in words:
        return words[values]
    each = (words.get(v, v if isinstance(v, str) else number(v, "g")) for v in values)
    return ", ".join(part for part in each if part)


def _colours(colours: Colours, lines: Sequence[tuple[Any, ...]]) -> list[str]:
    match colours:
        case "layers":
            return style.layer_colours(len(lines))
        case "categories":
            return style.categories(len(lines))
        case "multiples":
            return [style.multiple_colour(float(value)) for value, *_ in lines]
    if len(colours) != len(lines):
        raise ValueError(f"colours must be one per line ({len(lines)}), got {len(colours)}")
    return list(colours)
