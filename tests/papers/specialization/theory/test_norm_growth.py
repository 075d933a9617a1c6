"""Norm ratios, symmetry breaking and the escape from π (Tian 2019): by hand, by identities, by simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from understudy.papers.specialization.theory.norm_growth import (
    AGREE,
    compare_rates,
    contest,
    escape_time,
    integrated_escape_time,
    norm_rates,
    residues,
    shared_target_flow,
    weight_flow,
    weights_and_biases,
)
from understudy.theory import find_result
from understudy.theory.gradient_flow import velocity

theorem = find_result("S1 theorem 7")
F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _tensor(*rows):
    return torch.tensor(rows, dtype=F)


def _random(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def _networks(slope=0.0, nets=2, seed=1):
    teacher = us.teachers.distinct_rows((6, 4, 3), seeds=range(seed, seed + nets), slope=slope, dtype=F)
    return teacher, us.students.gaussian(teacher, multiple=2, scale=0.3, bias=0.05)


def test_rates_by_hand():
    """A weight grows at rate 1 if it moves along itself at its own length, and not at all across itself."""
    w = _tensor([2.0, 0.0], [0.0, 3.0], [1.0, 1.0])
    moving = _tensor([2.0, 0.0], [5.0, 0.0], [-1.0, 0.0])
    torch.testing.assert_close(norm_rates(w, moving), _tensor(1.0, 0.0, -0.5))


def test_the_flow_of_one_node_by_hand():
    """x = 2 with f* = 2 and f = 1 · 0.5 · 2: the residual is 1, so ẇ = v · 1 · x, and v · 1 for the bias."""

    def network(w):
        layers = us.nets.Layer(_tensor([[w]]), torch.zeros(1, 1, dtype=F)), us.nets.Layer(_tensor([[1.0]]), None)
        return us.Population(layers, torch.ones(1, dtype=torch.int64))

    torch.testing.assert_close(weight_flow(network(1.0), network(0.5), _tensor([2.0])), _tensor([[2.0, 1.0]]))
    torch.testing.assert_close(weight_flow(network(1.0), network(-0.5), _tensor([2.0])), torch.zeros(1, 1, 2, dtype=F))


@given(st.integers(1, 50), st.sampled_from([0.0, 0.2]))
def test_the_flow_equals_backpropagation(seed, slope):
    teacher, student = _networks(slope, seed=seed)
    x = _random(seed, 40, 6)
    torch.testing.assert_close(
        weight_flow(teacher, student, x), weights_and_biases(velocity(teacher, student, x).layers[0])
    )


@given(st.integers(1, 50), st.sampled_from([0.0, 0.2]))
def test_a_small_gradient_step_changes_norm_ratios_as_predicted(seed, slope):
    teacher, student = _networks(slope, seed=seed)
    found = compare_rates(teacher, student, _random(seed + 1, 60, 6))
    assert (found.off <= 1e-9).all()
    assert (found.predicted.abs() <= found.speed.unsqueeze(1)).all()
    assert float(found.predicted.abs().max()) > 1e-3


def test_a_wrong_prediction_is_detected():
    teacher, student = _networks()
    found = compare_rates(teacher, student, _random(1, 60, 6))
    wrong = found._replace(predicted=found.predicted * (1 + 1e-4))
    assert (wrong.off > AGREE).all()
    assert (found._replace(predicted=found.predicted + 3.0).off <= 1e-9).all()  # ratios ignore a common factor


def test_networks_are_independent():
    teacher, student = _networks(nets=3)
    x = _random(3, 50, 6)
    every, one = compare_rates(teacher, student, x), compare_rates(teacher[1], student[1], x)
    torch.testing.assert_close(every.predicted[1], one.predicted[0])
    torch.testing.assert_close(every.stepped[1], one.stepped[0])


def test_nothing_moves_at_the_teacher():
    teacher, _ = _networks()
    found = compare_rates(teacher, teacher, _random(1, 30, 6))
    assert not found.speed.any()
    assert not found.off.any()


def test_the_finding_names_the_nodes_whose_ratio_grows_fastest():
    teacher, student = _networks(nets=1)
    x = _random(2, 80, 6)
    (finding,) = theorem(teacher, student, x)
    predicted = compare_rates(teacher, student, x).predicted[0]
    assert finding.applies
    assert finding.agrees
    assert f"node {int(predicted.argmax())} grows fastest relative to that of node {int(predicted.argmin())}" in (
        finding.conclusion
    )


def test_a_node_without_weights_is_named():
    teacher, student = _networks(nets=1)
    first = student.layers[0]
    gone = torch.ones(1, 8, 1, dtype=F)
    gone[0, 5] = 0
    silent = us.nets.Layer(first.weight * gone, first.bias * gone[..., 0])
    (finding,) = theorem(teacher, replace(student, layers=(silent, student.layers[1])), _random(2, 20, 6))
    assert not finding.applies
    assert "node 5" in finding.hypotheses[0].value
    assert finding.agrees is None


def _derivatives(weights, target, shares, extra):
    """h_k = w̄_kᵀ r_k, its derivative, and S = Σ a ‖w‖.

    The derivative is ‖r_k‖² − h_k² + w̄_kᵀ ṙ (eqn 66) with ṙ = −Σ a_i ‖w_i‖ r_i. Without ε it is ‖r‖² − h² − S h, eqn
    67, and for differences eqn 68. Eqn 69 uses w̄ᵀṙ = −S h also for ε ≠ 0, and so omits
    ε_k S w̄_kᵀw* − Σ ε_i a_i ‖w_i‖ w̄_kᵀw*: the extra part of r_k is constant, and ṙ has more terms.
    """
    lengths, r = weights.norm(dim=-1), residues(weights, target, shares, extra)
    changing = -((shares * lengths).unsqueeze(-1) * r).sum(-2, keepdim=True)
    h, turning = ((weights * v).sum(-1) / lengths for v in (r, changing.expand_as(r)))
    return h, r.square().sum(-1) - h.square() + turning, (shares * lengths).sum(-1)


def _shared(extra, seed=1, nodes=3, dim=4, start=0.3):
    target = _random(seed, 1, dim)
    shares = torch.rand(1, nodes, dtype=F, generator=torch.Generator().manual_seed(seed)) + 0.5
    return start * _random(seed + 1, 1, nodes, dim), target, shares, extra * _tensor([1.0] + [0.0] * (nodes - 1))


def test_residues_by_hand():
    """w = (1, 0) and (0, 2), w* = (3, 3), a = 1: r = (2, 1), h = 2 and 1, S = 3, and h' = ‖r‖² − h² − S h."""
    given = _tensor([1.0, 0.0], [0.0, 2.0]), _tensor(3.0, 3.0), torch.ones(2, dtype=F), torch.zeros(2, dtype=F)
    torch.testing.assert_close(residues(*given), _tensor([2.0, 1.0], [2.0, 1.0]))
    h, rate, s = _derivatives(*given)
    torch.testing.assert_close(h, _tensor(2.0, 1.0))
    torch.testing.assert_close(rate, _tensor(5.0 - 4 - 6, 5.0 - 1 - 3))
    assert float(s) == 3.0


