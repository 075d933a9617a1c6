"""Linear students of any depth (Phuong 2021, theorems 5.1, 5.2): starts, descent against autograd, flow and limit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy.nets import Layer, Population
from understudy.papers.distillation.theory.linear_students import (
    _BalancedFlow,
    balanced,
    balanced_flow,
    conditions,
    descend,
    descend_until,
    disturbed,
    end_to_end,
    rate_bound,
)
from understudy.papers.distillation.theory.soft_labels import gain, limit, loss, solution, span
from understudy.papers.distillation.theory.tasks import AngleTask

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _problem(seed, n, d, nets=3):
    make = torch.Generator().manual_seed(seed)
    return torch.randn(nets, n, d, dtype=F, generator=make), torch.randn(d, dtype=F, generator=make)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.floats(1e-9, 1e-3))
def test_starts_are_balanced_with_the_given_length_and_lower_loss(seed, depth, width, scale):
    x, teacher = _problem(seed, 4, 6)
    students = balanced(x, teacher, depth, scale, [seed, seed + 1, seed + 2], width)
    assert students.sizes == (6, *[width] * (depth - 1), 1) and len(students.layers) == depth
    found = conditions(students, x, teacher)
    torch.testing.assert_close(found.start, torch.full((3,), scale, dtype=F))
    assert float(found.imbalance.max()) < 1e-14
    # The sign is right to first order: only a start nearly orthogonal to ∇ℓ1(0) could fail.
    w = end_to_end(students)
    assert (gain(w, x, teacher) > gain(-w, x, teacher)).all()
    if scale < 1e-6:
        assert found.hold().all()


def test_a_start_orthogonal_to_the_first_gradient_meets_5_12_with_neither_sign():
    x, teacher = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=F), torch.tensor([1.0, 1.0], dtype=F)
    w = torch.tensor([[0.1, -0.1]], dtype=F)
    assert float(gain(w, x, teacher)) < 0 and float(gain(-w, x, teacher)) < 0


def test_conditions_detect_unbalanced_uphill_and_long_starts():
    x, teacher = _problem(1, 4, 6)
    students = balanced(x, teacher, 2, 1e-3, [1, 2, 3], 3)
    first, second = students.layers
    other = Population((Layer(2 * first.weight, None), Layer(second.weight / 2, None)), students.seeds, 1.0)
    torch.testing.assert_close(end_to_end(other), end_to_end(students))
    # ‖W_2ᵀW_2 − W_1W_1ᵀ‖ = (4 − 1/4) s and ‖W_1W_1ᵀ‖ = 4 s.
    assert conditions(other, x, teacher).imbalance.tolist() == pytest.approx([15 / 16] * 3)
    uphill = Population((Layer(-first.weight, None), second), students.seeds, 1.0)
    assert (conditions(uphill, x, teacher).gain < 0).all() and not conditions(uphill, x, teacher).hold().any()
    long = conditions(balanced(x, teacher, 2, 100.0, [1, 2, 3]), x, teacher)
    assert long.epsilon.isinf().all() and not long.hold().any()


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_descent_equals_a_plain_loop_of_autograd(seed, depth):
    x, teacher = _problem(seed, 3, 4, nets=2)
    students = balanced(x, teacher, depth, 0.3, [seed, seed + 1], 3)
    rates = torch.tensor([0.1, 0.2], dtype=F)
    found = descend(students, x, teacher, rates, [0, 5])
    weights = [layer.weight.clone().requires_grad_() for layer in students.layers]
    for _ in range(5):
        product = weights[0]
        for w in weights[1:]:
            product = w @ product
        pulls = torch.autograd.grad(loss(product.squeeze(-2), x, teacher).sum(), weights)
        weights = [
            (w - rates[:, None, None] * pull).detach().requires_grad_() for w, pull in zip(weights, pulls, strict=True)
        ]
    for layer, w in zip(found[1].layers, weights, strict=True):
        torch.testing.assert_close(layer.weight, w.detach(), rtol=1e-10, atol=1e-12)
    assert torch.equal(end_to_end(found[0]), end_to_end(students))


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 4))
def test_flow_converges_to_the_closed_form(seed, n, depth):
    x, teacher = _problem(seed, n, 5, nets=2)
    # Unit inputs, so that all directions converge in time.
    x = torch.nn.functional.normalize(x, dim=-1)
    start = end_to_end(balanced(x, teacher, depth, 1e-3, [seed, seed + 1]))
    end = balanced_flow(start, x, teacher, [0.0, 1e9], depth)
    torch.testing.assert_close(end[0], start, rtol=1e-9, atol=1e-12)
    reached = torch.linalg.svdvals(x)[:, min(n, 5) - 1] > 1e-2
    torch.testing.assert_close(end[1][reached], limit(start, x, teacher, depth)[reached], rtol=1e-7, atol=1e-7)


def test_one_layer_from_zero_learns_the_projection_and_with_enough_inputs_the_teacher():
    for n in (1, 3, 5, 8):
        x, teacher = _problem(n, n, 5)
        (found,) = balanced_flow(torch.zeros(3, 5, dtype=F), x, teacher, [1e9])
        torch.testing.assert_close(found, solution(x, teacher), rtol=0, atol=1e-8)


@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0, 2))
def test_the_jacobian_of_the_flow_equals_finite_differences(seed, depth, offset):
    rng = np.random.default_rng(seed)
    moves = _BalancedFlow(rng.normal(size=(6, 4)), rng.random(6), depth, offset)
    v, step = rng.normal(size=4), 1e-6
    wanted = [(moves.velocity(0, v + step * e) - moves.velocity(0, v - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(moves.jacobian(0, v), np.stack(wanted, 1), rtol=1e-5, atol=1e-6)


def test_flow_scales_the_orthogonal_component_and_resolves_nearly_dependent_inputs():
    x, teacher = _problem(2, 3, 6)
    x[:, 2] = x[:, 1] + 1e-5 * x[:, 2]
    start = end_to_end(balanced(x, teacher, 3, 1e-3, [1, 2, 3]))
    path = balanced_flow(start, x, teacher, [0.0, 1.0, 10.0, 1e16], 3)
    basis = span(x)
    across = path - torch.einsum("nik,njk,tnj->tni", basis, basis, path)
    lengths = path.norm(dim=-1)
    grown = across.norm(dim=-1) / across[0].norm(dim=-1)
    torch.testing.assert_close(grown, (lengths / lengths[0]).pow(2 / 3), rtol=1e-6, atol=0)
    torch.testing.assert_close(path[-1], limit(start, x, teacher, 3), rtol=0, atol=1e-8)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_descent_in_small_steps_approaches_flow(depth):
    x, teacher = _problem(4, 3, 5)
    students = balanced(x, teacher, depth, 0.2, [1, 2, 3], 4)
    (wanted,) = balanced_flow(end_to_end(students), x, teacher, [2.0], depth)
    off = [
        float((end_to_end(descend(students, x, teacher, 2.0 / steps, [steps])[0]) - wanted).abs().max())
        for steps in (200, 400)
    ]
    assert off[1] < 1e-2 and off[0] / off[1] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("depth", [1, 3])
def test_descent_stops_where_it_is_near_and_stays(depth):
    task = AngleTask(5)
    x = task.inputs([1, 2], 40)
    students = balanced(x, task.teacher, depth, 0.1, [1, 2], 2)
    rates, near = rate_bound(x) / depth, torch.tensor([0.1, 0.01], dtype=torch.float64)
    found = descend_until(students, x, task.teacher, rates, range(3_000), near)
    away = torch.stack([(end_to_end(each) - task.teacher).norm(dim=-1) for each in found.students])
    for net, steps in enumerate(found.steps.tolist()):
        assert 0 < steps < 2_999
        assert away[steps - 1, net] > near[net] >= away[steps, net] == away[-1, net]
    plain = descend(students, x, task.teacher, rates, [int(found.steps[0])])[0]
    assert torch.equal(end_to_end(plain)[0], end_to_end(found.students[-1])[0])
    assert descend_until(students, x, task.teacher, rates, [5], 1e-9).steps.tolist() == [-1, -1]
    assert descend_until(students, x, task.teacher, rates, [5], 10.0).steps.tolist() == [0, 0]


def test_noise_disturbs_the_balance_by_its_size():
    task = AngleTask(30)
    x = task.inputs(range(1, 51), 3)
    students = balanced(x, task.teacher, 3, 1e-6, range(1, 51), 4)
    changed = disturbed(students, 0.1, range(1, 51))
    for before, after in zip(students.layers, changed.layers, strict=True):
        size = torch.linalg.matrix_norm(after.weight - before.weight) / torch.linalg.matrix_norm(before.weight)
        assert 0.09 < size.square().mean().sqrt() < 0.11
    imbalance = conditions(changed, x, task.teacher).imbalance
    assert 0.05 < imbalance.mean() < 0.4 and (conditions(students, x, task.teacher).imbalance < 1e-12).all()
    assert not conditions(changed, x, task.teacher).hold().any()


def test_rates_below_the_bound_lower_the_loss_and_rates_far_above_raise_it():
    x, teacher = _problem(8, 4, 4)
    students = balanced(x, teacher, 1, 0.0, [1, 2, 3])
    path = descend(students, x, teacher, 0.99 * rate_bound(x), range(50))
    losses = torch.stack([loss(end_to_end(w), x, teacher) for w in path])
    assert (losses.diff(dim=0) < 0).all()
    # By hand: one input of length 2 with label ½ has the curvature 4/4 at the solution 0.
    one, zero = torch.tensor([[[2.0]]], dtype=F), torch.zeros(1, dtype=F)
    assert float(rate_bound(one)) == 1
    near = balanced(one, torch.ones(1, dtype=F), 1, 1e-3, [1])
    assert float(end_to_end(descend(near, one, zero, 2.1, [1])[0]).__abs__()) > 1e-3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w: balanced(x, w, 0, 0.1, [1]), "0 layers"),
        (lambda x, w: balanced(x, w, 2, 0.0, [1]), "only a student of one layer may start at 0"),
        (lambda x, w: balanced(x, w, 2, 0.1, [1, 2]), r"one seed per set of inputs is needed \(1\), got 2"),
        (lambda x, w: balanced_flow(w[None], x, w, [1.0], 0), "0 layers"),
        (
            lambda x, w: balanced_flow(w[None], x, w, [2.0, 1.0]),
            "times must be finite, at least 0 and in ascending order",
        ),
        (
            lambda x, w: descend(balanced(x, w, 1, 0.1, [1]), x, w, math.nan, [1]),
            "rate must be finite and above 0, got nan",
        ),
        (lambda x, w: descend(balanced(x, w, 1, 0.1, [1]), x, w, 0.1, [2, 1]), "probes must be in ascending order"),
        (
            lambda x, w: end_to_end(
                Population((Layer(w[None, None], None), Layer(w[None, :1, None], None)), torch.tensor([1]), 0.0)
            ),
            "slope 0",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, words):
    x, teacher = _problem(1, 2, 3, nets=1)
    with pytest.raises(UserError, match=words):
        call(x, teacher)
