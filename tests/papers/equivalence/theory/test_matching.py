"""Matching of units: the maps of eq. 2.5, near-ties, brute force, unequal widths."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.equal_networks import by_hand, shuffled, with_unit
from understudy.papers.equivalence.theory.canonical import canonical_form, permuted, unit_rows
from understudy.papers.equivalence.theory.matching import match_units
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network


@given(st.lists(st.integers(1, 8), min_size=3, max_size=6), st.integers(0, 99), st.sampled_from([0.0, 0.3]))
def test_the_maps_of_equation_2_5_are_found(sizes, seed, slope):
    network = random_network(sizes, seed, slope)
    other, orders, scalings = shuffled(network, seed)
    found = match_units(network, other)
    assert found.largest < 1e-14 and found.distance < 1e-14
    below, scale = np.arange(sizes[0]), np.ones(sizes[0])
    for layer, (order, scaling) in enumerate(zip(orders, scalings, strict=True)):
        assert np.array_equal(found.permutations[layer], order)
        np.testing.assert_allclose(found.scalings[layer], scaling, rtol=1e-13)
        # W_l = M_l P_l W'_l P_{l−1}⁻¹ M_{l−1}⁻¹ in the parameters as they are.
        again = scaling[:, None] * other.weights[layer][np.ix_(order, below)] / scale
        np.testing.assert_allclose(again, network.weights[layer], rtol=1e-12)
        below, scale = order, scaling


def test_units_that_are_nearly_equal_are_told_apart_by_what_they_pass_on():
    network = random_network([3, 4, 3, 1], 5)
    weights, biases = [w.copy() for w in network.weights], [b.copy() for b in network.biases]
    weights[0][1] = weights[0][0] * (1 + 1e-13 * np.arange(1, 4))
    biases[0][1] = biases[0][0]
    network = ReluNetwork(tuple(weights), tuple(biases))
    for seed in range(10):
        other, orders, _ = shuffled(network, seed)
        found = match_units(network, other)
        assert found.largest < 1e-12
        assert all(np.array_equal(x, y) for x, y in zip(found.permutations, orders, strict=True))


def test_the_least_distance_of_all_permutations_is_found():
    for seed in range(5):
        ours, theirs = (random_network([2, 5, 1], 2 * seed + i) for i in (0, 1))
        found = match_units(ours, theirs)
        rows, others = (canonical_form(each).network for each in (ours, theirs))

        def total(order, rows=rows, others=others):
            pairs = zip(unit_rows(rows), unit_rows(permuted(others, [np.array(order)])), strict=True)
            return sum(np.square(x - y).sum() for x, y in pairs)

        best = min(map(total, permutations(range(5))))
        # Distances of rows with their outgoing weights are assigned, not their squares.
        assert best <= total(found.permutations[0]) <= 1.3 * best


def test_distances_by_hand():
    ours = by_hand(([[1.0, 0.0], [0.0, 2.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
    theirs = by_hand(([[0.0, 1.0], [0.8, 0.0]], [0.0, 0.6]), ([[2.0, 1.0]], [0.0]))
    found = match_units(ours, theirs)
    assert found.permutations[0].tolist() == [1, 0] and found.scalings[0].tolist() == [1.0, 2.0]
    np.testing.assert_allclose(found.distances[0], [np.sqrt(0.4), 0.0], atol=1e-12)


def test_a_layer_with_fewer_units_leaves_some_without_a_partner():
    network = random_network([3, 4, 1], 1)
    wider = with_unit(network, 1, [1.0, 2.0, -1.0], 0.5, [0.3])
    found = match_units(network, wider)
    assert found.permutations[0].tolist() == [0, 1, 2, 3] and found.unmatched[0].tolist() == [4]
    back = match_units(wider, network)
    assert back.permutations[0].tolist() == [0, 1, 2, 3, -1] and np.isnan(back.scalings[0][-1])
    assert back.distances[0][-1] == 1.0 or abs(back.distances[0][-1] - 1) < 1e-12
