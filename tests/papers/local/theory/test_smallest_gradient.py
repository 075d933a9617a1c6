"""The search for the students of small loss whose gradient is smallest (Zhou, Ge & Jin 2021, theorem 3)."""

import math

import pytest
import torch

from understudy._errors import UserError
from understudy.papers.local.theory.descent import descend
from understudy.papers.local.theory.gaussian import loss, loss_and_gradient
from understudy.papers.local.theory.geometry import LEMMA_8_CONSTANT, local_geometry, sides
from understudy.papers.local.theory.smallest_gradient import smallest_gradient, threshold
from understudy.papers.local.theory.teachers import random_teachers

F = torch.float64


def ratios(students, teachers):
    """Losses of networks, and their ‖∇L‖/L."""
    found, gradient = loss_and_gradient(students, teachers)
    return found, gradient.flatten(1).norm(dim=1) / found


def test_the_search_finds_the_least_of_a_grid_for_one_student_of_one_node():
    teachers = torch.tensor([[[1.0, 0.0]]], dtype=F)
    level = threshold(teachers)
    found, ratio = ratios(smallest_gradient(teachers, 1, level, [1]), teachers)
    axes = torch.linspace(1e-3, 1.5, 300, dtype=F), torch.linspace(0.3, 1.6, 300, dtype=F)
    angle, square = torch.meshgrid(*axes, indexing="ij")
    every = square.sqrt().unsqueeze(-1) * torch.stack([angle.cos(), angle.sin()], -1)
    losses, steep = ratios(every.reshape(-1, 1, 2), teachers)
    wanted = steep[losses <= level].min()
    assert found.item() == pytest.approx(level.item(), rel=1e-6)
    assert ratio.item() <= wanted.item() <= 1.01 * ratio.item()


def test_it_finds_the_stationary_point_where_students_share_two_nodes_and_nothing_below():
    """The best single student of two nodes is stationary, and so are two students in its direction, at its loss."""
    teachers = random_teachers(2, 2, [1], 0.5)
    shared = loss(descend(teachers.sum(1, keepdim=True) / 2, teachers, 0.05, 4_000, [4_000])[0], teachers)
    assert shared.item() > 10 * threshold(teachers).item()
    found, above = ratios(smallest_gradient(teachers, 2, 1.02 * shared, [1], 2), teachers)
    assert above.item() < 1e-6
    assert found.item() == pytest.approx(shared.item(), rel=1e-9)
    found, below = ratios(smallest_gradient(teachers, 2, 0.9 * shared, [1], 2), teachers)
    assert below.item() > 0.5
    assert found.item() <= 0.9 * shared.item() * (1 + 1e-6)


def test_lengths_scale_the_smallest_ratio_as_their_inverse_root():
    """With w* → c w* and w → √c w, L is c² and ∇L is c^(3/2) times as large."""
    teachers = random_teachers(2, 2, [1], 0.7)
    level = threshold(teachers)
    _, one = ratios(smallest_gradient(teachers, 2, level, [1], 1), teachers)
    _, four = ratios(smallest_gradient(4 * teachers, 2, 16 * level, [1], 1), 4 * teachers)
    assert four.item() == pytest.approx(one.item() / 2, rel=1e-3)


def test_the_threshold_is_where_the_angle_of_lemma_8_is_the_separation():
    teachers = random_teachers(3, 5, [1, 2], 0.3, 0.4, 0.8)
    level = threshold(teachers)
    lengths = teachers.norm(dim=-1)
    delta = LEMMA_8_CONSTANT * 3 * lengths.amax(-1) * lengths.amin(-1) ** (-5 / 3) * level ** (1 / 3)
    found = local_geometry(smallest_gradient(teachers, 3, level, [1, 2], 1), teachers)
    torch.testing.assert_close(
        delta * (found.loss / level) ** (1 / 3), LEMMA_8_CONSTANT * sides(found, teachers)["lemma 8"].right
    )
    assert (found.loss <= level * (1 + 1e-6)).all()
    assert threshold(torch.eye(2, dtype=F)).item() == pytest.approx((math.pi / 16) ** 3)


def test_a_network_does_not_depend_on_the_others():
    teachers = random_teachers(2, 3, [5, 6], 0.5)
    level = threshold(teachers)
    both = smallest_gradient(teachers, 2, level, [5, 6], 2)
    assert torch.equal(both[1:], smallest_gradient(teachers[1:], 2, level[1:], [6], 2))
    assert torch.isfinite(loss(both, teachers)).all()


def test_invalid_arguments_are_rejected():
    teachers = random_teachers(2, 3, [1], 0.5)
    with pytest.raises(UserError, match="the number of attempts must be at least 1, got 0"):
        smallest_gradient(teachers, 2, threshold(teachers), [1], 0)
    with pytest.raises(UserError, match="levels of the loss must be above 0"):
        smallest_gradient(teachers, 2, torch.zeros(1, dtype=F), [1])
