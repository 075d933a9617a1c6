"""Gradient descent and flow on the exact loss (Zhou, Ge & Jin 2021, theorems 4 and 6)."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.fake_gpu import FakeGpu
from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.descent import descend, gradient_flow, rate_bound, sampled_gradient
from understudy.papers.local.theory.starts import draw_normal, place_near
from understudy.papers.local.theory.teachers import random_teachers

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _problem(seeds=(1, 2), m=6, r=3, d=5, angle=0.3):
    teachers = random_teachers(r, d, seeds, separation=0.5, w_min=0.5, w_max=2.0)
    return place_near(teachers, m, angle, seeds).students, teachers


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 5), st.integers(2, 6))
def test_descent_agrees_with_a_loop_over_gradients(seed, r, more, d):
    teachers = random_teachers(r, d, [seed, seed + 1])
    w = draw_normal(teachers, r + more, 0.7, [seed, seed + 1]).students
    rate = torch.tensor([0.02, 0.05], dtype=F)
    found = descend(w, teachers, rate, 20, [0, 7, 20])
    for step in range(21):
        if step in (0, 7, 20):
            # Some drawn problems diverge at these rates, in both.
            torch.testing.assert_close(found[[0, 7, 20].index(step)], w, rtol=1e-12, atol=1e-12, equal_nan=True)
        w = w - rate[:, None, None] * gaussian.loss_and_gradient_in_tensors(w, teachers)[1]


@pytest.mark.parametrize("slope", [-1.0, 0.2])
@pytest.mark.parametrize(("problems", "m", "rate"), [(1, 4, 0.05), (3, 12, 0.02), (40, 9, 0.03), (2, 4, 50.0)])
def test_compiled_steps_are_bit_for_bit_single_steps(problems, m, rate, slope, monkeypatch):
    """Also where networks diverge (the largest rate), and where steps are divided into parts."""
    students, teachers = _problem(seeds=range(problems), m=m)
    monkeypatch.setattr("understudy.papers.local.theory.gaussian.closed_forms._UNINTERRUPTED", 7 * problems * 200)
    rates = torch.linspace(rate / 2, rate, problems, dtype=F)
    found, w = gaussian.take_steps(students, teachers, rates, 30, slope), students
    for _ in range(30):
        w = w - rates[:, None, None] * gaussian.gradient(w, teachers, slope)
    assert torch.equal(found.nan_to_num(7.0), w.nan_to_num(7.0))
    assert bool(found.isfinite().all()) == (rate < 1)


def test_one_step_by_hand():
    # One input: f = w²|x| and f* = v|x|, so L = ½ (w² − v)² E x², and its slope is 2 w (w² − v).
    (found,) = descend(torch.tensor([[[2.0]]], dtype=F), torch.tensor([[[3.0]]], dtype=F), 0.1, 1, [1])
    assert float(found) == pytest.approx(2 - 0.1 * 2 * 2 * (4 - 3))


@pytest.mark.parametrize("batch", [None, 7])
def test_a_resumed_descent_is_bit_for_bit_the_same(batch):
    students, teachers = _problem()
    more = {"batch": batch, "seeds": None if batch is None else (5, 6)}
    whole = descend(students, teachers, 0.05, 40, [20, 40], **more)
    half = descend(students, teachers, 0.05, 20, [20], **more)
    rest = descend(half[0], teachers, 0.05, 20, [0, 20], first=20, **more)
    assert torch.equal(whole[0], half[0]) and torch.equal(whole[0], rest[0])
    assert torch.equal(whole[1], rest[1])


@pytest.mark.parametrize("batch", [None, 7])
def test_a_trajectory_does_not_depend_on_batch_composition(batch):
    students, teachers = _problem(seeds=(1, 2, 3))
    together = descend(students, teachers, 0.05, 20, [20], batch=batch, seeds=(5, 6, 5))
    for i, seed in enumerate((5, 6, 5)):
        alone = descend(students[i : i + 1], teachers[i : i + 1], 0.05, 20, [20], batch=batch, seeds=[seed])
        assert torch.equal(alone[0, 0], together[0, i])


def test_several_networks_may_share_one_teacher():
    students, teachers = _problem(seeds=(1, 2))
    shared = descend(students, teachers[:1], 0.05, 5, [5])
    assert torch.equal(shared, descend(students, teachers[[0, 0]], 0.05, 5, [5]))
    assert torch.equal(
        descend(students, teachers[:1], 0.05, 5, [5], batch=3, seeds=(1, 2)),
        descend(students, teachers[[0, 0]], 0.05, 5, [5], batch=3, seeds=(1, 2)),
    )


def test_gradient_of_a_mini_batch_agrees_with_autograd_on_its_samples():
    students, teachers = _problem(seeds=(3,))
    x = normal(9, Stream.TRAIN, 4, 50 * 5).view(50, 5)
    w = students.clone().requires_grad_()
    outputs = ((w[0] @ x.T).abs() * w[0].norm(dim=1, keepdim=True)).sum(0) - (teachers[0] @ x.T).abs().sum(0)
    (wanted,) = torch.autograd.grad(outputs.square().mean() / 2, w)
    torch.testing.assert_close(sampled_gradient(students, teachers, 50, [9], 4), wanted, rtol=1e-12, atol=1e-13)


def test_a_mini_batch_in_parts_has_the_mean_gradient_of_its_parts(monkeypatch):
    students, teachers = _problem(seeds=(3,))
    monkeypatch.setattr("understudy.papers.local.theory.descent._NUMBERS", 5 * 40)
    parts = [sampled_gradient(students, teachers, 40, [9], step) for step in (6, 7)]
    torch.testing.assert_close(sampled_gradient(students, teachers, 80, [9], 3), sum(parts) / 2)


def test_mini_batch_gradients_are_unbiased():
    students, teachers = _problem(seeds=(3,), angle=0.5)
    drawn = torch.stack([sampled_gradient(students, teachers, 100, [9], step)[0] for step in range(2_000)])
    exact = gaussian.loss_and_gradient(students, teachers)[1][0]
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert ((drawn.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.1 * exact.abs().max()).all()


def test_the_distance_from_the_exact_trajectory_falls_as_one_over_the_root_of_the_batch():
    students, teachers = _problem(seeds=(1,) * 20)
    exact = descend(students, teachers, 0.05, 10, [10])
    gaps = [
        float((descend(students, teachers, 0.05, 10, [10], batch=b, seeds=range(20)) - exact).square().mean().sqrt())
        for b in (10, 1_000)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.2)


def test_mini_batch_descent_agrees_on_gpu_and_cpu():
    students, teachers = _problem(seeds=(1, 2))
    here = descend(students, teachers, 0.05, 5, [2, 5], batch=7, seeds=(3, 4), first=2)
    with FakeGpu():
        there = descend(students.to("cuda"), teachers.to("cuda"), 0.05, 5, [2, 5], batch=7, seeds=(3, 4), first=2).cpu()
    torch.testing.assert_close(there, here, rtol=1e-12, atol=1e-14)


def test_a_student_of_length_zero_stays_zero():
    students, teachers = _problem(seeds=(1,))
    students[0, 2] = 0
    assert not descend(students, teachers, 0.05, 10, [10])[0, 0, 2].any()
    assert not descend(students, teachers, 0.05, 10, [10], batch=20, seeds=[1])[0, 0, 2].any()


@pytest.mark.parametrize("batch", [None, 10])
def test_a_diverged_network_is_nan_and_the_others_continue(batch):
    students, teachers = _problem(seeds=(1, 2, 3))
    rate = torch.tensor([0.05, 50.0, 0.05], dtype=F)
    found = descend(students, teachers, rate, 40, [0, 20, 40], batch=batch, seeds=(1, 2, 3))
    gone = found.isnan().flatten(2)
    assert gone.all(-1).tolist() == [[False] * 3, [False, True, False], [False, True, False]]
    assert torch.equal(gone.all(-1), gone.any(-1))
    alone = descend(students[2:], teachers[2:], 0.05, 40, [40], batch=batch, seeds=[3])
    assert torch.equal(found[2, 2], alone[0, 0])


def test_flow_by_hand():
    # One input: with s = w² the flow is ṡ = −4 s (s − v), a logistic curve.
    times, v, s = [0.0, 0.1, 1.0, 3.0], 3.0, 4.0
    found = gradient_flow(torch.tensor([[[math.sqrt(s)]]], dtype=F), torch.tensor([[[v]]], dtype=F), times)
    wanted = [v / (1 + (v / s - 1) * math.exp(-4 * v * t)) for t in times]
    assert found.flatten().square().tolist() == pytest.approx(wanted, rel=1e-8)


def test_flow_decreases_the_loss_and_is_the_limit_of_descent():
    students, teachers = _problem()
    found = gradient_flow(students, teachers, [0, 1, 2, 5, 20, 200, 2_000])
    losses = gaussian.loss(found, teachers)
    assert torch.equal(found[0], students)
    assert (losses.diff(dim=0) < 0).all()
    assert (losses[-1] < 1e-5 * losses[0]).all()
    gaps = []
    for rate in (0.02, 0.01, 0.005):
        steps = round(2 / rate)
        gaps.append(float((descend(students, teachers, rate, steps, [steps])[0] - found[2]).abs().max()))
    # Euler's method: the error is proportional to the rate.
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=0.1)


def test_the_loss_along_the_flow_decreases_at_the_squared_gradient_norm():
    students, teachers = _problem()
    around = gaussian.loss(gradient_flow(students, teachers, [0.999, 1.0, 1.001]), teachers)
    at = gaussian.loss_and_gradient(gradient_flow(students, teachers, [1.0])[0], teachers)[1]
    torch.testing.assert_close((around[0] - around[2]) / 0.002, at.square().sum((1, 2)), rtol=1e-5, atol=0)


def test_rate_bound_by_hand():
    # One neuron: the Hessian is v (I + v̄v̄ᵀ)², whose largest eigenvalue is 4 v.
    one = torch.tensor([[[0.0, 3.0]], [[1.0, 0.0]]], dtype=F)
    assert rate_bound(one).tolist() == pytest.approx([1 / 12, 1 / 4])


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 5), st.integers(2, 6))
def test_rate_bound_is_one_over_the_largest_hessian_eigenvalue_of_every_solution(seed, r, more, d):
    teachers = random_teachers(r, d, [seed], separation=0.2, w_min=0.5, w_max=2.0)
    bound = float(rate_bound(teachers))
    assert bound >= 1 / (4 * float(teachers.norm(dim=-1).sum())) * (1 - 1e-12)
    solution = place_near(teachers, r + more, 0.0, [seed]).students
    # Power iteration with forward differences of the gradient, which is 0 at the solution.
    direction = torch.randn(solution.shape, dtype=F, generator=torch.Generator().manual_seed(seed))
    for _ in range(300):
        step = 1e-6 * direction / direction.norm()
        direction = gaussian.loss_and_gradient(solution + step, teachers)[1] / 1e-6
    assert float(direction.norm()) == pytest.approx(1 / bound, rel=1e-2)


def test_near_a_solution_the_loss_decreases_in_every_step_at_rates_up_to_the_bound():
    seeds = range(12)
    for r, d, m, angle in ((1, 2, 3, 0.3), (3, 5, 3, 0.3), (3, 5, 15, 0.2), (6, 4, 12, 0.1)):
        teachers = random_teachers(r, d, seeds, separation=0.4, w_min=0.5, w_max=2.0)
        students = place_near(teachers, m, angle, seeds).students
        for share in (1.0, 0.3):
            found = descend(students, teachers, share * rate_bound(teachers), 200, range(201))
            losses = gaussian.loss(found, teachers)
            assert ((losses.diff(dim=0) < 0) | (losses[1:] < 1e-25)).all()  # below 10⁻²⁵ it is rounding


def test_descent_diverges_from_a_solution_beyond_twice_the_bound():
    teachers = random_teachers(3, 5, range(5), separation=0.4)
    students = place_near(teachers, 6, 1e-3, range(5)).students
    ends = {
        times: gaussian.loss(descend(students, teachers, times * rate_bound(teachers), 400, [400])[0], teachers)
        for times in (1.9, 2.1)
    }
    before = gaussian.loss(students, teachers)
    assert (ends[1.9] < before).all()
    assert not (ends[2.1] < 10 * before).any()  # NaN, or much larger


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 0.0}, "rate must be positive and finite, got 0.0"),
        ({"rate": math.inf}, "rate must be positive and finite, got inf"),
        ({"steps": -1, "probes": []}, "steps and first must be at least 0, got -1 steps from step 0"),
        ({"probes": [3, 1]}, r"probes must be ascending steps from 0 to 5, got \[3, 1\]"),
        ({"probes": [6]}, r"probes must be ascending steps from 0 to 5, got \[6\]"),
        ({"batch": 0, "seeds": [1, 2]}, "need at least 1 sample and one seed per network, got 0 samples and 2 seeds"),
        ({"batch": 3}, "got 3 samples and 0 seeds for 2 networks"),
    ],
)
def test_invalid_arguments_of_descent_are_rejected(change, words):
    students, teachers = _problem()
    with pytest.raises(UserError, match=words):
        descend(students, teachers, **{"rate": 0.1, "steps": 5, "probes": [5]} | change)


def test_times_of_a_flow_must_ascend():
    students, teachers = _problem()
    assert torch.equal(gradient_flow(students, teachers, [0.0])[0], students)
    with pytest.raises(UserError, match="times must be finite, at least 0 and in ascending order"):
        gradient_flow(students, teachers, [1.0, 0.5])
