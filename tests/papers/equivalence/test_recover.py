"""`us.recover`: parameters from values alone, what is missing in words, and recoveries that go on after a kill."""

import json
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn

import understudy as us
from support.equal_networks import shuffled
from understudy.papers.equivalence.theory.matching import match_units
from understudy.papers.equivalence.theory.recovery import output, sampling
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, as_relu_network, random_network


def parameter_error(network, found):
    """Largest difference of parameters up to permutation and positive scaling."""
    assert found.network.sizes == network.sizes
    assert abs(found.network.slope - network.slope) < 1e-9
    return match_units(network, replace(found.network, slope=network.slope)).largest


def only_values(network):
    """The network as a function of which nothing is known but its values."""
    return lambda x: network(x)


@pytest.mark.parametrize(("sizes", "seed", "most"), [((20, 10, 1), 1, 15_000), ((10, 10, 10, 1), 4, 30_000)])
def test_random_networks_are_recovered_to_rounding(sizes, seed, most):
    network = random_network(sizes, seed)
    found = us.recover(only_values(network), sizes=sizes)
    assert found.complete
    assert found.unrecoverable == ()
    assert parameter_error(network, found) < 1e-10
    assert found.residual < 1e-11
    assert found.evaluations < most


def test_one_unit_in_one_dimension_by_hand():
    """3·ρ(2x − 1) + 4: the fold at 1/2, the slope 6 on its right, and the value 4 on its left."""
    calls = []

    def f(x):
        calls.append(len(x))
        return 3 * np.maximum(2 * x - 1, 0) + 4

    found = us.recover(f, sizes=(1, 1, 1))
    assert found.complete
    (weight, out), (bias, constant) = found.network.weights, found.network.biases
    assert bias[0] / weight[0, 0] == pytest.approx(-0.5, abs=1e-13)
    assert weight[0, 0] > 0
    assert (weight @ out)[0, 0] == pytest.approx(6, abs=1e-12)
    assert constant[0] == pytest.approx(4, abs=1e-12)
    assert found.units[0].folds == pytest.approx(0.375, abs=0.02)
    assert found.evaluations == sum(calls)


@given(st.integers(0, 2**31))
@settings(max_examples=5)
def test_units_that_are_permuted_and_rescaled_are_the_same(seed):
    network = random_network((5, 4, 3, 1), 6)
    changed = shuffled(network, seed, magnitudes=4)[0]
    a, b = (us.recover(only_values(each), sizes=network.sizes) for each in (network, changed))
    assert a.complete == b.complete
    if a.complete:
        assert match_units(a.network, b.network).largest < 1e-8
        assert parameter_error(network, b) < 1e-8


@pytest.mark.parametrize("sizes", [(8, 6, 2), (8, 6, 5, 1)])
def test_the_slope_of_leaky_relu_is_found(sizes):
    network = random_network(sizes, 3, slope=0.1)
    found = us.recover(only_values(network), sizes=sizes)
    assert found.complete
    assert found.network.slope == pytest.approx(0.1, abs=1e-10)
    assert parameter_error(network, found) < 1e-8


def test_several_outputs_and_more_units_than_inputs():
    network = random_network((4, 7, 3), 5)
    found = us.recover(only_values(network), sizes=(4, 7, 3), domain=(-4, 4))
    assert found.complete
    assert parameter_error(network, found) < 1e-9


def test_widths_of_two_layers_are_found():
    network = random_network((6, 5, 1), 1)
    found = us.recover(only_values(network), domain=([-2.0] * 6, [2.0] * 6))
    assert found.complete
    assert found.sizes is None
    assert parameter_error(network, found) < 1e-9


def test_boxes_of_any_place_and_scale():
    network = random_network((3, 4, 1), 2)
    lower, upper = np.array([10.0, -3e3, 0.0]), np.array([20.0, 5e3, 1e-2])
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    moved = ReluNetwork(
        (network.weights[0] * 2 / half, network.weights[1]),
        (network.biases[0] - network.weights[0] @ (2 * middle / half), network.biases[1]),
    )
    found = us.recover(only_values(moved), (lower, upper), (3, 4, 1))
    assert found.complete
    x = np.random.default_rng(0).uniform(lower, upper, (500, 3))
    assert np.abs(found.network(x) - moved(x)).max() < 1e-9


