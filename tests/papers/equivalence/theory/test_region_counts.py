"""Linear regions along lines and in slices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.boxes import contains
from understudy import UserError
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.region_counts import (
    folds_on_line,
    random_plane,
    regions_in_slices,
    regions_on_lines,
)
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.papers.equivalence.theory.subdivision import subdivide


def test_a_tent_by_hand():
    network = ReluNetwork((np.eye(2), np.ones((1, 2)), np.ones((1, 1))), (np.zeros(2), -np.ones(1), np.zeros(1)))
    found = folds_on_line(network, np.array([-1.0, -1.0]), np.array([3.0, 1.0]))
    # (−1, −1) + t (4, 2): x = 0 at 1/4, y = 0 at 1/2; x + ρ(y) = 1 at x = 1, t = 1/2, the same point as y = 0.
    assert found.at == pytest.approx([0.25, 0.5])
    assert found.units.tolist() == [[1, 0], [1, 1]]
    found = folds_on_line(network, np.array([-1.0, -2.0]), np.array([3.0, 2.0]))
    assert found.at == pytest.approx([0.25, 0.5])
    found = folds_on_line(network, np.array([2.0, -1.0]), np.array([-1.0, 2.0]))
    assert found.at == pytest.approx([1 / 3, 2 / 3])


@given(st.sampled_from([(3, 5, 1), (2, 6, 4, 1), (8, 10, 6, 4, 2)]), st.integers(1, 10**6), st.sampled_from([0.0, 0.1]))
def test_folds_are_where_units_change_sign(sizes, seed, slope):
    network = random_network(sizes, seed, slope)
    start, end = as_box(None, sizes[0]).draw(np.random.default_rng(seed), 2)
    found = folds_on_line(network, start, end)
    x = start + found.at[:, None] * (end - start)
    before = [h[:, :] for h in network.preactivations(x)]
    for row, (layer, unit) in enumerate(found.units):
        assert abs(before[layer - 1][row, unit]) < 1e-10
    # Inside every piece the network is affine: the value in the middle is the mean of both ends.
    at = np.concatenate([[0.0], found.at, [1.0]])
    ends, middle = (start + t[:, None] * (end - start) for t in (at, (at[1:] + at[:-1]) / 2))
    outputs = network(ends)
    assert network(middle) == pytest.approx((outputs[1:] + outputs[:-1]) / 2, abs=1e-10)
    patterns = np.concatenate([h > 0 for h in network.preactivations(middle)[:-1]], axis=1)
    assert (patterns[1:] != patterns[:-1]).any(axis=1).all()


@given(st.integers(1, 10**6))
def test_a_line_in_the_window_crosses_cells_of_the_subdivision(seed):
    network = random_network((2, 8, 6, 1), seed)
    window = subdivide(network)
    height = 0.3
    found = folds_on_line(network, np.array([-2.0, height]), np.array([2.0, height]))
    ends = window.points[window.edges[window.inside], 1]
    crossed = (ends.min(axis=1) < height) & (ends.max(axis=1) > height)
    assert len(found.at) == crossed.sum()


def test_random_lines_and_slices():
    box = as_box(None, 6)
    network = random_network((6, 10, 8, 1), 1)
    on_lines, in_slices = regions_on_lines(network, box, 20, 1), regions_in_slices(network, box, 3, 1)
    assert (on_lines == regions_on_lines(network, box, 20, 1)).all()
    assert on_lines.min() >= 1
    assert on_lines.mean() < in_slices.mean()
    plane = random_plane(box, 1)
    corners = np.array([[a, b] for a in (plane.lower[0], plane.upper[0]) for b in (plane.lower[1], plane.upper[1])])
    assert contains(box, plane.inputs_at(corners), 1e-12).all()
    assert np.abs(plane.inputs_at(corners)).max() == pytest.approx(2.0)
    with pytest.raises(UserError, match="at least 1, got 0"):
        regions_on_lines(network, box, 0, 1)
    with pytest.raises(UserError, match="at least 1, got 0"):
        regions_in_slices(network, box, 0, 1)


def test_one_hidden_layer_along_lines_through_the_box():
    # Every unit folds a line at most once.
    network = random_network((4, 30, 1), 2)
    assert regions_on_lines(network, as_box(None, 4), 30, 5).max() <= 31
