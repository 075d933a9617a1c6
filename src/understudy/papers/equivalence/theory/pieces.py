"""Affine maps of a network on the cells of a window, and the lines on which its units fold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from understudy.papers.equivalence.theory.plane import Plane
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

_NUMBERS = 1 << 18
"""Largest number of entries of the affine maps of one layer that are computed at once: they stay in the cache."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Affine maps on the cells of a window.

    Attributes:
        maps: Outputs on each cell as a function of the window's coordinates: factors of u and v, and a constant.
        lines: The line (a, b, c) of each edge with a·u + b·v + c = 0 and a² + b² = 1; NaN for the border.
        active: Number of active units of each hidden layer on each cell.
    """

    maps: Float[np.ndarray, "cell out 3"]
    lines: Float[np.ndarray, "edge 3"]
    active: Int[np.ndarray, "cell layer"]


def affine_pieces(
    network: ReluNetwork,
    plane: Plane,
    centres: Float[np.ndarray, "cell 2"],
    units: Int[np.ndarray, "edge 2"],
    beside: Int[np.ndarray, "edge 2"],
) -> Pieces:
    """Multiply the layers of a network on every cell of a window, with the units that are active there.

    Args:
        network: The network.
        plane: The window.
        centres: A point inside each cell.
        units: Layer, from 1, and index of the unit that folds at each edge; layer 0 is the border.
        beside: The cells beside each edge, of which only one may be −1.

    Returns:
        Affine maps and lines; the cost is proportional to the number of cells.
    """
    cells, depth = len(centres), len(network.hidden)
    maps = np.empty((cells, network.sizes[-1], 3))
    active = np.empty((cells, depth), dtype=np.int64)
    lines = np.full((len(units), 3), np.nan)
    cell = beside.max(axis=1)
    order = np.argsort(cell, kind="stable")
    ordered = cell[order]
    step = max(1, _NUMBERS // (3 * max(network.sizes[1:])))
    first = network.weights[0]
    start = np.column_stack([first @ plane.axes.T, first @ plane.origin + network.biases[0]])
    for low in range(0, cells, step):
        at = centres[low : low + step]
        own = order[slice(*np.searchsorted(ordered, [low, low + step]))]
        # Axes: row of the layer; factor of u, factor of v and constant; cell.
        product = np.repeat(start[..., None], len(at), axis=2)
        u, v = np.ascontiguousarray(at.T)
        for layer in range(depth):
            value = product[:, 0] * u + product[:, 1] * v + product[:, 2]
            on = value > 0
            active[low : low + step, layer] = on.sum(axis=0)
            here = own[units[own, 0] == layer + 1]
            lines[here] = product[units[here, 1], :, cell[here] - low]
            product *= np.where(on, 1.0, network.slope)[:, None]
            weight, bias = network.weights[layer + 1], network.biases[layer + 1]
            product = (weight @ product.reshape(len(product), -1)).reshape(len(weight), 3, len(at))
            product[:, 2] += bias[:, None]
        maps[low : low + step] = product.transpose(2, 0, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        lines /= np.linalg.norm(lines[:, :2], axis=1, keepdims=True)
    return Pieces(maps, lines, active)
