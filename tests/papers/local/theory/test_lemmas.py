"""Lemmas 7 and 11 to 13, and theorems 5 and 6, of Zhou, Ge & Jin 2021: by hand, by limits, and by simulation."""

import math

import pytest
import torch

from understudy._random import Stream, normal
from understudy.nets import Population
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.descent import sampled_gradient
from understudy.papers.local.theory.geometry import mass_bound, smoothness_sides
from understudy.papers.local.theory.initial_and_sampled import (
    FAILURE,
    gradient_on_samples,
    guaranteed_loss,
    log_share_within,
    log_students_needed,
    sampled_error_bound,
)
from understudy.papers.local.theory.lemmas import TURNED, gradient_bound, smoothness_bound, turned_length
from understudy.papers.local.theory.starts import place_near, scatter, student_network
from understudy.papers.local.theory.teachers import teacher_network
from understudy.theory import Finding, find_result

pytestmark = pytest.mark.usefixtures("one_thread")


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return normal(seed, Stream.DIRECTIONS, 5, math.prod(shape)).view(*shape).double()


def check(name: str, students: torch.Tensor, teachers: torch.Tensor, samples: int = 4_000) -> Finding:
    networks: tuple[Population, Population] = (teacher_network(teachers, [1]), student_network(students, [1]))
    (found,) = find_result(name)(*networks, drawn(9, samples, teachers.shape[-1]))
    return found


TEACHERS = torch.tensor([[[1.0, 0.0, 0.0], [0.3, 1.1, 0.0]]], dtype=torch.float64)
NEAR = place_near(TEACHERS, 6, 0.05, [1]).students


# Lemma 13


@pytest.mark.parametrize("size", [0.3, 0.9, 1.7])
def test_one_parallel_student_reaches_the_bound_on_the_gradient_up_to_its_mass(size):
    """R = (c² − 1)|x₁| for w = c e₁ and w* = e₁, so that L = ½ (c² − 1)² and ‖∇L‖² = 4 c² (c² − 1)² = 8 L c²."""
    student, teacher = torch.tensor([[[size, 0.0]]]).double(), torch.tensor([[[1.0, 0.0]]]).double()
    loss, gradient = gaussian.loss_and_gradient(student, teacher)
    assert float(loss) == pytest.approx((size**2 - 1) ** 2 / 2)
    assert float(gradient.square().sum()) == pytest.approx(8 * float(loss) * size**2)
    ratio = size**2 / float(mass_bound(loss, teacher))
    assert float(gradient.square().sum()) == pytest.approx(ratio * float(gradient_bound(loss, teacher)))
    assert ratio <= 1


def test_no_students_exceed_the_bounds_on_gradients_and_steps():
    for seed in range(40):
        scale = 10 ** (seed % 5 - 3)
        students, teachers = scale * drawn(seed, 1, 1 + seed % 7, 3), drawn(seed + 100, 1, 1 + seed % 3, 3)
        loss, gradient = gaussian.loss_and_gradient(students, teachers)
        assert float(gradient.square().sum()) <= float(gradient_bound(loss, teachers))
        for step in (-gradient, -students, -1.5 * students, *(10.0**k * drawn(seed, *students.shape) for k in (-3, 0))):
            excess = float(smoothness_sides(students, teachers, step).left)
            assert excess <= float(smoothness_bound(loss, teachers, step)) + 1e-12


# Lemma 12


def test_the_constant_of_turned_students_is_the_largest_and_attained():
    ratio = torch.logspace(-4, 4, 2_001, dtype=torch.float64)[:, None]
    angle = torch.linspace(0, math.pi, 801, dtype=torch.float64)
    shares = turned_length(ratio, angle) / ratio.sqrt()
    assert float(shares.max()) <= TURNED * (1 + 1e-12)
    at = torch.tensor(2 / 3, dtype=torch.float64), torch.tensor(math.pi, dtype=torch.float64)
    assert float(turned_length(*at) / at[0].sqrt()) == pytest.approx(TURNED)


def test_the_length_of_turned_students_is_that_of_samples():
    w, u, x = drawn(1, 3), drawn(2, 3), drawn(3, 200_000, 3)
    beta = w.norm() * (u + w) + (w @ u) * w / w.norm()
    square = ((x @ beta).abs() - (x @ beta) * (x @ w).sign()).square()
    angle = torch.arccos(w @ u / w.norm() / u.norm())
    exact = float(turned_length(w.norm() / u.norm(), angle) * u.square().sum()) ** 2
    assert abs(float(square.mean()) - exact) < 4 * float(square.std()) / 200_000**0.5


def test_a_step_to_zero_has_the_loss_of_no_student():
    """L(0) = ½ E f*², and L − ⟨∇L, W⟩ = L − 2 E[R f] by homogeneity."""
    left = float(smoothness_sides(NEAR, TEACHERS, -NEAR).left)
    loss, gradient = gaussian.loss_and_gradient(NEAR, TEACHERS)
    zero = float(gaussian.kernel(TEACHERS, TEACHERS).sum()) / 2
    assert left == pytest.approx(zero - float(loss) + float((gradient * NEAR).sum()))


# Findings


@pytest.mark.parametrize("name", ["S4 lemma 11", "S4 lemma 12", "S4 lemma 13"])
def test_bounds_with_all_constants_apply_at_any_loss(name):
    for students in (NEAR, drawn(4, 1, 5, 3)):
        found = check(name, students, TEACHERS)
        assert found.applies
        assert found.agrees
        assert 0 < found.amount <= found.limit


