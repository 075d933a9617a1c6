"""Features of known layers, derivatives with respect to parameters, and the active sides by least squares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.recovery.known import KnownLayers
from understudy.papers.equivalence.theory.recovery.oracle import Oracle
from understudy.papers.equivalence.theory.recovery.output import fit_output
from understudy.papers.equivalence.theory.recovery.polish import parameter_jacobian, polish, undetermined
from understudy.papers.equivalence.theory.recovery.sampling import sample_points
from understudy.papers.equivalence.theory.recovery.unit import Follower, Unit
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network

slopes = st.sampled_from([0.0, 0.1])


def layers_of(network, count, oriented=True, flips=None):
    weights, biases = [w.copy() for w in network.weights[:count]], [b.copy() for b in network.biases[:count]]
    if flips is not None:
        weights[-1], biases[-1] = weights[-1] * flips[:, None], biases[-1] * flips
    return KnownLayers(network.sizes[0], weights, biases, np.full(network.sizes[count], oriented), network.slope)


@given(st.integers(0, 2**31), slopes, st.booleans())
def test_pieces_are_the_features_and_their_derivatives(seed, slope, oriented):
    known = layers_of(random_network((3, 5, 4, 1), seed, slope), 2, oriented)
    z = np.random.default_rng(seed).uniform(-1, 1, 3)
    piece = known.piece(z, known.pattern(z))
    assert np.allclose(piece.features, known.features(z[None])[0], atol=1e-12)
    assert np.allclose(piece.values, known.values(z[None])[0], atol=1e-12)
    step = 1e-7
    for i in range(3):
        moved = z + step * np.eye(3)[i]
        if np.array_equal(known.pattern(moved), known.pattern(z)):
            numeric = (known.features(moved[None])[0] - piece.features) / step
            assert np.allclose(piece.jacobian[:, i], numeric, atol=1e-6)


@given(st.integers(0, 2**31), slopes)
def test_preactivations_above_are_linear_in_features_whatever_side_is_active(seed, slope):
    """ρ(±u) = (1 − slope)/2 · |u| ± (1 + slope)/2 · u."""
    network = random_network((4, 5, 3, 1), seed, slope)
    random = np.random.default_rng(seed)
    flips = random.choice((-1.0, 1.0), 5)
    known = layers_of(network, 1, oriented=False, flips=flips)
    z = random.uniform(-2, 2, (40, 4))
    weight = network.weights[1]
    coefficients = np.c_[(1 - slope) / 2 * weight, (1 + slope) / 2 * weight * flips, network.biases[1]]
    assert np.allclose(known.features(z) @ coefficients.T, network.preactivations(z)[1], atol=1e-12)


@given(st.integers(0, 2**31), slopes)
def test_derivatives_with_respect_to_parameters_are_differences(seed, slope):
    network = random_network((2, 3, 2, 2), seed, slope)
    z = np.random.default_rng(seed).uniform(-1, 1, (4, 2))
    jacobian = parameter_jacobian(network, z)
    column, step = 0, 1e-7
    for layer in range(3):
        for part, of in ((network.weights, True), (network.biases, False)):
            for index in np.ndindex(part[layer].shape):
                changed = [each.copy() for each in part]
                changed[layer][index] += step
                pair = (tuple(changed), network.biases) if of else (network.weights, tuple(changed))
                numeric = (ReluNetwork(*pair, slope)(z) - network(z)).reshape(-1) / step
                if np.abs(np.concatenate(network.preactivations(z)[:-1], axis=1)).min() > 1e-5:
                    assert np.allclose(jacobian[:, column], numeric, atol=1e-5 * (1 + np.abs(numeric).max()))
                column += 1
    assert column == jacobian.shape[1]


def test_steps_of_gauss_newton_remove_small_errors():
    network = random_network((6, 5, 4, 1), 3)
    random = np.random.default_rng(0)
    z = random.uniform(-2, 2, (400, 6))
    near = ReluNetwork(
        tuple(w + 1e-7 * random.normal(size=w.shape) for w in network.weights),
        tuple(b + 1e-7 * random.normal(size=b.shape) for b in network.biases),
    )
    improved = polish(near, z, network(z))
    fresh = random.uniform(-2, 2, (400, 6))
    assert np.abs(near(fresh) - network(fresh)).max() > 1e-8
    assert np.abs(improved(fresh) - network(fresh)).max() < 1e-12


@pytest.mark.parametrize(("bias", "free"), [(0.5, 0), (-100.0, 5)])
def test_parameters_of_a_dead_unit_are_not_determined(bias, free):
    """A unit that is never active has four incoming and one outgoing parameter without effect; its scale is one."""
    network = random_network((3, 4, 1), 2)
    biases = network.biases[0].copy()
    biases[1] = bias
    dead = ReluNetwork(network.weights, (biases, network.biases[1]))
    assert undetermined(dead, np.random.default_rng(0).uniform(-2, 2, (2000, 3))) == max(free - 1, 0)


@given(st.integers(0, 2**31), st.sampled_from([(4, 3, 1), (4, 4, 2), (2, 5, 1), (3, 7, 3)]))
def test_active_sides_follow_from_the_linear_part(seed, sizes):
    network = random_network(sizes, seed)
    oracle = Oracle(network, as_box((-1.0, 1.0), sizes[0]), 10_000, np.random.default_rng(seed))
    flips = np.random.default_rng(seed).choice((-1.0, 1.0), sizes[1])
    known = layers_of(network, 1, oriented=False, flips=flips)
    z = np.random.default_rng(seed + 1).uniform(-1, 1, (2000, sizes[0]))
    active = (network.preactivations(z)[0] > 0).mean(0)
    if min(active.min(), 1 - active.max()) < 0.2:
        return  # A unit that hardly folds is no matter of least squares on few points.
    output = fit_output(oracle, known, [], np.random.default_rng(seed))
    assert not len(output.undecided)
    assert output.size < 1e-9
    assert np.allclose(known.weights[0], network.weights[0])
    assert np.allclose(output.weight * oracle.scale[:, None], network.weights[1], atol=1e-8)
    assert np.allclose(output.bias * oracle.scale + oracle.shift, network.biases[1], atol=1e-8)


@pytest.mark.parametrize(("inputs", "bias", "each"), [(5, -4.5, 8), (5, -4.5, 28), (3, -2.9, 8)])
def test_points_are_on_both_sides_of_a_fold_that_cuts_off_a_corner(inputs, bias, each):
    """The fold points are on edges of the cube, from which few random steps lead into the corner."""
    weights = np.r_[np.ones((1, inputs)), np.eye(1, inputs)]
    known = KnownLayers(inputs, [weights], [np.array([bias, 0.1])], np.ones(2, bool))
    folds = [np.r_[np.full(inputs - 1, 0.999), 0.999 * (1 - inputs) - bias], np.r_[-0.1, np.full(inputs - 1, 0.5)]]
    units = [Unit([fold], np.eye(inputs + 1), row, 1.0) for fold, row in zip(folds, weights, strict=True)]
    z = sample_points(known, units, 20, np.random.default_rng(1), each)
    assert z.shape == (20 + 10 + 2 * each, inputs)
    assert np.abs(z).max() <= 0.999
    u = known.values(z)[:, 0]
    corner = np.unique(z[u > 0], axis=0)
    assert (u < 0).sum() >= each // 2
    assert len(corner) >= each // 2
    if len(corner) > inputs:
        assert np.linalg.matrix_rank(np.c_[corner, np.ones(len(corner))], tol=1e-4) == inputs + 1


def test_a_fold_of_the_second_layer_is_followed_through_all_cells():
    """The weights and bias of a unit, from one of its fold points, with the sides of the first layer unknown."""
    network = random_network((10, 6, 3, 1), 5)
    oracle = Oracle(network, as_box((-1.0, 1.0), 10), 50_000, np.random.default_rng(0))
    known = layers_of(network, 1, oriented=False)
    random = np.random.default_rng(1)
    found = 0
    for unit in range(3):
        ends = random.uniform(-0.9, 0.9, (400, 10))
        values = network.preactivations(ends)[1][:, unit]
        if not ((values > 0).any() and (values < 0).any()):
            continue
        low, high = ends[np.argmin(values)], ends[np.argmax(values)]
        for _ in range(100):
            middle = (low + high) / 2
            below = network.preactivations(middle[None])[1][0, unit] < 0
            low, high = (middle, high) if below else (low, middle)
        follower = Follower(oracle, known, random)
        followed = follower.begin(
            low, (high - low) / np.linalg.norm(high - low) if (high != low).any() else np.eye(10)[0]
        )
        if followed is None:
            continue
        follower.explore(followed, 100)
        follower.confirm(followed, 30)
        assert followed.hits >= 0.9 * followed.tries
        if followed.visible:
            expected = np.r_[network.weights[1][unit] / 2, network.weights[1][unit] / 2, network.biases[1][unit]]
            expected /= np.linalg.norm(expected)
            assert abs(abs(expected @ followed.normal) - 1) < 1e-10
            found += 1
    assert found >= 1
