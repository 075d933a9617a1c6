"""Piece-wise linear surfaces in two dimensions: the canonical representation of a set of folds.

Everything is computed from the set alone: its segments, and where the window ends. Which unit folds where is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from understudy.papers.equivalence.theory.subdivision import Subdivision

STRAIGHT = 1e-7
"""Largest sine of the angle between two segments that lie on one line."""


@dataclass(frozen=True, eq=False)
class Segments:
    """A set of folds: segments that meet only at their ends, in a convex window.

    Attributes:
        ends: Both vertices of each segment.
        directions: Unit vector along each segment, from its first vertex to its second.
        border: The vertices on the border of the window.
        vertices: Number of vertices.
    """

    ends: Int[np.ndarray, "segment 2"]
    directions: Float[np.ndarray, "segment 2"]
    border: Int[np.ndarray, "border"]
    vertices: int


@dataclass(frozen=True, eq=False)
class Surface:
    """The canonical representation of a set of folds (Phuong & Lampert 2020, sec. 2.4).

    A piece-wise hyperplane of layer k is a segment that crosses a cell of the partition by all lower layers. □_k of the
    set is the union of the piece-wise hyperplanes of the layers up to k.

    Attributes:
        piece: The piece-wise hyperplane that contains each segment; −1 for segments that belong to none.
        layers: Layer of each piece-wise hyperplane, counted from 1.
        ends: Both vertices at which each piece-wise hyperplane ends.
        continued: Whether the set goes straight on beyond each of these vertices.
    """

    piece: Int[np.ndarray, "segment"]
    layers: Int[np.ndarray, "piece"]
    ends: Int[np.ndarray, "piece 2"]
    continued: Bool[np.ndarray, "piece 2"]

    @property
    def order(self) -> int:
        """Number of layers κ: the order of the largest piece-wise linear surface in the set."""
        return int(self.layers.max(initial=0))

    @property
    def segment_layers(self) -> Int[np.ndarray, "segment"]:
        """Layer that is assigned to each segment; 0 for segments that belong to no piece-wise hyperplane."""
        return np.where(self.piece >= 0, np.append(self.layers, 0)[self.piece], 0)


def segments_of(
    subdivision: Subdivision, folds_function: Bool[np.ndarray, "edge"] | None = None
) -> tuple[Segments, Int[np.ndarray, "segment"]]:
    """The set of folds of a subdivision.

    Args:
        subdivision: Cells and edges.
        folds_function: Which edges are in the set: those at which the function folds. Default: all zeros of units.

    Returns:
        The set, and the edge of the subdivision that each segment is.
    """
    chosen = np.flatnonzero(subdivision.inside if folds_function is None else folds_function)
    ends = subdivision.edges[chosen]
    normal = subdivision.pieces.lines[chosen]
    along = np.stack([-normal[:, 1], normal[:, 0]], axis=1)
    difference = subdivision.points[ends[:, 1]] - subdivision.points[ends[:, 0]]
    along *= np.where((along * difference).sum(axis=1) < 0, -1.0, 1.0)[:, None]
    border = np.unique(subdivision.edges[~subdivision.inside])
    return Segments(ends, along, border, len(subdivision.points)), chosen


def canonical_representation(folds: Segments) -> Surface:
    """Assign layers greedily (Phuong & Lampert 2020, fig. 2.3): lowest first, each as large as possible.

    Layer 1 has the lines across the whole window. Layer k has the segments that cross a cell of the partition by the
    layers below: maximal straight chains of the remaining segments, between two vertices on a lower layer or on the
    border.

    Args:
        folds: The set.

    Returns:
        Piece-wise hyperplanes with their layers; unique up to their order (lemma A.6).
    """
    count = len(folds.ends)
    follow = straight_continuations(folds)
    piece = np.full(count, -1)
    layers: list[int] = []
    ends: list[tuple[int, int]] = []
    continued: list[tuple[bool, bool]] = []
    base = np.zeros(folds.vertices, dtype=bool)  # on the border or on a lower layer
    base[folds.border] = True
    left = list(range(count))
    layer = 0
    while left:
        layer += 1
        found: list[list[int]] = []
        visited: set[int] = set()
        for segment in left:
            if segment in visited:
                continue
            back, one, goes_back = _chain(folds.ends, follow, base, segment, 0)
            forth, other, goes_forth = _chain(folds.ends, follow, base, segment, 1)
            chain = [segment, *back, *forth]
            visited.update(chain)
            if base[one] and base[other]:
                found.append(chain)
                layers.append(layer)
                ends.append((one, other))
                continued.append((goes_back, goes_forth))
        if not found:
            break
        for number, chain in enumerate(found, start=len(layers) - len(found)):
            piece[chain] = number
            base[folds.ends[chain]] = True
        left = [segment for segment in left if piece[segment] < 0]
    straight = np.array(continued, dtype=bool).reshape(-1, 2)
    return Surface(piece, np.array(layers, dtype=int), np.array(ends, dtype=int).reshape(-1, 2), straight)


def straight_continuations(folds: Segments) -> Int[np.ndarray, "segment 2"]:
    """The segment that continues each segment straight on beyond its first and second vertex; −1 if there is none."""
    count = len(folds.ends)
    follow = np.full((count, 2), -1)
    # Half-segments that leave a vertex, vertex by vertex.
    vertex = folds.ends.ravel()
    away = np.stack([folds.directions, -folds.directions], axis=1).reshape(-1, 2)
    order = np.argsort(vertex, kind="stable")
    starts = np.searchsorted(vertex[order], np.arange(folds.vertices + 1))
    for low, high in pairwise(starts.tolist()):
        if high - low < 2:
            continue
        here = order[low:high]
        along = away[here]
        sine = np.abs(along[:, None, 0] * along[None, :, 1] - along[:, None, 1] * along[None, :, 0])
        straight = np.where(along @ along.T < 0, sine, np.inf)
        for i, j in zip(*np.nonzero(straight <= STRAIGHT), strict=True):
            if straight[i].argmin() == j and straight[j].argmin() == i:
                follow[here[i] // 2, here[i] % 2] = here[j] // 2
    return follow


def _chain(
    ends: np.ndarray, follow: np.ndarray, base: np.ndarray, segment: int, side: int
) -> tuple[list[int], int, bool]:
    """Segments that continue one straight on until a vertex on a lower layer, or as far as there are any.

    Returns:
        The segments, the vertex at which the last ends, and whether another one continues it beyond that vertex.
    """
    chain: list[int] = []
    vertex = int(ends[segment, side])
    while not base[vertex] and (onwards := int(follow[segment, side])) >= 0:
        chain.append(onwards)
        side = 1 if ends[onwards, 0] == vertex else 0
        segment, vertex = onwards, int(ends[onwards, side])
    return chain, vertex, bool(follow[segment, side] >= 0)
