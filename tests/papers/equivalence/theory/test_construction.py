"""The network of lemma 2.4: transparent, well connected by points that prove it, folding a fair share of the box."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.boxes import contains
from understudy._errors import UserError
from understudy.papers.equivalence.theory.construction import ineligible, well_connected_network
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.paths import longest_chains, path_points
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

ARCHITECTURES = [
    (2, 2, 1),
    (3, 2, 1),
    (5, 5, 1),
    (10, 10, 1),
    (20, 10, 1),
    (2, 2, 2, 1),
    (3, 3, 3, 1),
    (4, 3, 2, 1),
    (8, 8, 4, 1),
    (10, 10, 10, 1),
    (20, 10, 5, 1),
    (2, 2, 2, 2, 1),
    (4, 4, 4, 4, 1),
    (5, 4, 3, 2, 1),
    (8, 6, 6, 2, 1),
    (10, 10, 10, 10, 1),
    (2, 2, 2, 2, 2, 1),
    (3, 3, 3, 3, 3, 1),
    (6, 5, 5, 4, 3, 1),
    (10, 8, 6, 4, 2, 1),
]


def eligible_sizes() -> st.SearchStrategy[tuple[int, ...]]:
    """Non-increasing widths of depth 2 to 5, one output."""
    hidden = st.lists(st.integers(2, 7), min_size=1, max_size=4)
    return st.tuples(hidden, st.integers(0, 3)).map(
        lambda drawn: (max(drawn[0]) + drawn[1], *sorted(drawn[0], reverse=True), 1)
    )


def assert_points_prove_the_paths(network: ReluNetwork, box, smallest: float) -> None:
    points, depth = path_points(network, box), len(network.hidden)
    assert longest_chains(network, points) == [[depth - layer] * units for layer, units in enumerate(network.hidden, 1)]
    assert len(points) == sum(network.hidden) + sum(below * above for below, above in pairwise(network.hidden))
    for point in points:
        assert point.margin > smallest
        assert contains(box, point.point[None])[0]
        values = network.preactivations(point.point[None])
        at = values[point.layer - 1][0]
        assert at[point.unit] == pytest.approx(0, abs=1e-8)
        assert all((layer > 0).all() for layer in values[: point.layer - 1])
        if point.above is not None:
            assert (np.delete(at, point.unit) > 0).all()
            assert values[point.layer][0, point.above] == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("sizes", ARCHITECTURES, ids=lambda sizes: "-".join(map(str, sizes)))
def test_it_is_well_connected_and_transparent_and_folds_a_fair_share_of_the_box(sizes):
    box = as_box(None, sizes[0])
    network = well_connected_network(sizes, box, seed=1)
    assert network.sizes == sizes
    assert_points_prove_the_paths(network, box, 1e-3)
    x = box.draw(np.random.default_rng(0), 20_000)
    for values in network.preactivations(x)[:-1]:
        assert (values.max(1) > 0).all()
        assert np.minimum((values > 0).mean(0), (values < 0).mean(0)).min() > 1 / 200
    assert max(np.linalg.cond(weight) for weight in network.weights) < 1000
    assert all(weight.all() for weight in network.weights)


@given(eligible_sizes(), st.integers(0, 10**6))
def test_any_eligible_architecture_and_seed(sizes, seed):
    random = np.random.default_rng(seed)
    lower = random.uniform(-3, 3, sizes[0])
    box = as_box((lower, lower + 10 ** random.uniform(-2, 2, sizes[0])), sizes[0])
    network = well_connected_network(sizes, box, seed)
    assert_points_prove_the_paths(network, box, 1e-4)
    assert min(values.max(1).min() for values in network.preactivations(box.draw(random, 2000))[:-1]) > 0


def test_the_first_two_units_of_every_layer_cover_the_box():
    """A positive multiple of the second unit added to the first one has only nonnegative weights, and positive bias."""
    box = as_box((-1, 1), 4)
    network = well_connected_network((4, 4, 3, 1), box, seed=3)
    for layer, (weight, bias) in enumerate(zip(network.weights[:-1], network.biases[:-1], strict=True)):
        multiples = np.geomspace(1e-2, 1e2, 4001)[:, None]
        weights, biases = weight[0] + multiples * weight[1], bias[0] + multiples[:, 0] * bias[1]
        least = -np.abs(weights).sum(1) if layer == 0 else np.where((weights > -1e-3).all(1), 0, -np.inf)
        assert (least + biases).max() > 0


def test_seeds_give_different_networks_and_one_seed_the_same():
    box = as_box(None, 3)
    one, again, other = (well_connected_network((3, 3, 2, 1), box, seed) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(one.weights, again.weights, strict=True))
    assert not any(np.allclose(a, b) for a, b in zip(one.weights, other.weights, strict=True))


def test_a_network_whose_folds_do_not_meet_has_no_paths():
    """Second-layer folds at x > 1 in a strip where the first layer folds at 0: they meet nowhere."""
    first, second = np.array([[1.0, 0.0], [1.0, 0.1]]), np.array([[1.0, 1.0], [1.0, 2.0]])
    network = ReluNetwork((first, second, np.ones((1, 2))), (np.zeros(2), np.array([-3.0, -4.0]), np.zeros(1)))
    points = path_points(network, as_box((-2, 2), 2))
    assert longest_chains(network, points) == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ((3, 1), "there must be at least one hidden layer, got 3-1"),
        ((3, 3, 2), "there must be one output, got 2 in 3-3-2"),
        ((3, 4, 1), "widths must not increase, and layer 1 has 4 units after 3 in 3-4-1"),
        ((4, 3, 3, 4, 1), "widths must not increase, and layer 3 has 4 units after 3 in 4-3-3-4-1"),
        ((4, 3, 1, 1), "every hidden layer must have at least 2 units, got 1 in 4-3-1-1"),
    ],
)
def test_other_architectures_are_refused_with_the_reason(sizes, why):
    assert ineligible(sizes) == why
    with pytest.raises(UserError, match=f"no such network exists by lemma 2.4: {why}"):
        well_connected_network(sizes, as_box(None, sizes[0]), 0)


def test_a_box_of_other_inputs_is_refused():
    with pytest.raises(UserError, match="must have one interval for each of the 3 inputs, got 2"):
        well_connected_network((3, 2, 1), as_box(None, 2), 0)
