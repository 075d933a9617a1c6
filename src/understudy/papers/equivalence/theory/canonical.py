"""Canonical parameters: incoming weights and bias of length 1, the scale pushed into the next layer.

Phuong & Lampert 2020, eq. 2.3, 2.4: positive rescaling does not change the function, and what is left of it here is
only the order of the units.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from understudy.papers.equivalence.theory.relu_network import ReluNetwork


@dataclass(frozen=True, eq=False)
class Canonical:
    """A network in canonical form, W_l = S_l C_l S_{l−1}⁻¹ and b_l = S_l c_l with S_0 = S_L = 1.

    Attributes:
        network: The network of C_l and c_l, the same function.
        scales: Diagonals of S_1, …, S_{L−1}: lengths of (w, b) once the scales of the layer below are pushed into w.
            A unit whose weights and bias are all zero has the scale 1.
    """

    network: ReluNetwork
    scales: tuple[Float[np.ndarray, "_unit"], ...]


def canonical_form(network: ReluNetwork) -> Canonical:
    """Rescale every hidden unit to incoming weights and bias of length 1.

    Entries are only multiplied and divided, so that each keeps its relative accuracy whatever the scales were.

    Args:
        network: The network.

    Returns:
        The network in canonical form, and the scales that were taken out of it.
    """
    weights, biases, scales = [], [], []
    below = np.ones(network.sizes[0])
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        rows = np.column_stack((weight * below, bias))
        below = row_lengths(rows)
        rows = rows / below[:, None]
        weights.append(rows[:, :-1])
        biases.append(rows[:, -1])
        scales.append(below)
    weights.append(network.weights[-1] * below)
    biases.append(network.biases[-1])
    return Canonical(ReluNetwork(tuple(weights), tuple(biases), network.slope), tuple(scales))


def row_lengths(rows: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row"]:
    """Euclidean length of every row, without overflow; 1 for rows of zeros."""
    largest = np.abs(rows).max(axis=1)
    largest = np.where(largest > 0, largest, 1.0)
    lengths = largest * np.linalg.norm(rows / largest[:, None], axis=1)
    found: np.ndarray = np.where(lengths > 0, lengths, 1.0)
    return found


def unit_rows(network: ReluNetwork) -> list[Float[np.ndarray, "_unit _fan_in_and_bias"]]:
    """Weights and bias of every unit and output side by side; outputs are divided by their length.

    Args:
        network: A network in canonical form.

    Returns:
        One matrix per layer, the last for the outputs, of rows of length 1 or 0.
    """
    rows = [np.column_stack(pair) for pair in zip(network.weights, network.biases, strict=True)]
    rows[-1] = rows[-1] / row_lengths(rows[-1])[:, None]
    return rows


def permuted(network: ReluNetwork, permutations: list[np.ndarray]) -> ReluNetwork:
    """Reorder the hidden units: unit i of layer l becomes unit `permutations[l − 1][i]` of the given network.

    Args:
        network: The network.
        permutations: One index vector per hidden layer.

    Returns:
        The same function with its units in another order (Phuong & Lampert 2020, eq. 2.1, 2.2).
    """
    order = [np.arange(network.sizes[0]), *permutations, np.arange(network.sizes[-1])]
    weights = tuple(w[np.ix_(above, below)] for w, (below, above) in zip(network.weights, pairwise(order), strict=True))
    biases = tuple(bias[above] for bias, above in zip(network.biases, order[1:], strict=True))
    return ReluNetwork(weights, biases, network.slope)


def rescaled(network: ReluNetwork, scales: list[np.ndarray]) -> ReluNetwork:
    """Multiply the incoming weights and bias of every hidden unit by its scale, and divide its outgoing weights by it.

    Args:
        network: The network.
        scales: Positive factors, one vector per hidden layer.

    Returns:
        The same function (Phuong & Lampert 2020, eq. 2.3, 2.4).
    """
    factors = [np.ones(network.sizes[0]), *scales, np.ones(network.sizes[-1])]
    weights = tuple(
        above[:, None] * w / below for w, (below, above) in zip(network.weights, pairwise(factors), strict=True)
    )
    return ReluNetwork(weights, tuple(b * s for b, s in zip(network.biases, factors[1:], strict=True)), network.slope)
