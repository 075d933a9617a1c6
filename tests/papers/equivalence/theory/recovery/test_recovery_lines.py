"""Folds along lines: all that a scan of the network's signs finds, to rounding, with every evaluation counted."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.recovery.lines import draw_chords, folds_on_lines, locate
from understudy.papers.equivalence.theory.recovery.oracle import EDGE, ExhaustedError, Oracle
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network


def an_oracle(network, most=100_000, box=None):
    box = as_box((-1.0, 1.0), network.sizes[0]) if box is None else box
    return Oracle(network, box, most, np.random.default_rng(0))


def test_a_hat_has_three_folds():
    hat = ReluNetwork((np.ones((3, 1)), np.array([[1.0, -2.0, 1.0]])), (np.array([0.5, 0.0, -0.5]), np.zeros(1)))
    oracle = an_oracle(hat)
    before = oracle.evaluations
    found = folds_on_lines(oracle, np.array([[-0.9]]), np.array([[0.8]]), np.random.default_rng(0))
    assert np.allclose(np.sort(found.points[:, 0]), [-0.5, 0.0, 0.5], rtol=0, atol=1e-11)
    assert np.array_equal(np.abs(found.directions), np.ones((3, 1)))
    assert 10 <= oracle.evaluations - before <= 60


@given(st.integers(0, 2**31), st.sampled_from([(3, 6, 1), (5, 8, 2), (4, 5, 4, 1)]))
@example(63088, (5, 8, 2))
@example(63088, (3, 6, 1))
def test_lines_have_the_folds_of_a_scan(seed, sizes):
    network = random_network(sizes, seed)
    oracle = an_oracle(network)
    random = np.random.default_rng(seed)
    start, end = draw_chords(random, 6, sizes[0])
    found = folds_on_lines(oracle, start, end, random)
    t = np.linspace(0, 1, 4001)[:, None]
    scanned = 0
    for a, b in zip(start, end, strict=True):
        signs = np.concatenate(network.preactivations(a + t * (b - a))[:-1], axis=1) > 0
        scanned += int((signs[1:] != signs[:-1]).sum())
    at_fold = np.abs(np.concatenate(network.preactivations(found.points)[:-1], axis=1)).min(1, initial=np.inf)
    # A fold is not seen where the layers above are inactive; a few pairs are taken for one fold between them.
    assert (at_fold < 1e-8).sum() <= scanned
    assert (at_fold < 1e-8).sum() >= 0.7 * scanned - 1
    assert (at_fold >= 1e-8).sum() <= 2


def test_affine_functions_have_no_folds():
    network = ReluNetwork((np.eye(2), np.ones((1, 2))), (np.full(2, 5.0), np.zeros(1)))
    found = folds_on_lines(
        an_oracle(network), np.array([[-1.0, -1.0]]), np.array([[1.0, 1.0]]), np.random.default_rng(0)
    )
    assert len(found.points) == 0


@given(st.floats(-0.4e-3, 0.4e-3), st.floats(0.05, 20), st.integers(1, 3))
def test_one_fold_on_a_short_segment_is_located_to_rounding(at, jump, outputs):
    network = ReluNetwork(
        (np.array([[1.0, 0.0], [0.3, 1.0]]), np.outer(np.arange(1, outputs + 1), [jump, 1.0])),
        (np.array([-0.2 - at, 3.0]), np.zeros(outputs)),
    )
    oracle = an_oracle(network)
    found = locate(oracle, np.array([[0.2, 0.1]]), np.array([[1.0, 0.0]]), 1e-3)
    assert found.found[0]
    assert abs(found.points[0, 0] - 0.2 - at) < 1e-13 * (1 + 1 / jump)
    assert np.allclose((found.after - found.before) * oracle.scale, np.arange(1, outputs + 1) * jump, rtol=1e-8)
    known = locate(oracle, np.array([[0.2, 0.1]]), np.array([[1.0, 0.0]]), 1e-3, (found.before, found.after))
    assert np.allclose(known.points, found.points, rtol=0, atol=1e-12)


@pytest.mark.parametrize("folds", [(), (0.2, 0.2002), (0.2009,)])
def test_segments_without_a_single_inner_fold_are_not_found(folds):
    bias = [-fold for fold in folds] + [3.0]
    weights = np.ones((len(bias), 1)), np.ones((1, len(bias)))
    oracle = an_oracle(ReluNetwork(weights, (np.array(bias), np.zeros(1))))
    assert not locate(oracle, np.array([[0.2]]), np.array([[1.0]]), 1e-3).found[0]


def test_evaluations_are_counted_and_limited():
    network = random_network((3, 4, 1), 1)
    oracle = an_oracle(network, 200)
    before = oracle.evaluations
    oracle(np.zeros((7, 3)))
    assert oracle.evaluations == before + 7
    with pytest.raises(ExhaustedError):
        oracle(np.zeros((200, 3)))


def test_the_oracle_scales_inputs_and_outputs():
    network = random_network((3, 4, 2), 1)
    box = as_box(([0.0, -1.0, 2.0], [1.0, 5.0, 2.5]), 3)
    oracle = an_oracle(network, box=box)
    z = np.random.default_rng(1).uniform(-1, 1, (50, 3))
    x = box.centre + box.half * z
    assert np.allclose(oracle(z) * oracle.scale + oracle.shift, network(x), atol=1e-13)
    assert oracle.rounding < 1e-13


def test_lines_stay_in_the_cube():
    start, end = draw_chords(np.random.default_rng(0), 40, 5)
    assert max(np.abs(start).max(), np.abs(end).max()) <= EDGE + 1e-15
    assert (start != end).any(axis=1).all()