def test_modules_populations_and_tensors_are_only_evaluated(tmp_path):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    population = us.from_module(module)
    us.save(population, tmp_path / "network.safetensors")
    for given_network in (module, population, tmp_path / "network.safetensors"):
        found = us.recover(given_network)
        assert found.sizes == (5, 4, 1)
        x = torch.rand(100, 5, dtype=torch.float64) * 4 - 2
        assert found.residual < 1e-9
        assert np.abs(found.network(x.numpy()) - module(x).detach().numpy()).max() < 1e-7
    with_tensors = us.recover(lambda x: torch.relu(x @ torch.eye(3, dtype=x.dtype) + 0.5).sum(1), sizes=(3, 3, 1))
    assert with_tensors.complete


def test_units_that_never_fold_are_a_linear_remainder():
    """A unit that is active on all of the box adds a linear function, and has no parameters of its own there."""
    network = random_network((5, 4, 1), 1)
    biases = network.biases[0].copy()
    biases[2] = 100.0
    linear = ReluNetwork(network.weights, (biases, network.biases[1]))
    found = us.recover(only_values(linear), sizes=(5, 4, 1), most_evaluations=100_000)
    assert not found.complete
    words = " ".join(found.unrecoverable)
    assert "3 of 4 units found" in words
    assert "linear remainder" in words
    assert found.residual < 1e-10
    x = np.random.default_rng(0).uniform(-2, 2, (500, 5))
    assert np.abs(found.network(x) - linear(x)).max() < 1e-10


def test_units_of_a_trained_student_that_fold_are_found(tmp_path):
    """Three of the 24 units of the example student never fold on the box; pairs of others nearly coincide."""
    us.example(tmp_path / "example")
    with pytest.warns(UserWarning, match="ReLU assumed"):
        network = as_relu_network("student", tmp_path / "example" / "student.safetensors")[0]
    found = us.recover(network)
    x = np.random.default_rng(0).uniform(-2, 2, (20_000, network.sizes[0]))
    active = (network.preactivations(x)[0] > 0).mean(0)
    folding = np.flatnonzero((active > 0) & (active < 1))
    assert len(found.units) == len(folding)
    ours, theirs = (
        each.weights[0] / np.linalg.norm(each.weights[0], axis=1)[:, None] for each in (network, found.network)
    )
    assert (np.abs(ours[folding] @ theirs[: len(folding)].T).max(1) > 1 - 1e-12).all()
    assert found.residual < 1e-12
    assert found.complete == (len(folding) == network.hidden[0])


def test_dead_units_and_functions_without_folds():
    network = random_network((5, 4, 1), 1)
    biases = network.biases[0].copy()
    biases[0] = -100.0
    found = us.recover(only_values(ReluNetwork(network.weights, (biases, network.biases[1]))), sizes=(5, 4, 1))
    assert not found.complete
    assert found.residual < 1e-11
    assert found.network.sizes == (5, 3, 1)
    assert "linear" not in " ".join(found.unrecoverable)
    affine = us.recover(lambda x: x @ np.array([[1.0], [2.0]]) + 3, sizes=(2, 2, 1))
    assert not affine.complete
    assert affine.residual < 1e-13
    assert affine.unrecoverable[0].startswith("layer 1: none of 2 units found; they fold too little of the box")


def with_corner_unit(bias, sizes=(5, 4, 1)):
    """A random network with one more unit, which is active in one corner of the box only."""
    network = random_network(sizes, 1)
    weights = np.vstack([network.weights[0], np.ones(5)]), np.hstack([network.weights[1], [[5.0]]])
    return ReluNetwork(weights, (np.append(network.biases[0], bias), network.biases[1]))


@pytest.mark.parametrize("bias", [-6.0, -6.5, -9.0])
@pytest.mark.parametrize("seed", [1, 6])
def test_units_that_cut_off_a_corner_are_recovered(bias, seed):
    network = with_corner_unit(bias)
    found = us.recover(only_values(network), sizes=(5, 5, 1), seed=seed)
    assert found.unrecoverable == ()
    assert parameter_error(network, found) < 1e-9


