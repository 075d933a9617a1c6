"""Linear regions in any dimension: exactly along lines, and on random lines and planes through a box."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from understudy._errors import UserError
from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.plane import Plane
from understudy.papers.equivalence.theory.relu_network import ReluNetwork
from understudy.papers.equivalence.theory.subdivision import ROUND_OFF, subdivide

NEAR = 1e-12
"""Zeros nearer than this to a fold that is known already are the same, as a share of the segment."""


@dataclass(frozen=True, eq=False)
class LineFolds:
    """Folds of a network along a segment.

    Attributes:
        at: Positions of the folds, from 0 to 1, in increasing order.
        units: Layer, from 1, and index, from 0, of the unit that folds there.
    """

    at: Float[np.ndarray, "fold"]
    units: Int[np.ndarray, "fold 2"]

    @property
    def regions(self) -> int:
        """Number of linear regions that the segment crosses."""
        return len(self.at) + 1


def folds_on_line(network: ReluNetwork, start: Float[np.ndarray, "in"], end: Float[np.ndarray, "in"]) -> LineFolds:
    """Find all folds along a segment, layer by layer: between the folds of lower layers every unit is affine.

    Args:
        network: The network.
        start: Input at which the segment begins.
        end: Input at which it ends.

    Returns:
        Positions and units of the folds.
    """
    at = np.array([0.0, 1.0])
    units = np.array([[0, -1], [0, -1]])
    values = np.stack([start, end])
    for layer in range(len(network.hidden)):
        weight, bias = network.weights[layer], network.biases[layer]
        if layer:
            values = network.activate(values)
        scale = ROUND_OFF * (np.abs(weight) @ np.abs(values).max(axis=0) + np.abs(bias))
        values = values @ weight.T + bias
        low, high = values[:-1], values[1:]
        piece, unit = np.nonzero((np.minimum(low, high) < -scale) & (np.maximum(low, high) > scale))
        share = low[piece, unit] / (low[piece, unit] - high[piece, unit])
        found = at[piece] + share * (at[piece + 1] - at[piece])
        new = low[piece] + share[:, None] * (high[piece] - low[piece])
        new[np.arange(len(unit)), unit] = 0.0
        at, order = (every := np.concatenate([at, found])), np.argsort(every, kind="stable")
        at = at[order]
        units = np.concatenate([units, np.column_stack([np.full(len(unit), layer + 1), unit])])[order]
        values = np.concatenate([values, new])[order]
        kept = _distinct(at)
        at, units, values = at[kept], units[kept], values[kept]
    return LineFolds(at[1:-1], units[1:-1])


def _distinct(at: np.ndarray) -> np.ndarray:
    """Indices of positions that are apart from the one before; both ends are kept."""
    kept = np.append(True, np.diff(at) > NEAR)
    kept[-1] = True
    if len(at) > 2:
        kept[1:-1] &= at[-1] - at[1:-1] > NEAR
    return np.flatnonzero(kept)


def regions_on_lines(network: ReluNetwork, box: Box, lines: int, seed: int) -> Int[np.ndarray, "line"]:
    """Count the linear regions on random lines through a box.

    Args:
        network: The network.
        box: The box; a line goes through two points that are drawn from it uniformly, and ends at its border.
        lines: Number of lines.
        seed: Seed of the lines.

    Returns:
        The number of regions on each line.
    """
    if lines < 1:
        raise UserError(f"must be at least 1, got {lines}", "lines")
    random = generator(seed, Stream.FOLDS)
    counts = []
    for _ in range(lines):
        p, q = box.draw(random, 2)
        with np.errstate(divide="ignore"):
            to_border = np.stack([(box.lower - p) / (q - p), (box.upper - p) / (q - p)])
        first, last = to_border.min(axis=0).max(), to_border.max(axis=0).min()
        counts.append(folds_on_line(network, p + first * (q - p), p + last * (q - p)).regions)
    return np.array(counts)


def random_plane(box: Box, seed: int, step: int = 0) -> Plane:
    """Draw a plane through the middle of a box, in a random direction, with the largest square in it."""
    random = generator(seed, Stream.FOLDS, step)
    directions, _ = np.linalg.qr(random.normal(size=(box.inputs, 2)))
    axes = directions.T
    # The corners ±s(a ± b) of the square stay in the box.
    reach = float((box.half / np.maximum(np.abs(axes).sum(axis=0), 1e-300)).min())
    return Plane(box.centre, axes, np.full(2, -reach), np.full(2, reach))


def regions_in_slices(network: ReluNetwork, box: Box, slices: int, seed: int) -> Int[np.ndarray, "slice"]:
    """Count the linear regions in random planes through the middle of a box.

    Args:
        network: The network.
        box: The box.
        slices: Number of planes.
        seed: Seed of the planes.

    Returns:
        The number of regions in the largest square of each plane that is inside the box.
    """
    if slices < 1:
        raise UserError(f"must be at least 1, got {slices}", "slices")
    return np.array([subdivide(network, random_plane(box, seed, step)).cells for step in range(slices)])
