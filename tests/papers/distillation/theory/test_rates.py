"""Rates of the loss of linear students: by hand, against the flow, and refused arguments."""

import math

import pytest
import torch

from understudy._errors import UserError
from understudy.papers.distillation.theory.linear_students import balanced, balanced_flow, end_to_end
from understudy.papers.distillation.theory.rates import fitted_rates, limit_rate, proved_rate
from understudy.papers.distillation.theory.soft_labels import gain, gradient, loss
from understudy.papers.distillation.theory.tasks import AngleTask

F = torch.float64


def test_the_rates_of_one_input_by_hand():
    x, teacher, start = (torch.tensor(v, dtype=F) for v in ([[[2.0]]], [0.0], [[1.0]]))
    # The level is ℓ(u) = log cosh(u/2) at u = 2, symmetric about 0: |u| ≤ 2 on the sublevel set.
    slope = 1 / (1 + math.exp(2)) / (1 + math.exp(-2))
    assert proved_rate(start, x, teacher, 1) == pytest.approx(2 * slope * 4)
    # At the limit w = 0 the Hessian is 4/4.
    assert limit_rate(start, x, teacher, 1) == pytest.approx(2.0)


def test_the_least_direction_in_the_span_counts_and_the_number_of_inputs():
    x = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype=F)
    zero = torch.zeros(1, 3, dtype=F)
    # Labels of ½ and a start at the limit: the sublevel set is the limit itself.
    assert proved_rate(zero, x, zero[0], 1) == pytest.approx(2 * (1 / 4) * 1 / 2)
    assert limit_rate(zero, x, zero[0], 1) == pytest.approx(2 * (1 / 4) * 1 / 2)


def test_deep_students_are_slowed_down_by_their_distance_from_0():
    task = AngleTask(6)
    x = task.inputs([1, 2], 4)
    start = end_to_end(balanced(x, task.teacher, 3, 0.01, [1, 2]))
    away = gain(start, x, task.teacher) / gradient(torch.zeros_like(start), x, task.teacher).norm(dim=-1)
    ratio = proved_rate(start, x, task.teacher, 3) / proved_rate(start, x, task.teacher, 1)
    torch.testing.assert_close(ratio, away ** (4 / 3))
    assert (proved_rate(-start, x, task.teacher, 3) == 0).all()  # condition 5.12 fails


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_flow_decays_at_the_rate_of_its_limit_and_never_slower_than_proved(depth):
    task = AngleTask(4)
    x = task.inputs([1, 2, 3], 3)
    start = end_to_end(balanced(x, task.teacher, depth, 1e-3, [1, 2, 3]))
    proved, slow = (rate(start, x, task.teacher, depth) for rate in (proved_rate, limit_rate))
    times = torch.cat((torch.zeros(1, dtype=F), torch.logspace(-1, 8, 150, dtype=F)))
    losses = loss(balanced_flow(start, x, task.teacher, times.tolist(), depth), x, task.teacher)
    envelope, last = fitted_rates(losses, times)
    assert (envelope >= proved).all() and (proved > 0).all()
    torch.testing.assert_close(last, slow, rtol=0.02, atol=0.0)


def test_an_exponential_is_fitted_exactly_and_rounding_is_left_out():
    times = torch.linspace(0, 20, 21, dtype=F)
    losses = torch.stack([0.3 * torch.exp(-2 * times), torch.exp(-times) + 0.5 * torch.exp(-0.5 * times)], 1)
    losses[16:, 0] = 1e-17
    envelope, last = fitted_rates(losses, times)
    assert envelope[0] == pytest.approx(2.0) and last[0] == pytest.approx(2.0)
    assert 0.5 < last[1] < 0.51 and last[1] < envelope[1] < 0.75
    assert fitted_rates(torch.tensor([[1.0], [1e-20]], dtype=F), torch.tensor([0.0, 1.0]))[1].isnan()


def test_a_depth_below_one_is_refused():
    with pytest.raises(UserError, match="depth must be at least 1, got 0"):
        proved_rate(torch.ones(1, 2, dtype=F), torch.ones(1, 1, 2, dtype=F), torch.ones(2, dtype=F), 0)
