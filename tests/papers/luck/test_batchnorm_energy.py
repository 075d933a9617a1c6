"""Tian et al. 2019, theorem 3: by hand, as an identity with ε, in the limit ε → 0, and by training; its study."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from support.commands import Said
from support.kinds import made
from support.problems import gaussians, population
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.nets import EPS, Layer, Norm, Population, Shape
from understudy.papers.luck.batchnorm_energy.claims import change_slopes, claims
from understudy.papers.luck.batchnorm_energy.study import BatchNormEnergy
from understudy.papers.luck.theory.batchnorm_energy import (
    drifts,
    energy_rates,
    log_log_slopes,
    squared_lengths,
)
from understudy.theory import results
from understudy.theory.gradient_flow import batches

pytestmark = pytest.mark.usefixtures("one_thread")

THEOREM = next(result for result in results() if result.name == "S2 theorem 3")
orders_of = pytest.mark.parametrize("norm", ["before", "after"])
sizes = (4, 7, 5, 3)


def student(norm, bias=True, affine=True, slope=0.0, nets=2, seed=1):
    return made(Shape(sizes, slope, bias=bias, norm=norm, affine=affine), nets, seed=seed)


def scaled(network, by):
    """Weights and biases of all hidden layers times a number."""
    hidden = tuple(Layer(w * by, None if b is None else b * by) for w, b in network.layers[:-1])
    return replace(network, layers=(*hidden, network.layers[-1]))


def relative(rate, layer):
    """The largest relative rate of the nodes that move at all."""
    return (rate / layer.size)[layer.size > 0].abs().max()


@pytest.fixture
def teacher():
    return population((4, 6, 3), 2)


# Backpropagation through BatchNorm


def batchnorm_backward(f, g, scale=1.0, eps=0.0):
    """Backpropagate a gradient g from the outputs of BatchNorm to its inputs f (Tian et al. 2019, lemma 1, eqn 16).

    For ε = 0 this is c₀/σ times the component of g orthogonal to f and to constants.
    """
    centred = f - f.mean(0)
    steepness = (centred.square().mean(0) + eps).rsqrt()
    normalised = centred * steepness
    return scale * steepness * (g - g.mean(0) - normalised * (g * normalised).mean(0))


@given(seed=st.integers(0, 10**6), scale=st.floats(0.1, 3), eps=st.sampled_from((1e-12, 1e-5, 0.1)))
def test_lemma_1_agrees_with_backpropagation_in_torch(seed, scale, eps):
    f, g = gaussians(seed, 12, 3).requires_grad_(), gaussians(seed + 1, 12, 3)
    weight = torch.full((3,), scale, dtype=torch.float64)
    even = torch.nn.functional.batch_norm(f, None, None, weight, None, True, eps=eps)
    (expected,) = torch.autograd.grad((even * g).sum(), f)
    torch.testing.assert_close(batchnorm_backward(f.detach(), g, scale, eps), expected, rtol=1e-9, atol=1e-11)


@given(seed=st.integers(0, 10**6))
def test_without_epsilon_gradients_along_the_input_or_a_constant_vanish(seed):
    f, g = gaussians(seed, 12, 3), gaussians(seed + 1, 12, 3)
    through = batchnorm_backward(f, g)
    assert (through * f).sum(0).abs().max() < 1e-11
    assert through.sum(0).abs().max() < 1e-11
    torch.testing.assert_close(batchnorm_backward(f, g + 3 * f - 2), through, rtol=1e-9, atol=1e-11)


def test_lemma_1_by_hand():
    # Two samples have no direction besides f = ±2 and a constant; four samples have (1, −1, 1, −1).
    two = torch.tensor([2.0, -2.0]).double()
    assert batchnorm_backward(two, torch.tensor([5.0, 7.0]).double()).tolist() == [0.0, 0.0]
    four = torch.tensor([2.0, 2.0, -2.0, -2.0]).double()
    assert batchnorm_backward(four, torch.tensor([1.0, -1.0, 1.0, -1.0]).double(), 3.0).tolist() == [
        1.5,
        -1.5,
        1.5,
        -1.5,
    ]


# Under gradient flow


def test_one_node_by_hand():
    # z = w x on x = ±1 with w = 2: σ² = 4, so BatchNorm gives ±2/√(4+ε). The output is that times c₀ = 3; the teacher's
    # is relu(x) = 1, 0. Linear: slope 1. Residuals r = f* − f, ċ₀ = E[r f̂], ẇ = E[r ∂f/∂w] with f = c₀ w x/√(w²+ε).
    w, c = 2.0, 3.0
    one = torch.ones(1, 1).double()
    network = Population(
        (Layer(torch.full((1, 1, 1), w).double(), None), Layer(torch.ones(1, 1, 1).double(), None)),
        torch.tensor([1]),
        1.0,
        (Norm(0 * one, one, c * one, 0 * one),),
        True,
    )
    teacher = Population((Layer(one.unsqueeze(0), None), Layer(one.unsqueeze(0), None)), torch.tensor([1]))
    (found,) = energy_rates(teacher, network, torch.tensor([[1.0], [-1.0]]).double())
    hat = w / (w**2 + EPS) ** 0.5
    residuals = np.array([1 - c * hat, c * hat])
    moves = np.array([1.0, -1.0]) * c * EPS / (w**2 + EPS) ** 1.5
    assert found.share.item() == pytest.approx(EPS / (4 + EPS))
    assert found.rate.item() == pytest.approx(w * (residuals * moves).mean(), rel=1e-6)
    assert found.predicted.item() == pytest.approx(found.share.item() * c * (residuals * [hat, -hat]).mean())
    assert found.predicted.item() == pytest.approx(w * (residuals * moves).mean())


@orders_of
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "none"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@given(
    seed=st.integers(0, 10**6), slope=st.sampled_from((0.0, 0.1, 0.5)), scale=st.sampled_from((0.01, 0.1, 1.0, 10.0))
)
def test_the_norm_changes_at_the_rate_predicted_from_epsilon(norm, bias, affine, seed, slope, scale):
    teacher, network = population((4, 6, 3), 2), scaled(student(norm, bias, affine, slope), scale)
    for layer in energy_rates(teacher, network, gaussians(seed, 2, 16, 4)):
        assert ((layer.rate - layer.predicted).abs() <= 1e-11 * layer.size + 1e-14).all()


@orders_of
def test_without_epsilon_weights_and_bias_are_conserved_together(norm, teacher):
    # The larger the variance, the less ε matters: weights a thousand times as large make its effect a millionth.
    x = gaussians(3, 2, 200, 4)
    worst = [
        max(relative(layer.rate, layer).item() for layer in energy_rates(teacher, scaled(student(norm), by), x))
        for by in (1.0, 1e3)
    ]
    assert worst[0] > 1e-7
    assert worst[1] < 1e-9


def test_with_batchnorm_after_the_relu_the_weights_alone_are_not_conserved(teacher):
    x = gaussians(3, 2, 200, 4)
    for layer in energy_rates(teacher, student("after"), x):
        assert relative(layer.weights, layer) > 100 * relative(layer.rate, layer)
    for layer in energy_rates(teacher, student("after", bias=False), x):
        torch.testing.assert_close(layer.weights, layer.rate)


def test_with_batchnorm_before_the_relu_the_bias_does_not_move(teacher):
    for layer in energy_rates(teacher, student("before"), gaussians(3, 2, 200, 4)):
        assert (layer.weights - layer.rate).abs().max() < 1e-13


@orders_of
def test_an_affine_part_of_scale_1_and_shift_0_changes_nothing(norm, teacher):
    x = gaussians(3, 2, 50, 4)
    plain = student(norm, affine=False)
    affine = replace(
        plain,
        norms=tuple(n._replace(scale=torch.ones_like(n.mean), shift=torch.zeros_like(n.mean)) for n in plain.norms),
    )
    for a, b in zip(energy_rates(teacher, plain, x), energy_rates(teacher, affine, x), strict=True):
        for part, other in zip(a, b, strict=True):
            torch.testing.assert_close(part, other)


# Steps of SGD


@orders_of
def test_a_step_changes_a_norm_by_the_squared_learning_rate(norm, teacher):
    # ‖w + ηẇ‖² = ‖w‖² + 2η⟨w, ẇ⟩ + η²‖ẇ‖², whose middle term is due to ε alone.
    x, network = gaussians(3, 2, 50, 4), student(norm)
    found = energy_rates(teacher, network, x)
    rate, size = (torch.cat([getattr(layer, name) for layer in found], 1) for name in ("rate", "size"))
    (start, _), (after, change) = drifts(teacher, network, [x], 0.01, 1)
    torch.testing.assert_close(start, squared_lengths(network))
    speed = size.square() / start[0]
    torch.testing.assert_close(after[0] - start[0], 0.02 * rate + 1e-4 * speed, rtol=1e-8, atol=1e-13)
    torch.testing.assert_close(change[0], (0.02 * rate + 1e-4 * speed).abs(), rtol=1e-8, atol=1e-13)


def test_norms_include_weights_and_biases_of_all_hidden_nodes():
    network = population((2, 2, 1, 3), 1)
    (w, b), (v, a), _ = network.layers
    expected = torch.cat((w[0].square().sum(1) + b[0].square(), v[0].square().sum(1) + a[0].square()))
    together, alone = squared_lengths(network)[:, 0]
    torch.testing.assert_close(together, expected)
    torch.testing.assert_close(alone, torch.cat((w[0].square().sum(1), v[0].square().sum(1))))


def test_changes_are_means_over_the_steps_between_probes(teacher):
    source = us.data.Gaussian(4, 1.0, train=40, evaluation=1, fresh=True)
    every = list(drifts(teacher, student("after"), batches(source, [1, 2], 10, 6), 0.01, 1))
    third = list(drifts(teacher, student("after"), batches(source, [1, 2], 10, 6), 0.01, 3))
    assert len(third) == 3
    squared, change = third[2]
    torch.testing.assert_close(squared, every[6][0])
    torch.testing.assert_close(change, torch.stack([each for _, each in every[4:]]).mean(0))


@given(power=st.floats(0.5, 3), factor=st.floats(0.1, 10))
def test_the_slope_of_a_power_is_the_power(power, factor):
    lr = torch.tensor([0.001, 0.01, 0.02]).double()
    found = log_log_slopes(lr, torch.stack((factor * lr**power, torch.zeros(3).double()), 1))
    assert found[0].item() == pytest.approx(power)
    assert found[1].isnan()


# The registered result


@orders_of
def test_the_result_is_applied_to_every_node(norm):
    found = THEOREM(population((4, 6, 3), 1), student(norm, nets=1), gaussians(3, 100, 4))
    assert [finding.about for finding in found] == [
        f"student node {node} of layer {layer}" for layer, nodes in enumerate(sizes[1:-1], 1) for node in range(nodes)
    ]
    assert all(finding.agrees for finding in found)
    assert not any(finding.contradicted for finding in found)
    assert sum(finding.applies for finding in found) > 8
    assert ("‖w‖ is not" in found[0].conclusion) == (norm == "after")


def test_the_result_does_not_apply_to_a_node_whose_activation_is_constant():
    network = student("after", nets=1)
    network.layers[0].bias[0, 2] = -100.0
    finding = THEOREM(population((4, 6, 3), 1), network, gaussians(3, 100, 4))[2]
    assert not finding.applies
    assert finding.agrees
    assert finding.failing[0].value == "ε/(σ² + ε) = 1.0"
    assert finding.failing[0].factor == pytest.approx(1e3)


def test_the_result_needs_batchnorm_as_many_outputs_as_the_teacher_and_two_samples():
    with pytest.raises(UserError, match="stated for students with BatchNorm"):
        THEOREM(population((4, 6, 3), 1), population((4, 6, 3), 1), gaussians(3, 10, 4))
    with pytest.raises(UserError, match="the same number of outputs, got 6 and 3"):
        THEOREM(population((4, 6, 6), 1), student("after", nets=1), gaussians(3, 10, 4))
    with pytest.raises(UserError, match="2 or more samples"):
        THEOREM(population((4, 6, 3), 1), student("after", nets=1), gaussians(3, 1, 4))


# The study

SMALL = BatchNormEnergy(
    seeds=3,
    device="cpu",
    teacher_layers=(3, 4),
    dim=4,
    outputs=3,
    rates=(0.01, 0.003, 0.03),
    time=0.3,
    batch=16,
    probes=5,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def test_slopes_are_two_with_batchnorm_and_one_without(run):
    slope, alone = change_slopes(run), change_slopes(run, "change_weights")
    before, after, none = slope.median("node").median("seed").to_numpy()
    assert before == pytest.approx(2, abs=0.1)
    assert after == pytest.approx(2, abs=0.1)
    assert none == pytest.approx(1, abs=0.25)
    assert alone.sel(norm="after").median("node").median("seed") < 1.6
    np.testing.assert_allclose(slope.sel(norm="before"), alone.sel(norm="before"), rtol=1e-6, atol=1e-6)


def test_the_tables_agree_with_the_training(run):
    (network,) = run.select(norm="after", lr=0.01, seed=2).index
    assert run.column("network").tolist() == list(range(27))
    teacher = us.teachers.distinct_rows((4, 3, 4, 3), seeds=[2], bias_spread=0.5, dtype=torch.float64)
    network_2 = us.students.like_linear(teacher, multiple=2, norm="after")
    source = us.data.Gaussian(4, 1.0, train=1600, evaluation=1, fresh=True)
    (start, _), *_, (last, _) = drifts(teacher, network_2, batches(source, [2], 16, 30), 0.01, 6)
    rows = run.nodes.filter(np.asarray(run.nodes["network"]) == network)
    np.testing.assert_allclose(rows["squared"], last[0, 0], rtol=1e-10)
    np.testing.assert_allclose(rows["first"], start[0, 0], rtol=1e-12)
    growth = (last[0, 0] / start[0, 0])[:6].numpy()
    assert run.series("growth", 0)[network, run.epochs == 30][0] == pytest.approx(np.median(growth))


def test_initial_weights_are_the_same_with_and_without_batchnorm(run):
    first = np.asarray(run.nodes["first"]).reshape(3, 3, 3, -1)
    assert (first == first[:1, :1]).all()


def test_claims_are_decided_on_the_default_settings_only(run):
    assert claims(SMALL, run) == []


def test_claims_hold_on_a_small_run_if_its_settings_are_accepted(run, monkeypatch):
    monkeypatch.setattr(claims, "applies", lambda study: True)
    before, after = claims(SMALL, run)
    assert (before.part, after.part) == ("Linear → BN → ReLU", "Linear → ReLU → BN")
    assert before.holds
    assert after.holds
    assert before.n == 3
    assert [variant.holds for variant in after.variants] == [False, False]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"rates": (0.01,)}, "--rates must be at least two learning rates, got 0.01"),
        ({"rates": (0.01, 0.01)}, "--rates takes each value once, got 0.01 0.01"),
        ({"rates": (0.01, -1.0)}, "--rates must be above 0, got -1"),
        ({"batch": 1}, "--batch must be at least 2, got 1"),
        ({"teacher_layers": ()}, "--teacher-layers needs at least one value"),
        ({"multiple": 0.3}, "choose a multiple that gives whole numbers"),
    ],
)
def test_invalid_options_are_refused(option, words):
    with pytest.raises(UserError) as error:
        BatchNormEnergy(**option)
    assert words in str(error.value)