def test_an_output_layer_that_is_not_determined_is_reported(monkeypatch):
    """Without points on both sides of the fold, |u| of the corner unit is a linear function."""
    monkeypatch.setattr(sampling, "one_sided", lambda values, fewest: np.zeros(0, int))
    monkeypatch.setattr(output, "redraw", lambda *of: None)
    found = us.recover(with_corner_unit(-6.0), sizes=(5, 5, 1), seed=6)
    (corner,) = [unit.unit for unit in found.units if unit.folds < 0.01]
    assert found.residual > 1
    words = f"the output layer is not determined: at all points drawn, the effect of unit {corner} of layer 1 equals"
    assert words in found.unrecoverable[0]


def test_points_are_drawn_again_where_the_output_layer_is_not_determined(monkeypatch):
    monkeypatch.setattr(sampling, "one_sided", lambda values, fewest: np.zeros(0, int))
    network = with_corner_unit(-6.0)
    found = us.recover(network, sizes=(5, 5, 1), seed=6)
    assert found.residual < 1e-10


def test_a_small_residual_is_not_complete():
    """A fold of 10⁻⁸ of the scale in one of 64 corners, which the search does not meet; all 5 units are found."""
    network = random_network((6, 5, 1), 1)
    corner = np.array([1.0, -1, 1, 1, -1, 1])
    found = us.recover(lambda x: network(x) + 5e-8 * np.maximum(x @ corner - 11.5, 0)[:, None], sizes=(6, 5, 1))
    assert len(found.units) == 5
    assert 1e-9 < found.residual < 1e-7
    assert not found.complete
    (words,) = found.unrecoverable
    assert words.startswith("the residual is ")


def test_sizes_that_do_not_fit_are_incomplete_with_a_residual():
    network = random_network((6, 6, 1), 1)
    found = us.recover(only_values(network), sizes=(6, 4, 1))
    assert not found.complete
    assert found.residual > 1e-6
    assert "sizes may be too small" in " ".join(found.unrecoverable)


def test_parameters_without_effect_are_reported():
    """A unit of the second layer is inactive wherever one below is active: the weight between them has no effect."""
    network = random_network((6, 6, 6, 1), 19)
    found = us.recover(only_values(network), sizes=network.sizes)
    assert found.residual < 1e-10
    assert not found.complete
    assert "does not determine all parameters: 1 of their combinations" in found.unrecoverable[0]


@pytest.mark.deep
def test_parameters_without_effect_are_reported_of_deep_networks():
    network = random_network((10, 10, 10, 10, 1), 66)
    found = us.recover(only_values(network), sizes=network.sizes)
    assert found.residual < 1e-10
    assert not found.complete
    assert "does not determine all parameters" in found.unrecoverable[0]


def test_few_evaluations_are_incomplete():
    network = random_network((20, 10, 10, 1), 1)
    found = us.recover(only_values(network), sizes=network.sizes, most_evaluations=5_000)
    assert not found.complete
    assert found.evaluations <= 5_000
    stopped, first, second, *others = found.unrecoverable
    made, needed, reserved = (
        int(number.replace(",", ""))
        for number in re.fullmatch(
            r"the search stopped at its limit, after (\S+) of 5,000 evaluations \(most_evaluations\): its next step "
            r"needs (\S+) at once, and (\S+) are reserved for the output layer and the residual",
            stopped,
        ).groups()
    )
    assert made + needed + reserved > 5_000 >= made + reserved
    units = len(found.units)
    assert first == f"layer 1: {units} of 10 units found; the search stopped at its limit before the others were found"
    assert second == "layer 2: none of 10 units found; the search stopped at its limit in layer 1"
    assert not any("fold too little" in words or "too small" in words for words in others)


def test_the_fewest_evaluations_are_enough():
    found = us.recover(random_network((4, 3, 1), 1), most_evaluations=3_160)
    assert found.evaluations <= 3_160


def test_the_result_can_be_read_and_saved(tmp_path):
    network = random_network((5, 4, 1), 1)
    found = us.recover(network)
    assert repr(found).startswith("Recovered(5-4-1, ")
    assert list(found.to_pandas()["layer"]) == [1] * 4
    saved = us.load(found.save(tmp_path / "found.safetensors"))
    x = torch.rand(20, 5, dtype=torch.float64)
    assert torch.allclose(saved.to("cpu", torch.float64)(x).reshape(20, 1), torch.from_numpy(network(x.numpy())))
    assert found.save(tmp_path / "found.json").read_text().startswith("{")
    with pytest.raises(us.UserError, match=r"must end in \.safetensors or \.json"):
        found.save(tmp_path / "found.txt")


