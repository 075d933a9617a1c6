"""Adaptive quadrature in one dimension: Gauss–Lobatto rules on cells that are halved until the integrals settle."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy._errors import UserError

_ORDER = 8
"""Nodes per cell."""
_SHARE = 4_096
"""A cell is accepted when halving it changes no integral by more than the tolerance divided by this number."""
_SMALLEST = 1e-14
"""Length of the smallest cells, relative to their distance from 0 or to 1, whichever is larger."""
_PIECE = 1 << 16
"""Nodes at which a function is evaluated at once."""


class Integral(NamedTuple):
    """Integrals of the components of a function.

    Attributes:
        value: The integrals.
        error: Sums, over the cells, of the changes that the last halving made; the error of smooth functions is far
            smaller.
        converged: Whether no cell was left whose halving still mattered, and all values are finite.
    """

    value: Float[Tensor, "component"]
    error: Float[Tensor, "component"]
    converged: bool


def integrate(
    function: Callable[[Float[Tensor, "node"]], Float[Tensor, "node component"]],
    edges: Float[Tensor, "edge"],
    tolerance: float = 1e-8,
    *,
    most: int = 1 << 21,
    piece: int = _PIECE,
) -> Integral:
    """Integrate a function from the first to the last edge, all of its components on the same cells.

    Jumps and peaks are found by halving, as long as they are seen from the first cells: a peak that lies between the
    nodes of a cell, and of its halves, is missed. Edges around peaks prevent this. The ends of a cell are nodes, so
    that a jump cannot lie between the nodes of two cells.

    Args:
        function: Function of float64 numbers with one row of components for each.
        edges: Edges of the first cells, in ascending order.
        tolerance: Error that is accepted, in each component.
        most: Nodes at which the function is evaluated at most.
        piece: Nodes at which it is evaluated at once.

    Raises:
        UserError: Fewer than two edges.
    """
    edges = edges.double()
    if len(edges) < 2:
        raise UserError(f"must be at least two, got {len(edges)}", "edges")
    cells = torch.stack((edges[:-1], edges[1:]), 1)
    coarse = _integrate_cells(function, cells, piece)
    value, error = torch.zeros_like(coarse[0]), torch.zeros_like(coarse[0])
    count, finite = len(cells) * _ORDER, bool(coarse.isfinite().all())
    change, settled = coarse.abs(), torch.zeros(len(cells), dtype=torch.bool, device=cells.device)
    while len(cells) and finite and count < most:
        halves = _halve(cells)
        fine = _integrate_cells(function, halves, piece)
        count, finite = count + len(halves) * _ORDER, bool(fine.isfinite().all())
        both = fine[0::2] + fine[1::2]
        change = (both - coarse).abs()
        length = cells[:, 1] - cells[:, 0]
        settled = (change.amax(1) <= tolerance / _SHARE) | (length <= _SMALLEST * cells.abs().amax(1).clamp_min(1.0))
        value, error = value + both[settled].sum(0), error + change[settled].sum(0)
        again = (~settled).repeat_interleave(2)
        cells, coarse = halves[again], fine[again]
    if len(cells) and finite:  # the nodes are used up
        value, error = value + coarse.sum(0), error + change[~settled].sum(0)
    if not finite:
        value, error = torch.full_like(value, math.nan), torch.full_like(error, math.inf)
    return Integral(value, error, finite and not len(cells) and bool((error <= tolerance).all()))


def place_nodes(
    cells: Float[Tensor, "cell end"],
) -> tuple[Float[Tensor, "cell node"], Float[Tensor, "cell node"]]:
    """Compute the nodes of the Gauss–Lobatto rule on each cell, of which two are its ends, and their weights.

    The rule is exact for polynomials of degree 13.

    Args:
        cells: Lower and upper end of each cell.
    """
    at, weights = (torch.as_tensor(part, device=cells.device) for part in _lobatto())
    middle, half = cells.mean(1, keepdim=True), (cells[:, 1:] - cells[:, :1]) / 2
    return middle + half * at, half * weights


def split_cells(
    cells: Float[Tensor, "cell end"], chosen: Bool[Tensor, "cell"]
) -> tuple[Float[Tensor, "rest end"], Float[Tensor, "half end"]]:
    """Separate the cells that are not chosen from the halves of those that are.

    Args:
        cells: Lower and upper end of each cell.
        chosen: Which cells to halve.
    """
    return cells[~chosen], _halve(cells[chosen])


def normal_density(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Density of the standard normal distribution.

    Args:
        z: Numbers.
    """
    return (-z.square() / 2).exp() / math.sqrt(2 * math.pi)


@functools.cache
def _lobatto() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [−1, 1]: the ends, and the extrema of the Legendre polynomial of degree n − 1."""
    polynomial = np.polynomial.legendre.Legendre.basis(_ORDER - 1)
    at = np.concatenate(([-1.0], polynomial.deriv().roots().real, [1.0]))
    return at, 2 / (_ORDER * (_ORDER - 1) * polynomial(at) ** 2)


def _halve(cells: Tensor) -> Tensor:
    low, high = cells.unbind(1)
    middle = (low + high) / 2
    return torch.stack((low, middle, middle, high), 1).view(-1, 2)


def _integrate_cells(function: Callable[[Tensor], Tensor], cells: Tensor, piece: int) -> Tensor:
    parts = []
    for few in cells.split(max(1, piece // _ORDER)):
        nodes, weights = place_nodes(few)
        values = function(nodes.flatten()).double()
        parts.append((values.view(*nodes.shape, -1) * weights[..., None]).sum(1))
    return torch.cat(parts)
