"""Planar maps of convex cells in flat arrays, and the kernels that split them along the zeros of a function.

A map is a list of half-edges: 2e and 2e + 1 are the two directions of edge e. Half-edge h starts at vertex `tail[h]`,
has the cell `face[h]` on its left (−1 outside of the window), and `after[h]` and `before[h]` are its neighbours around
that cell. Every function is known by its values at the vertices, so that all cells around a vertex agree on its sign,
and an edge is split once, for both of its cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from numba import njit

NEAR = 1e-12
"""Zeros nearer than this to the end of an edge are moved to it, in units of half the window."""
ROUNDED = 0.25
"""Share of the tolerance up to which values at a zero differ from zero by rounding errors."""


@dataclass(eq=False)
class PlanarMap:
    """A map that grows: arrays with room, of which the first `vertices`, `edges` and `cells` entries are in use.

    Attributes:
        points: Coordinates of the vertices, in [−1, 1]².
        values: Values of several functions at the vertices, each affine on every cell: [function, vertex].
        tail: First vertex of every half-edge.
        after: Next half-edge around the cell on the left, counter-clockwise.
        before: Previous half-edge.
        face: Cell on the left; −1 outside of the window.
        label: Label of every edge; −1 for the border.
        first: One half-edge of every cell.
        undecided: Number of times a cell was left whole because its signs contradicted each other.
        merged: Number of times a vertex beside a zero counted as one, although its value is larger than rounding errors
            are: it is too near for a cell in between.
    """

    points: np.ndarray
    values: np.ndarray
    tail: np.ndarray
    after: np.ndarray
    before: np.ndarray
    face: np.ndarray
    label: np.ndarray
    first: np.ndarray
    vertices: int = 4
    edges: int = 4
    cells: int = 1
    undecided: int = 0
    merged: int = 0

    def reserve(self, vertices: int, edges: int, cells: int) -> None:
        """Make room for this many more vertices, edges and cells."""
        self.points = _grown(self.points, self.vertices + vertices)
        if (needed := self.vertices + vertices) > self.values.shape[1]:
            grown = np.empty((len(self.values), max(needed, self.values.shape[1] * 3 // 2)))
            grown[:, : self.vertices] = self.values[:, : self.vertices]
            self.values = grown
        halves = 2 * (self.edges + edges)
        self.tail, self.after, self.before, self.face = (
            _grown(a, halves) for a in (self.tail, self.after, self.before, self.face)
        )
        self.label, self.first = _grown(self.label, self.edges + edges), _grown(self.first, self.cells + cells)

    def split(self, function: int, label: int, tolerance: float, most_cells: int) -> int:
        """Split all cells along the zeros of one function, unless there would be too many cells.

        Args:
            function: Row of `values`.
            label: Label of the new edges between a positive and a negative cell.
            tolerance: Values up to this are zero.
            most_cells: Largest number of cells.

        Returns:
            The number of cells after the split, which is not carried out where it exceeds `most_cells`.
        """
        value = self.values[function, : self.vertices].copy()
        if not (value.max() > tolerance and value.min() < -tolerance):
            return self.cells
        sign, crossed, cut, merged = plan_split(
            value, tolerance, self.points, self.tail, self.after, self.face, self.first, self.edges, self.cells
        )
        if self.cells + len(cut) > most_cells:
            return self.cells + len(cut)
        self.reserve(len(crossed), len(crossed) + len(cut), len(cut))
        split_edges(
            crossed, function, self.points, self.values, self.tail, self.after, self.before, self.face, self.label,
            self.edges, self.vertices,
        )  # fmt: skip
        self.vertices, self.edges = self.vertices + len(crossed), self.edges + len(crossed)
        cells, undecided = split_cells(
            sign, value, cut, label, self.tail, self.after, self.before, self.face, self.label, self.first,
            self.edges, self.cells,
        )  # fmt: skip
        self.values[function, : len(sign)][sign == 0] = 0.0
        self.edges, self.cells = self.edges + cells - self.cells, cells
        self.undecided, self.merged = self.undecided + undecided, self.merged + merged
        return self.cells


def square(values: np.ndarray) -> PlanarMap:
    """The map of one cell, the square [−1, 1]², with the values of functions at its corners, counter-clockwise."""
    corners = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    inner = np.arange(4)
    tail, after, before, face = (np.empty(8, dtype=np.int64) for _ in range(4))
    tail[0::2], tail[1::2] = inner, (inner + 1) % 4
    after[0::2], before[0::2] = 2 * ((inner + 1) % 4), 2 * ((inner - 1) % 4)
    after[1::2], before[1::2] = 2 * ((inner - 1) % 4) + 1, 2 * ((inner + 1) % 4) + 1
    face[0::2], face[1::2] = 0, -1
    return PlanarMap(corners, values, tail, after, before, face, np.full(4, -1), np.zeros(1, dtype=np.int64))


def _grown(array: np.ndarray, needed: int) -> np.ndarray:
    """The array with room for at least this many rows; half as many again when it has to grow."""
    if needed <= len(array):
        return array
    grown = np.empty((max(needed, len(array) * 3 // 2), *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@no_type_check
def _plan_split(value, tolerance, points, tail, after, face, first, edges, cells):
    """Decide the signs at all vertices, and find the edges that are crossed and the cells that have both signs.

    Signs have room for one new vertex, which is zero, on every edge that is crossed. Vertices that count as zeros,
    although rounding errors of their values are smaller, are counted.
    """
    vertices = len(value)
    sign = np.empty(vertices, dtype=np.int8)
    merged = 0
    for v in range(vertices):
        sign[v] = 1 if value[v] > tolerance else (-1 if value[v] < -tolerance else 0)
        merged += sign[v] == 0 and abs(value[v]) > ROUNDED * tolerance
    # Edges with both signs or a zero: others are not crossed, and cells that have only others are not cut.
    near = np.empty(edges, dtype=np.int64)
    count = 0
    for e in range(edges):
        if sign[tail[2 * e]] * sign[tail[2 * e + 1]] <= 0:
            near[count] = e
            count += 1
    for k in range(count):
        a, b = tail[2 * near[k]], tail[2 * near[k] + 1]
        if sign[a] * sign[b] < 0:
            length = np.hypot(points[b, 0] - points[a, 0], points[b, 1] - points[a, 1])
            share = value[a] / (value[a] - value[b])
            if share * length <= NEAR:
                sign[a] = 0
                merged += 1
            if (1 - share) * length <= NEAR:
                sign[b] = 0
                merged += 1
    crossed = np.empty(count, dtype=np.int64)
    cut = np.empty(2 * count, dtype=np.int64)
    seen = np.zeros(cells, dtype=np.bool_)
    crossings, cuts = 0, 0
    for k in range(count):
        e = near[k]
        if sign[tail[2 * e]] * sign[tail[2 * e + 1]] < 0:
            crossed[crossings] = e
            crossings += 1
        for side in (2 * e, 2 * e + 1):
            c = face[side]
            if c < 0 or seen[c]:
                continue
            seen[c] = True
            positive, negative = False, False
            h = first[c]
            while True:
                positive |= sign[tail[h]] > 0
                negative |= sign[tail[h]] < 0
                h = after[h]
                if h == first[c]:
                    break
            if positive and negative:
                cut[cuts] = c
                cuts += 1
    signs = np.zeros(vertices + crossings, dtype=np.int8)
    signs[:vertices] = sign
    return signs, crossed[:crossings].copy(), cut[:cuts].copy(), merged


@no_type_check
def _split_edges(crossed, function, points, values, tail, after, before, face, label, edges, vertices):
    """Split edges at the zero of the function, which has opposite signs at their ends."""
    nears, fars = np.empty(len(crossed), dtype=np.int64), np.empty(len(crossed), dtype=np.int64)
    shares = np.empty(len(crossed))
    for k in range(len(crossed)):
        e, new, v = crossed[k], edges + k, vertices + k
        a, b = tail[2 * e], tail[2 * e + 1]
        va, vb = values[function, a], values[function, b]
        # From the end whose value is smaller, so that its distance keeps all digits.
        if abs(va) <= abs(vb):
            near, far, share = a, b, va / (va - vb)
        else:
            near, far, share = b, a, vb / (vb - va)
        for i in range(2):
            points[v, i] = points[near, i] + share * (points[far, i] - points[near, i])
        nears[k], fars[k], shares[k] = near, far, share
        # a → v keeps its number and its twin becomes v → a; v → b and b → v are new.
        h, g, h2, g2 = 2 * e, 2 * e + 1, 2 * new, 2 * new + 1
        n, p = after[h], before[g]
        tail[h2], tail[g2], tail[g] = v, b, v
        after[h], before[h2], after[h2], before[n] = h2, h, n, h2
        after[p], before[g2], after[g2], before[g] = g2, p, g, g2
        face[h2], face[g2] = face[h], face[g]
        label[new] = label[e]
    for i in range(len(values)):
        row = values[i]
        for k in range(len(crossed)):
            row[vertices + k] = row[nears[k]] + shares[k] * (row[fars[k]] - row[nears[k]])


@no_type_check
def _split_cells(sign, value, cut, name, tail, after, before, face, label, first, edges, cells):
    """Join the zeros at the border of every cell with both signs; return the number of cells, and of those left whole.

    The positive part keeps the number of the cell. Vertices beyond the end of `value` are new, and exact zeros.
    """
    undecided = 0
    for c in cut:
        # Start at a positive vertex after a zero, so that runs of zeros are met as a whole.
        start = first[c]
        while not (sign[tail[start]] > 0 and sign[tail[before[start]]] <= 0):
            start = after[start]
        down, up, changes = -1, -1, 0
        last, best, least = 1, -1, np.inf
        h = start
        while True:
            h = after[h]
            v = tail[h]
            s = sign[v]
            if s == 0:
                size = abs(value[v]) if v < len(value) else 0.0
                if best < 0 or size < least:
                    best, least = h, size
            else:
                if s != last:
                    changes += 1
                    if s < 0:
                        down = best
                    else:
                        up = best
                last, best = s, -1
            if h == start:
                break
        if changes != 2 or down < 0 or up < 0:
            undecided += 1
            continue
        inside, outside = 2 * edges, 2 * edges + 1
        label[edges] = name
        edges += 1
        p, q = before[down], before[up]
        tail[inside], tail[outside] = tail[down], tail[up]
        after[p], before[inside], after[inside], before[up] = inside, p, up, inside
        after[q], before[outside], after[outside], before[down] = outside, q, down, outside
        face[inside], first[c] = c, inside
        first[cells] = outside
        h = outside
        while True:
            face[h] = cells
            h = after[h]
            if h == outside:
                break
        cells += 1
    return cells, undecided


@no_type_check
def _walk_cells(tail, after, first, cells, edges):
    """Vertices and edges around every cell, counter-clockwise, one cell after the other, and where each begins."""
    offsets = np.empty(cells + 1, dtype=np.int64)
    corners, sides = np.empty(2 * edges, dtype=np.int64), np.empty(2 * edges, dtype=np.int64)
    n = 0
    for c in range(cells):
        offsets[c] = n
        h = first[c]
        while True:
            corners[n], sides[n] = tail[h], h // 2
            n += 1
            h = after[h]
            if h == first[c]:
                break
    offsets[cells] = n
    return offsets, corners[:n].copy(), sides[:n].copy()


try:
    plan_split, split_edges, split_cells, walk_cells = (
        njit(nogil=True, cache=True)(each) for each in (_plan_split, _split_edges, _split_cells, _walk_cells)
    )
except RuntimeError:  # no writable folder for numba's cache
    plan_split, split_edges, split_cells, walk_cells = (
        njit(nogil=True)(each) for each in (_plan_split, _split_edges, _split_cells, _walk_cells)
    )
