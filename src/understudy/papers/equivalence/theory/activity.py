"""Which hidden units of a network are active on a box: everywhere, nowhere, or on one side of a fold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.box_coordinates import as_inputs, in_box_coordinates, unit_box
from understudy.papers.equivalence.theory.canonical import canonical_form
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.output_differences import extreme_inputs
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

Activity = Literal["folds", "dead", "active", "undecided"]
"""Sign of a unit's value on the box: both signs, never positive, never negative, or not decided."""

_SAMPLES, _STARTS = 2_048, 16
_MOST_UNDECIDED = 40
"""Largest number of units that are decided by integer programming."""
_SECONDS, _MARGIN = 3.0, 1e-6
"""Time limit of one program, and the distance from zero from which its bound is believed, with rows of length 1."""


class Activities(NamedTuple):
    """Decide for every hidden unit whether it folds the box, and find inputs of signs that sampling did not meet."""

    kinds: list[list[Activity]]
    inputs: Float[np.ndarray, "sample in"]


def activities(network: ReluNetwork, box: Box, exact: bool = True, seed: int = 1) -> Activities:
    """Decide for every hidden unit whether it is active everywhere on the box, nowhere, or folds it.

    Units of the first layer are decided exactly. Above, bounds by interval arithmetic prove that a unit never folds,
    inputs of both signs prove that it does; what is left is decided by mixed-integer programming. All of it is done in
    the coordinates of the box and with rows of length 1, so that programs are well scaled on every box.

    Args:
        network: The network.
        box: The inputs.
        exact: Whether to search further and use integer programming where samples and intervals leave a unit open;
            otherwise it is undecided.
        seed: Seed of the sampled inputs.

    Returns:
        One list per hidden layer, and the inputs that integer programming found. A unit that is zero everywhere is
        dead.
    """
    network, given, box = canonical_form(in_box_coordinates(network, box)).network, box, unit_box(box.inputs)
    x = box.draw(generator(seed, Stream.COMPARISON, 1), _SAMPLES)
    values = network.preactivations(x)[:-1]
    low, high = box.lower, box.upper
    found: list[list[Activity]] = []
    limits: list[tuple[np.ndarray, np.ndarray]] = []
    met: list[np.ndarray] = []
    budget = _MOST_UNDECIDED if exact else 0
    for layer, (weight, bias, sampled) in enumerate(zip(network.weights, network.biases, values, strict=False), 1):
        least, most = interval(weight, bias, low, high)
        kinds: list[Activity] = []
        for unit in range(len(bias)):
            kind = _by_bounds(layer, (least[unit], most[unit]), sampled[:, unit])
            if kind == "undecided" and exact and _reaches_other_sign(network, layer, unit, sampled[:, unit], x, box):
                kind = "folds"
            if kind == "undecided" and budget > 0:
                budget -= 1
                bounds, ends = _extremes_by_programming(network, box, limits, found, layer, unit)
                least[unit], most[unit] = max(least[unit], bounds[0]), min(most[unit], bounds[1])
                met.extend(ends)
                reached = network.preactivations(np.array(ends).reshape(-1, box.inputs))[layer - 1][:, unit]
                if most[unit] < -_MARGIN:
                    kind = "dead"
                elif least[unit] > _MARGIN:
                    kind = "active"
                elif len(reached) and reached.min() < 0 < reached.max():
                    kind = "folds"
            kinds.append(kind)
        found.append(kinds)
        limits.append((least, most))
        low, high = network.activate(least), network.activate(most)
    return Activities(found, as_inputs(np.array(met).reshape(-1, box.inputs), given))


def interval(
    weight: Float[np.ndarray, "out in"],
    bias: Float[np.ndarray, "out"],
    low: Float[np.ndarray, "in"],
    high: Float[np.ndarray, "in"],
) -> tuple[Float[np.ndarray, "out"], Float[np.ndarray, "out"]]:
    """Least and largest values of W h + b where every h is in its interval: exact for independent h."""
    positive, negative = np.maximum(weight, 0.0), np.minimum(weight, 0.0)
    return positive @ low + negative @ high + bias, positive @ high + negative @ low + bias


