"""A network whose parameters its function determines, for any eligible architecture (Phuong & Lampert 2020, lemma 2.4).

Where all units of the layers below are active, the network is affine, and this region has one facet for each unit of
the layer just below. Every unit of the next layer is zero on a hyperplane close to one through the centres of these
facets, and so crosses all of them:

    h_1 = g + δ q,   h_2 = −g + δ' q',   h_k = ±g + δ v_k   for k ≥ 3,

where g is zero at all centres, q and q' are positive on all inputs of the layer, and v_k is positive at all centres
except the k-th. h_1 + h_2 = δ q + δ' q' is positive at every input, which makes the network transparent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog, nnls

from understudy._errors import UserError
from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

_Layer = tuple[np.ndarray, np.ndarray]
_MARGIN = 0.8
"""Share of the largest ball around the centre of a facet within which all units of the next layer cross it."""
_SAMPLES = 2000
_FAIR_SHARE, _CONDITION, _DRAWS = 0.05, 500.0, 8
"""Share of the box on the smaller side of every fold, and condition of the weights, for which networks are drawn."""


def ineligible(sizes: Sequence[int]) -> str:
    """Reason why theorem 2.1 is not stated for an architecture; empty where it is.

    Args:
        sizes: Units from the inputs to the outputs (d_0, …, d_L).

    Returns:
        The reason, in words.
    """
    shape = "-".join(map(str, sizes))
    if len(sizes) < 3:
        return f"there must be at least one hidden layer, got {shape}"
    if sizes[-1] != 1:
        return f"there must be one output, got {sizes[-1]} in {shape}"
    for layer, (below, above) in enumerate(pairwise(sizes[:-1]), 1):
        if above > below:
            return f"widths must not increase, and layer {layer} has {above} units after {below} in {shape}"
    if sizes[-2] < 2:
        return f"every hidden layer must have at least 2 units, got {sizes[-2]} in {shape}"
    return ""


def well_connected_network(sizes: Sequence[int], box: Box, seed: int) -> ReluNetwork:
    """Construct a general, transparent network whose folds have the dependencies of lemma 2.4.

    Args:
        sizes: Units from the inputs to the outputs: non-increasing, at least 2 in every hidden layer, one output.
        box: The box on which the function determines the parameters.
        seed: Seed of the free choices; units and outputs have mean square 1 on the box.

    Returns:
        The network, with ReLU activations.

    Raises:
        UserError: Theorem 2.1 is not stated for the architecture, or the box has another number of inputs.
    """
    if why := ineligible(sizes):
        raise UserError(f"no such network exists by lemma 2.4: {why}", "sizes")
    if box.inputs != sizes[0]:
        raise UserError(f"must have one interval for each of the {sizes[0]} inputs, got {box.inputs}", "box")
    random = generator(seed, Stream.CONSTRUCTION)
    best, most = None, -1.0
    for _ in range(_DRAWS):
        network = _draw(sizes, box, random)
        x = box.draw(random, _SAMPLES)
        values = network.preactivations(x)
        network = _rescaled(network, values)
        share = min(float(np.minimum((h > 0).mean(0), (h < 0).mean(0)).min()) for h in values[:-1])
        share *= min(1.0, _CONDITION / max(float(np.linalg.cond(weight)) for weight in network.weights))
        if share > most:
            best, most = network, share
        if share >= _FAIR_SHARE:
            break
    assert best is not None
    return best


def _draw(sizes: Sequence[int], box: Box, random: np.random.Generator) -> ReluNetwork:
    """One network of the construction, with units of any scale."""
    layers = [_first_layer(sizes[1], box.inputs, random)]
    region = _Region.of_box(box.inputs).within(*layers[0])
    for units in sizes[2:-1]:
        layers.append(_next_layer(units, region, random))
        region = region.within(*layers[-1])
    layers.append((random.normal(size=(1, sizes[-2])), random.normal(size=1)))
    (weight, bias), *above = layers
    layers = [(weight / box.half, bias - weight @ (box.centre / box.half)), *above]
    return ReluNetwork(tuple(weight for weight, _ in layers), tuple(bias for _, bias in layers))


class _AffineFunction(NamedTuple):
    """weight·z + constant."""

    weight: np.ndarray
    constant: float


@dataclass(frozen=True, eq=False)
class _Region:
    """Inputs in [−1, 1]^n where all units so far are positive, and the values of the highest layer as affine functions.

    The region is {u | rows u ≤ bounds}; its last rows belong to the units of the highest layer.
    """

    rows: np.ndarray
    bounds: np.ndarray
    weights: np.ndarray
    biases: np.ndarray

    @classmethod
    def of_box(cls, inputs: int) -> _Region:
        identity = np.eye(inputs)
        return cls(np.vstack([identity, -identity]), np.ones(2 * inputs), identity, np.zeros(inputs))

    def within(self, weight: np.ndarray, bias: np.ndarray) -> _Region:
        """Where the units of one more layer are positive as well."""
        weights, biases = weight @ self.weights, weight @ self.biases + bias
        return _Region(np.vstack([self.rows, -weights]), np.append(self.bounds, biases), weights, biases)

    def facet(self, unit: int) -> tuple[np.ndarray, np.ndarray]:
        """Centre of a largest ball in the facet of a unit of the highest layer, and directions along the facet."""
        row = len(self.rows) - len(self.weights) + unit
        others = np.arange(len(self.rows)) != row
        along = np.linalg.svd(self.rows[row][None])[2][1:]
        equal = self.rows[row][None], self.bounds[row : row + 1]
        point, radius = centre_on(self.rows[others], self.bounds[others], *equal, along)
        if not radius > 0:
            raise ArithmeticError(f"unit {unit} of the layer below has no facet: radius {radius}")
        return point, along

    def reach(self, point: np.ndarray, direction: np.ndarray, unit: int) -> float:
        """Multiple of a direction along the facet of a unit by which a point can move, forward and back."""
        row = len(self.rows) - len(self.weights) + unit
        room, slope = self.bounds - self.rows @ point, np.abs(self.rows @ direction)
        others = np.arange(len(self.rows)) != row
        return float((room[others] / np.maximum(slope[others], 1e-300)).min())


def centre_on(
    rows: Float[np.ndarray, "row in"],
    bounds: Float[np.ndarray, "row"],
    equal_rows: Float[np.ndarray, "equal in"],
    equal_bounds: Float[np.ndarray, "equal"],
    along: Float[np.ndarray, "direction in"] | None = None,
) -> tuple[Float[np.ndarray, "in"], float]:
    """Centre and radius of a largest ball in the intersection of a polytope and a plane of any dimension.

    Args:
        rows: Rows of the polytope {u | rows u ≤ bounds}.
        bounds: Bounds of the rows.
        equal_rows: Rows of the plane {u | equal_rows u = equal_bounds}.
        equal_bounds: Values of these rows.
        along: Orthonormal directions of the plane, for a ball in the plane; None for a ball in the whole space.

    Returns:
        The centre and the radius; a radius of −∞ where the plane is empty.
    """
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    slopes = np.ones_like(lengths)
    if along is not None:
        slopes = np.maximum(np.linalg.norm(rows @ along.T, axis=1, keepdims=True) / lengths, 1e-6)
    inputs = rows.shape[1]
    found = linprog(
        -np.eye(inputs + 1)[-1],
        np.hstack([rows / lengths, slopes]),
        bounds / lengths[:, 0],
        np.hstack([equal_rows, np.zeros((len(equal_rows), 1))]),
        equal_bounds,
        bounds=(None, None),
        method="highs",
    )
    if found.status != 0:
        return np.full(inputs, np.nan), -np.inf
    return found.x[:-1], float(found.x[-1])


def _first_layer(units: int, inputs: int, random: np.random.Generator) -> _Layer:
    """Units whose hyperplanes lie around a randomly turned simplex of d_0 points in the box."""
    turn = np.linalg.qr(random.normal(size=(inputs, inputs)))[0]
    corners = (np.eye(inputs) - 1 / inputs) @ turn
    corners *= 0.75 / np.abs(corners).max()
    normal = turn.sum(0) / np.linalg.norm(turn.sum(0))
    steps = _MARGIN * ((1 - np.abs(corners)) / np.abs(normal)).min(1)
    # A tilt smaller than the constant on the whole box, so that the sum of the first two units is positive there.
    tilt = -corners[1] / np.abs(corners[1]).sum()
    positive = [_AffineFunction(0.9 * tilt, 1.0)] * 2
    return _units(units, _AffineFunction(normal, 0.0), positive, steps, corners, random)


def _next_layer(units: int, region: _Region, random: np.random.Generator) -> _Layer:
    """Units that cross all facets of a region, as functions of the values of the layer below."""
    facets = [region.facet(i) for i in range(len(region.weights))]
    corners = np.array([region.weights @ point + region.biases for point, _ in facets])
    np.fill_diagonal(corners, 0.0)
    size = corners.max(0)
    vector = np.linalg.svd(np.hstack([corners / size, np.ones((len(corners), 1))]))[2][-1]
    base = _AffineFunction(vector[:-1] / size, float(vector[-1]))
    gradients = [along.T @ (along @ (base.weight @ region.weights)) for _, along in facets]
    reaches = np.array([region.reach(facets[i][0], gradients[i], i) for i in range(len(facets))])
    steps = _MARGIN * reaches * np.array([gradient @ gradient for gradient in gradients])
    while True:
        target = steps.copy()
        target[1] *= 0.1
        least = 0.1 * steps.min()
        found = nnls(corners / size, np.maximum(target - least, 0.0))[0]
        # Not zero, and different: with equal entries of h_1 and −h_2, ranks would be too small for some patterns.
        least_weights = least * random.uniform(0.5, 1.5, (2, len(corners)))
        positive = [_AffineFunction((found + weights) / size, least) for weights in least_weights]
        weight, bias = _units(units, base, positive, steps, corners, random)
        # From the centre of a facet, each unit becomes zero at this multiple of the direction along it.
        slopes = np.array([(weight @ region.weights) @ gradient for gradient in gradients])
        multiples = np.abs(corners @ weight.T + bias) / np.maximum(np.abs(slopes), 1e-300)
        far = (multiples > _MARGIN * reaches[:, None]).any(1)
        if not far.any():
            return weight, bias
        steps = np.where(far, 0.8, 1.0) * steps


def _units(
    units: int,
    base: _AffineFunction,
    positive: list[_AffineFunction],
    steps: np.ndarray,
    corners: np.ndarray,
    random: np.random.Generator,
) -> _Layer:
    """Weights and biases of h_1, h_2 and h_k from g, q, q', their largest sizes at the centres, and the centres."""
    side = 1.0 if random.uniform() < 0.5 else -1.0
    weights, biases = [], []
    for sign, (weight, constant) in zip((side, -side), positive, strict=True):
        amount = random.uniform(0.8, 1.0) * float((steps / (corners @ weight + constant)).min())
        weights.append(sign * base.weight + amount * weight)
        biases.append(sign * base.constant + amount * constant)
    size = np.abs(corners).max(0)
    augmented = np.hstack([corners / size, np.ones((len(corners), 1))])
    for k in range(2, units):
        values = steps * random.uniform(0.8, 1.0, len(corners))
        values[k] *= -1
        found = np.linalg.lstsq(augmented, values, rcond=None)[0]
        sign = 1.0 if random.uniform() < 0.5 else -1.0
        weights.append(sign * base.weight + found[:-1] / size)
        biases.append(sign * base.constant + found[-1])
    return np.array(weights), np.array(biases)


def _rescaled(network: ReluNetwork, values: Sequence[np.ndarray]) -> ReluNetwork:
    """Rescale the function so that every unit and output has mean square 1."""
    weights, biases, below = [], [], np.ones(network.sizes[0])
    for weight, bias, value in zip(network.weights, network.biases, values, strict=True):
        scale = 1 / np.sqrt((value**2).mean(0))
        weights.append(scale[:, None] * weight / below)
        biases.append(scale * bias)
        below = scale
    return ReluNetwork(tuple(weights), tuple(biases), network.slope)
