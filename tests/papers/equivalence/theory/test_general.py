"""The three conditions of general networks: hand-made violations of each, brute force, and random networks."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy.papers.equivalence.theory.cells import affine_maps, cells, layer_slices
from understudy.papers.equivalence.theory.construction import well_connected_network
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.general import is_general, low_rank, multiples, scaled_rows
from understudy.papers.equivalence.theory.optima import zero_optimum
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network

SQUARE = as_box((-1, 1), 2)


def layers(*pairs) -> ReluNetwork:
    """A network from (weights, biases) of every layer."""
    return ReluNetwork(tuple(np.array(w, float) for w, _ in pairs), tuple(np.array(b, float) for _, b in pairs))


def bent(weights, bias: float) -> ReluNetwork:
    """One unit of the second layer, a function of ρ(x) and ρ(−x) in the plane, and a linear third."""
    return layers(([[1, 0], [-1, 0]], [0, 0]), ([weights], [bias]), ([[1]], [0]))


# Local optima


@pytest.mark.parametrize(
    ("weights", "bias", "expected"),
    [
        ((1, 1), 0.0, True),  # |x| touches zero
        ((-1, -2), 0.0, True),  # a maximum
        ((1, 1), -0.5, False),  # crosses on either side
        ((1, 1), 0.1, False),  # never zero
        ((1, -1), 0.0, False),  # x itself crosses, where two cells touch
        ((1, 0), 0.0, True),  # ρ(x) is zero on a whole cell
        ((1, 0), -1.0, False),  # zero on the side of the box only, which is not in its interior
        ((1, 0), 0.5, False),  # constant on a cell, and not zero
    ],
)
def test_optima_of_a_bent_unit(weights, bias, expected):
    network = bent(weights, bias)
    found = zero_optimum(cells(network, SQUARE, layers=1))
    assert (found is not None) == expected
    if found is not None:
        assert (found.layer, found.unit) == (2, 0)
        assert network.preactivations(found.x[None])[1][0, 0] == pytest.approx(0, abs=1e-9)
    condition = is_general(network, SQUARE).conditions[0]
    assert condition.holds == (not expected)
    if expected:
        assert condition.words.startswith("unit 0 of layer 2 has a local optimum of value zero at (")


def test_a_cone_touches_zero_at_a_point():
    """|x| + |y| touches zero in one corner of four cells; with −|y| it crosses there."""
    first = [[1, 0], [-1, 0], [0, 1], [0, -1]], [0, 0, 0, 0]
    touching = layers(first, ([[1, 1, 1, 1]], [0]), ([[1]], [0]))
    found = zero_optimum(cells(touching, SQUARE, layers=1))
    assert found is not None
    assert found.x == pytest.approx(0, abs=1e-9)
    assert zero_optimum(cells(layers(first, ([[1, 1, -1, -1]], [0]), ([[1]], [0])), SQUARE, layers=1)) is None


def test_a_unit_without_weights_and_bias_is_zero_everywhere():
    network = layers(([[1, 0], [0, 0]], [0.1, 0]), ([[1, 1]], [0]))
    found = is_general(network, SQUARE)
    assert found.general is False
    assert "unit 1 of layer 1 has a local optimum of value zero" in found.words


# Ranks


def test_two_dependent_rows_lower_a_rank():
    network = layers(([[1, 0.5], [2, 1.0]], [0.1, -0.3]), ([[1, 1]], [0]))
    found = is_general(network, SQUARE).conditions[1]
    assert found.holds is False
    assert found.words == "the product of layers 1 to 1 has rank 1 instead of 2 for the pattern 11"


def test_ranks_of_products_count_too():
    """Both matrices have rank 2, and their product has 1 where the first and third unit are active."""
    network = layers(([[1, 0], [0, 1], [1, 1]], [3, 3, 3]), ([[1, 0, 0], [0, 1, -1]], [0.1, 0.2]), ([[1, 1]], [0]))
    words = low_rank(network, np.array([[True, True, True, True, True]]))
    assert words == "the product of layers 1 to 2 has rank 1 instead of 2 for the pattern 11111"
    assert low_rank(network, np.array([[True, False, True, True, True]])) == ""


@given(st.integers(0, 10**6), st.booleans())
def test_ranks_agree_with_numpy(seed, deficient):
    random = np.random.default_rng(seed)
    network = random_network((3, 3, 3, 1), seed)
    if deficient:
        weight = random.integers(-1, 2, (3, 3)).astype(float)
        network = ReluNetwork((network.weights[0], weight, network.weights[2]), network.biases)
    patterns = np.array(list(product([False, True], repeat=6)))
    expected = False
    for gates in patterns:
        matrices = [np.diag(gates[:3].astype(float)), np.diag(gates[3:].astype(float)), np.eye(1)]
        for first, last in combinations_with_replacement(range(3), 2):
            total, needed = np.eye(3), 3
            for layer in range(first, last + 1):
                total = matrices[layer] @ network.weights[layer] @ total
                needed = min(needed, int(matrices[layer].sum()))
            expected |= np.linalg.matrix_rank(total, tol=1e-9) < needed
    assert bool(low_rank(network, patterns)) == expected


# Multiples


@pytest.mark.parametrize("factor", [1.0, 3.0, -2.0])
def test_units_that_are_multiples_are_named(factor):
    network = layers(([[1, 0.5], [factor, 0.5 * factor]], [0.1, 0.1 * factor]), ([[1, 1.5]], [0.7]))
    found = is_general(network, SQUARE).conditions[2]
    assert found.holds is False
    assert found.words == "unit 0 of layer 1 and unit 1 of layer 1 are multiples of each other"


def test_a_unit_that_repeats_one_of_the_layer_below_is_named():
    below = [[1, 0.5], [-0.3, 1]]
    network = layers((below, [2, 0.2]), ([[1, 0], [0.4, 1]], [0, 0.3]), ([[1, 1]], [0.1]))
    found = is_general(network, SQUARE).conditions[2]
    assert found.words == "unit 0 of layer 1 and unit 0 of layer 2 are multiples of each other"
    network = layers((below, [0.1, 0.2]), ([[1, 0], [0.4, 1]], [0, 0.3]), ([[1, 1]], [0.1]))
    found = is_general(network, SQUARE).conditions[2]
    assert found.words == "unit 0 of layer 2 is zero on a cell where every layer below has an active unit"


def test_constants_where_a_layer_is_off_do_not_count():
    network = layers(([[1, 0], [1, 0.1]], [0, 0]), ([[1, 2], [2, 1]], [0.3, 0.4]), ([[1, 1]], [0]))
    assert not np.hstack(network.preactivations(np.array([[-0.9, 0.0]]))[0] >= 0).any()
    assert is_general(network, SQUARE).conditions[2].holds is True


@given(st.integers(0, 10**6))
def test_multiples_agree_with_all_pairs(seed):
    network, box = random_network((2, 3, 2, 1), seed), as_box(None, 2)
    if seed % 2:  # an entry of zero and a bias of zero, by which functions coincide on some cells
        weight, bias = network.weights[1].copy(), network.biases[1].copy()
        weight[0, 1:], bias[0] = 0.0, 0.0
        network = ReluNetwork((network.weights[0], weight, network.weights[2]), (network.biases[0], bias, np.ones(1)))
    patterns = cells(network, box).patterns
    slices, vectors = layer_slices(network), []
    for layer in (1, 2, 3):
        through = np.array([all(gates[slices[k]].any() for k in range(layer - 1)) for gates in patterns])
        some = np.unique(patterns[through, : [0, 3, 5][layer - 1]], axis=0)
        weights, biases = affine_maps(network, some, layer)
        vectors += [
            np.append(w, b) for one, two in zip(weights, biases, strict=True) for w, b in zip(one, two, strict=True)
        ]
    rows = np.array(vectors) * [2, 2, 1]  # on the box scaled to [−1, 1]²
    sizes = np.linalg.norm(rows, axis=1)
    cosines = np.abs(rows @ rows.T) / np.maximum(np.outer(sizes, sizes), 1e-300)
    np.fill_diagonal(cosines, 0)
    expected = bool((cosines > 1 - 1e-13).any() or (sizes < 1e-12).any())
    assert bool(multiples(network, box, patterns)) == expected


# All together


@given(st.integers(0, 10**6), st.sampled_from([(2, 2, 1), (3, 3, 2, 1), (2, 4, 3, 1), (4, 3, 3, 2, 1)]))
def test_random_networks_are_general_and_stay_so_in_other_scales(seed, sizes):
    network, box = random_network(sizes, seed), as_box(None, sizes[0])
    found = is_general(network, box)
    assert (found.general, found.exact) == (True, True)
    scale = 10.0 ** np.random.default_rng(seed).uniform(-3, 3, sizes[1])
    first, second, *rest = network.weights
    other = ReluNetwork(
        (scale[:, None] * first, second / scale, *rest), (scale * network.biases[0], *network.biases[1:])
    )
    again = is_general(other, box)
    assert (again.general, again.patterns) == (True, found.patterns)
    x = box.draw(np.random.default_rng(0), 100)
    assert scaled_rows(other)(x) == pytest.approx(network(x), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sizes", [(2, 2, 1), (3, 3, 3, 1), (5, 4, 3, 2, 1), (4, 4, 4, 4, 1), (8, 8, 1)])
def test_constructed_networks_are_general(sizes):
    box = as_box(None, sizes[0])
    for seed in range(5):
        assert is_general(well_connected_network(sizes, box, seed), box).general


def test_too_many_cells_are_sampled_and_said_so():
    found = is_general(random_network((3, 6, 4, 1), 0), as_box(None, 3), most=10, samples=500)
    assert (found.general, found.exact) == (None, False)
    assert found.conditions[0].words == "not examined: there are too many cells"
    assert found.words == f"no violation over {found.patterns:,} activation patterns met"
    network = layers(([[1, 0.5], [2, 1.0]], [0.1, 0.2]), ([[1, 1.5]], [0]))
    assert is_general(network, SQUARE, most=1).general is False


def test_other_inputs_are_refused():
    with pytest.raises(UserError, match="the network has 3 inputs, and the box has 2"):
        is_general(random_network((3, 2, 1), 0), SQUARE)
