"""Networks in the coordinates of a box: x = centre + half·z with z in [−1, 1]^n.

There, incoming weights and bias of a unit of the first layer are as large as their effect on the box, wherever the box
is: far from zero, biases of the given parameters are large because they cancel the weights' share of the centre.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.canonical import canonical_form, row_lengths
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

LARGEST = 1e140
"""Largest value of a unit or scale: its square is finite in float64, and so are sums of many."""
_SAMPLES = 256
_ROUNDING = np.finfo(np.float64).eps / 2


def unit_box(inputs: int) -> Box:
    """Build the box [−1, 1]^n."""
    return Box(-np.ones(inputs), np.ones(inputs))


def in_box_coordinates(network: ReluNetwork, box: Box) -> ReluNetwork:
    """Write a network as a function of z in [−1, 1]^n instead of x = centre + half·z."""
    weight, bias = network.weights[0], network.biases[0]
    first = weight * box.half, bias + weight @ box.centre
    return ReluNetwork((first[0], *network.weights[1:]), (first[1], *network.biases[1:]), network.slope)


def as_inputs(z: Float[np.ndarray, "sample in"], box: Box) -> Float[np.ndarray, "sample in"]:
    """Inputs x in the box of points z in [−1, 1]^n."""
    found: np.ndarray = np.clip(box.centre + box.half * z, box.lower, box.upper)
    return found


def bias_rounding(network: ReluNetwork, box: Box) -> Float[np.ndarray, "unit"]:
    """Bound the error of the first layer's biases in box coordinates, relative to the length of a unit's row there.

    It has a part of this computation, and one of parameters that are rounded themselves, as after a rescaling.
    """
    moved = in_box_coordinates(network, box)
    weight, bias = np.abs(network.weights[0]), np.abs(network.biases[0])
    error = (weight.shape[1] + 3) * _ROUNDING * (bias + weight @ np.abs(box.centre))
    found: np.ndarray = error / row_lengths(np.column_stack((moved.weights[0], moved.biases[0])))
    return found


def is_finite_on(network: ReluNetwork, box: Box) -> bool:
    """Whether a network's units and outputs, and the scales of its units, can be computed in float64 on a box."""
    random = generator(1, Stream.COMPARISON, 3)
    corners = np.where(random.random((_SAMPLES, box.inputs)) < 0.5, box.lower, box.upper)
    x = np.concatenate((corners, box.lower[None], box.upper[None], box.centre[None]))
    with np.errstate(over="ignore", invalid="ignore"):
        forms = canonical_form(network), canonical_form(in_box_coordinates(network, box))
        parts = [
            *network.preactivations(x),
            *(part for form in forms for part in (*form.scales, *form.network.weights)),
        ]
        return all(bool((np.abs(part) <= LARGEST).all()) for part in parts)


def validate_finite(name: str, network: ReluNetwork, box: Box) -> None:
    """Require that a network can be computed on a box.

    Args:
        name: Name of the network, for errors.
        network: The network.
        box: The inputs.

    Raises:
        UserError: Values that are not finite, or too large to be squared.
    """
    if not is_finite_on(network, box):
        raise UserError(
            f"{name} has values that are not finite in float64, or above {number(LARGEST, 'g')}, on the domain {box}; "
            "use a smaller domain, or train or rescale the network"
        )
