"""Linear regions of a ReLU network on a box of any dimension, enumerated exactly by linear programming.

A cell is a set of inputs with one activation pattern. Cells are found layer by layer: on a cell of the layers below,
the units of a layer are affine, and each unit whose zero set crosses the interior splits the cell in two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from understudy._errors import UserError
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.linear_programs import box_rows, chebyshev_centre, crossing
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

MOST_CELLS = 200_000
"""Largest number of cells that is enumerated where no other limit is given."""
RADIUS = 1e-9
"""Cells without a ball of this radius are ignored, with every edge of the box scaled to length 2."""
CONSTANT = 1e-12
"""Share of the largest possible slope of a unit below which the unit counts as constant on a cell."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a network on a box, one row each.

    Attributes:
        network: The network.
        box: The box.
        layers: Number of hidden layers whose units split the box.
        patterns: Whether each unit of these layers is active (h ≥ 0), in the order of the layers.
        centres: A point inside, the centre of a largest ball where every edge of the box has length 2.
        radii: The radius of this ball.
    """

    network: ReluNetwork
    box: Box
    layers: int
    patterns: Bool[np.ndarray, "cell unit"]
    centres: Float[np.ndarray, "cell in"]
    radii: Float[np.ndarray, "cell"]

    def __len__(self) -> int:
        return len(self.patterns)

    def maps(self, layer: int | None = None) -> tuple[Float[np.ndarray, "cell out in"], Float[np.ndarray, "cell out"]]:
        """Weights and biases of h^{1:l} as an affine function of the input on every cell.

        Args:
            layer: The layer l, counted from 1, at most `layers` + 1; None for the highest.

        Returns:
            The weights and the biases.
        """
        return affine_maps(self.network, self.patterns, self.layers + 1 if layer is None else layer)

    def polytope(self, cell: int) -> tuple[Float[np.ndarray, "row in"], Float[np.ndarray, "row"]]:
        """Rows of length 1 and bounds of a cell, {u | rows u ≤ bounds}, where the box is [−1, 1]^d; first its own rows.

        Args:
            cell: Index of the cell.

        Returns:
            The rows and the bounds; units that are constant on the cell have none.
        """
        rows, bounds = box_rows(self.box.inputs)
        pattern = self.patterns[cell : cell + 1]
        for layer, columns in enumerate(layer_slices(self.network)[: self.layers], 1):
            weights, biases = in_unit_box(self.box, *affine_maps(self.network, pattern, layer))
            sign = np.where(pattern[0, columns], -1.0, 1.0)
            slopes = np.linalg.norm(weights[0], axis=1)
            varying = slopes > CONSTANT * slopes.max(initial=0.0)
            unit, offset = weights[0][varying] / slopes[varying, None], biases[0][varying] / slopes[varying]
            rows = np.vstack([rows, sign[varying, None] * unit])
            bounds = np.append(bounds, -sign[varying] * offset)
        return rows, bounds


def layer_slices(network: ReluNetwork) -> list[slice]:
    """Columns of a pattern that belong to each hidden layer."""
    ends = np.cumsum((0, *network.hidden)).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def in_unit_box(
    box: Box, weights: Float[np.ndarray, "cell out in"], biases: Float[np.ndarray, "cell out"]
) -> tuple[Float[np.ndarray, "cell out in"], Float[np.ndarray, "cell out"]]:
    """Weights and biases of affine functions of the input as functions on [−1, 1]^d, to which the box is scaled."""
    return weights * box.half, biases + weights @ box.centre


def affine_maps(
    network: ReluNetwork, patterns: Bool[np.ndarray, "cell unit"], layer: int
) -> tuple[Float[np.ndarray, "cell out in"], Float[np.ndarray, "cell out"]]:
    """Weights w^l(I) and biases b^l(I) of h^{1:l} for activation patterns I (Phuong & Lampert 2020, eqs. A.14, A.15).

    Args:
        network: The network.
        patterns: Whether each hidden unit is active, at least for the layers below `layer`.
        layer: The layer l, counted from 1; the number of layers for the outputs.

    Returns:
        The weights and the biases, for every pattern.
    """
    count = len(patterns)
    weights = np.broadcast_to(network.weights[0], (count, *network.weights[0].shape))
    biases = np.broadcast_to(network.biases[0], (count, network.sizes[1]))
    for below, columns in enumerate(layer_slices(network)[: layer - 1]):
        gates = np.where(patterns[:, columns], 1.0, network.slope)
        weight, bias = network.weights[below + 1], network.biases[below + 1]
        weights, biases = weight @ (gates[:, :, None] * weights), (gates * biases) @ weight.T + bias
    return weights, biases


@dataclass(frozen=True, eq=False)
class _PartialCell:
    """A cell of some layers in coordinates where the box is [−1, 1]^d, and the units above as functions there."""

    rows: np.ndarray
    bounds: np.ndarray
    centre: np.ndarray
    radius: float
    pattern: tuple[np.ndarray, ...]
    weights: np.ndarray
    biases: np.ndarray
    scales: np.ndarray  # largest possible slope of each unit, without cancellation

    def cut(self, weight: np.ndarray, bias: float) -> Iterator[_PartialCell]:
        """Sides of a hyperplane in this cell: two, or one where the other is too thin."""
        for sign in (-1.0, 1.0):
            rows, bounds = np.vstack([self.rows, sign * weight]), np.append(self.bounds, -sign * bias)
            found = chebyshev_centre(rows, bounds)
            if found is not None and found.value > RADIUS:
                yield replace(self, rows=rows, bounds=bounds, centre=found.point, radius=found.value)


def cells(network: ReluNetwork, box: Box, layers: int | None = None, most: int = MOST_CELLS) -> Cells:
    """Enumerate the cells of a network on a box.

    Args:
        network: The network, with any number of outputs.
        box: The box.
        layers: Number of hidden layers whose units split the box; None for all.
        most: Largest number of cells.

    Returns:
        All cells that contain a ball of radius 10⁻⁹ where every edge of the box has length 2.

    Raises:
        UserError: The box has another number of inputs, there is no such layer, or there are more cells than `most`.
    """
    if box.inputs != network.sizes[0]:
        raise UserError(f"the network has {network.sizes[0]} inputs, and the box has {box.inputs}")
    depth = len(network.hidden)
    layers = depth if layers is None else layers
    if not 0 <= layers <= depth:
        raise UserError(f"layers must be from 0 to {depth}, the number of hidden layers, got {layers}")
    if most < 1:
        raise _too_many(most, box)
    rows, bounds = box_rows(box.inputs)
    weights, biases = network.weights[0] * box.half, network.weights[0] @ box.centre + network.biases[0]
    whole = _PartialCell(rows, bounds, np.zeros(box.inputs), 1.0, (), weights, biases, np.linalg.norm(weights, axis=1))
    # Depth first, also within a layer, so that no more than `most` cells are ever held.
    pending: list[Iterator[_PartialCell]] = [iter((whole,))]
    found: list[tuple[np.ndarray, np.ndarray, float]] = []
    while pending:
        part = next(pending[-1], None)
        if part is None:
            pending.pop()
        elif len(part.pattern) < layers:
            pending.append(_split_by_layer(network, part))
        elif len(found) == most:
            raise _too_many(most, box)
        else:
            found.append((np.concatenate(part.pattern or (np.zeros(0, bool),)), part.centre, part.radius))
    patterns, centres, radii = zip(*found, strict=True)
    points = box.centre + box.half * np.array(centres)
    return Cells(network, box, layers, np.array(patterns, dtype=bool), points, np.array(radii))


def _too_many(most: int, box: Box) -> UserError:
    words = f"the network has more than {most:,} cells on {box}, the most that are enumerated"
    return UserError(f"{words}: use fewer units, a smaller box, or a slice")


def _split_by_layer(network: ReluNetwork, part: _PartialCell) -> Iterator[_PartialCell]:
    """Cells into which a cell falls by the units of its next layer, with the units above that as functions there."""
    layer, slopes = len(part.pattern), np.linalg.norm(part.weights, axis=1)
    varying = slopes > CONSTANT * part.scales
    divisor = np.where(varying, slopes, 1.0)
    unit, offset = np.where(varying[:, None], part.weights, 0.0) / divisor[:, None], part.biases / divisor
    crossed = np.flatnonzero(crossing(part.rows, part.bounds, part.centre, unit, offset, RADIUS)).tolist()
    weight, bias = network.weights[layer + 1], network.biases[layer + 1]
    stack = [(part, 0)]
    while stack:
        each, cuts = stack.pop()
        if cuts < len(crossed):
            k = crossed[cuts]
            stack += [(side, cuts + 1) for side in _cut_if_crossed(each, unit[k], float(offset[k]))]
            continue
        active = unit @ each.centre + offset >= 0
        gates = np.where(active, 1.0, network.slope)
        yield replace(
            each,
            pattern=(*part.pattern, active),
            weights=weight @ (gates[:, None] * part.weights),
            biases=weight @ (gates * part.biases) + bias,
            scales=np.abs(weight) @ (gates * slopes),
        )


def _cut_if_crossed(part: _PartialCell, weight: np.ndarray, bias: float) -> Iterator[_PartialCell]:
    if crossing(part.rows, part.bounds, part.centre, weight[None], np.array([bias]), RADIUS)[0]:
        sides = list(part.cut(weight, bias))
        yield from sides if len(sides) > 1 else (part,)
    else:
        yield part
