"""Search for differing outputs: gradients, rounding bounds, small regions."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.equal_networks import by_hand
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.output_differences import (
    DifferenceSearch,
    extreme_inputs,
    gradients,
    output_scales,
    rounding_bound,
)
from understudy.papers.equivalence.theory.relu_network import random_network


@given(st.integers(0, 99), st.sampled_from([0.0, 0.2]))
def test_gradients_are_differences(seed, slope):
    network = random_network([3, 5, 4, 2], seed, slope)
    random = np.random.default_rng(seed)
    x, direction = random.uniform(-2, 2, (6, 3)), random.normal(size=(6, 2))
    step = 1e-7
    numeric = np.stack(
        [((network(x + step * e) - network(x - step * e)) * direction).sum(1) / (2 * step) for e in np.eye(3)], 1
    )
    close = np.isclose(gradients(network, x, direction), numeric, rtol=1e-5, atol=1e-6).all(1)
    assert close.mean() > 0.8  # a fold may be nearer than the step


def _exact(network, x):
    h = [Fraction(float(value)) for value in x]
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        if i:
            h = [max(value, Fraction(network.slope) * value) for value in h]
        h = [
            sum((Fraction(float(w)) * v for w, v in zip(row, h, strict=True)), Fraction(float(b)))
            for row, b in zip(weight, bias, strict=True)
        ]
    return h


@given(st.integers(0, 999), st.sampled_from([0.0, 0.3]))
def test_rounding_stays_below_its_bound(seed, slope):
    network = random_network([4, 6, 5, 2], seed, slope)
    x = np.random.default_rng(seed).uniform(-2, 2, (3, 4))
    error = [
        [abs(float(Fraction(float(value)) - exact)) for value, exact in zip(row, _exact(network, each), strict=True)]
        for row, each in zip(network(x), x, strict=True)
    ]
    bound = rounding_bound(network, x)
    assert (np.array(error) <= bound).all() and bound.max() < 1e-12


def test_a_difference_in_a_small_corner_is_found():
    # The second unit is active where x₁ + … + x₈ > 15.9, about 10⁻¹⁵ of the box.
    ours = by_hand((np.ones((2, 8)), [0.0, -15.9]), ([[1.0, 0.0]], [0.0]))
    theirs = by_hand((np.ones((2, 8)), [0.0, -15.9]), ([[1.0, 1.0]], [0.0]))
    search = DifferenceSearch(ours, theirs, as_box(None, 8))
    found = search.around_folds([(1, 1)], ours)
    assert abs(found.difference - 0.1) < 1e-12 and np.allclose(found.x, 2.0)
    assert found.rounding.max() < 1e-12 and found.inputs > 1_000


def test_extreme_inputs_of_an_affine_function_are_corners():
    part = by_hand(([[1.0, -2.0]], [0.5]))
    box = as_box(None, 2)
    x = extreme_inputs(part, 0, np.zeros((1, 2)), box, 1.0)
    assert x.tolist() == [[2.0, -2.0]] and extreme_inputs(part, 0, np.zeros((1, 2)), box, -1.0).tolist() == [
        [-2.0, 2.0]
    ]


def test_outputs_of_all_sizes_are_searched_relative_to_their_own():
    ours = by_hand((np.eye(2), [0.0, 0.0]), ([[1e6, 0.0], [0.0, 1e-5]], [0.0, 1e4]))
    theirs = by_hand((np.eye(2), [0.0, 0.0]), ([[1e6 * (1 + 1e-8), 0.0], [0.0, -1e-5]], [0.0, 1e4]))
    search = DifferenceSearch(ours, theirs, as_box(None, 2))
    for found in (search.found(), search.ascend()):
        assert found.output == 1 and found.relative == found.difference / found.scale[1] > 1
        assert found.exceeds(0.5) and found.exceeds_rounding(4) and not found.exceeds(10)
    assert abs(found.difference - 4e-5) < 1e-10 and found.x[1] == 2.0
    np.testing.assert_allclose(found.scale, [1e6 * np.sqrt(5 / 12), 1e-5 * np.sqrt(5 / 12)], rtol=0.1)


def test_a_noisy_output_does_not_hide_another():
    # The first output is rounded to about 10⁻⁷ of its standard deviation; the second differs by less, where x₁ > 1.8.
    hidden = np.array([[1.0, 0.3], [1.0, 0.0]]), [0.1, -1.8]
    ours = by_hand(hidden, ([[1.0, 0.0], [1.0, 1.0]], [1e9, 0.0]))
    theirs = by_hand(hidden, ([[1.0, 0.0], [1.0, 1.0 + 1e-7]], [1e9 + 1e-6, 0.0]))
    found = DifferenceSearch(ours, theirs, as_box(None, 2)).ascend()
    assert found.output == 1 and found.exceeds(1e-9)


def test_scales_of_huge_and_of_constant_outputs(recwarn):
    outputs = np.array([[[1e139, 3.0, 0.0], [-1e139, 3.0, 0.0]], [[0.0, -2.0, 0.0], [0.0, -2.0, 0.0]]])
    np.testing.assert_allclose(output_scales(outputs), [1e139, 3.0, 1.0])
    assert not recwarn.list
