"""Canonical parameters: length 1, the same function, independent of the scales that a network came with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.equal_networks import by_hand, shuffled
from understudy.papers.equivalence.theory.canonical import canonical_form, permuted, rescaled, unit_rows
from understudy.papers.equivalence.theory.relu_network import random_network

SIZES = st.lists(st.integers(1, 7), min_size=3, max_size=6)


@given(SIZES, st.integers(0, 99), st.sampled_from([0.0, 0.1]))
def test_rows_have_length_one_and_the_function_is_kept(sizes, seed, slope):
    network, _, _ = shuffled(random_network(sizes, seed, slope), seed)
    form = canonical_form(network)
    for rows in unit_rows(form.network)[:-1]:
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-14)
    x = np.random.default_rng(seed).uniform(-2, 2, (50, sizes[0]))
    np.testing.assert_allclose(form.network(x), network(x), rtol=1e-11, atol=1e-11)
    again = rescaled(form.network, list(form.scales))
    for ours, theirs in zip((*again.weights, *again.biases), (*network.weights, *network.biases), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13)


@given(SIZES, st.integers(0, 99))
def test_scales_do_not_matter(sizes, seed):
    network = random_network(sizes, seed)
    other, back, _ = shuffled(network, seed)
    ours, theirs = canonical_form(network).network, permuted(canonical_form(other).network, back)
    for x, y in zip((*ours.weights, *ours.biases), (*theirs.weights, *theirs.biases), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13)


def test_by_hand():
    network = by_hand(([[3.0], [0.0]], [4.0, 0.0]), ([[2.0, 7.0]], [1.0]))
    form = canonical_form(network)
    np.testing.assert_allclose(form.network.weights[0], [[0.6], [0.0]])
    np.testing.assert_allclose(form.network.weights[1], [[10.0, 7.0]])
    assert form.scales[0].tolist() == [5.0, 1.0]


def test_very_large_and_small_weights_do_not_overflow():
    network = by_hand(([[3e200], [3e-200]], [4e200, 4e-200]), ([[1.0, 1.0]], [0.0]))
    form = canonical_form(network)
    np.testing.assert_allclose(form.network.weights[0], [[0.6], [0.6]])
    assert form.scales[0] == pytest.approx([5e200, 5e-200])
