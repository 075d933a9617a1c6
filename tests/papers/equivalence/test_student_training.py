"""Fitted students: derivatives, steps by hand and by numpy, minima, and the same bits in every process."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.parameter_gradients import parameter_gradients
from understudy.papers.equivalence.equivalence.training import fit_student, pack, unpack
from understudy.papers.equivalence.theory.relu_network import random_network

DAMPING = 1e-3


@given(st.integers(0, 99), st.sampled_from([0.0, 0.2]))
def test_derivatives_in_parameters_are_differences(seed, slope):
    network = random_network([2, 3, 3, 2], seed, slope)
    x = np.random.default_rng(seed).uniform(-2, 2, (5, 2))
    parameters, step = pack(network), 1e-7

    def outputs(sign, e):
        return unpack(parameters + sign * step * e, network.sizes, slope)(x)

    numeric = np.stack([(outputs(1, e) - outputs(-1, e)) / (2 * step) for e in np.eye(len(parameters))], -1)
    found = parameter_gradients(network, x).reshape(numeric.shape)
    assert np.isclose(found, numeric, atol=1e-5).mean() > 0.95  # a fold may be nearer than the step


@given(st.integers(0, 99), st.sampled_from([0.0, 0.2]), st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_derivatives_in_parameters_are_those_of_autograd(seed, slope, sizes):
    network = random_network(sizes, seed, slope)
    x = np.random.default_rng(seed).uniform(-2, 2, (6, sizes[0]))
    parts = [torch.tensor(each) for pair in zip(network.weights, network.biases, strict=True) for each in pair]

    def outputs(*parts):
        h = torch.tensor(x)
        for i in range(0, len(parts), 2):
            h = torch.nn.functional.leaky_relu(h, slope) if i else h
            h = h @ parts[i].T + parts[i + 1]
        return h.flatten()

    jacobian = torch.autograd.functional.jacobian(outputs, tuple(parts))
    expected = torch.cat([each.flatten(1) for each in jacobian], dim=1).numpy()
    np.testing.assert_allclose(parameter_gradients(network, x), expected, rtol=1e-12, atol=1e-12)


def test_the_first_step_of_an_affine_student_by_hand():
    """On the inputs ±1 both derivatives have mean square 1 and are uncorrelated: a step goes 1 / (1 + μ) of the way."""
    teacher, start = (pack(random_network([1, 1], seed)) for seed in (1, 2))
    student, loss = fit_student(random_network([1, 1], 1), (), np.array([[-1.0], [1.0]]), 2, 2)
    np.testing.assert_allclose(pack(student), start + (teacher - start) / (1 + DAMPING), rtol=1e-13)
    left = (teacher - start) * DAMPING / (1 + DAMPING)
    assert loss == pytest.approx(np.sum(left**2) / teacher[0] ** 2, rel=1e-10)


def test_the_first_step_of_one_unit_by_hand():
    """With one residual r and damping μ J_i², the step is −r / ((4 + μ) J_i) in each of the four parameters."""
    teacher, start = random_network([1, 1, 1], 1), random_network([1, 1, 1], 2)
    w, b, v, c = pack(start)
    x = 0.5 if w * 0.5 + b > 0 else -0.5
    unit = w * x + b
    assert unit > 0
    residual = v * unit + c - teacher(np.array([[x]]))[0, 0]
    student, _ = fit_student(teacher, (1,), np.array([[x]]), 2, 2)
    step = -residual / (4 + DAMPING) / np.array([v * x, v, unit, 1.0])
    np.testing.assert_allclose(pack(student), pack(start) + step, rtol=1e-9)


@given(st.integers(0, 99), st.sampled_from([0.0, 0.2]), st.lists(st.integers(1, 4), max_size=3), st.integers(1, 2))
def test_the_first_step_solves_the_damped_normal_equations(seed, slope, hidden, outs):
    teacher, start = random_network([3, 2, outs], 100, slope), random_network([3, *hidden, outs], seed, slope)
    x = np.random.default_rng(seed).uniform(-2, 2, (40, 3))
    variance = teacher(x).var()
    jacobian, residual = parameter_gradients(start, x), (start(x) - teacher(x)).ravel()
    square = jacobian.T @ jacobian / len(residual)
    diagonal = np.where(square.diagonal() > 0, square.diagonal(), 1.0)
    step = -np.linalg.solve(square + np.diag(DAMPING * diagonal), jacobian.T @ residual / len(residual))
    there = unpack(pack(start) + step, start.sizes, slope)
    before, after = np.mean(residual**2), np.mean((there(x) - teacher(x)) ** 2)
    student, loss = fit_student(teacher, hidden, x, seed, 2)
    if after < before:
        np.testing.assert_allclose(pack(student), pack(there), rtol=1e-6, atol=1e-6)
        assert loss == pytest.approx(after / variance, rel=1e-4, abs=1e-12)
    else:
        np.testing.assert_array_equal(pack(student), pack(start))
        assert loss == pytest.approx(before / variance)


def test_a_student_that_starts_at_its_teacher_stays():
    teacher = random_network([3, 4, 2, 1], 5)
    student, loss = fit_student(teacher, (4, 2), np.random.default_rng(0).uniform(-2, 2, (200, 3)), 5, 50)
    assert loss == 0.0
    np.testing.assert_array_equal(pack(student), pack(teacher))


def test_losses_are_those_of_the_students_and_decrease_with_steps():
    teacher, x = random_network([3, 3, 1], 7), np.random.default_rng(1).uniform(-2, 2, (500, 3))
    target = teacher(x)
    zero = 0
    for seed in range(20):
        losses = []
        for steps in (1, 10, 100, 500):
            student, loss = fit_student(teacher, (6,), x, seed, steps)
            losses.append(loss)
            assert loss == pytest.approx(np.mean((student(x) - target) ** 2) / target.var(), rel=1e-9, abs=1e-25)
        assert losses == sorted(losses, reverse=True)
        zero += losses[-1] < 1e-20
    assert zero >= 12


def test_a_constant_teacher_is_fitted():
    teacher = unpack(np.array([1.0, -9.0, 1.0, 3.0]), (1, 1, 1), 0.0)
    _, loss = fit_student(teacher, (2,), np.linspace(-2, 2, 30)[:, None], 1, 200)
    assert loss < 1e-20


PROCESS = """
import sys
import numpy as np
from understudy.papers.equivalence.equivalence.training import fit_student, pack
from understudy.papers.equivalence.theory.relu_network import random_network
shift = int(sys.argv[1])
kept = [np.ones(37 * shift + 101 * i, np.uint8) for i in range(200 * shift)]
memory = np.empty(3_000 + shift)
x = memory[shift:].reshape(1_000, 3)
x[:] = np.random.default_rng(0).uniform(-2, 2, x.shape)
for seed in range(20):
    student, loss = fit_student(random_network([3, 2, 2, 1], 3), (4, 4), x, seed, 200)
    kept.append(np.ones(13 * shift + seed, np.uint8))
    print(loss.hex(), pack(student).tobytes().hex())
"""


def test_two_processes_with_other_places_in_memory_give_the_same_bits():
    words = [[sys.executable, "-c", PROCESS, shift] for shift in ("0", "3")]
    started = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in words]
    one, other = (each.communicate()[0] for each in started)
    assert all(each.returncode == 0 for each in started)
    assert one == other and len(set(one.splitlines())) == 20