def noisy(size):
    """A function that returns more by `size` at every call."""
    calls = []

    def f(x):
        calls.append(None)
        return x[:, :1] + size * len(calls)

    return f


def in_float32(network):
    """The network computed in float32 and converted to float64."""
    weights, biases = ([part.astype(np.float32) for part in parts] for parts in (network.weights, network.biases))
    return lambda x: ReluNetwork(tuple(weights), tuple(biases))(x.astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x[:, :1] * np.nan, "must return finite numbers"),
        (lambda x: x[:3, :1], r"got shape \[3, 1\] for 16 inputs"),
        (lambda x: x, "must return 1 outputs"),
        (lambda x: "a", "must return an array"),
        (noisy(1e-6), "must be deterministic: two evaluations of the same inputs differ by 1.0×10⁻⁶; turn off"),
        (noisy(1e-11), "must be deterministic"),
        (lambda x: np.maximum(x, 0).sum(1).astype(np.float32), "must compute in float64, got outputs in float32"),
        (lambda x: np.maximum(x, 0).sum(1).astype(np.float32).astype(np.float64), "its outputs are float32 numbers"),
        (lambda x: 1.1 * np.maximum(x, 0).sum(1).astype(np.float32).astype(np.float64), "as float32 does"),
        (lambda x: x.nothing, "must be a function of arrays or tensors"),
        (3, "must be a function, a module, a population or a network file"),
    ],
)
def test_other_functions_are_refused(f, message):
    with pytest.raises(us.UserError, match=message):
        us.recover(f, sizes=(4, 3, 1))


@pytest.mark.parametrize("seed", range(8))
def test_float32_is_noticed_at_once(seed):
    inputs = 0

    def f(x):
        nonlocal inputs
        inputs += len(x)
        return float32(x)

    float32 = in_float32(random_network((2, 100, 1), seed))
    with pytest.raises(us.UserError, match=r"its outputs are float32 numbers.*module\.double\(\)"):
        us.recover(f, sizes=(2, 100, 1))
    assert inputs == 64


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.full(len(x), 0.1, dtype=np.float32).astype(np.float64),
        lambda x: np.where(np.abs(x[:, 0]) < 1.9, 0.5, 0.5 + 3 * np.maximum(np.abs(x[:, 0]) - 1.9, 0)),
        lambda x: np.clip(1e6 * x[:, 0], 0, 3) + np.clip(1e6 * x[:, 1], 0, 5),
    ],
)
def test_constant_pieces_are_not_taken_for_float32(f):
    us.recover(f, sizes=(2, 4, 1), most_evaluations=5_000)


def test_functions_that_change_their_inputs_or_reuse_their_outputs():
    network = random_network((4, 3, 1), 1)
    outputs = {}

    def f(x):
        values = network(x)
        x += 1
        found = outputs.setdefault(len(x), values)
        found[:] = values
        return found

    def with_tensors(x):
        values = torch.from_numpy(network(x.detach().numpy()))
        x.add_(1)
        return values

    for each in (f, with_tensors):
        assert us.recover(each, sizes=(4, 3, 1)).complete
    more, buffer = noisy(1e-6), np.zeros((16, 1))
    with pytest.raises(us.UserError, match="must be deterministic"):
        us.recover(lambda x: np.copyto(buffer, more(x)) or buffer, sizes=(4, 3, 1))


