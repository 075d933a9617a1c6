"""Exact fold-sets in two dimensions: a window is divided, unit by unit, into the cells on which a network is affine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from understudy._errors import UserError
from understudy.papers.equivalence.theory import planar_map
from understudy.papers.equivalence.theory.arrangement import count_line_cells
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.pieces import Pieces, affine_pieces
from understudy.papers.equivalence.theory.plane import Plane, as_plane
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

MOST_CELLS = 2_000_000
"""Largest number of cells unless another is chosen; fewer for wide networks, see `MOST_BYTES`."""
MOST_BYTES = 4 << 30
"""Memory that a subdivision may take unless another number of cells is chosen."""
_FEWER = "choose a smaller window or network, or allow more cells"
ROUND_OFF = 2.0**-45
"""Values that count as zero, as a share of Σ|w||h| + |b|: some hundred times the round-off of float64."""


@dataclass(frozen=True, eq=False)
class Subdivision:
    """Cells, edges and vertices of a window on which no unit of a network changes sign inside a cell.

    Edges are labelled with the unit that folds there: its layer, counted from 1 as in Phuong & Lampert (2020), and its
    index, counted from 0; (0, −1) is the border of the window. Where several units fold on the same edge it is labelled
    with the first of them.

    Attributes:
        network: The network.
        plane: The window.
        points: Vertices, in coordinates of the window.
        offsets: Where each cell begins in `corners` and `sides`, and the number of all of them.
        corners: Vertices around each cell, counter-clockwise.
        sides: Edges around each cell; the first leads from the first corner to the second.
        edges: Both vertices of each edge.
        units: Layer and index of the unit that folds at each edge.
        beside: The cells on both sides of each edge; −1 outside of the window.
        undecided: Number of cells in which a fold within round-off of several vertices was left out.
        merged: Number of times a fold is not told apart from a vertex or a fold beside it, so that cells in between are
            left out: it is nearer than 10⁻¹² of half the window, or a unit's bias is less than round-off.
    """

    network: ReluNetwork
    plane: Plane
    points: Float[np.ndarray, "vertex 2"]
    offsets: Int[np.ndarray, "cells_and_one"]
    corners: Int[np.ndarray, "corner"]
    sides: Int[np.ndarray, "corner"]
    edges: Int[np.ndarray, "edge 2"]
    units: Int[np.ndarray, "edge 2"]
    beside: Int[np.ndarray, "edge 2"]
    undecided: int = 0
    merged: int = 0

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.offsets) - 1

    @cached_property
    def inside(self) -> Bool[np.ndarray, "edge"]:
        """Whether each edge is a fold, and not a part of the border."""
        return self.units[:, 0] > 0

    @cached_property
    def areas(self) -> Float[np.ndarray, "cell"]:
        """Area of each cell."""
        start = self.points[self.corners[self.offsets[:-1]]]
        around = self.points[self.corners] - np.repeat(start, np.diff(self.offsets), axis=0)
        following = np.roll(around, -1, axis=0)
        following[self.offsets[1:] - 1] = 0.0
        twice = around[:, 0] * following[:, 1] - around[:, 1] * following[:, 0]
        found: np.ndarray = np.add.reduceat(twice, self.offsets[:-1]) / 2
        return found

    @cached_property
    def centres(self) -> Float[np.ndarray, "cell 2"]:
        """The mean of the corners of each cell, a point inside it."""
        sums = np.add.reduceat(self.points[self.corners], self.offsets[:-1], axis=0)
        found: np.ndarray = sums / np.diff(self.offsets)[:, None]
        return found

    @cached_property
    def lengths(self) -> Float[np.ndarray, "edge"]:
        """Length of each edge."""
        found: np.ndarray = np.linalg.norm(np.diff(self.points[self.edges], axis=1)[:, 0], axis=1)
        return found

    @cached_property
    def pieces(self) -> Pieces:
        """Affine maps on all cells, and the lines of all folds."""
        return affine_pieces(self.network, self.plane, self.centres, self.units, self.beside)

    @cached_property
    def jumps(self) -> Float[np.ndarray, "edge"]:
        """Norm of the difference between the gradients of the output on both sides of each edge; 0 at the border."""
        gradients = self.pieces.maps[:, :, :2]
        jump = np.zeros(len(self.edges))
        left, right = self.beside[self.inside].T
        jump[self.inside] = np.linalg.norm(gradients[left] - gradients[right], axis=(1, 2))
        return jump

    @property
    def is_transparent(self) -> bool:
        """Whether every layer has an active unit at every input of the window (Phuong & Lampert 2020, sec. 2.2)."""
        return bool((self.pieces.active > 0).all())

    def patterns(self) -> Bool[np.ndarray, "cell unit"]:
        """Which hidden units are active on each cell, all layers one after the other."""
        x = self.plane.inputs_at(self.centres)
        return np.concatenate([h > 0 for h in self.network.preactivations(x)[:-1]], axis=1)


def subdivide(network: ReluNetwork, window: Plane | Box | None = None, most_cells: int | None = None) -> Subdivision:
    """Divide a window into the cells on which a network is affine.

    Every unit splits the cells of all units before it along its zeros, which are straight on each of them. A unit's
    values are computed once for every vertex, so that all cells around it agree; a vertex counts as a zero if the value
    is within round-off of zero, or if the zero of an edge is nearer than 10⁻¹² of half the window.

    Args:
        network: The network.
        window: A rectangle in a plane of inputs, or a box of two inputs; None for [−2, 2]².
        most_cells: Largest number of cells; None for 2 million, or as many as take 4 GiB.

    Returns:
        Cells, edges and vertices; the cost is proportional to cells × units.

    Raises:
        UserError: More cells than `most_cells`, or a window that does not fit the network.
    """
    plane = as_plane(window, None, network.sizes[0])
    if most_cells is not None and most_cells < 1:
        raise UserError(f"must be at least 1, got {most_cells}", "most_cells")
    most = default_most_cells(network) if most_cells is None else most_cells
    corners = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    made = planar_map.square(np.empty((0, 4)))
    values = corners.T
    weight, bias = _first_layer(network, plane)
    limit = f"{most:,}" + (" (as many as take 4 GiB)" if most_cells is None and most < MOST_CELLS else "")
    _validate_first_layer(weight, bias, most, limit)
    for layer, width in enumerate(network.hidden):
        if layer:
            values = network.activate(made.values[:, : made.vertices])
            weight, bias = network.weights[layer], network.biases[layer]
        made.values = np.ascontiguousarray(weight @ values + bias[:, None])
        made.points = made.points[: made.vertices]
        scale = np.abs(weight) @ np.abs(values).max(axis=1) + np.abs(bias)
        biases = np.abs(network.biases[layer])
        made.merged += int(((biases > 0) & (biases <= ROUND_OFF * scale)).sum())
        label = sum(network.hidden[:layer])
        for unit in range(width):
            cells = made.split(unit, label + unit, ROUND_OFF * scale[unit], most)
            if cells > most:
                raise UserError(
                    f"must be larger than {limit}: the window has more than {most:,} cells already with unit {unit} of "
                    f"layer {layer + 1} of {len(network.hidden)}; {_FEWER}",
                    "most_cells",
                )
    return _collected(network, plane, made)


def _validate_first_layer(weight: np.ndarray, bias: np.ndarray, most: int, limit: str) -> None:
    """Refuse a first layer that makes too many cells, before any memory is allocated for them."""
    found = count_line_cells(weight, bias, most)
    if found.cells > most:
        count = f"{found.cells:,}" if found.exact else f"more than {most:,}"
        least = f"at least {count}, got {limit}" if found.exact else f"larger than {limit}"
        raise UserError(
            f"must be {least}: the {found.lines:,} lines at which layer 1 folds divide the window into {count} cells; "
            f"{_FEWER}",
            "most_cells",
        )


def default_most_cells(network: ReluNetwork) -> int:
    """Cells that are allowed unless another number is chosen."""
    widest = max(network.hidden, default=1)
    each = 3 * 8 * widest + 8 * 3 * network.sizes[-1] + 500  # values of the layer, maps, and the lists of edges
    return min(MOST_CELLS, MOST_BYTES // each)


def _first_layer(network: ReluNetwork, plane: Plane) -> tuple[np.ndarray, np.ndarray]:
    """The first layer as a function of the window's coordinates from −1 to 1."""
    weight, bias = network.weights[0], network.biases[0]
    middle = plane.inputs_at(plane.centre)
    return (weight @ plane.axes.T) * plane.half, weight @ middle + bias


def _collected(network: ReluNetwork, plane: Plane, made: planar_map.PlanarMap) -> Subdivision:
    """The finished map with labels of units and coordinates of the window."""
    edges = made.edges
    offsets, corners, sides = planar_map.walk_cells(made.tail, made.after, made.first, made.cells, edges)
    ends, beside = made.tail[: 2 * edges].reshape(edges, 2).copy(), made.face[: 2 * edges].reshape(edges, 2).copy()
    starts = np.cumsum([0, *network.hidden])
    label = made.label[:edges]
    layer = np.searchsorted(starts, label, side="right")
    units = np.stack([layer, np.where(label < 0, -1, label - starts[np.maximum(layer, 1) - 1])], axis=1)
    points = plane.centre + made.points[: made.vertices] * plane.half
    return Subdivision(
        network, plane, points, offsets, corners, sides, ends, units, beside, made.undecided, made.merged
    )
