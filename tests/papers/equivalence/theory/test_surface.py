"""Canonical representations and dependency graphs, by hand and on random networks (lemmas 2.1 to 2.3)."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from understudy import UserError
from understudy.papers.equivalence.theory.construction import well_connected_network
from understudy.papers.equivalence.theory.dependency import dependency_graph, longest_paths
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.papers.equivalence.theory.subdivision import subdivide
from understudy.papers.equivalence.theory.surface import Segments, canonical_representation, segments_of
from understudy.papers.equivalence.theory.transparent import is_transparent


def drawn(points, segments, border):
    """A set of folds that is given by points and the segments between them."""
    points, ends = np.array(points, dtype=float), np.array(segments)
    along = points[ends[:, 1]] - points[ends[:, 0]]
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    return Segments(ends, along, np.array(border), len(points))


def tent():
    """ρ(x) + ρ(y) = 1 and the axes: two lines, and three segments of a second layer."""
    return ReluNetwork((np.eye(2), np.ones((1, 2)), np.ones((1, 1))), (np.zeros(2), -np.ones(1), np.zeros(1)))


def test_a_tent_by_hand():
    folds, _ = segments_of(subdivide(tent()))
    surface = canonical_representation(folds)
    assert np.bincount(surface.layers).tolist() == [0, 2, 3]
    assert ((surface.piece >= 0).all(), surface.order) == (True, 2)
    graph = dependency_graph(folds, surface)
    # The middle segment ends at both axes, the others at one.
    assert np.bincount(graph.edges[:, 1]).tolist()[2:] in ([2, 1, 1], [1, 2, 1], [1, 1, 2])
    assert graph.bends.all()
    assert graph.longest.tolist() == [1, 1, 0, 0, 0]
    assert graph.possible_layers(2).tolist() == [[1, 1]] * 2 + [[2, 2]] * 3
    assert graph.possible_layers(3).tolist() == [[1, 2]] * 2 + [[2, 3]] * 3
    with pytest.raises(UserError, match="at least 2"):
        graph.possible_layers(1)


def test_figure_2_2_one_straight_fold_of_the_second_layer_is_assigned_to_the_first():
    # A fold of unit (2, 1) that misses all folds of the first layer cannot be told from these.
    weights = (np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 1.0]]), np.ones((1, 1)))
    network = ReluNetwork(weights, (np.array([-1.9, 5.0]), np.array([-5.0]), np.zeros(1)))
    found = subdivide(network)
    folds, edges = segments_of(found)
    surface = canonical_representation(folds)
    assert set(found.units[edges, 0]) == {1, 2}
    assert surface.order == 2  # y = 0 left of x = 1.9, and bent right of it
    graph = dependency_graph(folds, surface)
    assert graph.longest_bending.max() == 1


def test_segments_that_end_inside_are_no_surface():
    folds = drawn([[-2, 0], [0, 0], [0, -2], [0, 2]], [[0, 1]], [0, 2, 3])
    surface = canonical_representation(folds)
    assert ((surface.piece >= 0).all(), surface.order) == (False, 0)
    assert surface.segment_layers.tolist() == [0]


def test_straight_folds_are_divided_by_layers_below_without_bending():
    # x = 0 and y = 0 are lines; a fold along y = 1 from x = −2 to 1 that bends at x = 1 there is cut at x = 0.
    points = [[0, -2], [0, 1], [0, 2], [1, -2], [1, 1], [1, 2], [-2, 1], [2, 2]]
    segments = [[0, 1], [1, 2], [3, 4], [4, 5], [6, 1], [1, 4], [4, 7]]
    folds = drawn(points, segments, [0, 2, 3, 5, 6, 7])
    surface = canonical_representation(folds)
    assert surface.segment_layers.tolist() == [1, 1, 1, 1, 2, 2, 2]
    graph = dependency_graph(folds, surface)
    first, second = surface.piece[0], surface.piece[2]
    found = {(low, high): bends for (low, high), bends in zip(graph.edges.tolist(), graph.bends, strict=True)}
    assert found == {
        (first, surface.piece[4]): False,
        (first, surface.piece[5]): False,
        (second, surface.piece[5]): True,
        (second, surface.piece[6]): True,
    }
    assert graph.longest.tolist()[:2] == [1, 1]
    assert (graph.longest_bending[first], graph.longest_bending[second]) == (0, 1)


def test_longest_paths():
    layers, edges = np.array([1, 1, 2, 3]), np.array([[0, 2], [2, 3], [1, 3]])
    assert longest_paths(layers, edges).tolist() == [2, 1, 1, 0]


@given(st.sampled_from([(2, 6, 4, 1), (2, 6, 4, 3, 1), (2, 3, 2, 2, 1)]), st.integers(1, 10**6))
def test_lemmas_on_random_networks(sizes, seed):
    found = subdivide(random_network(sizes, seed))
    assume(found.is_transparent)
    hidden = len(sizes) - 2
    assert (found.jumps[found.inside] > 1e-12).all()  # lemma 2.1
    folds, edges = segments_of(found)
    surface = canonical_representation(folds)
    assert (surface.piece >= 0).all()
    assert surface.order <= hidden  # lemma 2.2
    graph = dependency_graph(folds, surface)
    for number, (low, high) in enumerate(graph.possible_layers(hidden)):  # lemma 2.3
        units = np.unique(found.units[edges[surface.piece == number]], axis=0)
        assert len(units) == 1
        assert low <= units[0, 0] <= high


@given(st.sampled_from([(2, 5, 3, 1), (2, 3, 2, 2, 1)]), st.integers(1, 10**6))
def test_transparent_cells_are_those_of_linear_programming(sizes, seed):
    network = random_network(sizes, seed)
    assert subdivide(network).is_transparent == is_transparent(network, as_box(None, 2)).transparent


@pytest.mark.parametrize("sizes", [(2, 2, 2, 1), (2, 2, 2, 2, 1)])
def test_lemma_2_4_paths_that_bend_start_at_every_unit_of_the_first_layer(sizes):
    found = subdivide(well_connected_network(sizes, as_box(None, 2), 1))
    assert found.is_transparent
    folds, edges = segments_of(found)
    surface = canonical_representation(folds)
    graph = dependency_graph(folds, surface)
    starts = np.flatnonzero(graph.longest_bending == len(sizes) - 3)
    units = {tuple(found.units[edges[surface.piece == start]][0]) for start in starts}
    assert units == {(1, 0), (1, 1)}


def test_lemma_2_3_needs_paths_that_bend():
    # Both straight folds and bent ones of the second layer cross in this network of two hidden layers.
    found = subdivide(random_network((2, 6, 4, 1), 55))
    assert found.is_transparent
    folds, edges = segments_of(found)
    surface = canonical_representation(folds)
    graph = dependency_graph(folds, surface)
    layer = np.array([found.units[edges[surface.piece == p]][0, 0] for p in range(len(surface.layers))])
    assert (layer <= graph.possible_layers(2)[:, 1]).all()
    wrong = layer > graph.possible_layers(2, bending=False)[:, 1]
    assert wrong.any()
    assert set(layer[wrong]) == {2}
    assert set(surface.layers[wrong]) == {1}


@given(st.integers(1, 10**6))
def test_the_representation_does_not_depend_on_the_order_of_segments(seed):
    folds, _ = segments_of(subdivide(random_network((2, 6, 4, 3, 1), seed)))
    order = np.random.default_rng(seed).permutation(len(folds.ends))
    flip = np.random.default_rng(seed).random(len(order)) < 0.5
    ends = np.where(flip[:, None], folds.ends[:, ::-1], folds.ends)[order]
    along = np.where(flip[:, None], -folds.directions, folds.directions)[order]
    one = canonical_representation(folds)
    other = canonical_representation(Segments(ends, along, folds.border, folds.vertices))
    assert (one.segment_layers[order] == other.segment_layers).all()
    graphs = [
        dependency_graph(folds, one),
        dependency_graph(Segments(ends, along, folds.border, folds.vertices), other),
    ]
    assert len(graphs[0].edges) == len(graphs[1].edges)
    assert sorted(graphs[0].longest) == sorted(graphs[1].longest)
    assert sorted(graphs[0].longest_bending) == sorted(graphs[1].longest_bending)
