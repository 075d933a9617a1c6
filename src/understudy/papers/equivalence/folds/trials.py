"""What the study `folds` measures on one window: errors, counts by independent methods, and lemmas 2.1 to 2.3."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from understudy.papers.equivalence.theory.cells import cells as enumerate_cells
from understudy.papers.equivalence.theory.dependency import dependency_graph
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import random_network
from understudy.papers.equivalence.theory.subdivision import Subdivision, subdivide
from understudy.papers.equivalence.theory.surface import canonical_representation, segments_of

_CLEAR = 1e-9
"""Distance from an edge up to which a point may belong to either side."""


@lru_cache(maxsize=16)
def transparent_seeds(sizes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The first seeds of random networks that are transparent on [−2, 2]²."""
    found: list[int] = []
    seed = 0
    while len(found) < count:
        seed += 1
        if subdivide(random_network(sizes, seed)).is_transparent:
            found.append(seed)
    return tuple(found)


def transparent_networks(sizes: tuple[int, ...], start: int, stop: int) -> Iterator[tuple[int, Subdivision]]:
    """Seeds and subdivisions of random transparent networks, by their number from 0."""
    for seed in transparent_seeds(sizes, stop)[start:]:
        yield seed, subdivide(random_network(sizes, seed))


def measure_window(found: Subdivision, grid: int) -> dict[str, float]:
    """Measure one subdivision.

    Args:
        found: The subdivision of [−2, 2]².
        grid: Points along each edge of a grid.

    Returns:
        Numbers by name: errors of maps and areas; counts of this and of other methods; smallest jump of the gradient
        of the output at a fold, as a share of the largest gradient (lemma 2.1); order of the fold-set (lemma 2.2);
        piece-wise hyperplanes outside of a unit's zeros, or in a layer that lemma 2.3 excludes.
    """
    network = found.network
    map_error, area_error = exactness(found)
    strange, wrong = grid_patterns(found, grid)
    steepest = np.abs(found.pieces.maps[:, :, :2]).max()
    return {
        "cells": found.cells,
        "edges": int(found.inside.sum()),
        "undecided": found.undecided,
        "map_error": map_error,
        "area_error": area_error,
        "linear_programming": len(enumerate_cells(network, as_box(None, 2))),
        "grid_strange": strange,
        "grid_wrong": wrong,
        "smallest_jump": float(found.jumps[found.inside].min(initial=np.inf) / steepest),
        **lemmas(found),
    }


def exactness(found: Subdivision) -> tuple[float, float]:
    """Largest error of an affine map at the corners of its cell, relative to the largest output, and of the area."""
    corners = found.points[found.corners]
    maps = np.repeat(found.pieces.maps, np.diff(found.offsets), axis=0)
    outputs = (maps[..., :2] * corners[:, None]).sum(-1) + maps[..., 2]
    exact = found.network(found.plane.inputs_at(corners))
    return float(np.abs(outputs - exact).max() / np.abs(exact).max()), float(
        abs(found.areas.sum() / found.plane.area - 1)
    )


def grid_patterns(found: Subdivision, grid: int) -> tuple[int, int]:
    """Compare the activation patterns on a grid with the cells.

    Returns:
        The number of patterns on the grid that no cell has, and the number of grid points inside of a cell, by its
        edges, that have another pattern than the cell, or are inside of no cell and on no edge.
    """
    lower, upper = found.plane.lower, found.plane.upper
    sides = [np.linspace(low, high, grid + 2)[1:-1] for low, high in zip(lower, upper, strict=True)]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
    active = [h > 0 for h in found.network.preactivations(found.plane.inputs_at(points.reshape(-1, 2)))[:-1]]
    on_grid = np.packbits(np.concatenate(active, axis=1), axis=1).reshape(grid, grid, -1)
    of_cells = np.packbits(found.patterns(), axis=1)
    strange = {row.tobytes() for row in np.unique(on_grid.reshape(grid**2, -1), axis=0)} - {
        c.tobytes() for c in of_cells
    }
    wrong, placed = 0, np.zeros((grid, grid), dtype=bool)
    for cell, pattern in enumerate(of_cells):
        corners = found.points[found.corners[found.offsets[cell] : found.offsets[cell + 1]]]
        (x0, x1), (y0, y1) = (np.searchsorted(s, e) for s, e in zip(sides, _ends(corners), strict=True))
        here = points[x0:x1, y0:y1]
        left = _distance_inside(corners, here)
        wrong += int(((left > _CLEAR) & (on_grid[x0:x1, y0:y1] != pattern).any(axis=-1)).sum())
        placed[x0:x1, y0:y1] |= left > -_CLEAR
    return len(strange), wrong + int((~placed).sum())


def _ends(corners: np.ndarray) -> np.ndarray:
    """Least and largest coordinate of the corners, one row per axis."""
    return np.stack([corners.min(axis=0) - _CLEAR, corners.max(axis=0) + _CLEAR], axis=1)


def _distance_inside(corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Distance of points from the nearest line of an edge of a convex cell; negative outside."""
    least = np.full(points.shape[:-1], np.inf)
    for one, other in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        along = other - one
        to = points - one
        least = np.minimum(least, (along[0] * to[..., 1] - along[1] * to[..., 0]) / np.linalg.norm(along))
    return least


def lemmas(found: Subdivision) -> dict[str, int]:
    """Canonical representation and dependency graph from the set of folds alone, compared with the units."""
    hidden = len(found.network.hidden)
    folds, edges = segments_of(found)
    surface = canonical_representation(folds)
    graph = dependency_graph(folds, surface)
    units = found.units[edges]
    pieces = len(surface.layers)
    kept = surface.piece >= 0
    layer = np.zeros(pieces, dtype=int)
    layer[surface.piece[kept]] = units[kept, 0]
    index = np.zeros(pieces, dtype=int)
    index[surface.piece[kept]] = units[kept, 1]
    mixed = (units[kept] != np.stack([layer, index], axis=1)[surface.piece[kept]]).any(axis=1)
    order = {
        "order": surface.order,
        "left_over": int((~kept).sum()),
        "pieces": pieces,
        "dependencies": len(graph.edges),
    }
    if surface.order > hidden:
        return order | {"mixed": int(mixed.sum()), "excluded": pieces, "excluded_straight": pieces, "identified": 0}
    bending, every = graph.possible_layers(hidden), graph.possible_layers(hidden, bending=False)
    return order | {
        "mixed": int(mixed.sum()),
        "excluded": int(((layer < bending[:, 0]) | (layer > bending[:, 1])).sum()),
        "excluded_straight": int(((layer < every[:, 0]) | (layer > every[:, 1])).sum()),
        "identified": int((bending[:, 0] == bending[:, 1]).sum()),
    }
