"""Cells by linear programming: arrangements counted by hand, grids, sampled patterns, and affine maps."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy.papers.equivalence.theory.cells import affine_maps, cells, layer_slices
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.papers.equivalence.theory.subdivision import subdivide

SQUARE = as_box((-1, 1), 2)


def lines(weights: np.ndarray, biases: np.ndarray) -> ReluNetwork:
    """Network of two layers whose folds are the given hyperplanes."""
    return ReluNetwork((weights, np.ones((1, len(weights)))), (biases, np.zeros(1)))


def met(network: ReluNetwork, x: np.ndarray) -> set[bytes]:
    """Activation patterns at points."""
    gates = np.hstack(network.preactivations(x)[:-1]) >= 0
    return {row.tobytes() for row in np.unique(gates, axis=0)}


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_lines_in_general_position_give_one_cell_for_each_line_and_crossing_and_one_more(seed, count):
    random = np.random.default_rng(seed)
    angle = random.uniform(0, np.pi, count)
    weights = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    biases = random.uniform(-0.7, 0.7, count)  # every line is at most 0.7 away from the centre, and so crosses
    crossings = 0
    for i, j in combinations(range(count), 2):
        point = np.linalg.solve(weights[[i, j]], -biases[[i, j]])
        crossings += bool((np.abs(point) < 1).all())
    found = cells(lines(weights, biases), SQUARE)
    assert len(found) == 1 + count + crossings
    assert (found.radii > 0).all()


def test_hyperplanes_through_the_axes_give_all_orthants():
    for inputs in (1, 3, 6):
        found = cells(lines(np.eye(inputs), np.zeros(inputs)), as_box((-1, 1), inputs))
        assert len(found) == 2**inputs
        assert found.radii == pytest.approx(0.5)
        assert np.abs(found.centres) == pytest.approx(0.5)


def test_folds_of_a_second_layer_bend():
    """|x| − 1/2 folds at ±1/2, where the first layer is active on one side of zero each."""
    first, second = np.array([[1.0], [-1.0]]), np.array([[1.0, 1.0]])
    network = ReluNetwork((first, second, np.ones((1, 1))), (np.zeros(2), np.array([-0.5]), np.zeros(1)))
    found = cells(network, as_box((-1, 1), 1))
    assert len(found) == 4
    assert sorted(found.centres[:, 0].tolist()) == pytest.approx([-0.75, -0.25, 0.25, 0.75])
    assert len(cells(network, as_box((-1, 1), 1), layers=1)) == 2
    assert len(cells(network, as_box((0.6, 1), 1))) == 1


@given(st.integers(0, 10**6), st.sampled_from([(2, 5, 1), (2, 4, 4, 1), (3, 6, 3, 2), (2, 3, 3, 3, 1)]))
def test_every_pattern_on_a_grid_is_a_cell_and_every_centre_has_its_pattern(seed, sizes):
    network = random_network(sizes, seed)
    box = as_box(None, sizes[0])
    found = cells(network, box)
    ours = {row.tobytes() for row in found.patterns}
    assert len(ours) == len(found)
    axis = np.linspace(-2, 2, 300 if sizes[0] == 2 else 45)
    grid = np.stack(np.meshgrid(*[axis] * sizes[0]), axis=-1).reshape(-1, sizes[0])
    assert met(network, grid) <= ours
    assert met(network, found.centres) == ours
    # Cells with a ball larger than the grid's step are met by the grid, so that the counts agree up to slivers.
    large = found.radii > 4 / (len(axis) - 1) / 2 * np.sqrt(sizes[0]) / 2
    assert {row.tobytes() for row in found.patterns[large]} <= met(network, grid)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1]))
def test_affine_maps_are_those_of_the_network(seed, slope):
    network = random_network((3, 5, 4, 2), seed, slope)
    found = cells(network, as_box(([-1, -2, 0], [1, 3, 4]), 3))
    values = network.preactivations(found.centres)
    for layer in (1, 2, 3):
        weights, biases = found.maps(layer)
        assert np.einsum("coi,ci->co", weights, found.centres) + biases == pytest.approx(values[layer - 1], abs=1e-12)
    weights, biases = found.maps()
    near = found.centres + 1e-7 * np.random.default_rng(seed).uniform(-1, 1, found.centres.shape) * found.radii[:, None]
    assert np.einsum("coi,ci->co", weights, near) + biases == pytest.approx(network(near), abs=1e-12)


def test_dead_and_constant_units_split_nothing():
    weights = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    network = lines(weights, np.array([0.0, 0.0, -3.0]))
    found = cells(network, SQUARE)
    assert found.patterns[:, 1].tolist() == [True, True]  # h ≥ 0
    assert found.patterns[:, 2].tolist() == [False, False]


def test_units_that_touch_a_side_split_nothing():
    assert len(cells(lines(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([1.0, -2.0])), SQUARE)) == 1


def test_a_network_of_one_function_has_as_many_cells():
    network = random_network((3, 6, 4, 1), 4)
    scale = 10.0 ** np.random.default_rng(0).uniform(-3, 3, 6)
    (first, second, third), (a, b, c) = network.weights, network.biases
    other = ReluNetwork((scale[:, None] * first, second / scale, third), (scale * a, b, c))
    box = as_box(None, 3)
    assert len(cells(network, box)) == len(cells(other, box)) > 20


def test_layers_of_a_pattern_and_maps_of_sampled_patterns():
    network = random_network((3, 5, 4, 2), 1)
    assert layer_slices(network) == [slice(0, 5), slice(5, 9)]
    x = np.random.default_rng(0).uniform(-2, 2, (50, 3))
    gates = np.hstack(network.preactivations(x)[:-1]) >= 0
    weights, biases = affine_maps(network, gates, 3)
    assert np.einsum("coi,ci->co", weights, x) + biases == pytest.approx(network(x), abs=1e-12)


def test_too_many_cells_and_other_sizes_are_refused():
    network = random_network((2, 10, 1), 0)
    count = len(cells(network, SQUARE))
    assert len(cells(network, SQUARE, most=count)) == count
    with pytest.raises(UserError, match=rf"more than {count - 1} cells on \[−1, 1\]², .*: use fewer units"):
        cells(network, SQUARE, most=count - 1)
    with pytest.raises(UserError, match="more than 0 cells"):
        cells(random_network((784, 100, 1), 0), as_box(None, 784), most=0)
    with pytest.raises(UserError, match="more than 100 cells"):  # of the 2⁴⁰ that one layer has
        cells(lines(np.eye(40), np.zeros(40)), as_box(None, 40), most=100)
    with pytest.raises(UserError, match="the network has 2 inputs, and the box has 3"):
        cells(network, as_box(None, 3))
    with pytest.raises(UserError, match="layers must be from 0 to 1, the number of hidden layers, got 2"):
        cells(network, SQUARE, layers=2)
    assert len(cells(network, SQUARE, layers=0)) == 1


@given(st.integers(0, 10**6), st.sampled_from([(2, 8, 1), (2, 6, 6, 1), (2, 5, 5, 5, 1)]))
def test_subdivision_of_polygons_gives_as_many_cells(seed, sizes):
    network = random_network(sizes, seed)
    assert subdivide(network, as_box(None, 2)).cells == len(cells(network, as_box(None, 2)))


@pytest.mark.deep
def test_every_sampled_pattern_of_a_large_network_is_a_cell():
    network, box = random_network((10, 10, 10, 1), 0), as_box(None, 10)
    found = cells(network, box)
    ours = {row.tobytes() for row in found.patterns}
    assert met(network, box.draw(np.random.default_rng(0), 500_000)) <= ours
    assert met(network, found.centres) == ours
    assert len(found) > 10_000
