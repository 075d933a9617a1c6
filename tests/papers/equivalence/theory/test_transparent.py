"""Transparency: hand-made networks, brute force on grids, witnesses, and the constructed network of lemma 2.4."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.boxes import contains
from understudy._errors import UserError
from understudy.papers.equivalence.theory import transparent
from understudy.papers.equivalence.theory.construction import well_connected_network
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.papers.equivalence.theory.transparent import is_off, is_transparent, least_largest_values

SQUARE = as_box((-1, 1), 2)


def two_layers(weights, biases) -> ReluNetwork:
    return ReluNetwork((np.array(weights, float), np.ones((1, len(weights)))), (np.array(biases, float), np.zeros(1)))


def strip(width: float) -> ReluNetwork:
    """|x| ≤ 1 first, then two units that are both off on a strip of this width around x = 0.5 only."""
    first = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1.0, 1.0])  # 1 + x and 1 − x, never off
    second = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([-1.5 - width / 2, -0.5 - width / 2])
    return ReluNetwork((first[0], second[0], np.ones((1, 2))), (first[1], second[1], np.zeros(1)))


def test_opposite_units_are_transparent_and_parallel_ones_are_not():
    assert is_transparent(two_layers([[1, 0], [-1, 0]], [0.1, 0.1]), SQUARE).transparent
    found = is_transparent(two_layers([[1, 0], [1, 0.5]], [0, 0]), SQUARE)
    assert (found.transparent, found.exact, found.layer) == (False, True, 1)
    assert found.witness is not None
    assert found.witness[0] < 0


def test_units_that_touch_are_transparent():
    """x and −x: at zero both are zero, and h ≥ 0 holds."""
    found = is_transparent(two_layers([[1, 0], [-1, 0]], [0, 0]), SQUARE)
    assert found.transparent
    assert found.exact
    assert "in each of 2 cells" in found.words


def test_a_second_layer_that_is_off_on_a_strip():
    found = is_transparent(strip(0.2), SQUARE)
    assert (found.transparent, found.exact, found.layer) == (False, True, 2)
    assert found.witness is not None
    assert abs(found.witness[0] - 0.5) < 0.1
    assert is_transparent(strip(-0.2), SQUARE).transparent


@pytest.mark.parametrize("width", [1e-3, 1e-5, 1e-7])
def test_thin_strips_are_found_without_cells_by_going_downhill(width):
    found = is_transparent(strip(width), SQUARE, most=0, samples=100)
    assert (found.transparent, found.layer) == (False, 2)
    assert found.witness is not None
    assert is_off(strip(width), 2, found.witness)


def test_cells_decide_what_the_search_misses(monkeypatch):
    monkeypatch.setattr(transparent, "_search", lambda *_: None)
    found = is_transparent(strip(1e-4), SQUARE)
    assert (found.transparent, found.exact, found.layer) == (False, True, 2)
    assert found.witness is not None
    assert is_off(strip(1e-4), 2, found.witness)
    undecided = is_transparent(strip(1e-4), SQUARE, most=2, samples=1000)
    assert (undecided.transparent, undecided.exact, undecided.layer, undecided.witness) == (None, False, 2, None)
    assert "more than 2 cells: with 99% confidence such inputs are less than 0.00461 of the box" in undecided.words


@given(st.integers(0, 10**6), st.sampled_from([(2, 3, 1), (2, 2, 2, 1), (2, 4, 3, 1), (2, 3, 3, 3, 1)]))
def test_it_agrees_with_a_grid(seed, sizes):
    network, box = random_network(sizes, seed), as_box(None, 2)
    found = is_transparent(network, box)
    assert found.exact
    axis = np.linspace(-2, 2, 400)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values = network.preactivations(grid)[:-1]
    on_grid = all((layer.max(1) >= 0).all() for layer in values)
    if found.transparent:
        assert on_grid
    else:
        assert found.witness is not None
        assert is_off(network, found.layer, found.witness)
        assert contains(box, found.witness[None])[0]


@given(st.integers(0, 10**6))
def test_bounds_of_the_largest_unit_are_bounds_and_exact_for_the_first_layer(seed):
    network, box = random_network((3, 4, 3, 1), seed), as_box(None, 3)
    bounds = least_largest_values(network, box)
    x = box.draw(np.random.default_rng(seed), 20_000)
    sizes = np.abs(network.weights[0]) @ box.half + np.abs(network.weights[0] @ box.centre + network.biases[0])
    first, second = network.preactivations(x)[:-1]
    assert bounds[0] <= (first / sizes).max(1).min() <= bounds[0] + 0.2
    if bounds[1] > 0:
        assert second.max(1).min() > 0


@pytest.mark.parametrize("sizes", [(2, 2, 1), (5, 4, 3, 2, 1), (20, 10, 10, 1), (10, 10, 10, 10, 10, 1)])
def test_constructed_networks_are_proved_without_cells_at_any_size(sizes):
    box = as_box(None, sizes[0])
    found = is_transparent(well_connected_network(sizes, box, 0), box, most=0)
    assert (found.transparent, found.exact, found.layer, found.witness) == (True, True, None, None)


def test_constructed_networks_of_two_inputs_are_transparent_by_their_cells(monkeypatch):
    monkeypatch.setattr(transparent, "least_largest_values", lambda network, _: [-1.0] * len(network.hidden))
    for sizes in ((2, 2, 1), (2, 2, 2, 1), (3, 3, 3, 1), (2, 2, 2, 2, 2, 1)):
        box = as_box(None, sizes[0])
        found = is_transparent(well_connected_network(sizes, box, 1), box)
        assert found.transparent
        assert "cells, every layer has an active unit" in found.words


def test_other_inputs_are_refused():
    with pytest.raises(UserError, match="the network has 2 inputs, and the box has 3"):
        is_transparent(two_layers([[1, 0]], [0]), as_box(None, 3))
