"""Labelled arrays as panels, lines and summaries over networks."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from understudy._numbers import number
from understudy.report import style
from understudy.report.story import counted

if TYPE_CHECKING:
    import xarray as xr

Dimensions = str | tuple[str, ...] | None
"""Name of a dimension, names of several that are taken together, or none."""
Colours = Literal["layers", "categories", "multiples"] | Sequence[str]


def names(role: Dimensions) -> tuple[str, ...]:
    """The dimensions of a role, which may be one, several or none."""
    return (role,) if isinstance(role, str) else tuple(role or ())


def stack(array: xr.DataArray, roles: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray | None]:
    """Values, and networks if the array names them, with one axis per role: panels, lines, styles, networks and x.

    Raises:
        ValueError: If the array has a dimension without a role, or lacks one that is named.
    """
    _validate(array, roles)
    dims = [dim for role in roles for dim in role]
    sizes = [int(np.prod([array.sizes[dim] for dim in role])) for role in roles]
    values = array.transpose(*dims).values.reshape(sizes)
    if "network" not in array.coords or not roles[3]:
        return values, None
    numbers = array.coords["network"].broadcast_like(array).transpose(*dims).values.reshape(sizes)
    return values, np.where(np.isnan(numbers), -1, numbers).astype(int)


def count(array: xr.DataArray, over: Sequence[str]) -> str:
    """Number of networks that a line summarises, such as `n = 8 seeds`."""
    return ", ".join(f"n = {counted(array.sizes[dim], dim)}" for dim in over)


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


def summaries(values: np.ndarray, band: str | None, log: bool) -> tuple[np.ndarray, ...] | tuple[Any, None, None]:
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


def coordinate(array: xr.DataArray, dim: str) -> np.ndarray:
    """Values of a dimension; their indices if it has no coordinate."""
    return np.asarray(array.coords[dim].values) if dim in array.coords else np.arange(array.sizes[dim])


def coordinates(array: xr.DataArray, dims: Sequence[str]) -> list[tuple[Any, ...]]:
    """All combinations of values of some dimensions, the last one fastest."""
    return list(itertools.product(*(coordinate(array, dim).tolist() for dim in dims)))


def words(known: Mapping[Any, str], values: tuple[Any, ...]) -> str:
    """Words for all values together, or for each, or the values themselves."""
    if values in known:
        return known[values]
    each = (known.get(v, v if isinstance(v, str) else number(v, "g")) for v in values)
    return ", ".join(part for part in each if part)


def line_colours(colours: Colours, lines: Sequence[tuple[Any, ...]]) -> list[str]:
    """One colour per line."""
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
