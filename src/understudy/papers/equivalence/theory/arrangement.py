"""Number of cells into which lines divide the square [−1, 1]², without making the cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
_SAME = 1e-9
"""Distance up to which two crossings of a line, or the ends of two lines, count as one: cells are not overcounted."""
_SMALL = 256
"""Length up to which all pairs of a sequence are compared at once."""


class LineCells(NamedTuple):
    """Cells of an arrangement of lines.

    Attributes:
        lines: Number of lines that cross the square.
        cells: Number of cells; where it exceeds the limit and lines coincide or meet in one point, a lower bound.
        exact: Whether it is the number of cells, and not a bound.
    """

    lines: int
    cells: int
    exact: bool


def count_line_cells(weight: Float[np.ndarray, "line 2"], bias: Float[np.ndarray, "line"], most: int) -> LineCells:
    """Count the cells into which lines w·z + b = 0 divide the square [−1, 1]².

    Lines in general position make 1 + lines + crossings cells, and others fewer. Crossings are counted in O(n log n) by
    the order of the lines' ends along the border; if there are more than `most`, crossings that coincide are looked for
    one line after the other, until these make too many cells by themselves.

    Args:
        weight: w of every line.
        bias: b of every line.
        most: Number of cells up to which an upper bound is enough.

    Returns:
        The count.
    """
    values = weight @ _CORNERS.T + bias[:, None]
    crossing = (values.max(axis=1) > 0) & (values.min(axis=1) < 0)
    weight, bias, values = weight[crossing], bias[crossing], values[crossing]
    first, last = _ends(values)
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    apart = int(np.searchsorted(np.sort(last), first, side="right").sum())
    upper = 1 + len(first) + _increasing_pairs(last) - apart
    if upper <= most:
        return LineCells(len(first), upper, exact=False)
    weight, bias = weight[order], bias[order]
    starts, ends = _on_border(first), _on_border(last)
    cells, simple = 1, True
    for j in range(len(first)):
        if (np.hypot(*(starts[:j] - starts[j]).T) + np.hypot(*(ends[:j] - ends[j]).T) <= _SAME).any():
            simple = False
            continue
        before = slice(0, j)
        met = (last[before] > first[j]) & (last[before] < last[j])
        one, other = (weight[before][met] @ end[j] + bias[before][met] for end in (starts, ends))
        at = np.sort(one / np.where(one == other, 1.0, one - other)) * np.hypot(*(ends[j] - starts[j]))
        distinct = int((np.diff(at) > _SAME).sum()) + (len(at) > 0)
        simple &= distinct == len(at)
        cells += 1 + distinct
        if cells > most:
            return LineCells(len(first), upper, exact=True) if simple else LineCells(len(first), cells, exact=False)
    return LineCells(len(first), cells, exact=False)


def _ends(values: Float[np.ndarray, "line 4"]) -> tuple[np.ndarray, np.ndarray]:
    """Where lines cross the border: positions along it from 0 to 4, by the values at the corners."""
    following = np.roll(values, -1, axis=1)
    changes = (values > 0) != (following > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.arange(4) + values / (values - following)
    found = np.sort(np.where(changes, at, np.inf), axis=1)
    return found[:, 0], found[:, 1]


def _on_border(position: np.ndarray) -> Float[np.ndarray, "line 2"]:
    """Points of the border at positions along it."""
    edge = np.minimum(position.astype(int), 3)
    share = (position - edge)[:, None]
    found: np.ndarray = (1 - share) * _CORNERS[edge] + share * _CORNERS[(edge + 1) % 4]
    return found


def _increasing_pairs(values: np.ndarray) -> int:
    """Number of pairs i < j with values[i] < values[j]."""
    if len(values) <= _SMALL:
        return int(np.triu(values[:, None] < values).sum())
    left, right = np.array_split(values, 2)
    between = int(np.searchsorted(np.sort(left), right, side="left").sum())
    return _increasing_pairs(left) + _increasing_pairs(right) + between