def test_bounds_do_not_apply_to_other_inputs():
    networks = teacher_network(TEACHERS, [1]), student_network(NEAR, [1])
    (found,) = find_result("S4 lemma 13")(*networks, drawn(9, 4_000, 3).abs())
    assert [h.name for h in found.failing] == ["normal inputs"]


def test_near_students_have_a_descent_direction():
    found = check("S4 lemma 7", NEAR, TEACHERS)
    assert found.agrees
    assert [h.name for h in found.failing] == ["loss"]
    share = float(found.measured.removeprefix("⟨∇L, g⟩ is ").split()[0])
    assert share == pytest.approx(2, rel=0.2)  # 2L − O(α δ_max²), Lemma C.1


def test_without_near_students_the_direction_is_undefined():
    students = TEACHERS[:, :1].expand(1, 3, 3).contiguous()
    found = check("S4 lemma 7", students, torch.cat([TEACHERS, 1e-3 * drawn(1, 1, 1, 3)], 1))
    assert found.agrees is None
    assert "has no student within δ_max" in found.measured


@pytest.mark.parametrize("name", ["S4 lemma 7", "S4 lemma 13", "S4 theorem 5", "S4 theorem 6"])
def test_nothing_is_measured_at_zero_loss(name):
    found = check(name, place_near(TEACHERS, 4, 0.0, [1]).students, TEACHERS)
    assert found.agrees is None
    assert "loss" in {h.name for h in found.failing}


# Theorem 5


def test_shares_of_directions_near_a_line_are_known_in_few_dimensions():
    for angle in (0.05, 0.7, 1.4):
        sine = math.log10(math.sin(angle))
        assert 10 ** log_share_within(sine, 1) == 1
        assert 10 ** log_share_within(sine, 2) == pytest.approx(angle / (math.pi / 2))
        assert 10 ** log_share_within(sine, 3) == pytest.approx(1 - math.cos(angle))
    assert log_share_within(-130, 3) == pytest.approx(-260 - math.log10(2))  # 1 − cos γ = γ²/2
    assert log_share_within(-90, 3) == pytest.approx(-180 - math.log10(2))


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_as_many_students_as_are_needed_guarantee_the_loss(dim):
    for power in (-1.0, -3.0):
        needed = log_students_needed(power, 2.0, 2, dim)
        assert guaranteed_loss(2.0, 2, dim, math.ceil(10**needed)) <= 10**power
        assert guaranteed_loss(2.0, 2, dim, math.floor(10**needed * 0.99)) > 10**power


def test_the_number_of_students_grows_with_the_dimension():
    needed = [log_students_needed(-60.0, 1.0, 2, dim) for dim in (2, 3, 5)]
    assert needed[1] - needed[0] == pytest.approx(30, abs=1)
    assert needed[2] - needed[0] == pytest.approx(90, abs=3)
    assert log_students_needed(1.0, 1.0, 2, 3) == 0


def test_random_starts_stay_below_the_guaranteed_loss():
    teachers = TEACHERS[..., :2].expand(20, 2, 2)
    students = scatter(teachers, 40, range(1, 21)).students
    losses = gaussian.loss(students, teachers)
    total = float(TEACHERS.norm(dim=-1).sum())
    assert float(losses.max()) <= guaranteed_loss(total, 2, 2, 40)


def test_theorem_5_reports_how_many_students_are_missing():
    found = check("S4 theorem 5", NEAR, TEACHERS)
    (missing,) = found.failing
    assert missing.name == "number of students"
    assert missing.factor > 1e3
    assert found.agrees
    assert found.amount <= found.limit


# Theorem 6


def test_gradients_on_samples_are_those_of_training_batches():
    x = drawn(9, 500, 3)
    weights = NEAR[0].clone().requires_grad_()
    outputs = (weights.norm(dim=1) * (x @ weights.T).abs()).sum(1) - (x @ TEACHERS[0].T).abs().sum(1)
    (outputs.square().mean() / 2).backward()
    torch.testing.assert_close(gradient_on_samples(NEAR[0], TEACHERS[0], x), weights.grad)


def test_the_error_of_sampled_gradients_stays_below_its_bound():
    _, exact = gaussian.loss_and_gradient(NEAR, TEACHERS)
    errors = [sampled_gradient(NEAR, TEACHERS, 50, [seed], 0) - exact for seed in range(100)]
    mean = 50 * float(torch.stack(errors).square().sum((1, 2, 3)).mean())
    assert 0 < mean <= sampled_error_bound(NEAR[0], TEACHERS[0])


def test_theorem_6_takes_the_given_samples_as_a_batch():
    few, many = (check("S4 theorem 6", NEAR, TEACHERS, samples) for samples in (20, 20_000))
    assert many.amount < few.amount
    assert few.limit == pytest.approx(many.limit * 1_000**0.5)
    assert many.agrees
    assert {h.name for h in many.failing} == {"loss", "samples per batch"}
    networks = teacher_network(TEACHERS, [1]), student_network(NEAR, [1])
    (scaled,) = find_result("S4 theorem 6")(*networks, 3 * drawn(9, 20_000, 3))
    assert scaled.amount == pytest.approx(many.amount)
    bound = sampled_error_bound(NEAR[0], TEACHERS[0])
    assert many.limit == pytest.approx((bound / (20_000 * FAILURE)) ** 0.5)
