"""Compiled losses and gradients: equal to those by tensor operations, independent of batch composition, and fast."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy.papers.local.theory import gaussian

F = torch.float64
seeds = st.integers(0, 10**6)


def _random(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def _students(seed, teachers, m, delta):
    """Students at an angle of about δ from ± the teacher nodes, which they share; random directions for None."""
    *nets, r, d = teachers.shape
    noise = _random(seed, *nets, m, d)
    if delta is None:
        return noise
    own = torch.arange(m) % r
    parts = teachers[..., own, :] * r / m
    parts = parts + delta * parts.norm(dim=-1, keepdim=True) * noise / d**0.5
    signs = torch.where(_random(seed + 1, *nets, m, 1) < 0, -1.0, 1.0)
    return signs * parts / parts.norm(dim=-1, keepdim=True).sqrt()


def _compare(students, teachers, slope=-1.0, loss=1e-12, gradient=1e-12):
    """Compare both implementations; rounding is relative to the terms that cancel: 1 in ∇L, δ in a loss of order δ²."""
    found, wanted = (
        f(students, teachers, slope) for f in (gaussian.loss_and_gradient, gaussian.loss_and_gradient_in_tensors)
    )
    scale = (students.square().sum((-2, -1)) + teachers.norm(dim=-1).sum(-1)) * students.norm(dim=(-2, -1))
    torch.testing.assert_close(found[0], wanted[0], rtol=loss, atol=0)
    assert ((found[1] - wanted[1]).norm(dim=(-2, -1)) <= gradient * wanted[1].norm(dim=(-2, -1)) + 1e-14 * scale).all()


@given(seeds, st.integers(1, 70), st.integers(1, 12), st.integers(1, 20), st.sampled_from([-1.0, 0.0, 0.3]))
def test_compiled_code_agrees_with_tensor_operations(seed, m, r, d, slope):
    teachers = _random(seed, 3, r, d)
    _compare(_students(seed + 1, teachers, m, None), teachers, slope)


@given(seeds, st.integers(1, 70), st.integers(1, 4), st.integers(3, 12), st.sampled_from([0.3, 0.1, 0.05, 0.01, 1e-4]))
def test_compiled_code_agrees_with_tensor_operations_near_a_solution(seed, m, r, d, delta):
    teachers = _random(seed, 3, r, d)
    _compare(_students(seed + 1, teachers, m, delta), teachers, loss=1e-14 / delta**2 + 1e-11)


@pytest.mark.parametrize("delta", [None, 0.1, 0.01, 1e-3])
@pytest.mark.parametrize(
    "shape", [(300, 7, 9), (500, 20, 33), (249, 8, 3), pytest.param((1000, 20, 50), marks=pytest.mark.deep)]
)
def test_large_problems_in_strips_agree_with_tensor_operations(shape, delta):
    m, r, d = shape
    teachers = _random(0, r, d)
    _compare(_students(1, teachers, m, delta), teachers, loss=1e-11 if delta is None else 1e-14 / delta**2 + 1e-11)


@pytest.mark.parametrize("m", [5, 60, 300])
def test_bits_of_a_problem_do_not_depend_on_other_problems_or_on_the_number_of_threads(m):
    teachers = _random(0, 40, 3, 7)
    students = _students(1, teachers, m, 0.02)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(gaussian.loss_and_gradient(students, teachers))
        alone = [gaussian.loss_and_gradient(students[e], teachers[e]) for e in (0, 17, 39)]
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)
    for e, (value, gradient) in zip((0, 17, 39), alone, strict=True):
        assert torch.equal(results[0][0][e], value) and torch.equal(results[0][1][e], gradient)


def test_nonfinite_weights_affect_only_their_own_problem():
    teachers = _random(0, 3, 2, 4)
    students = _random(1, 3, 6, 4)
    alone = gaussian.loss_and_gradient(students[2], teachers[2])
    students[0, 1, 2], students[1, 0, 0] = torch.nan, torch.inf
    value, gradient = gaussian.loss_and_gradient(students, teachers)
    assert value[:2].isnan().all() and torch.equal(value[2], alone[0]) and torch.equal(gradient[2], alone[1])


def test_arguments_may_be_views_and_are_not_modified():
    students, teachers = _random(0, 5, 6, 8)[:, :, ::2], _random(1, 4, 3).T
    before = students.clone(), teachers.clone()
    found = gaussian.loss_and_gradient(students, teachers)
    wanted = gaussian.loss_and_gradient(*before)
    assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1])
    assert torch.equal(students, before[0]) and torch.equal(teachers, before[1])


def test_an_empty_batch_has_empty_results():
    value, gradient = gaussian.loss_and_gradient(torch.zeros(0, 4, 3, dtype=F), torch.ones(2, 3, dtype=F))
    assert value.shape == (0,) and gradient.shape == (0, 4, 3)


def _seconds(work, times):
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


@pytest.mark.deep
@pytest.mark.parametrize("delta", [None, 1e-3])
def test_a_step_takes_at_most_twice_the_time_of_its_matrix_products(delta):
    m, r, d = 1000, 20, 50
    teachers = torch.nn.functional.normalize(_random(0, r, d), dim=1)
    students = _students(1, teachers, m, delta)
    nodes, cosines, gradient = (
        torch.cat([students, teachers]),
        torch.empty(m, m + r, dtype=F),
        torch.empty(m, d, dtype=F),
    )

    def products():
        torch.mm(students, nodes.T, out=cosines)
        torch.mm(cosines, nodes, out=gradient)

    gaussian.loss_and_gradient(students, teachers)
    products()
    ratios = [
        _seconds(lambda: gaussian.loss_and_gradient(students, teachers), 20) / _seconds(products, 20) for _ in range(5)
    ]
    assert min(ratios) <= 2