def _by_bounds(layer: int, bounds: tuple[float, float], sampled: np.ndarray) -> Activity:
    if bounds[1] <= 0:
        return "dead"
    if bounds[0] >= 0:
        return "active"
    return "folds" if layer == 1 or sampled.min() < 0 < sampled.max() else "undecided"


def _reaches_other_sign(
    network: ReluNetwork, layer: int, unit: int, sampled: np.ndarray, x: np.ndarray, box: Box
) -> bool:
    """Whether ascent from the best samples finds an input of the sign that they do not have."""
    sign = 1.0 if sampled.max() <= 0 else -1.0
    part = ReluNetwork(network.weights[:layer], network.biases[:layer], network.slope)
    starts = x[np.argsort(-sign * sampled)[:_STARTS]]
    reached = part(extreme_inputs(part, unit, starts, box, sign))[:, unit]
    return bool((sign * reached).max() > 0)


def _extremes_by_programming(
    network: ReluNetwork,
    box: Box,
    limits: list[tuple[np.ndarray, np.ndarray]],
    kinds: list[list[Activity]],
    layer: int,
    unit: int,
) -> tuple[tuple[float, float], list[np.ndarray]]:
    """Least and largest value of a unit on the box, or bounds on them where a time limit is reached, and the inputs.

    Bounds are infinite where HiGHS has none.

    Variables are the inputs and, for every unit u below, r = max(u, 0) and whether it is active.
    """
    widths = network.sizes[1:layer]
    places = np.cumsum([network.sizes[0], *(2 * width for width in widths)])
    size = int(places[-1])
    lower, upper = np.zeros(size), np.ones(size)
    lower[: box.inputs], upper[: box.inputs] = box.lower, box.upper
    integral = np.zeros(size)
    rows, least, most = [], [], []

    def require(row: np.ndarray, low: float, high: float) -> None:
        rows.append(sparse.csr_array(row[None]))
        least.append(low)
        most.append(high)

    # h holds the activations of the layer below as affine functions of the variables: coefficients and constants.
    h, constant = np.eye(box.inputs, size), np.zeros(box.inputs)
    for i, width in enumerate(widths):
        u, offset = network.weights[i] @ h, network.weights[i] @ constant + network.biases[i]
        positive = np.zeros((width, size))
        for j in range(width):
            r, z = int(places[i]) + j, int(places[i]) + width + j
            low, high = float(limits[i][0][j]), float(limits[i][1][j])
            if kinds[i][j] == "dead":
                upper[[r, z]] = 0.0
                continue
            positive[j, r] = 1.0
            upper[r] = max(high, 0.0)
            own, switch = np.zeros(size), np.zeros(size)
            own[r], switch[z] = 1.0, 1.0
            if kinds[i][j] == "active":
                require(own - u[j], offset[j], offset[j])
                lower[z] = 1.0
                continue
            integral[z] = 1.0
            require(own - u[j], offset[j], np.inf)  # r ≥ u
            require(own - u[j] - low * switch, -np.inf, offset[j] - low)  # r ≤ u − low (1 − z)
            require(own - high * switch, -np.inf, 0.0)  # r ≤ high z
        h = (1 - network.slope) * positive + network.slope * u
        constant = network.slope * offset
    objective = network.weights[layer - 1][unit] @ h
    shift = float(network.weights[layer - 1][unit] @ constant + network.biases[layer - 1][unit])
    constraints = LinearConstraint(sparse.vstack(rows), np.array(least), np.array(most)) if rows else ()
    ends, inputs = [], []
    for sign in (1.0, -1.0):
        with _silent_standard_output():
            solved = milp(
                sign * objective,
                integrality=integral,
                bounds=Bounds(lower, upper),
                constraints=constraints,
                options={"time_limit": _SECONDS},
            )
        bound = solved.get("mip_dual_bound")
        ends.append(sign * bound if bound is not None and np.isfinite(bound) else -sign * np.inf)
        if solved.x is not None:
            inputs.append(np.clip(solved.x[: box.inputs], box.lower, box.upper))
    return (ends[0] + shift, ends[1] + shift), inputs


@contextmanager
def _silent_standard_output() -> Iterator[None]:
    """Discard what compiled code writes to file descriptor 1: HiGHS reports numerical trouble there in any case."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
