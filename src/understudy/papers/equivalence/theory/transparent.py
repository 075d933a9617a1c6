"""Transparent networks: at every input, at least one unit of every hidden layer is active (Phuong & Lampert 2020, 2.2).

For each layer, in this order: a convex combination of its units that is positive for all values that the layer below
can have proves it (for the first layer this decides it); a point where the whole layer is off disproves it; all cells
decide it. The set of inputs where a whole layer has h < 0 is open, so that none is missed but those in cells thinner
than `cells.RADIUS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.cells import affine_maps, cells, layer_slices
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

MOST_CELLS = 20_000
SAMPLES = 20_000
DESCENTS = 8
CONFIDENCE = 0.99
_ROUNDING = 1e-12
"""Values of units, as a share of the largest possible value, up to which a sign is not trusted."""
_DESCENT_STEPS = 10


@dataclass(frozen=True, eq=False)
class Transparency:
    """Whether a network is transparent on a box.

    Attributes:
        transparent: The answer; None where it was searched for a counterexample only, and none was found.
        exact: Whether the answer is proved, up to rounding and cells thinner than 10⁻⁹ of the box.
        layer: The lowest hidden layer, counted from 1, that is off at the witness or undecided; None if transparent.
        witness: An input at which all units of this layer are negative; None where there is none known.
        words: How it was decided.
    """

    transparent: bool | None
    exact: bool
    layer: int | None
    witness: Float[np.ndarray, "in"] | None
    words: str


def is_transparent(
    network: ReluNetwork,
    box: Box,
    most: int = MOST_CELLS,
    samples: int = SAMPLES,
    seed: int = 0,
    descents: int = DESCENTS,
) -> Transparency:
    """Decide whether a network is transparent on a box.

    Args:
        network: The network.
        box: The box.
        most: Largest number of cells that are enumerated; 0 for none.
        samples: Number of random points of the search.
        seed: Seed of these points.
        descents: Number of points from which the search goes downhill.

    Returns:
        The answer, with an offending input if there is one.

    Raises:
        UserError: The box has another number of inputs.
    """
    if box.inputs != network.sizes[0]:
        raise UserError(f"the network has {network.sizes[0]} inputs, and the box has {box.inputs}")
    open_layers = [layer for layer, least in enumerate(least_largest_values(network, box), 1) if least <= _ROUNDING]
    if not open_layers:
        words = "a combination of the units of every layer is positive at every input"
        return Transparency(True, True, None, None, words)
    x = box.draw(generator(seed, Stream.CONSTRUCTION, 1), samples)
    for layer in open_layers:
        if (witness := _search(network, box, layer, x, descents)) is not None:
            return Transparency(False, True, layer, witness, f"all units of layer {layer} are off at an input")
    try:
        found = cells(network, box, layers=open_layers[-1], most=most)
    except UserError:
        share = number(math.log(1 / (1 - CONFIDENCE)) / samples)
        words = (
            f"no input was found at which a whole layer is off, and there are more than {most:,} cells: with "
            f"{CONFIDENCE:.0%} confidence such inputs are less than {share} of the box"
        )
        return Transparency(None, False, open_layers[0], None, words)
    for layer in open_layers:
        off = np.flatnonzero(~found.patterns[:, layer_slices(network)[layer - 1]].any(1))
        for cell in off[np.argsort(-found.radii[off])]:
            if is_off(network, layer, witness := found.centres[cell]):
                words = f"all units of layer {layer} are off in one of {len(found):,} cells"
                return Transparency(False, True, layer, witness, words)
    words = f"in each of {len(found):,} cells, every layer has an active unit"
    return Transparency(True, True, None, None, words)


def is_off(network: ReluNetwork, layer: int, x: Float[np.ndarray, "in"]) -> bool:
    """Whether all units of a hidden layer, counted from 1, have h < 0 at an input."""
    return bool((network.preactivations(x[None])[layer - 1] < 0).all())


def least_largest_values(network: ReluNetwork, box: Box) -> list[float]:
    """Lower bounds of the smallest max_i h_i of every hidden layer, relative to the largest possible |h|.

    The inputs of a layer are bounded by intervals: exact for the first layer. By duality the smallest maximum over a
    box is the largest minimum of a convex combination of the units.

    Args:
        network: The network.
        box: The box.

    Returns:
        One bound for each hidden layer; a layer with a positive one is never off as a whole.
    """
    lower, upper, found = box.lower, box.upper, []
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        half, centre = (upper - lower) / 2, (upper + lower) / 2
        middle, spread = weight @ centre + bias, np.abs(weight) @ half
        size = np.maximum(np.abs(middle) + spread, 1e-300)
        scaled = np.hstack([weight * half / size[:, None], -np.ones((len(bias), 1))])
        # Minimise t with h_i ≤ t for all units, at inputs centre + half u.
        answer = linprog(
            np.eye(len(half) + 1)[-1],
            scaled,
            -middle / size,
            bounds=[*[(-1, 1)] * len(half), (None, None)],
            method="highs",
        )
        found.append(float(answer.fun) if answer.status == 0 else -math.inf)
        lower, upper = network.activate(middle - spread), network.activate(middle + spread)
    return found


def _search(network: ReluNetwork, box: Box, layer: int, x: np.ndarray, descents: int) -> np.ndarray | None:
    """Look for an input at which a layer is off: among samples, then downhill from the most promising ones."""
    values = network.preactivations(x)[layer - 1]
    size = np.maximum(np.abs(values).max(0), 1e-300)
    largest = (values / size).max(1)
    order = np.argsort(largest)[: max(descents, 1)]
    if largest[order[0]] < -_ROUNDING:
        return x[order[0]]
    for start in x[order[:descents]]:
        point = start
        for _ in range(_DESCENT_STEPS):
            there = _lowest_in_cell(network, box, layer, point, size)
            if there is None or np.allclose(there, point, rtol=0, atol=1e-12 * box.half.max()):
                break
            if (network.preactivations(there[None])[layer - 1] / size < -_ROUNDING).all():
                return there
            # A little further, across the boundary of the cell.
            point = np.clip(there + 1e-3 * (there - point), box.lower, box.upper)
    return None


def _lowest_in_cell(network: ReluNetwork, box: Box, layer: int, x: np.ndarray, size: np.ndarray) -> np.ndarray | None:
    """Input in the closed cell of a point at which the largest unit of a layer is smallest."""
    gates = np.hstack([values >= 0 for values in network.preactivations(x[None])[:-1]])
    slices = layer_slices(network)
    rows, bounds = [np.zeros((0, box.inputs))], [np.zeros(0)]
    for below in range(1, layer):
        weights, biases = (part[0] for part in affine_maps(network, gates, below))
        sign = np.where(gates[0, slices[below - 1]], -1.0, 1.0)
        rows.append(sign[:, None] * weights)
        bounds.append(-sign * biases)
    weights, biases = (part[0] for part in affine_maps(network, gates, layer))
    sides = np.vstack(rows)
    found = linprog(
        np.eye(box.inputs + 1)[-1],
        np.vstack(
            [
                np.hstack([sides, np.zeros((len(sides), 1))]),
                np.hstack([weights / size[:, None], -np.ones((len(weights), 1))]),
            ]
        ),
        np.concatenate([*bounds, -biases / size]),
        bounds=[*zip(box.lower, box.upper, strict=True), (None, None)],
        method="highs",
    )
    return found.x[:-1] if found.status == 0 else None
