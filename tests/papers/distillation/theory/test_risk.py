"""Risk bounds and estimates (Phuong 2021, sec. 5.3.2 and D.4): by hand, in limits, against measured risks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy.papers.distillation.theory.risk import (
    angle_slack,
    band,
    deep_risk_bound,
    errors,
    estimate_share,
    held_out_risk,
    large_margin_bound,
    mean_risk,
    measured_risk,
    nearer,
    polynomial_bound,
    risk_bound,
)
from understudy.papers.distillation.theory.soft_labels import angle, hard_target, less_biased, solution
from understudy.papers.distillation.theory.tasks import AngleTask, GivenTask

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _risks(task, n, sets=400):
    x = task.compact(range(sets), n)
    teacher = torch.eye(1, x.shape[-1], dtype=F)[0]
    return mean_risk(task.risk(angle(solution(x, teacher), teacher)))


def test_one_input_in_the_plane_by_hand():
    # The student lies along the input, at a uniform angle a: risk a/π, on average ¼. The printed bound is 1 for any β.
    task = AngleTask(2)
    found = _risks(task, 1, 4000)
    assert found.low < 0.25 < found.high and found.high - found.low < 0.02
    assert risk_bound(task.p, 1, 2, printed=True) == pytest.approx(1)
    # With the factor of the proof the bound is 1 − b + b², b = 2β/π, with its minimum at b = ½.
    assert risk_bound(task.p, 1, 2) == pytest.approx(0.75)


def test_the_best_beta_of_uniform_angles_by_hand():
    # 1 − b + bⁿ has its minimum where n b^(n−1) = 1.
    for n in (2, 5, 20, 500):
        b = n ** (-1 / (n - 1))
        assert risk_bound(AngleTask(1000).p, n, 1000, printed=True) == pytest.approx(1 - b + b**n, rel=1e-9)


@given(st.floats(0.1, 5), st.integers(1, 500))
def test_corollary_5_2_exceeds_the_printed_bound_which_exceeds_that_of_the_proof(kappa, n):
    p = AngleTask(1000, kappa).p
    printed, sharp = (risk_bound(p, n, 1000, printed=which) for which in (True, False))
    assert sharp <= printed <= polynomial_bound(kappa, n) * (1 + 1e-9)


def test_corollary_5_2_by_hand():
    assert polynomial_bound(1.0, 1) == 1 and polynomial_bound(1.0, 10) == pytest.approx((1 + math.log(10)) / 10)
    assert polynomial_bound(0.0, 7) == 2


def test_with_as_many_inputs_as_dimensions_the_bound_and_the_risk_are_zero():
    task = AngleTask(6)
    assert risk_bound(task.p, 6, 6) == risk_bound(task.p, 7, 6) == 0 < risk_bound(task.p, 5, 6)
    x = task.inputs(range(20), 6)
    assert float(task.risk(angle(solution(x, task.teacher), task.teacher)).max()) == 0


@pytest.mark.parametrize(
    "task",
    [AngleTask(30, 0.3), AngleTask(30, 1.0), AngleTask(30, 4.0), AngleTask(30, 1.0, 0.2), AngleTask(30, 2.0, 0.6)],
)
def test_bounds_exceed_the_measured_risk_at_every_size(task):
    counts = [1, 2, 5, 10, 20, 29]
    bounds = [risk_bound(task.p, n, task.dim) for n in counts]
    found = [_risks(task, n) for n in counts]
    assert all(one.low <= bound for one, bound in zip(found, bounds, strict=True))
    means = [one.mean for one in found]
    assert means == sorted(means, reverse=True)
    if task.margin:
        margin = [large_margin_bound(task.p, task.margin, n) for n in counts]
        assert all(one.low <= bound for one, bound in zip(found, margin, strict=True))
        assert all(bound <= own + 1e-12 for bound, own in zip(bounds, margin, strict=True))


def test_a_margin_of_45_degrees_is_learned_from_one_input():
    task = AngleTask(20, 1.0, math.pi / 4)
    assert large_margin_bound(task.p, task.margin, 1) == 0
    assert _risks(task, 1).mean == 0
    p = AngleTask(20, 1.0, math.pi / 8).p
    assert [large_margin_bound(p, math.pi / 8, n) for n in (1, 3)] == pytest.approx([2 / 3, 8 / 27])


@given(st.integers(0, 10**6), st.floats(1e-6, 0.5), st.integers(2, 6))
def test_lemma_d_3_holds_and_the_arcsine_is_attained(seed, relative, d):
    make = torch.Generator().manual_seed(seed)
    w, off = torch.randn(2, d, dtype=F, generator=make)
    off = off / off.norm() * relative * w.norm()
    assert float(angle(w, w + off)) <= angle_slack(relative) + 1e-12 <= angle_slack(relative, printed=True)
    # The tangent from 0 to the sphere of radius ε around w.
    side = off - (off @ w) / (w @ w) * w
    eps = relative * float(w.norm())
    touching = w - relative * eps * w / w.norm() + math.sqrt(1 - relative**2) * eps * side / side.norm()
    assert float((touching - w).norm()) == pytest.approx(eps)
    assert float(angle(w, touching)) == pytest.approx(angle_slack(relative))


def test_theorem_d_4_grows_with_the_slack_and_equals_5_3_without_it():
    p = AngleTask(100).p
    risks = [risk_bound(p, 10, 100, slack=slack) for slack in (0.0, 1e-9, 0.1, 0.5, 1.5)]
    assert risks[1] == pytest.approx(risks[0]) and risks == sorted(risks) and risks[-1] <= 1


def test_theorem_d_4_counts_unknown_students_as_errors():
    p, inf = AngleTask(100).p, math.inf
    exact = risk_bound(p, 10, 100)
    assert deep_risk_bound(p, 10, 100, torch.zeros(8, dtype=F)).risk == pytest.approx(exact)
    # One student of four is unknown: it counts as an error, at the slack of the others.
    some = deep_risk_bound(p, 10, 100, torch.tensor([0.1, 0.1, 0.1, inf], dtype=F))
    slack = math.asin(0.1)
    assert some == pytest.approx((risk_bound(p, 10, 100, slack=slack) + 0.25, slack, 0.25))
    # A single distant student costs less as an error than as a slack for all.
    far = deep_risk_bound(p, 10, 100, torch.tensor([0.0] * 99 + [0.9], dtype=F))
    assert far == pytest.approx((exact + 0.01, 0, 0.01))
    assert deep_risk_bound(p, 10, 100, torch.full((3,), inf, dtype=F)).risk == 1
    assert deep_risk_bound(p, 100, 100, torch.ones(3, dtype=F)).risk == 0
    near = torch.full((5,), 0.01, dtype=F)
    assert deep_risk_bound(p, 10, 100, near, printed=True).risk > deep_risk_bound(p, 10, 100, near).risk > exact


def test_measured_risks_are_exact_for_angle_tasks_and_shares_of_held_out_inputs():
    task = AngleTask(4)
    w = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [-1.0, 0, 0, 0]], dtype=F)
    risks, mean = measured_risk(task, w)
    assert risks.tolist() == pytest.approx([0, 0.5, 1]) and mean.mean == pytest.approx(0.5)
    assert measured_risk(task, w[:, :2])[0].tolist() == pytest.approx([0, 0.5, 1])
    held = torch.tensor([[1.0, 1.0], [1.0, -1.0], [2.0, 1.0], [3.0, 1.0]], dtype=F)
    given = GivenTask(held, torch.tensor([1.0, 0.0], dtype=F), held)
    risks, mean = measured_risk(given, torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=F))
    assert risks.tolist() == [0, 0.25] and mean.mean == 0.125


def test_the_band_has_the_given_confidence():
    theta = torch.linspace(0, math.pi / 2, 400, dtype=F)
    held = 0
    task = AngleTask(4, 1.5)
    for seed in range(200):
        found = band(task.inputs([seed], 100)[0], task.teacher, 0.9)
        held += bool(((found.low(theta) <= task.p(theta)) & (task.p(theta) <= found.high(theta))).all())
    assert held >= 200 * 0.9 - 3 * math.sqrt(200 * 0.9 * 0.1)
    # p(θ) is a probability of ≥: an input at the angle itself counts.
    one = band(torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=F), torch.tensor([1.0, 0.0], dtype=F))
    right = float(one.angles[1])
    assert one.p(torch.tensor([0.0, float(one.angles[0]), 0.8, right, 1.6], dtype=F)).tolist() == [1, 1, 0.5, 0.5, 0]
    assert one.width == pytest.approx(math.sqrt(math.log(40) / 4))


def test_a_bound_from_the_upper_band_exceeds_that_from_the_true_p():
    task = AngleTask(50, 2.0)
    found = band(task.inputs([1], 20_000)[0], task.teacher)
    for n in (5, 20):
        truth, above, estimate = (risk_bound(p, n, 50) for p in (task.p, found.high, found.p))
        assert truth <= above < truth + 0.03 and abs(estimate - truth) < 0.01


def test_intervals_by_hand():
    mean = mean_risk(torch.tensor([0.1, 0.3], dtype=F))
    assert (mean.mean, mean.low) == (pytest.approx(0.2), pytest.approx(0.2 - 1.959964 * 0.1))
    none = mean_risk(torch.zeros(10, dtype=F))
    assert (none.mean, none.low) == (0, 0) and none.high == pytest.approx(1 - 0.05**0.1)
    nothing = held_out_risk(torch.zeros(4, 9, dtype=torch.bool))
    assert nothing.high == pytest.approx(1 - 0.05**0.25)
    w = torch.tensor([[1.0, 0.2], [1.0, -0.3], [1.0, 0.1], [1.0, 0.1]], dtype=F)
    found = estimate_share(nearer(w, w * torch.tensor([1.0, 0.5], dtype=F), torch.tensor([1.0, 0.0], dtype=F)))
    # Wilson's interval for 4 of 4.
    assert (found.mean, found.high) == (1, pytest.approx(1)) and found.low == pytest.approx(4 / (4 + 1.959964**2))


def test_intervals_of_held_out_risks_have_the_given_confidence():
    task = AngleTask(10)
    truth = _risks(task, 4, 20_000).mean
    held = 0
    for trial in range(100):
        x = task.inputs(range(1000 * trial + 10, 1000 * trial + 40), 4)
        wrong = errors(solution(x, task.teacher), task.teacher, task.inputs([1000 * trial + 1], 200)[0])
        found = held_out_risk(wrong)
        held += found.low <= truth <= found.high
    assert held >= 85


def test_distillation_is_monotone_and_best_and_less_bias_is_worse():
    # A small version of Phuong 2021, fig. 5.5.
    task, seeds = AngleTask(40), range(300)
    x, teacher = task.inputs(seeds, 6), task.teacher
    few, more = (
        torch.cat(
            (solution(s, teacher)[None], hard_target(s, teacher)[None], less_biased(s, teacher, [0.25, 1.0], seeds))
        )
        for s in (x[:, :5], x)
    )
    risks = task.risk(angle(few, teacher)).mean(-1).tolist()
    indices = [estimate_share(nearer(a, b, teacher)).mean for a, b in zip(few, more, strict=True)]
    assert indices[0] == 1 and max(indices[1:]) < 0.8
    assert risks[0] < risks[2] < risks[3] and risks[0] < risks[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: risk_bound(p, 0, 5), "a transfer set needs 1 or more inputs, got 0"),
        (lambda p: risk_bound(p, 1, 5, slack=2.0), "slack must be an angle from 0 to below π/2, got 2.0"),
        (lambda p: polynomial_bound(-1.0, 1), "κ must be finite and at least 0, got -1.0"),
        (lambda p: large_margin_bound(p, 0.2, 1), "corollary 5.1 needs a margin"),
        (lambda p: large_margin_bound(p, 0.0, 1), "corollary 5.1 needs a margin"),
        (lambda p: angle_slack(0.7, printed=True), "must be from 0 to 0.5, got 0.7"),
        (lambda p: mean_risk(torch.zeros(0, dtype=F)), "1 or more transfer sets are needed, got 0"),
        (lambda p: mean_risk(torch.zeros(1, dtype=F), 1.0), "confidence must be between 0 and 1, got 1.0"),
        (lambda p: band(torch.zeros(0, 2, dtype=F), torch.ones(2, dtype=F)), "1 or more inputs are needed"),
    ],
)
def test_invalid_arguments_are_refused(call, words):
    with pytest.raises(UserError, match=words):
        call(AngleTask(5).p)
