"""Which of many networks are one function, and which have the same parameters up to order and scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist, squareform

from understudy._errors import UserError
from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.box_coordinates import validate_finite
from understudy.papers.equivalence.theory.comparison import TOLERANCE, compare_networks
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.output_differences import output_scales, rounding_bound
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

SAMPLES = 1_024
"""Number of inputs drawn from the box, at which all networks are evaluated."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Networks divided by their functions, and by their parameters.

    Attributes:
        functions: Networks that are one function on the box, as lists of indices, the largest class first.
        parameters: Networks that have the same parameters up to order and scale.
        distances: Largest difference of an output of two networks on the same inputs, relative to its `scale`.
        undecided: Pairs whose outputs agree wherever they were compared, although their parameters differ.
        scale: Standard deviation of every output on the box, the largest of all networks.
        compared: Number of pairs whose parameters were compared.
    """

    functions: list[list[int]]
    parameters: list[list[int]]
    distances: Float[np.ndarray, "net net"]
    undecided: list[tuple[int, int]]
    scale: Float[np.ndarray, "out"]
    compared: int


def classify(
    networks: Sequence[ReluNetwork],
    box: Box,
    tolerance: float = TOLERANCE,
    seed: int = 1,
    step: Callable[[], None] = lambda: None,
) -> Classes:
    """Divide networks into classes of equal functions.

    Outputs at shared inputs are compared first; only where they agree, parameters are, with one member of every class
    of parameters.

    Args:
        networks: Networks with equal numbers of inputs and outputs, of any widths and depths.
        box: The inputs that matter.
        tolerance: Relative tolerance of parameters and outputs, see `compare_networks`.
        seed: Seed of the inputs.
        step: Called after every network.

    Returns:
        The classes, and the distances of all pairs.

    Raises:
        UserError: Different numbers of inputs or outputs, or values that are not finite on the box.
    """
    if len({(each.sizes[0], each.sizes[-1]) for each in networks}) != 1:
        raise UserError("networks must all have the same numbers of inputs and of outputs to be compared")
    for i, network in enumerate(networks):
        validate_finite(f"network {i}", network, box)
    x = box.draw(generator(seed, Stream.COMPARISON, 2), SAMPLES)
    outputs = np.stack([network(x) for network in networks])
    scale = output_scales(outputs)
    distances = squareform(pdist((outputs / scale).reshape(len(networks), -1), "chebyshev"))
    rounding = np.array([float((rounding_bound(network, x) / scale).max()) for network in networks])
    functions: list[list[int]] = []
    parameters: list[list[int]] = []
    undecided: list[tuple[int, int]] = []
    compared = 0
    for i, network in enumerate(networks):
        same: set[int] = {i}
        own: list[int] | None = None
        for members in parameters:
            first = members[0]
            if distances[first, i] > 2 * max(tolerance, rounding[first] + rounding[i]):
                continue
            compared += 1
            found = compare_networks(networks[first], network, box, tolerance, seed)
            if found.same:
                same.add(first)
            elif found.same is None:
                undecided.append((first, i))
            if found.relation == "permutation and scaling":
                own = members
                break
        joined = [each for each in functions if same & set(each)]
        functions = [each for each in functions if each not in joined]
        functions.append([*(member for each in joined for member in each), i])
        if own is None:
            parameters.append([i])
        else:
            own.append(i)
        step()
    return Classes(
        sorted(map(sorted, functions), key=lambda each: (-len(each), each)),
        sorted(parameters, key=lambda each: (-len(each), each)),
        distances,
        undecided,
        scale,
        compared,
    )