@given(st.integers(0, 10**6))
def test_differences_follow_equation_68(seed):
    w, target, shares, none = _shared(0.0, seed)
    (h,), (rate,), (s,) = _derivatives(w, target, shares, none)
    for k in range(3):
        for other in range(3):
            expected = (h[other] - h[k]) * (h[other] + h[k] + s)
            torch.testing.assert_close(rate[k] - rate[other], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("extra", [0.0, 0.2])
def test_the_derivative_of_residues_is_that_along_the_flow(extra):
    w, target, shares, more = _shared(extra)
    step = 1e-4
    path = shared_target_flow(w, target, shares, more, [0.0, 1 - step, 1.0, 1 + step])
    (before, _, _), (_, rate, _), (after, _, _) = (_derivatives(path[:, i], target, shares, more) for i in (1, 2, 3))
    torch.testing.assert_close((after - before) / (2 * step), rate, rtol=1e-6, atol=1e-6)


def test_equation_69_as_printed_omits_a_term():
    """With ε the derivative has further terms in addition to ‖r_0‖² − ‖r_1‖² and those of equation 68."""
    w, target, shares, more = _shared(0.2)
    (h,), ((first, second, _),), (s,) = _derivatives(w, target, shares, more)
    lengths = w[0].norm(dim=1)
    left = target[0] - (shares[0, :, None] * w[0]).sum(0)
    squares = (left + 0.2 * target[0]).square().sum() - left.square().sum()
    printed = (h[1] - h[0]) * (h[1] + h[0] + s) + squares
    along = (w[0] @ target[0]) / lengths
    missing = 0.2 * (s * along[0] - shares[0, 0] * lengths[0] * (along[0] - along[1]))
    rate = first - second
    torch.testing.assert_close(rate, printed + missing)
    assert abs(float(rate - printed)) > 1e-2


@given(st.integers(0, 10**6))
def test_without_surplus_nodes_move_along_one_line_as_sinh(seed):
    """dw/dτ = ‖w‖ r̂ with τ = ∫‖r‖: the part orthogonal to r(0) is constant, and arsinh grows equally for all nodes."""
    w, target, shares, none = _shared(0.0, seed)
    end = shared_target_flow(w, target, shares, none, [0.0, 2.0])[0, 1]
    r = target[0] - (shares[0, :, None] * w[0]).sum(0)
    direction = r / r.norm()
    across = [v - (v @ direction)[:, None] * direction for v in (w[0], end)]
    torch.testing.assert_close(across[1], across[0], rtol=1e-7, atol=1e-9)
    arsinh = [torch.asinh((v @ direction) / a.norm(dim=1)) for v, a in zip((w[0], end), across, strict=True)]
    tau = arsinh[1] - arsinh[0]
    torch.testing.assert_close(tau, tau[:1].expand(3), rtol=1e-6, atol=1e-8)


def test_the_flow_is_the_limit_of_small_steps():
    w, target, shares, more = _shared(0.1)
    end = shared_target_flow(w, target, shares, more, [0.0, 0.5])[0, 1]
    now, steps = w[0].clone(), 20_000
    for _ in range(steps):
        left = target[0] - (shares[0, :, None] * now).sum(0)
        now = now + 0.5 / steps * now.norm(dim=1, keepdim=True) * (left + more[0, :, None] * target[0])
    torch.testing.assert_close(now, end, rtol=1e-3, atol=1e-4)


def test_a_surplus_of_the_target_grows_exponentially_and_without_it_ratios_stay():
    times = np.linspace(0, 60, 61).tolist()
    even, more = (contest([1, 2], 3, 5, 1e-6, extra, times) for extra in (0.0, 0.1))
    assert float(even.log_ratio[:, 30:].std(dim=1).max()) < 1e-9
    assert float(even.gap[:, -1].abs().max()) < 1e-12
    slope = (more.log_ratio[:, 60] - more.log_ratio[:, 30]) / 30
    torch.testing.assert_close(slope, _tensor(0.1, 0.1), rtol=1e-4, atol=0)
    assert (more.cosine[:, 30:] > 0.9999).all()


def test_the_derivative_of_the_ratio_is_the_gap():
    times = np.linspace(0, 20, 2_001)
    found = contest([3], 3, 5, 1e-2, 0.2, times.tolist())
    slope = np.gradient(found.log_ratio[0].numpy(), times)
    assert slope[1:-1] == pytest.approx(found.gap[0, 1:-1].numpy(), abs=1e-3)


def test_a_node_that_keeps_losing_turns_to_the_other_side():
    """Its initial part orthogonal to w* finally dominates: it turns, and grows on the other side."""
    found = contest([1], 3, 5, 1e-4, 0.3, np.linspace(0, 80, 161).tolist())
    assert float(found.cosine[0, 30]) > 0.999
    assert float(found.cosine[0, -1]) < -0.99
    assert float(found.log_ratio[0, -1]) < float(found.log_ratio[0].max()) - 1


def test_the_escape_time_by_its_leading_terms():
    """1/(u sin u) = 1/u² + 1/6 + 7u²/360 + …, so ∫ from ε to 1 is known to a few digits by hand."""
    by_hand = 1 / 0.01 - 1 + (1 - 0.01) / 6 + 7 * (1 - 0.01**3) / 1080 + 31 * (1 - 0.01**5) / 75600
    assert escape_time(0.01, math.pi - 1) == pytest.approx(by_hand, abs=1e-4)
    assert escape_time(0.5, math.pi - 0.5) == pytest.approx(0.0, abs=1e-12)


@given(st.floats(1e-5, 0.5))
def test_the_escape_time_times_eps_goes_to_one(eps):
    assert abs(escape_time(eps) * eps - 1) < eps


@given(st.floats(1e-3, 0.5), st.floats(0.3, 2.5))
def test_quadrature_and_integrated_trajectory_agree(eps, until):
    assert integrated_escape_time("angle", eps, until) == pytest.approx(escape_time(eps, until), rel=1e-8)


@pytest.mark.parametrize("eps", [0.3, 0.02])
def test_balanced_layers_escape_as_the_angle_does(eps):
    assert integrated_escape_time("both layers", eps) == pytest.approx(2 * math.pi * escape_time(eps), rel=1e-7)


@pytest.mark.parametrize("eps", [0.03, 0.001])
def test_the_lower_layer_alone_escapes_after_a_logarithmic_time(eps):
    assert integrated_escape_time("lower layer", eps) == pytest.approx(2 * math.log(1 + math.pi / eps), rel=1e-3)


def test_the_population_flow_of_the_lower_layer_is_that_of_many_samples():
    """Gradient flow of one node on normal inputs by Euler steps on 80,000 samples."""
    x = _random(1, 20_000, 2)
    x = torch.cat([x, -x, x.flip(1), -x.flip(1)])  # even moments as exact as they can be

    def network(w):
        layers = us.nets.Layer(w[None, None], None), us.nets.Layer(_tensor([[1.0]]), None)
        return us.Population(layers, torch.ones(1, dtype=torch.int64))

    eps, w, time, step = 0.5, _tensor(-math.cos(0.5), math.sin(0.5)), 0.0, 0.05
    teacher = network(_tensor(1.0, 0.0))
    while float(w[0]) < 0:
        w, time = w + step * weight_flow(teacher, network(w), x)[0, 0], time + step
    assert time == pytest.approx(integrated_escape_time("lower layer", eps), abs=0.25)
