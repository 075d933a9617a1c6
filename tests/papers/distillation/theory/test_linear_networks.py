"""Theorems 5.1 to 5.3 and D.3 of Phuong 2021 on given networks: by hand, by limits, and along gradient flow."""

import math
from dataclasses import replace

import pytest
import torch

from understudy._random import Stream, normal
from understudy.nets import Layer, Population
from understudy.papers.distillation.theory.linear_networks import strong_convexity
from understudy.papers.distillation.theory.linear_students import (
    balanced,
    balanced_flow,
    descend,
    end_to_end,
    rate_bound,
)
from understudy.papers.distillation.theory.soft_labels import gradient, limit, loss, solution, span
from understudy.papers.distillation.theory.tasks import AngleTask
from understudy.theory import Finding, Known, find_result
from understudy.theory.check import check

pytestmark = pytest.mark.usefixtures("one_thread")
DIM = 4
WANTED = torch.tensor([1.0, -0.5, 0.3, 0.8], dtype=torch.float64)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return normal(seed, Stream.DIRECTIONS, 6, math.prod(shape)).view(*shape).double()


def linear(*weights: torch.Tensor) -> Population:
    return Population(tuple(Layer(w[None], None) for w in weights), torch.tensor([1]), 1.0)


TEACHER = linear(WANTED[None])
ZERO = linear(torch.zeros(1, DIM, dtype=torch.float64))


def found(name: str, student: Population, x: torch.Tensor, start: Population | None = None) -> Finding:
    (finding,) = find_result(f"S3 {name}")(TEACHER, student, x, Known(start=start))
    return finding


def failing(finding: Finding) -> list[str]:
    return [hypothesis.name for hypothesis in finding.failing]


# Theorem D.3


def test_the_curvature_of_one_input_is_known_by_hand():
    """For w* = 0 and x = 1 the loss is log cosh(u/2), and σ(1 − σ) = 1/(4 cosh²(u/2)) = exp(−2 level)/4."""
    one = torch.ones(1, 1, dtype=torch.float64)
    for level in (0.0, 0.1, 2.0):
        assert strong_convexity(one, 0 * one[0], level, one) == pytest.approx(math.exp(-2 * level) / 4)


def test_at_a_small_level_it_is_the_least_eigenvalue_of_the_hessian():
    x = drawn(1, 9, DIM)
    out = (x @ WANTED).sigmoid()
    hessian = (x * (out * (1 - out)).unsqueeze(-1)).T @ x / 9
    least = float(torch.linalg.eigvalsh(hessian)[0])
    assert strong_convexity(x, WANTED, 1e-16, span(x)) == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize("samples", [2, 9])
def test_no_pair_in_the_set_has_less_curvature(samples):
    x = drawn(2, samples, DIM)
    basis = span(x)
    for seed in range(30):
        w, v = WANTED + 0.4 * drawn(seed, DIM), WANTED + 0.4 * drawn(seed + 100, DIM)
        v = w + basis @ (basis.T @ (v - w))
        level = max(float(loss(w, x, WANTED)), float(loss(v, x, WANTED)))
        least = strong_convexity(x, WANTED, level, basis)
        rest = loss(v, x, WANTED) - loss(w, x, WANTED) - gradient(w, x, WANTED) @ (v - w)
        assert least > 0
        assert float(rest) >= least / 2 * float((v - w).square().sum()) - 1e-14


def test_convexity_is_measured_to_the_nearest_minimum_and_back():
    finding = found("theorem D.3", linear(drawn(3, 1, DIM)), drawn(1, 9, DIM))
    assert finding.applies
    assert finding.agrees
    assert failing(found("theorem D.3", TEACHER, drawn(1, 9, DIM))) == ["distance from the minimum"]


# Theorem 5.1


@pytest.mark.parametrize("samples", [2, 9])
def test_one_layer_stays_within_the_bound_along_the_flow(samples):
    x = drawn(4, samples, DIM)
    times = [0.0, 1.0, 10.0, 1e3, 1e6]
    path = balanced_flow(torch.zeros(1, DIM, dtype=torch.float64), x[None], WANTED, times)[:, 0]
    for w in path:
        finding = found("theorem 5.1", linear(w[None]), x, ZERO)
        assert finding.applies
        assert finding.agrees
    losses = loss(path, x, WANTED)
    rate = 2 * strong_convexity(x, WANTED, float(losses[0]), span(x))
    assert rate > 0
    assert float(losses[2]) <= float(losses[0]) * math.exp(-10 * rate)
    assert float((path[-1] - solution(x, WANTED)).norm()) < 1e-6
    assert ("converges to w*;" in finding.conclusion) == (samples > DIM)


