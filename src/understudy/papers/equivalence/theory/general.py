"""General networks: the three conditions of section 2.2 of Phuong & Lampert (2020), over the cells of a box.

They are required as the proofs use them (definition A.11): ranks and multiples for activation patterns that occur on
the box, multiples only where every layer below has an active unit (lemma A.11).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from scipy.spatial import cKDTree

from understudy._errors import UserError
from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.cells import Cells, affine_maps, cells, in_unit_box, layer_slices
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.optima import zero_optimum
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

MOST_CELLS = 20_000
SAMPLES = 5_000
RANK = 1e-10
"""Singular values below this share of the largest one count as zero."""
MULTIPLE = 1e-9
"""Distance of two functions, scaled to length 1 on the box [−1, 1]^d, below which they are multiples of each other."""

_Patterns = Bool[np.ndarray, "pattern unit"]


@dataclass(frozen=True)
class Condition:
    """One of the conditions of a general network.

    Attributes:
        name: The condition, in a few words.
        holds: Whether it holds; None where only some patterns were examined and none violates it.
        words: What was found.
    """

    name: str
    holds: bool | None
    words: str


@dataclass(frozen=True)
class Generality:
    """Whether a network is general on a box.

    Attributes:
        general: The answer; None where only some patterns were examined and none violates a condition.
        exact: Whether all activation patterns of the box were examined.
        patterns: Number of patterns examined.
        conditions: The three conditions: local optima, ranks, multiples.
    """

    general: bool | None
    exact: bool
    patterns: int
    conditions: tuple[Condition, Condition, Condition]

    @property
    def words(self) -> str:
        """The violations, or over how many patterns there are none."""
        violated = [condition.words for condition in self.conditions if condition.holds is False]
        if violated:
            return "; ".join(violated)
        where = f"all {self.patterns:,} cells" if self.exact else f"{self.patterns:,} activation patterns met"
        return f"no violation over {where}"


def is_general(
    network: ReluNetwork, box: Box, most: int = MOST_CELLS, samples: int = SAMPLES, seed: int = 0
) -> Generality:
    """Decide whether a network is general on a box.

    Args:
        network: The network.
        box: The box.
        most: Largest number of cells that are enumerated; with more of them, patterns at random points are examined.
        samples: Number of these points.
        seed: Seed of these points.

    Returns:
        The answer, condition by condition.

    Raises:
        UserError: The box has another number of inputs.
    """
    if box.inputs != network.sizes[0]:
        raise UserError(f"the network has {network.sizes[0]} inputs, and the box has {box.inputs}")
    network = scaled_rows(network)
    found: Cells | None
    try:
        found = cells(network, box, most=most)
        patterns = found.patterns
    except UserError:
        found = None
        x = box.draw(generator(seed, Stream.CONSTRUCTION, 2), samples)
        patterns = np.unique(np.hstack([part >= 0 for part in network.preactivations(x)[:-1]]), axis=0)
    exact = found is not None
    unviolated = True if exact else None
    conditions = (
        _no_zero_optimum(network, box, most, exact),
        Condition("full ranks (eq. 2.6)", *_answer(unviolated, low_rank(network, patterns))),
        Condition("no two functions are multiples", *_answer(unviolated, multiples(network, box, patterns))),
    )
    answers = [condition.holds for condition in conditions]
    general = False if False in answers else None if None in answers else True
    return Generality(general, exact, len(patterns), conditions)


def _answer(unviolated: bool | None, violation: str) -> tuple[bool | None, str]:
    return (False, violation) if violation else (unviolated, "no violation")


def _no_zero_optimum(network: ReluNetwork, box: Box, most: int, exact: bool) -> Condition:
    name = "no local optimum of a unit is zero"
    if not exact:
        return Condition(name, None, "not examined: there are too many cells")
    for layers in range(len(network.hidden)):
        optimum = zero_optimum(cells(network, box, layers=layers, most=most))
        if optimum is not None:
            point = ", ".join(f"{value:.4g}" for value in optimum.x)
            where = f"unit {optimum.unit} of layer {optimum.layer}"
            return Condition(name, False, f"{where} has a local optimum of value zero at ({point})")
    return Condition(name, True, "no violation")


def scaled_rows(network: ReluNetwork) -> ReluNetwork:
    """Network of the same function whose hidden units have incoming weights of length 1, where they are not zero."""
    weights, biases, below = [], [], np.ones(network.sizes[0])
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        row = weight * below
        size = np.linalg.norm(row, axis=1)
        size = np.where((size > 0) & (layer < len(network.hidden)), size, 1.0)
        weights.append(row / size[:, None])
        biases.append(bias / size)
        below = size
    return ReluNetwork(tuple(weights), tuple(biases), network.slope)


def low_rank(network: ReluNetwork, patterns: _Patterns) -> str:
    """Describe a product of matrices that has a smaller rank than eq. 2.6 requires; empty where there is none.

    Args:
        network: The network; ranks are numerical, with singular values below `RANK` of the largest one as zero.
        patterns: Activation patterns.

    Returns:
        The layers k and l and the pattern, in words.
    """
    slices, depth = layer_slices(network), len(network.weights)
    slices.append(slice(patterns.shape[1], patterns.shape[1] + network.sizes[-1]))
    patterns = np.hstack([patterns, np.ones((len(patterns), network.sizes[-1]), bool)])  # all outputs
    for first in range(depth):
        for last in range(first, depth):
            some = np.unique(patterns[:, slices[first].start : slices[last].stop], axis=0)
            product = np.eye(network.sizes[first])[None]
            needed = np.full(len(some), network.sizes[first])
            for layer in range(first, last + 1):
                columns = slice(slices[layer].start - slices[first].start, slices[layer].stop - slices[first].start)
                gates = np.where(some[:, columns], 1.0, network.slope)
                product = gates[:, :, None] * (network.weights[layer] @ product)
                needed = np.minimum(needed, (gates != 0).sum(1))
            values = np.linalg.svd(product, compute_uv=False)
            ranks = (values > RANK * values[:, :1]).sum(1)
            low = np.flatnonzero(ranks < needed)
            if len(low):
                which = "".join("1" if active else "0" for active in some[low[0]])
                return (
                    f"the product of layers {first + 1} to {last + 1} has rank {ranks[low[0]]} instead of "
                    f"{needed[low[0]]} for the pattern {which}"
                )
    return ""


def multiples(network: ReluNetwork, box: Box, patterns: _Patterns) -> str:
    """Describe two functions of units on cells that are multiples of each other; empty where there are none.

    Args:
        network: The network.
        box: The box.
        patterns: Activation patterns; those with a layer off count up to this layer.

    Returns:
        The units, in words.
    """
    vectors, names = [], []
    through = np.ones(len(patterns), bool)
    slices = layer_slices(network)
    for layer, size in enumerate(network.sizes[1:], 1):
        if layer > 1 and network.slope == 0:
            through = through & patterns[:, slices[layer - 2]].any(1)
        below = np.unique(patterns[through, : slices[layer - 2].stop if layer > 1 else 0], axis=0)
        weights, biases = in_unit_box(box, *affine_maps(network, below, layer))
        vectors.append(np.concatenate([weights, biases[..., None]], axis=2).reshape(-1, box.inputs + 1))
        names += [f"unit {unit} of layer {layer}" for _ in below for unit in range(size)]
    all_of_them = np.vstack(vectors)
    lengths = np.linalg.norm(all_of_them, axis=1)
    zero = np.flatnonzero(lengths <= MULTIPLE * lengths.max(initial=0.0))
    if len(zero):
        return f"{names[zero[0]]} is zero on a cell where every layer below has an active unit"
    directions = all_of_them / lengths[:, None]
    tree = cKDTree(directions)
    own = np.arange(len(directions))
    same, nearest = tree.query(directions, k=2, distance_upper_bound=MULTIPLE)
    itself = (nearest[:, 0] == own).astype(int)  # equal points are listed in any order
    same, nearest = same[own, itself], nearest[own, itself]
    opposite, other = tree.query(-directions, distance_upper_bound=MULTIPLE)
    pairs = [
        (i, int(partner[i]))
        for distance, partner in ((same, nearest), (opposite, other))
        for i in np.flatnonzero(np.isfinite(distance)).tolist()
    ]
    if not pairs:
        return ""
    one, two = (names[i] for i in min(pairs, key=lambda pair: (names[pair[0]] == names[pair[1]], pair)))
    return f"{one} has one function on two cells" if one == two else f"{one} and {two} are multiples of each other"
