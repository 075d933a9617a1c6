"""Degenerate units: found, named and removed without changing the function on the box."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.equal_networks import by_hand, with_unit
from understudy.papers.equivalence.theory import activity
from understudy.papers.equivalence.theory.activity import activities
from understudy.papers.equivalence.theory.degenerate import reduce_network
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network

BOX = as_box(None, 3)
X = BOX.draw(np.random.default_rng(0), 500)


def values(found, x=X, box=BOX):
    """Outputs of a reduced network, which is a function of the coordinates of the box."""
    return found.network((x - box.centre) / box.half)


def kinds(network, **options):
    return {(unit.layer, unit.unit): unit.kind for unit in reduce_network(network, BOX, **options).units}


def clean(seed=3, slope=0.0):
    """A network whose units all fold the box."""
    network = random_network([3, 4, 3, 2], seed, slope)
    return ReluNetwork(network.weights, tuple(0.1 * bias for bias in network.biases), slope)


def test_a_network_whose_units_all_fold_stays_as_it_is():
    network = clean()
    found = reduce_network(network, BOX)
    assert not found.units and found.network.sizes == network.sizes


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_every_kind_is_named_and_removed(layer, slope):
    network = clean(slope=slope)
    below, above = network.sizes[layer - 1], network.sizes[layer + 1]
    width = network.sizes[layer]
    random = np.random.default_rng(layer)
    row, out = random.normal(size=below), random.normal(size=above)
    dead = with_unit(network, layer, row, -1e3, out, gain=slope)
    active = with_unit(network, layer, row, 1e3, out, gain=1.0)
    copy = with_unit(network, layer, 3 * network.weights[layer - 1][1], 3 * network.biases[layer - 1][1], 0.1 * out)
    cancel = with_unit(copy, layer, row, 0.1, np.zeros(above))
    linear = "linear" if slope else "dead"
    assert kinds(dead) == {(layer, width): linear}
    assert kinds(active) == {(layer, width): "linear"}
    assert kinds(copy) == {(layer, width): "duplicate"}
    assert kinds(cancel) == {(layer, width): "duplicate", (layer, width + 1): "cancelling"}
    for changed in (dead, active, copy, cancel):
        found = reduce_network(changed, BOX)
        np.testing.assert_allclose(values(found), changed(X), rtol=0, atol=1e-9)
    assert reduce_network(copy, BOX).network.sizes == network.sizes
    assert reduce_network(cancel, BOX).network.sizes == network.sizes
    if not slope:
        assert reduce_network(dead, BOX).network.sizes == network.sizes


def test_duplicates_that_cancel_both_go():
    network = clean()
    row, bias, out = np.array([1.0, -1.0, 0.5]), 0.2, np.array([1.0, 2.0, -1.0])
    one = with_unit(network, 1, row, bias, out)
    two = with_unit(one, 1, 2 * row, 2 * bias, -out / 2)
    found = reduce_network(two, BOX)
    assert found.network.sizes == network.sizes and kinds(two) == {(1, 4): "cancelling", (1, 5): "duplicate"}
    assert str(found.units[1]) == "layer 1, unit 5: duplicate of unit 4"


def test_linear_units_are_merged_to_as_few_as_their_rank():
    network = clean()
    row, out = np.array([1.0, -1.0, 0.5]), np.array([1.0, 2.0, -1.0])
    wide = with_unit(with_unit(network, 1, row, 50.0, out, 1.0), 1, 2 * row, 70.0, 3 * out, 1.0)
    found = reduce_network(wide, BOX)
    assert found.network.sizes[1] == network.sizes[1] + 1
    assert [unit.removed for unit in found.units] == [False, True]
    np.testing.assert_allclose(values(found), wide(X), rtol=0, atol=1e-10)


def test_a_layer_of_dead_units_keeps_one():
    network = clean()
    dead = ReluNetwork(network.weights, (network.biases[0], network.biases[1] - 1e3, network.biases[2]))
    found = reduce_network(dead, BOX)
    assert found.network.sizes[2] == 1 and {unit.kind for unit in found.units if unit.layer == 2} == {"dead"}
    np.testing.assert_allclose(values(found), dead(X))


def test_intervals_alone_do_not_decide_what_integer_programming_does():
    # u = |x| − |x| − 0.1 is −0.1 everywhere, but its interval is [−2.1, 3.9].
    network = by_hand(
        ([[1.0], [-1.0]], [0.0, 0.0]),
        ([[1.0, 1.0], [-1.0, -1.0]], [0.0, 2.5]),
        ([[1.0, 1.0]], [-2.6]),
        ([[1.0]], [0.0]),
    )
    box = as_box(None, 1)
    assert activities(network, box, exact=False).kinds[2] == ["undecided"]
    assert activities(network, box).kinds == [["folds", "folds"], ["active", "active"], ["dead"]]


def test_an_input_that_sampling_misses_is_found_by_integer_programming(monkeypatch):
    # A bump that is positive on |x − 1.234| < 10⁻⁴ only.
    at, width = 1.234, 1e-4
    hat = [[1.0], [1.0], [1.0]], [width - at, -at, -width - at]
    network = by_hand(hat, ([[1.0, -2.0, 1.0]], [-width / 2]), ([[1.0]], [0.0]))
    box = as_box(None, 1)
    monkeypatch.setattr(activity, "_MARGIN", 1e-9)
    monkeypatch.setattr(activity, "_SAMPLES", 50)
    found = activities(network, box)
    assert found.kinds[1] == ["folds"] and np.abs(found.inputs - at).min() < width


@pytest.mark.parametrize(("sign", "proved"), [(1.0, "dead"), (-1.0, "active")])
def test_a_bound_nearer_to_zero_than_the_margin_proves_nothing(sign, proved, monkeypatch):
    # The unit is sign·(hat − height / 2): near x = 1.234 it has the other sign, by about 2·10⁻⁷ of its row's length.
    at, width = 1.234, 4e-6
    hat = [[1.0], [1.0], [1.0]], [width - at, -at, -width - at]
    monkeypatch.setattr(activity, "_SAMPLES", 50)
    box = as_box(None, 1)
    near = by_hand(hat, ([sign * np.array([1.0, -2.0, 1.0])], [-sign * width / 2]), ([[1.0]], [0.0]))
    assert activities(near, box).kinds[1] != [proved]
    far = by_hand(hat, ([sign * np.array([1.0, -2.0, 1.0])], [-sign * 0.1]), ([[1.0]], [0.0]))
    assert activities(far, box).kinds[1] == [proved]


@pytest.mark.parametrize("size", [1e-9, 1e12])
def test_units_of_every_box_are_decided_alike_and_silently(size, capfd):
    # u = |x| − |x| − 0.1 is −0.1 everywhere on the box of this size, but its interval is [−2.1, 3.9].
    network = by_hand(
        ([[1.0], [-1.0]], [0.0, 0.0]),
        ([[1.0, 1.0], [-1.0, -1.0]], [0.0, 2.5 * size]),
        ([[1.0, 1.0]], [-2.6 * size]),
        ([[1.0]], [0.0]),
    )
    box = as_box((-2 * size, 2 * size), 1)
    assert activities(network, box).kinds == [["folds", "folds"], ["active", "active"], ["dead"]]
    assert activities(random_network([3, 5, 4, 4, 1], 1), as_box((-size, size), 3)).kinds
    assert capfd.readouterr() == ("", "")


def test_units_on_a_distant_box_are_not_duplicates():
    box, centre = as_box((1e8, 1e8 + 1), 3), np.full(3, 1e8 + 0.5)
    network = clean()
    moved = ReluNetwork(network.weights, (network.biases[0] - network.weights[0] @ centre, *network.biases[1:]))
    close = moved.weights[0].copy()
    close[1] = close[0] + [1e-3, 0.0, -1e-3]  # nearly the same bias, which is 10⁸ times as large
    biases = moved.biases[0].copy()
    biases[1] = network.biases[0][0] - close[1] @ centre
    moved = ReluNetwork((close, *moved.weights[1:]), (biases, *moved.biases[1:]))
    assert not [unit for unit in reduce_network(moved, box).units if unit.kind == "duplicate"]


def test_scales_are_those_of_the_given_units():
    network = with_unit(clean(), 1, [1.0, 2.0, 3.0], -50.0, np.ones(3))
    found = reduce_network(network, BOX)
    assert found.kept[0] == (0, 1, 2, 3)
    expected = np.linalg.norm(np.column_stack((network.weights[0], network.biases[0])), axis=1)[:4]
    np.testing.assert_allclose(found.scales[0], expected)


def test_linear_units_of_outputs_of_all_sizes_are_kept():
    rows = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -0.5], [1.0, 1.0, 0.0]])
    network = by_hand((rows, [50.0, 50.0, 50.0]), ([[1e6, 0.0, 0.0], [0.0, 1e-5, 0.0]], [0.0, 0.0]))
    found = reduce_network(network, BOX)
    assert found.network.sizes[1] == 2
    np.testing.assert_allclose(values(found) / [1e6, 1e-5], network(X) / [1e6, 1e-5], rtol=1e-9)


@given(st.lists(st.integers(1, 5), min_size=3, max_size=5), st.integers(0, 999), st.sampled_from([0.0, 0.3]))
def test_the_function_is_kept_on_the_box(sizes, seed, slope):
    network = random_network(sizes, seed, slope)
    box = as_box(None, sizes[0])
    found = reduce_network(network, box, seed=seed)
    x = box.draw(np.random.default_rng(seed), 300)
    scale = max(1.0, float(np.abs(network(x)).max()))
    np.testing.assert_allclose(values(found, x, box), network(x), rtol=0, atol=1e-9 * scale)
    signs = network.preactivations(x)
    for unit in found.units:
        value = signs[unit.layer - 1][:, unit.unit]
        if unit.kind == "dead":
            assert value.max() <= 1e-12
        if unit.kind == "linear":
            assert value.min() >= -1e-12 or value.max() <= 1e-12


def test_what_compiled_code_prints_is_discarded(monkeypatch, capfd):
    programming = activity.milp

    def loud(*words, **options):
        os.write(1, b"HighsMipSolverData\n")
        return programming(*words, **options)

    monkeypatch.setattr(activity, "milp", loud)
    test_intervals_alone_do_not_decide_what_integer_programming_does()
    print("afterwards")
    assert capfd.readouterr() == ("afterwards\n", "")
