"""Descent and flow on the exact loss (S4 theorems 4 and 6): against plain loops, in limits, and by simulation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.fake_card import FakeCard
from understudy._random import Stream, normal
from understudy.errors import UserError
from understudy.papers.local.theory.descent import descend, flow, rate_bound, sampled_gradient, samples_of_all
from understudy.papers.local.theory.gaussian import closed_forms as gaussian
from understudy.papers.local.theory.starts import near, random_teachers, scaled

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _problem(seeds=(1, 2), m=6, r=3, d=5, angle=0.3):
    teachers = random_teachers(r, d, seeds, separation=0.5, w_min=0.5, w_max=2.0)
    return near(teachers, m, angle, seeds).students, teachers


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 5), st.integers(2, 6))
def test_descent_is_a_plain_loop_of_autograd(seed, r, more, d):
    teachers = random_teachers(r, d, [seed, seed + 1])
    students = scaled(teachers, r + more, 0.7, [seed, seed + 1]).students
    rate = torch.tensor([0.02, 0.05], dtype=F)
    found = descend(students, teachers, rate, 20, [0, 7, 20])
    w = students.clone().requires_grad_()
    for step in range(21):
        if step in (0, 7, 20):
            torch.testing.assert_close(found[[0, 7, 20].index(step)], w.detach(), rtol=1e-12, atol=1e-12)
        (gradient,) = torch.autograd.grad(gaussian.loss(w, teachers).sum(), w)
        w = (w - rate[:, None, None] * gradient).detach().requires_grad_()


def test_a_step_by_hand():
    # One input: f = w²|x| and f* = v|x|, so L = ½ (w² − v)² E x², and its slope is 2 w (w² − v).
    (found,) = descend(torch.tensor([[[2.0]]], dtype=F), torch.tensor([[[3.0]]], dtype=F), 0.1, 1, [1])
    assert float(found) == pytest.approx(2 - 0.1 * 2 * 2 * (4 - 3))


@pytest.mark.parametrize("batch", [None, 7])
def test_steps_in_two_parts_are_the_same_steps_bit_for_bit(batch):
    students, teachers = _problem()
    more = {"batch": batch, "seeds": None if batch is None else (5, 6)}
    whole = descend(students, teachers, 0.05, 40, [20, 40], **more)
    half = descend(students, teachers, 0.05, 20, [20], **more)
    rest = descend(half[0], teachers, 0.05, 20, [0, 20], first=20, **more)
    assert torch.equal(whole[0], half[0]) and torch.equal(whole[0], rest[0])
    assert torch.equal(whole[1], rest[1])


@pytest.mark.parametrize("batch", [None, 7])
def test_a_network_goes_the_same_way_in_any_company(batch):
    students, teachers = _problem(seeds=(1, 2, 3))
    together = descend(students, teachers, 0.05, 20, [20], batch=batch, seeds=(5, 6, 5))
    for i, seed in enumerate((5, 6, 5)):
        alone = descend(students[i : i + 1], teachers[i : i + 1], 0.05, 20, [20], batch=batch, seeds=[seed])
        assert torch.equal(alone[0, 0], together[0, i])


def test_many_students_share_one_teacher():
    students, teachers = _problem(seeds=(1, 2))
    shared = descend(students, teachers[:1], 0.05, 5, [5])
    assert torch.equal(shared, descend(students, teachers[[0, 0]], 0.05, 5, [5]))
    assert torch.equal(
        descend(students, teachers[:1], 0.05, 5, [5], batch=3, seeds=(1, 2)),
        descend(students, teachers[[0, 0]], 0.05, 5, [5], batch=3, seeds=(1, 2)),
    )


def test_the_gradient_of_a_mini_batch_is_that_of_autograd_on_its_samples():
    from understudy._random import Stream, normal

    students, teachers = _problem(seeds=(3,))
    x = normal(9, Stream.TRAIN, 4, 50 * 5).view(50, 5)
    w = students.clone().requires_grad_()
    outputs = ((w[0] @ x.T).abs() * w[0].norm(dim=1, keepdim=True)).sum(0) - (teachers[0] @ x.T).abs().sum(0)
    (wanted,) = torch.autograd.grad(outputs.square().mean() / 2, w)
    torch.testing.assert_close(sampled_gradient(students, teachers, 50, [9], 4), wanted, rtol=1e-12, atol=1e-13)


def test_mini_batches_are_cut_without_a_seam(monkeypatch):
    students, teachers = _problem(seeds=(3,))
    monkeypatch.setattr("understudy.papers.local.theory.descent._NUMBERS", 5 * 40)
    parts = [sampled_gradient(students, teachers, 40, [9], step) for step in (6, 7)]
    torch.testing.assert_close(sampled_gradient(students, teachers, 80, [9], 3), sum(parts) / 2)


def test_the_gradient_of_mini_batches_is_the_exact_one_in_expectation():
    students, teachers = _problem(seeds=(3,), angle=0.5)
    drawn = torch.stack([sampled_gradient(students, teachers, 100, [9], step)[0] for step in range(2_000)])
    exact = gaussian.loss_and_gradient(students, teachers)[1][0]
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert ((drawn.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.1 * exact.abs().max()).all()


def test_the_larger_the_batch_the_nearer_to_the_exact_way():
    students, teachers = _problem(seeds=(1,) * 20)
    exact = descend(students, teachers, 0.05, 10, [10])
    gaps = [
        float((descend(students, teachers, 0.05, 10, [10], batch=b, seeds=range(20)) - exact).square().mean().sqrt())
        for b in (10, 1_000)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.2)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=3), st.integers(0, 2**40), st.integers(1, 7))
def test_samples_drawn_for_all_at_once_are_those_of_every_seed(seeds, step, count):
    found = samples_of_all(seeds, step, count, torch.zeros(len(seeds), 2, 3, dtype=F))
    for seed, x in zip(seeds, found, strict=True):
        assert torch.equal(x, normal(seed, Stream.TRAIN, step, 3 * count).view(count, 3))


def test_mini_batches_on_a_card_take_the_way_that_they_take_on_a_processor():
    students, teachers = _problem(seeds=(1, 2))
    here = descend(students, teachers, 0.05, 5, [2, 5], batch=7, seeds=(3, 4), first=2)
    with FakeCard():
        there = descend(students.to("cuda"), teachers.to("cuda"), 0.05, 5, [2, 5], batch=7, seeds=(3, 4), first=2).cpu()
    torch.testing.assert_close(there, here, rtol=1e-12, atol=1e-14)


def test_a_zero_student_stays():
    students, teachers = _problem(seeds=(1,))
    students[0, 2] = 0
    assert not descend(students, teachers, 0.05, 10, [10])[0, 0, 2].any()
    assert not descend(students, teachers, 0.05, 10, [10], batch=20, seeds=[1])[0, 0, 2].any()


@pytest.mark.parametrize("batch", [None, 10])
def test_a_network_that_goes_beyond_numbers_is_marked_and_the_others_go_on(batch):
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
    found = flow(torch.tensor([[[math.sqrt(s)]]], dtype=F), torch.tensor([[[v]]], dtype=F), times)
    wanted = [v / (1 + (v / s - 1) * math.exp(-4 * v * t)) for t in times]
    assert found.flatten().square().tolist() == pytest.approx(wanted, rel=1e-8)


def test_flow_goes_downhill_and_is_the_limit_of_descent():
    students, teachers = _problem()
    found = flow(students, teachers, [0, 1, 2, 5, 20, 200, 2_000])
    losses = gaussian.loss(found, teachers)
    assert torch.equal(found[0], students)
    assert (losses.diff(dim=0) < 0).all()
    assert (losses[-1] < 1e-5 * losses[0]).all()
    gaps = []
    for rate in (0.02, 0.01, 0.005):
        steps = round(2 / rate)
        gaps.append(float((descend(students, teachers, rate, steps, [steps])[0] - found[2]).abs().max()))
    # Euler's method: errors of the order of the rate.
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=0.1)


def test_flow_loses_energy_at_the_rate_of_its_gradient():
    students, teachers = _problem()
    around = gaussian.loss(flow(students, teachers, [0.999, 1.0, 1.001]), teachers)
    at = gaussian.loss_and_gradient(flow(students, teachers, [1.0])[0], teachers)[1]
    torch.testing.assert_close((around[0] - around[2]) / 0.002, at.square().sum((1, 2)), rtol=1e-5, atol=0)


def test_the_bound_by_hand():
    # One neuron: the Hessian is v (I + v̄v̄ᵀ)², whose largest eigenvalue is 4 v.
    one = torch.tensor([[[0.0, 3.0]], [[1.0, 0.0]]], dtype=F)
    assert rate_bound(one).tolist() == pytest.approx([1 / 12, 1 / 4])


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 5), st.integers(2, 6))
def test_one_over_the_bound_is_the_largest_curvature_of_every_solution(seed, r, more, d):
    teachers = random_teachers(r, d, [seed], separation=0.2, w_min=0.5, w_max=2.0)
    bound = float(rate_bound(teachers))
    assert bound >= 1 / (4 * float(teachers.norm(dim=-1).sum())) * (1 - 1e-12)
    solution = near(teachers, r + more, 0.0, [seed]).students.requires_grad_()
    # Forward differences of the gradient, which is 0 at the solution, along its direction of most curvature.
    way = torch.randn(solution.shape, dtype=F, generator=torch.Generator().manual_seed(seed))
    for _ in range(300):
        moved = gaussian.loss_and_gradient(solution.detach() + 1e-6 * way / way.norm(), teachers)[1] / 1e-6
        way = moved
    assert float(way.norm()) == pytest.approx(1 / bound, rel=1e-2)


def test_near_the_teacher_the_loss_falls_in_every_step_up_to_the_bound():
    seeds = range(12)
    for r, d, m, angle in ((1, 2, 3, 0.3), (3, 5, 3, 0.3), (3, 5, 15, 0.2), (6, 4, 12, 0.1)):
        teachers = random_teachers(r, d, seeds, separation=0.4, w_min=0.5, w_max=2.0)
        students = near(teachers, m, angle, seeds).students
        for share in (1.0, 0.3):
            found = descend(students, teachers, share * rate_bound(teachers), 200, range(201))
            losses = gaussian.loss(found, teachers)
            assert ((losses.diff(dim=0) < 0) | (losses[1:] < 1e-25)).all()  # there, of rounding alone


def test_beyond_twice_the_bound_descent_leaves_a_solution():
    teachers = random_teachers(3, 5, range(5), separation=0.4)
    students = near(teachers, 6, 1e-3, range(5)).students
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
        ({"rate": 0.0}, "rate 0.0 was given; allowed is a finite number above 0"),
        ({"rate": math.inf}, "allowed is a finite number above 0"),
        ({"steps": -1, "looks": []}, "-1 steps from step 0 were asked for"),
        ({"looks": [3, 1]}, "looks must be in order and from 0 to the 5 steps"),
        ({"looks": [6]}, "looks must be in order and from 0 to the 5 steps"),
        ({"batch": 0, "seeds": [1, 2]}, "mini-batches of 0 samples"),
        ({"batch": 3}, "3 samples for 2 networks and 0 seeds: allowed is 1 sample or more, with a seed for every"),
    ],
)
def test_what_descent_cannot_do_is_said(change, words):
    students, teachers = _problem()
    with pytest.raises(UserError, match=words):
        descend(students, teachers, **{"rate": 0.1, "steps": 5, "looks": [5]} | change)


def test_times_must_go_forward():
    students, teachers = _problem()
    assert torch.equal(flow(students, teachers, [0.0])[0], students)
    with pytest.raises(UserError, match="times must be finite, from 0 on and in order"):
        flow(students, teachers, [1.0, 0.5])