def test_a_student_outside_the_span_does_not_learn_the_projection():
    x = drawn(4, 2, DIM)
    finding = found("theorem 5.1", linear(drawn(5, 1, DIM)), x)
    assert failing(finding) == ["start in the span of the inputs"]
    assert not finding.agrees
    moved = found("theorem 5.1", linear(drawn(5, 1, DIM)), x, ZERO)
    assert failing(moved) == ["training moves within the span of the inputs"]
    assert failing(found("theorem 5.1", linear(drawn(5, 3, DIM), drawn(6, 1, 3)), drawn(4, 9, DIM))) == ["layers"]


# Theorem 5.2


@pytest.mark.parametrize(("samples", "depth"), [(2, 2), (3, 3), (9, 2)])
def test_deep_students_end_within_epsilon_of_the_projection(samples, depth):
    x = drawn(7, 1, samples, DIM)
    start = balanced(x, WANTED, depth, 1e-3, [1], width=3)
    *_, end = descend(start, x, WANTED, rate_bound(x) / depth, [3_000])
    finding = found("theorem 5.2", end, x[0], start)
    assert finding.applies
    assert finding.agrees
    # The student itself is where the closed form says that the flow ends.
    ends = limit(end_to_end(start), x, WANTED, depth)
    torch.testing.assert_close(end_to_end(end), ends, atol=2e-3, rtol=0)
    assert "length of the start (5.11)" in failing(found("theorem 5.2", end, x[0])) or samples > DIM


def test_conditions_of_deep_students_fail_one_by_one():
    x = drawn(7, 1, 3, DIM)
    start = balanced(x, WANTED, 2, 1e-3, [1], width=3)
    low, high = start.layers
    turned = replace(start, layers=(Layer(-low.weight, None), high))
    assert failing(found("theorem 5.2", turned, x[0])) == ["loss of the start (5.12)"]
    tilted = replace(start, layers=(Layer(2 * low.weight, None), Layer(high.weight / 2, None)))
    assert failing(found("theorem 5.2", tilted, x[0])) == ["balance of the layers (5.13)"]
    assert found("theorem 5.2", tilted, x[0]).agrees is None
    large = replace(start, layers=tuple(Layer(100 * layer.weight, None) for layer in start.layers))
    assert "length of the start (5.11)" in failing(found("theorem 5.2", large, x[0]))


# Theorem 5.3


def test_risks_of_smaller_sets_stay_below_the_bound():
    x = AngleTask(DIM, 2.0).inputs([1], 400)[0]
    (finding,) = find_result("S3 theorem 5.3")(linear(torch.eye(1, DIM).double()), linear(drawn(1, 1, DIM)), x)
    assert finding.applies
    assert finding.agrees
    bound = float(finding.conclusion.split("at most ")[1].split()[0])
    mean = float(finding.measured.split("disagree on ")[1].split()[0])
    assert 0 < mean <= bound < 1
    assert "students of 3 inputs" in finding.measured


def test_a_teacher_of_zero_classifies_nothing():
    finding = find_result("S3 theorem 5.3")(ZERO, linear(drawn(1, 1, DIM)), drawn(1, 9, DIM))[0]
    assert failing(finding) == ["a teacher that classifies"]


# All together


def test_a_deep_linear_teacher_is_its_product():
    x = drawn(8, 9, DIM)
    parts = torch.eye(DIM).double()[:2] * 2, torch.tensor([[0.5, 0.25]]).double()
    deep, flat = linear(*parts), linear(parts[1] @ parts[0])
    student = linear(drawn(9, 1, DIM))
    for name in ("theorem 5.1", "theorem D.3"):
        one, other = (find_result(f"S3 {name}")(teacher, student, x)[0] for teacher in (deep, flat))
        assert one == other


def test_check_applies_them_to_networks_without_a_hidden_layer():
    x = drawn(4, 9, DIM)
    checked = check(TEACHER, linear(0.1 * WANTED[None]), x)
    assert {finding.result for finding in checked.dynamics} >= {"S3 theorem 5.1", "S3 theorem D.3"}
    assert not checked.contradicted
    assert "none of them to teacher nodes: the teacher has no hidden layer" in checked.headline