@pytest.mark.parametrize("takes", ["arrays", "tensors"])
def test_every_evaluation_is_counted(takes, tmp_path):
    network = random_network((6, 5, 1), 1)
    inputs = 0

    def f(x):
        nonlocal inputs
        inputs += len(x)
        if takes == "tensors":
            x = torch.relu(x).numpy() - torch.relu(-x).numpy()
        return network(x)

    found = us.recover(f, sizes=(6, 5, 1), checkpoint=tmp_path / "state.safetensors")
    assert found.evaluations == inputs
    # The state is that before the output layer is fitted: the rest, and trying the function out, is done again.
    before, inputs = inputs, 0
    with safe_open(tmp_path / "state.safetensors", "np") as file:
        saved = json.loads(file.metadata()["search"])["evaluations"]
    resumed = us.recover(f, sizes=(6, 5, 1), checkpoint=tmp_path / "state.safetensors")
    assert 0 < saved < before
    assert resumed.evaluations == saved + inputs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": (4, 3, 1), "most_evaluations": 3_159}, "must be at least 3,160 for these sizes, got 3,159"),
        ({"sizes": (4, 3, 1), "checkpoint": "missing/state"}, "checkpoint must be a file in an existing folder"),
        ({"sizes": (4, 1)}, "sizes must be the units"),
        ({"sizes": (4, 0, 1)}, "sizes must be the units"),
        ({"sizes": 4}, "sizes must be the units"),
        ({}, "sizes is needed"),
        ({"sizes": (4, 3, 1), "domain": (0, np.inf)}, "domain must be bounded"),
        ({"sizes": (4, 3, 1), "most_evaluations": 10}, "most_evaluations must be at least"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(us.UserError, match=message):
        us.recover(lambda x: x[:, :1], **options)


KILLED = textwrap.dedent("""
    import os, signal, sys
    import understudy as us
    from understudy.papers.equivalence.theory.recovery import recover
    from understudy.papers.equivalence.theory.relu_network import random_network
    saved, steps = recover.save_search, []

    def save(search, path):
        saved(search, path)
        steps.append(None)
        if len(steps) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    recover.save_search = save
    network = random_network((8, 6, 5, 1), 3)
    us.recover(lambda x: network(x), sizes=(8, 6, 5, 1), checkpoint=sys.argv[1])
""")


@pytest.mark.parametrize("steps", [2, 4])
def test_a_killed_recovery_goes_on(tmp_path, steps):
    path = tmp_path / "state.safetensors"
    network = random_network((8, 6, 5, 1), 3)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), str(steps)], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert path.exists()
    whole = us.recover(only_values(network), sizes=network.sizes)
    resumed = us.recover(only_values(network), sizes=network.sizes, checkpoint=path)
    assert resumed.complete
    # Products of matrices are rounded differently at other places in memory: two processes differ as much.
    for a, b in zip(whole.network.weights, resumed.network.weights, strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-12)
    # An interruption costs 64 inputs to try the function out, 112 to scale it, and up to 5 for each of 16 fold points.
    assert 64 + 112 + 64 <= resumed.evaluations - whole.evaluations <= 64 + 112 + 80
    for wrong, message in (({"seed": 2}, r"other arguments \(seed\)"), ({"sizes": (8, 6, 1)}, r"\(sizes\)")):
        with pytest.raises(us.UserError, match=message):
            us.recover(only_values(network), **({"sizes": network.sizes} | wrong), checkpoint=path)
    with pytest.raises(us.UserError, match="another function"):
        us.recover(only_values(random_network((8, 6, 5, 1), 4)), sizes=network.sizes, checkpoint=path)
    path.write_bytes(b"nothing")
    with pytest.raises(us.UserError, match="cannot be read as a recovery"):
        us.recover(only_values(network), sizes=network.sizes, checkpoint=path)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("sizes", "most"), [((20, 10, 1), 15_000), ((10, 10, 10, 1), 40_000), ((20, 10, 10, 1), 40_000)]
)
def test_networks_that_fold_a_thousandth_of_the_box_are_recovered(sizes, most):
    x = np.random.default_rng(0).uniform(-2, 2, (20_000, sizes[0]))
    seen = 0
    for seed in range(1, 40):
        network = random_network(sizes, seed)
        shares = np.concatenate([(u > 0).mean(0) for u in network.preactivations(x)[:-1]])
        if min(shares.min(), 1 - shares.max()) >= 1e-3:
            found = us.recover(only_values(network), sizes=sizes)
            assert parameter_error(network, found) < 1e-8
            assert found.evaluations <= most
            seen += 1
    assert seen >= 10


@pytest.mark.deep
def test_a_layer_is_searched_again_without_a_wrong_unit():
    """A flat piece of a second-layer fold is taken for a unit of the first layer, until no second layer is found."""
    network = random_network((6, 6, 6, 1), 9)
    found = us.recover(only_values(network), sizes=network.sizes)
    assert found.network.sizes == network.sizes
    assert found.residual < 1e-10
