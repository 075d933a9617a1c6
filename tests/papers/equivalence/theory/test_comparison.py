"""Whether two networks are one function: all relations, with witnesses that are checked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from support.boxes import contains
from support.equal_networks import by_hand, changed_weight, shuffled, with_unit
from understudy.papers.equivalence.theory.classes import classify
from understudy.papers.equivalence.theory.comparison import compare_networks
from understudy.papers.equivalence.theory.degenerate import reduce_network
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.fold_form import fold_form_difference
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network

SIZES = st.lists(st.integers(2, 8), min_size=2, max_size=5).map(lambda widths: [*sorted(widths, reverse=True), 1])


def folding(sizes, seed, slope=0.0):
    """A network whose units mostly fold the box."""
    network = random_network(sizes, seed, slope)
    return ReluNetwork(network.weights, tuple(0.3 * bias for bias in network.biases), slope)


@given(SIZES, st.integers(0, 999), st.sampled_from([0.0, 0.1]))
def test_permuted_and_rescaled_networks_are_the_same_function(sizes, seed, slope):
    network = random_network(sizes, seed, slope)
    other, orders, scalings = shuffled(network, seed)
    found = compare_networks(network, other, as_box(None, sizes[0]))
    assert found.same and found.relation == "permutation and scaling" and found.witness is None
    assert found.largest_parameter_difference < 1e-13 and found.largest_output_difference < 1e-9
    assert all(np.array_equal(x, y) for x, y in zip(found.permutations, orders, strict=True))
    assert all(np.allclose(x, y, rtol=1e-12) for x, y in zip(found.scalings, scalings, strict=True))


@given(SIZES, st.integers(0, 999), st.data())
def test_a_changed_weight_has_a_witness_or_a_degenerate_unit(sizes, seed, data):
    network, box = random_network(sizes, seed), as_box(None, sizes[0])
    layer = data.draw(st.integers(1, len(sizes) - 1))
    out, into = data.draw(st.integers(0, sizes[layer] - 1)), data.draw(st.integers(0, sizes[layer - 1] - 1))
    other, _, _ = shuffled(changed_weight(network, layer, out, into, 1 + 1e-4), seed)
    found = compare_networks(network, other, box)
    assert found.relation != "permutation and scaling"
    if found.witness is None:
        assert found.degenerate[0]
        x = box.draw(np.random.default_rng(seed), 1_000)
        np.testing.assert_allclose(network(x), other(x), rtol=1e-9, atol=1e-9)
    else:
        x = found.witness.x[None]
        assert contains(box, x).all() and found.same is False
        assert abs(network(x) - other(x)).max() == found.witness.difference > 0


def test_networks_that_differ_in_dead_units_only_are_the_same_on_the_box():
    network, box = folding([3, 4, 3, 1], 1), as_box(None, 3)
    ours = with_unit(network, 1, [1.0, 2.0, 3.0], -50.0, np.ones(3))
    theirs = with_unit(network, 1, [3.0, -2.0, 1.0], -40.0, -np.ones(3))
    found = compare_networks(ours, theirs, box)
    assert found.same and found.relation == "after removal"
    assert [str(units[0]) for units in found.degenerate] == ["layer 1, unit 4: dead"] * 2
    assert [units[0].removed for units in found.degenerate] == [True, True]
    wider = compare_networks(ours, network, box)
    assert wider.same and wider.relation == "after removal"
    larger = compare_networks(ours, theirs, as_box((-30, 30), 3))
    assert larger.same is False


def test_duplicates_of_other_shares_are_the_same():
    network, box = folding([3, 4, 1], 1), as_box(None, 3)
    row, bias = network.weights[0][2], network.biases[0][2]
    ours, theirs = with_unit(network, 1, row, bias, [1.0]), with_unit(network, 1, 2 * row, 2 * bias, [0.5])
    found = compare_networks(ours, theirs, box)
    assert found.same  # already by permutation and scaling
    split = with_unit(with_unit(network, 1, row, bias, [0.75]), 1, row, bias, [0.25])
    found = compare_networks(ours, split, box)
    assert found.same and found.relation == "after removal"


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_linear_units_in_another_basis_are_the_same_folds(slope):
    network, box = folding([3, 4, 4, 1], 1, slope), as_box(None, 3)
    random = np.random.default_rng(1)
    rows, outs, mix = random.normal(size=(2, 3)), random.normal(size=(4, 2)), np.array([[2.0, 1.0], [-1.0, 1.0]])
    ours = with_unit(with_unit(network, 1, rows[0], 20.0, outs[:, 0]), 1, rows[1], 20.0, outs[:, 1])
    mixed, back = mix @ rows, outs @ np.linalg.inv(mix)
    theirs = with_unit(with_unit(network, 1, mixed[0], 30.0, back[:, 0]), 1, mixed[1], 30.0, back[:, 1])
    shift = outs @ np.array([20.0, 20.0]) - back @ np.array([30.0, 30.0])
    theirs = ReluNetwork(theirs.weights, (theirs.biases[0], theirs.biases[1] + shift, theirs.biases[2]), slope)
    found = compare_networks(ours, theirs, box)
    assert found.relation == "same folds" and found.same and found.largest_parameter_difference > 0.01


def test_the_counter_example_with_opposite_units_is_the_same_function():
    # Σ w = 0, so that Σ ρ(w·x) = Σ ρ(−w·x) (Zhou, Ge & Jin 2021, claim 1).
    rows = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    ours, theirs = (by_hand((sign * rows, np.zeros(3)), (np.ones((1, 3)), [0.0])) for sign in (1, -1))
    found = compare_networks(ours, theirs, as_box(None, 2))
    assert found.relation == "same folds" and found.largest_parameter_difference > 0.1


def test_networks_of_other_depth_and_slope_are_compared_by_their_folds():
    ours = by_hand(([[1.0, 0.5], [-1.0, 2.0]], [0.1, 0.2]), ([[1.0, -2.0]], [0.3]))
    # ρ(ρ(u)) = ρ(u): one more layer that passes everything on.
    deeper = by_hand((ours.weights[0], ours.biases[0]), (np.eye(2), np.zeros(2)), (ours.weights[1], ours.biases[1]))
    found = compare_networks(ours, deeper, as_box(None, 2))
    assert found.same and found.relation == "same folds" and found.permutations is None
    # ρ(u) = (ρ_α(u) + α ρ_α(−u)) / (1 − α²)
    a = 0.5
    weights = np.vstack((ours.weights[0], -ours.weights[0])), np.hstack((ours.weights[1], a * ours.weights[1]))
    leaky = by_hand(
        (weights[0], np.append(ours.biases[0], -ours.biases[0])), (weights[1] / (1 - a * a), ours.biases[1]), slope=a
    )
    x = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    np.testing.assert_allclose(ours(x), leaky(x), atol=1e-12)
    assert compare_networks(ours, leaky, as_box(None, 2)).relation == "same folds"


@given(SIZES, st.integers(0, 999), st.sampled_from([0.0, 0.3]))
def test_fold_forms_of_one_function_agree(sizes, seed, slope):
    network, box = random_network(sizes, seed, slope), as_box(None, sizes[0])
    other, _, _ = shuffled(network, seed)
    ours, theirs = (reduce_network(each, box, exact=False) for each in (network, other))
    found = fold_form_difference(ours, theirs, 1e-9)
    assert found is not None and found < 1e-9


def test_affine_and_constant_functions():
    affine, other = by_hand(([[1.0, 2.0]], [0.5])), by_hand(([[1.0, 2.0]], [0.6]))
    split = by_hand(([[1.0, 2.0], [-1.0, -2.0]], [0.5, -0.5]), ([[1.0, -1.0]], [0.0]))  # ρ(u) − ρ(−u) = u
    box = as_box(None, 2)
    assert compare_networks(affine, affine, box).same and compare_networks(affine, other, box).same is False
    assert compare_networks(affine, split, box).relation == "same folds"
    zero, unused = (by_hand((fill * np.ones((3, 2)), np.zeros(3)), (np.zeros((1, 3)), [0.0])) for fill in (0, 1))
    assert compare_networks(zero, zero, box).same and compare_networks(zero, unused, box).same


def test_a_large_constant_hides_no_difference():
    network = random_network([3, 4, 1], 1)
    network = ReluNetwork(network.weights, (network.biases[0], network.biases[1] + 1e9))
    other, _, _ = shuffled(network, 2)
    assert compare_networks(network, other, as_box(None, 3)).same
    assert compare_networks(network, changed_weight(other, 2, 0, 0, 1.1), as_box(None, 3)).witness is not None


def test_classes_of_many_networks():
    box = as_box(None, 3)
    one, two = folding([3, 4, 1], 1), folding([3, 4, 1], 2)
    dead = with_unit(one, 1, [1.0, 2.0, 3.0], -50.0, [1.0])
    networks = [one, two, shuffled(one, 1)[0], dead, shuffled(two, 2)[0], folding([3, 3, 1], 3)]
    found = classify(networks, box)
    assert found.functions == [[0, 2, 3], [1, 4], [5]] and found.parameters == [[0, 2], [1, 4], [3], [5]]
    assert found.distances[0, 2] < 1e-9 < found.distances[0, 1] and found.undecided == []
    assert np.array_equal(found.distances, found.distances.T) and found.compared < 15


def test_what_does_not_fit_is_refused():
    box = as_box(None, 3)
    one = random_network([3, 4, 1], 1)
    with pytest.raises(us.UserError, match="number of outputs to be compared, got 1 and 2"):
        compare_networks(one, random_network([3, 4, 2], 1), box)
    with pytest.raises(us.UserError, match="number of inputs to be compared, got 3 and 2"):
        compare_networks(one, random_network([2, 4, 1], 1), box)
    with pytest.raises(us.UserError, match="tolerance must be above 0 and below 1, got −1"):
        compare_networks(one, one, box, -1.0)
    with pytest.raises(us.UserError, match="domain must have one interval"):
        compare_networks(one, one, as_box(None, 2))
    with pytest.raises(us.UserError, match="same numbers of inputs"):
        classify([one, random_network([2, 4, 1], 1)], box)


def corner(bias, inputs=20, offset=0.0, layers=1):
    """A network with a unit that is active in a corner of [offset, offset + 1]^n only, up to a value of `bias`.

    With two layers, the offset is added by the first, and the box is [0, 1]^n.
    """
    base = random_network((inputs, 4, 1), 1)
    top = np.vstack((base.weights[0], np.ones(inputs)))
    biases = np.append(base.biases[0] - base.weights[0].sum(1) * offset, -inputs * (offset + 1) + bias)
    above = top, biases, np.append(base.weights[1], [[1.0]], axis=1), base.biases[1]
    below = [(np.eye(inputs), np.full(inputs, offset))] if layers == 2 else []
    return by_hand(*below, above[:2], above[2:])


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
def test_a_difference_in_the_corner_of_a_distant_box_is_found(offset):
    box = as_box((offset, offset + 1), 20)
    ours, theirs = corner(0.01, offset=offset), corner(0.005, offset=offset)
    found = compare_networks(ours, theirs, box)
    assert found.same is False and found.largest_parameter_difference > 1e-5
    assert abs(found.witness.difference - 0.005) < 1e-6 + 1e-14 * offset


def test_rescaled_networks_on_a_distant_box_are_the_same_up_to_rounding():
    for offset in (1e3, 1e6, 1e9):
        network = corner(0.01, offset=offset)
        other, orders, scalings = shuffled(network, 3)
        found = compare_networks(network, other, as_box((offset, offset + 1), 20))
        assert found.relation == "permutation and scaling" and found.matching.excess < 1e-13
        assert all(np.array_equal(x, y) for x, y in zip(found.permutations, orders, strict=True))
        assert all(np.allclose(x, y, rtol=1e-12) for x, y in zip(found.scalings, scalings, strict=True))
        # A dead unit is removed before, and the maps are still those of the given parameters.
        dead = with_unit(other, 1, np.ones(20), -21 * (offset + 1), [1.0])
        found = compare_networks(network, dead, as_box((offset, offset + 1), 20))
        assert found.relation == "after removal"
        np.testing.assert_allclose(found.scalings[0], scalings[0], rtol=1e-12)


def test_equal_parameters_are_not_enough_where_hidden_units_cancel():
    # The offset of the first layer makes the biases of the second 2·10⁷: 0.005 is less than 10⁻⁹ of them.
    ours, theirs = (corner(bias, offset=1e6, layers=2) for bias in (0.01, 0.005))
    found = compare_networks(ours, theirs, as_box((0, 1), 20))
    assert found.largest_parameter_difference < 1e-9
    assert found.same is False and found.witness.difference > 0.004


def test_a_wide_box_makes_biases_small_but_not_equal():
    network = random_network([3, 5, 4, 1], 1)
    other = ReluNetwork(network.weights, (1.1 * network.biases[0], *network.biases[1:]))
    assert compare_networks(network, other, as_box((-1e12, 1e12), 3)).relation == "same folds"
    assert compare_networks(network, shuffled(network, 1)[0], as_box((-1e12, 1e12), 3)).relation == (
        "permutation and scaling"
    )
    assert compare_networks(network, other, as_box((-1e-12, 1e-12), 3)).same is False


def test_outputs_of_all_sizes_are_compared():
    network = random_network((3, 5, 2), 1)
    sizes = np.array([1e6, 1e-5])
    ours = ReluNetwork((network.weights[0], sizes[:, None] * network.weights[1]), (network.biases[0], sizes))
    flip = np.array([1.0, -1.0])
    theirs = ReluNetwork((ours.weights[0], flip[:, None] * ours.weights[1]), (ours.biases[0], flip * ours.biases[1]))
    found = compare_networks(ours, theirs, as_box(None, 3))
    assert found.same is False and found.witness.output == 1 and found.largest_output_difference > 1
    assert compare_networks(ours, shuffled(ours, 1)[0], as_box(None, 3)).same
    assert classify([ours, theirs, shuffled(ours, 1)[0]], as_box(None, 3)).functions == [[0, 2], [1]]


def test_a_difference_of_a_hundred_tolerances_is_none_of_rounding():
    network = folding([3, 4, 1], 1)
    found = compare_networks(network, network, as_box(None, 3))
    other = with_unit(network, 1, [1.0, -1.0, 0.5], 0.2, [2e-8 * found.outputs.scale[0]])
    found = compare_networks(network, other, as_box(None, 3))
    assert found.same is False and 1e-8 < found.largest_output_difference < 2e-7
    assert compare_networks(network, other, as_box(None, 3), 1e-6).same is not False


def test_a_weight_between_units_that_are_rarely_active_together_has_a_witness():
    # The units are each active in a corner of ten inputs, and the changed weight acts where both are.
    first = np.vstack((np.repeat([1.0, 0.0], 10), np.repeat([0.0, 1.0], 10), np.linspace(-1, 1, 20)))
    second = np.array([[1.0, 0.3, 0.0], [0.0, 0.0, 1.0]])
    ours = by_hand((first, [-19.5, 0.0, 0.0]), (second, [-5.5, 0.0]), (np.ones((1, 2)), [0.0]))
    theirs = changed_weight(ours, 2, 0, 0, 1.5)
    for a, b in ((ours, theirs), (ours, shuffled(theirs, 1)[0])):
        found = compare_networks(a, b, as_box(None, 20))
        assert found.same is False and found.witness.difference > 1e-3


def test_classes_of_networks_whose_rounding_exceeds_the_tolerance():
    network, box = corner(0.01, offset=1e9), as_box((1e9, 1e9 + 1), 20)
    found = classify([network, shuffled(network, 2)[0], changed_weight(network, 2, 0, 0, 1.1)], box)
    assert found.distances[0, 1] > 1e-8 and found.functions == [[0, 1], [2]]


@pytest.mark.filterwarnings("error")
def test_values_that_are_not_finite_are_refused():
    network, box = random_network([3, 4, 4, 1], 1), as_box(None, 3)
    huge = ReluNetwork(tuple(1e200 * weight for weight in network.weights), network.biases)
    with pytest.raises(us.UserError, match=r"b has values that are not finite in float64.* on the domain \[−2, 2\]³"):
        compare_networks(network, huge, box)
    with pytest.raises(us.UserError, match="network 1 has values that are not finite"):
        classify([network, huge], box)
    large = ReluNetwork((1e40 * network.weights[0], *network.weights[1:]), network.biases)
    assert compare_networks(large, shuffled(large, 1)[0], box).same


@pytest.mark.deep
def test_a_thousand_pairs_of_either_kind():
    from understudy.papers.equivalence.equivalence.pairs import changed_pair, equal_pair

    for seed in range(1, 1_001):
        pair = equal_pair(seed, 2 + seed % 4)
        found = compare_networks(pair.a, pair.b, pair.box)
        assert found.relation == "permutation and scaling"
        pair = changed_pair(seed, 2 + seed % 4)
        assert compare_networks(pair.a, pair.b, pair.box).witness is not None
