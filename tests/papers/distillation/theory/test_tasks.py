"""Transfer tasks (Phuong 2021, sec. 5.4.1): distribution of angles, risks against samples and closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from understudy._errors import UserError
from understudy.papers.distillation.theory.risk import errors
from understudy.papers.distillation.theory.soft_labels import angle, gradient, solution, unsigned_angle
from understudy.papers.distillation.theory.tasks import (
    AngleTask,
    GivenTask,
    given_task,
    logistic_regression,
)

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("task", [AngleTask(2, 1.0), AngleTask(7, 0.4), AngleTask(30, 3.0), AngleTask(5, 1.7, 0.3)])
def test_inputs_have_angles_of_the_given_distribution(task):
    x = task.inputs([3, 4], 2000)
    a = unsigned_angle(x, task.teacher)
    torch.testing.assert_close(a, task.angles_and_lengths([3, 4], 2000)[0], rtol=1e-7, atol=1e-9)
    assert stats.kstest(a.flatten().numpy(), lambda t: 1 - task.p(torch.from_numpy(t)).numpy()).pvalue > 1e-3
    # Signed lengths are normal, and directions orthogonal to the teacher are uniform.
    lengths = x.norm(dim=-1) * (x @ task.teacher).sign()
    assert stats.kstest(lengths.flatten().numpy(), "norm").pvalue > 1e-3
    across = torch.nn.functional.normalize((x[..., 1:] * lengths.sign().unsqueeze(-1)).flatten(0, 1), dim=-1)
    assert float(across.mean(0).norm()) < 5 / math.sqrt(len(across))


def test_p_by_hand():
    theta = torch.tensor([0.0, math.pi / 4, math.pi / 2], dtype=F)
    assert AngleTask(3, 2.0).p(theta).tolist() == pytest.approx([1, 0.25, 0])
    assert AngleTask(3, 1.0, math.pi / 4).p(theta / 2).tolist() == pytest.approx([1, 0.5, 0])
    assert float(AngleTask(3, 1.0, 0.5).p(theta)[-1]) == 0


def test_an_input_depends_on_its_seed_and_index_only():
    task = AngleTask(6, 1.3)
    whole = task.inputs([1, 2, 3], 5)
    assert torch.equal(whole[1:2, :3], task.inputs([2], 3))
    assert torch.equal(task.compact([1, 2, 3], 5)[1:2, :3, :4], task.compact([2], 3))


@pytest.mark.parametrize(("dim", "n"), [(3, 2), (6, 3), (6, 5), (4, 6), (40, 5)])
def test_compact_sets_have_the_same_distribution(dim, n):
    task = AngleTask(dim, 1.0)
    x, few = task.inputs(range(2000), n), task.compact(range(5000, 7000), n)
    assert few.shape == (2000, n, min(n, dim - 1) + 1)
    torch.testing.assert_close(
        unsigned_angle(few, torch.eye(1, few.shape[-1], dtype=F)[0]), task.angles_and_lengths(range(5000, 7000), n)[0]
    )
    for measure in (
        lambda s: unsigned_angle(
            solution(s, torch.eye(1, s.shape[-1], dtype=F)[0]), torch.eye(1, s.shape[-1], dtype=F)[0]
        ),
        lambda s: angle(s[:, 0, 1:], s[:, -1, 1:]),
    ):
        assert stats.ks_2samp(measure(x).numpy(), measure(few).numpy()).pvalue > 1e-3


def test_the_angle_of_the_solution_in_closed_form():
    # cot² ᾱ(w*, ŵ) = hᵀ(UUᵀ)⁻¹h, with h the cotangents of the inputs' angles and U their directions orthogonal to w*.
    task = AngleTask(12, 0.8)
    x = task.inputs(range(50), 4)
    h = x[..., :1] / x[..., 1:].norm(dim=-1, keepdim=True)
    u = torch.nn.functional.normalize(x[..., 1:], dim=-1)
    wanted = (h.mT @ torch.linalg.solve(u @ u.mT, h)).flatten()
    torch.testing.assert_close(angle(solution(x, task.teacher), task.teacher).tan().pow(-2), wanted)


def test_risks_in_two_dimensions_are_half_of_p():
    # Half of the inputs at an angle beyond the boundary of the student are on its wrong side.
    phi = torch.tensor([0.0, 0.2, 1.0, math.pi / 2], dtype=F)
    assert AngleTask(2, 1.0).risk(phi).tolist() == pytest.approx((phi / math.pi).tolist())
    assert AngleTask(2, 2.0).risk(phi).tolist() == pytest.approx((2 * (phi / math.pi) ** 2).tolist())


def test_risks_in_three_dimensions_by_hand():
    # For κ = 1 the risk is ½ E (2/π) arctan(|cos v| tan φ) over uniform v.
    v = (torch.arange(200_000, dtype=F) + 0.5) / 200_000 * math.pi / 2
    for phi in (0.1, 0.9, 1.5):
        wanted = float((v.cos() * math.tan(phi)).atan().mean()) / math.pi
        assert float(AngleTask(3).risk(torch.tensor(phi, dtype=F))) == pytest.approx(wanted, rel=1e-9)


@given(
    st.sampled_from([2, 3, 4, 10, 1000, 10**5]),
    st.floats(0.1, 20),
    st.sampled_from([0.0, 0.01, 0.5]),
    st.floats(1e-6, math.pi / 2 - 1e-6),
)
def test_risks_increase_with_angle_decrease_with_dimension_and_are_below_half_of_p(dim, kappa, margin, phi):
    task = AngleTask(dim, kappa, margin)
    angles = torch.tensor([phi, min(1.01 * phi, math.pi / 2), math.pi - phi], dtype=F)
    near, far, other = task.risk(angles).tolist()
    assert -1e-18 <= near <= far * (1 + 1e-9) + 1e-15
    assert near <= float(task.p(math.pi / 2 - angles[0])) / 2 * (1 + 1e-6) + 1e-12
    assert near + other == pytest.approx(1, abs=1e-9)
    assert float(AngleTask(2 * dim, kappa, margin).risk(angles[0])) <= near * (1 + 1e-9)
    assert phi > margin or near == 0


def test_risks_at_extreme_angles_and_large_kappa():
    task = AngleTask(50, 1.0)
    assert task.risk(torch.tensor([0.0, math.pi / 2, math.pi], dtype=F)).tolist() == [0, 0.5, 1]
    phi = torch.tensor(1.0, dtype=F)
    risks = [float(AngleTask(50, kappa).risk(phi)) for kappa in (0.001, 1, 10, 100)]
    assert risks[0] == pytest.approx(0.5, abs=2e-3) and risks[3] < 1e-15 and risks == sorted(risks, reverse=True)


@pytest.mark.parametrize("task", [AngleTask(3, 1.0), AngleTask(20, 0.5), AngleTask(4, 1.0, 0.2)])
def test_risks_equal_the_share_of_misclassified_samples(task):
    x = task.inputs([8], 40_000)[0]
    w = torch.nn.functional.normalize(
        torch.randn(4, task.dim, dtype=F, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    w = w + torch.tensor([0.0, 0.5, 2.0, -3.0], dtype=F).unsqueeze(-1) * task.teacher
    measured, exact = errors(w, task.teacher, x).double().mean(-1), task.risk(angle(w, task.teacher))
    assert ((measured - exact).abs() < 4.5 * (exact * (1 - exact) / len(x)).sqrt() + 1e-4).all()


def test_sets_of_given_inputs_are_nested_and_drawn_without_replacement():
    pool = torch.arange(20, dtype=F).view(10, 2)
    task = GivenTask(pool, torch.ones(2, dtype=F), pool)
    x = task.inputs([1, 2], 10)
    assert torch.equal(x[0].sort(0).values, pool) and not torch.equal(x[0], x[1])
    assert torch.equal(task.inputs([2], 4)[0], x[1, :4])


def test_a_logistic_regression_by_hand():
    # A single input number, always 1: three of four labels are 1, so that σ(w) + w/4 = ¾.
    weights, right = logistic_regression(torch.ones(4, 1, dtype=F), torch.tensor([7, 7, 3, 7]))
    assert float(weights.sigmoid() + weights / 4) == pytest.approx(0.75) and right == 0.75


@given(st.integers(0, 10**6), st.integers(2, 60))
def test_a_logistic_regression_is_the_optimum_of_its_loss(seed, count):
    make = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, dtype=F, generator=make)
    x = torch.cat((x, torch.zeros(count, 1, dtype=F)), dim=1)
    y = (torch.rand(count, generator=make) < 0.5).long()
    y[:2] = torch.tensor([0, 1])
    w, right = logistic_regression(x, y)
    slope = x.T @ ((x @ w).sigmoid() - y) / count + w / count
    assert right == float(((x @ w >= 0) == (y == 1)).double().mean())
    assert float(slope.norm()) < 1e-10


def test_a_regression_on_labels_of_a_linear_teacher_recovers_the_teacher():
    make = torch.Generator().manual_seed(2)
    x, teacher = torch.randn(40_000, 3, dtype=F, generator=make), torch.tensor([1.0, -0.5, 0.3], dtype=F)
    y = torch.rand(40_000, dtype=F, generator=make) < (x @ teacher).sigmoid()
    w, _ = logistic_regression(x, y)
    assert float((w - teacher).norm()) < 0.06
    assert float(gradient(w[None], x[None], teacher).norm()) < 0.015


def test_given_inputs_are_split_into_disjoint_parts():
    make = torch.Generator().manual_seed(4)
    x = torch.randn(30, 2, dtype=F, generator=make)
    labels = (x[:, 0] > 0).long()
    task = given_task(x, labels, names=["dog", "cat"])
    assert task.right >= 0.9
    rows = {tuple(row) for part in (task.pool, task.held_out) for row in part.tolist()}
    own = torch.stack([row for row in x if tuple(row.tolist()) not in rows])
    assert len(task.pool) == len(task.held_out) == len(own) == 10
    again, _ = logistic_regression(own, (own[:, 0] > 0).long())
    torch.testing.assert_close(task.teacher, again)
    halves = given_task(x, teacher=torch.tensor([1.0, 2.0], dtype=F))
    assert len(halves.pool) == len(halves.held_out) == 15 and halves.right is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: given_task(torch.eye(5)), "give either labels or the weights of a teacher"),
        (
            lambda: given_task(torch.eye(5), torch.zeros(5)),
            "6 or more inputs are needed, to be split into 3 parts, got 5",
        ),
        (lambda: given_task(torch.eye(9), torch.arange(9)), "labels must have two classes, got 9 classes"),
        (lambda: given_task(torch.eye(9), torch.zeros(9).long(), names=["a"]), r"got 1 class \(a\)"),
        (lambda: AngleTask(5, -1.0), "κ must be finite and above 0, got -1.0"),
        (lambda: AngleTask(5, 0.0), "on the teacher's boundary"),
        (lambda: AngleTask(1), "dim must be at least 2, got 1"),
        (lambda: AngleTask(5, 1.0, 2.0), "margin must be an angle from 0 to below π/2, got 2.0"),
        (lambda: AngleTask(5).inputs([1], 0), "from 1 to 16,777,215 inputs, got 0"),
        (lambda: AngleTask(5).compact([1], 0), "from 1 to 16,777,215 inputs, got 0"),
        (
            lambda: logistic_regression(torch.eye(3), torch.tensor([0, 1, 2])),
            r"got 3 classes \(0, 1, 2\)",
        ),
        (lambda: logistic_regression(torch.eye(3), torch.tensor([1, 1, 1])), "got 1 class"),
        (lambda: logistic_regression(torch.eye(3) / 0, torch.tensor([0, 1, 1])), "some inputs are not finite"),
        (lambda: GivenTask(torch.eye(3), torch.zeros(3), torch.eye(3)), "the teacher is zero"),
        (
            lambda: GivenTask(torch.eye(3), torch.ones(3), torch.eye(3)).inputs([1], 4),
            "at most the 3 inputs of the pool, got 4",
        ),
        (lambda: GivenTask(torch.eye(3), torch.ones(3), torch.eye(3)).inputs([1], 0), "inputs, got 0"),
    ],
)
def test_invalid_arguments_are_refused(call, words):
    with pytest.raises(UserError, match=words):
        call()


@pytest.mark.wrong_shapes
def test_labels_and_teachers_of_other_sizes_are_refused():
    with pytest.raises(UserError, match=r"one label per input is needed \(3\), got 2"):
        logistic_regression(torch.eye(3), torch.tensor([0, 1]))
    with pytest.raises(UserError, match="3 numbers each, but the teacher has 2"):
        GivenTask(torch.eye(3), torch.ones(2), torch.eye(3))


@pytest.mark.parametrize("place", range(12))
def test_a_third_class_is_refused_at_any_index(place):
    labels = torch.arange(12) % 2
    labels[place] = 2
    with pytest.raises(UserError, match=r"labels must have two classes, got 3 classes \(a, b, c\)"):
        given_task(torch.randn(12, 3, dtype=torch.float64), labels=labels, names=("a", "b", "c"))


def test_a_teacher_whose_inputs_are_of_one_class_is_refused():
    x = torch.randn(12, 3, dtype=torch.float64)
    refused = 0
    for place in range(12):
        labels = torch.zeros(12)
        labels[place] = 1
        try:
            given_task(x, labels=labels)
        except UserError as error:
            refused += 1
            assert "are all of one class: give more inputs of the other" in str(error)
    assert refused == 8


def test_a_nan_angle_has_a_nan_risk():
    found = AngleTask(5, 1.0).risk(torch.tensor([math.nan, 0.0, 0.3]))
    assert found.isnan().tolist() == [True, False, False] and found[1] == 0 < found[2]


def test_draws_of_a_task_are_independent_and_each_is_reproduced():
    one, other = (AngleTask(6, 1.0, draw=draw) for draw in (0, 1))
    seeds = range(1, 2_001)
    for kind in ("inputs", "compact"):
        first, second = (getattr(task, kind)(seeds, 2).flatten(1) for task in (one, other))
        assert torch.equal(first, getattr(AngleTask(6), kind)(seeds, 2).flatten(1))
        both = torch.cat((first, second), 1).T
        half = len(both) // 2  # one number of compact sets is always 0, and has no correlation
        assert torch.corrcoef(both)[:half, half:].nan_to_num().abs().max() < 0.1
    with pytest.raises(UserError, match="draw must be at least 0"):
        AngleTask(6, draw=-1)
