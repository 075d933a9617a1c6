"""Directed paths in the dependency graph of a network's folds, proved by points (Phuong & Lampert 2020, lemma A.17)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from understudy.papers.equivalence.theory.construction import centre_on
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.linear_programs import box_rows
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

MARGIN = 1e-9
"""Radius of a ball below which a point proves nothing, where every edge of the box has length 2."""


@dataclass(frozen=True, eq=False)
class PathPoint:
    """A point where the fold of a unit meets that of a unit of the next layer, and no other unit below is zero.

    At the point, unit `unit` of layer `layer` is zero, all other units up to this layer are positive, and unit `above`
    of the next layer is zero (eqs. A.56 to A.58): the fold above bends at the fold below. Without `above`, it is a
    point of the fold where all units of the layers below are positive (eq. A.55).

    Attributes:
        layer: The lower layer, counted from 1.
        unit: The unit of the lower layer, counted from 0.
        above: The unit of the next layer, counted from 0; None for a point of the unit's fold alone.
        point: The input.
        margin: Radius of a ball around it, in the box, on which these units are positive, where every edge of the box
            has length 2.
    """

    layer: int
    unit: int
    above: int | None
    point: Float[np.ndarray, "in"]
    margin: float


def path_points(network: ReluNetwork, box: Box) -> tuple[PathPoint, ...]:
    """Find a point for every unit and every unit of the next layer, by linear programming.

    Args:
        network: The network.
        box: The box.

    Returns:
        The points, first of the fold of each unit, then of the unit with every unit above; those that do not exist are
        left out.
    """
    rows, bounds = box_rows(box.inputs)
    weights, biases = np.diag(box.half), box.centre
    found = []
    for layer, units in enumerate(network.hidden, 1):
        weights = network.weights[layer - 1] @ weights
        biases = network.weights[layer - 1] @ biases + network.biases[layer - 1]
        above = network.weights[layer] @ weights, network.weights[layer] @ biases + network.biases[layer]
        for unit in range(units):
            own = weights[unit : unit + 1], biases[unit : unit + 1]
            others = np.arange(units) != unit
            region = np.vstack([rows, -weights[others]]), np.append(bounds, biases[others])
            for target in (None, *range(len(above[1]))) if layer < len(network.hidden) else (None,):
                if target is None:
                    point, margin = _centre_of_zeros(rows, bounds, *own)
                else:
                    both = np.vstack([own[0], above[0][target]]), np.append(own[1], above[1][target])
                    point, margin = _centre_of_zeros(*region, *both)
                if margin > MARGIN:
                    found.append(PathPoint(layer, unit, target, box.centre + box.half * point, margin))
        rows, bounds = np.vstack([rows, -weights]), np.append(bounds, biases)
    return tuple(found)


def _centre_of_zeros(
    rows: np.ndarray, bounds: np.ndarray, weights: np.ndarray, biases: np.ndarray
) -> tuple[np.ndarray, float]:
    """Centre and radius of a largest ball in a polytope around a point where affine functions are zero."""
    sizes = np.maximum(np.linalg.norm(weights, axis=1), 1e-300)
    return centre_on(rows, bounds, weights / sizes[:, None], -biases / sizes)


def longest_chains(network: ReluNetwork, points: tuple[PathPoint, ...]) -> list[list[int]]:
    """Length of the longest chain of dependent folds that the points prove for every unit of every hidden layer.

    Args:
        network: The network.
        points: Points found by `path_points`.

    Returns:
        One length for each unit; −1 where no point of its fold is known. Lemma 2.4 needs L − 1 − l for all of layer l.
    """
    chains = [[-1] * units for units in network.hidden]
    for point in sorted(points, key=lambda point: -point.layer):
        own = chains[point.layer - 1]
        further = 0 if point.above is None else chains[point.layer][point.above] + 1
        own[point.unit] = max(own[point.unit], further)
    return chains
