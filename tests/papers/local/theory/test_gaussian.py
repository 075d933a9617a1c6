"""Closed forms on normal inputs: by hand, by integrals, by identities, by simulation, and in 50 digits."""

import math
from itertools import pairwise

import mpmath as mp
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.gaussian_digits import (
    SLOPES,
    F,
    around,
    between,
    distance,
    exact_gradient,
    integral,
    length,
    precise,
    random,
    seeds,
    slopes,
    tensor,
)
from understudy._errors import UserError
from understudy.nets.activation import activate, gate
from understudy.papers.local.theory import gaussian

IMPLEMENTATIONS = [gaussian.loss_and_gradient, gaussian.loss_and_gradient_in_tensors]
pytestmark = pytest.mark.usefixtures("one_thread")


def _textbook(students, teachers):
    """L by the textbook formula with the arccos of a cosine."""
    nodes = torch.cat([students, teachers])
    outputs = torch.cat([students.norm(dim=1), -torch.ones(len(teachers), dtype=F)])
    sizes = nodes.norm(dim=1)
    cosine = (nodes @ nodes.T / sizes[:, None] / sizes).clamp(-1, 1)
    phi = cosine.arccos()
    products = 2 / math.pi * sizes[:, None] * sizes * (phi.sin() + (math.pi / 2 - phi) * cosine)
    return outputs @ products @ outputs / 2


# The kernel.


def test_kernel_by_hand():
    u, v = tensor([2.0, 0.0]), tensor([3.0, 0.0], [-3.0, 0.0], [0.0, 3.0], [0.0, 0.0])
    torch.testing.assert_close(gaussian.kernel(u, v), tensor([6.0, 6.0, 12 / math.pi, 0.0]))
    torch.testing.assert_close(gaussian.kernel(u, v, 0.0), tensor([3.0, 0.0, 3 / math.pi, 0.0]))
    torch.testing.assert_close(gaussian.kernel(u, v, 1.0), tensor([6.0, -6.0, 0.0, 0.0]))
    assert gaussian.kernel(u, v, 0.0)[0, 1] == 0


@given(st.floats(0, math.pi), slopes)
def test_kernel_agrees_with_the_integral_over_the_circle(phi, slope):
    def activation(z):
        return z if z >= 0 else slope * z

    kinks = {(k + math.pi) % (2 * math.pi) - math.pi for h in (-0.5, 0.5) for k in (h * math.pi, phi + h * math.pi)}
    wanted = math.fsum(
        integral(lambda a: activation(math.cos(a)) * activation(math.cos(a - phi)) / math.pi, low, high)
        for low, high in pairwise([-math.pi, *sorted(kinks), math.pi])
    )
    found = gaussian.kernel(tensor([1.0, 0.0]), tensor([math.cos(phi), math.sin(phi)]), slope)
    assert found.item() == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("phi", [1e-12, 1e-8, 1e-4, 0.1, 1.0])
def test_kernel_of_nearly_opposite_relus_keeps_all_digits(phi):
    """E σ(u)σ(v) = (sin φ' − φ' cos φ')/2π with φ' = π − φ, which consists of digits that a cosine loses."""
    u, v = tensor([1.0, 0.0]), tensor([-1.0, math.tan(phi)])
    with mp.workdps(50):
        one, other = precise(u)[0], precise(-v)[0]
        rest = between(one, other)
        wanted = float(length(other) * (mp.sin(rest) - rest * mp.cos(rest)) / (2 * mp.pi))
    assert gaussian.kernel(u, v, 0.0).item() == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("slope", SLOPES)
def test_kernel_is_smooth_at_a_right_angle(slope):
    phi = torch.linspace(math.pi / 2 - 1e-6, math.pi / 2 + 1e-6, 101, dtype=F)
    values = gaussian.kernel(tensor([1.0, 0.0]), torch.stack([phi.cos(), phi.sin()], 1), slope)[0]
    assert (values.diff().diff().abs() < 1e-14).all()


@given(seeds, slopes, st.floats(1e-3, 1e3))
def test_kernel_is_rotation_invariant_and_homogeneous(seed, slope, by):
    u, v = random(seed, 3, 5), random(seed + 1, 4, 5)
    turn = torch.linalg.qr(random(seed + 2, 5, 5))[0]
    found = gaussian.kernel(u, v, slope)
    torch.testing.assert_close(gaussian.kernel(u @ turn, v @ turn, slope), found, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gaussian.kernel(u, by * v, slope), by * found, rtol=1e-13, atol=1e-13 * by)
    torch.testing.assert_close(gaussian.kernel(v, u, slope), found.T, rtol=1e-13, atol=1e-14)


# Losses and gradients.


@pytest.mark.parametrize("compute", IMPLEMENTATIONS)
def test_loss_by_hand(compute):
    """One student of length a parallel to one teacher node: ½(a² − 1)²; at a right angle ½(a⁴ + 1 − 4a²/π)."""
    teacher = tensor([1.0, 0.0])
    value, gradient = compute(tensor([[2.0, 0.0]], [[-2.0, 0.0]], [[0.0, 2.0]], [[0.0, 0.0]]), teacher)
    torch.testing.assert_close(value, tensor(4.5, 4.5, (17 - 16 / math.pi) / 2, 0.5))
    # d/da ½(a² − 1)² = 2a(a² − 1)
    torch.testing.assert_close(gradient[:2, 0], tensor([12.0, 0.0], [-12.0, 0.0]))
    assert (gradient[3] == 0).all()


@pytest.mark.parametrize("slope", SLOPES)
def test_loss_and_gradient_agree_with_sample_means(slope):
    students, teachers = 0.5 * random(0, 8, 12), random(1, 3, 12)
    x = random(2, 400_000, 12)
    rest = activate(x @ students.T, slope) @ students.norm(dim=1) - activate(x @ teachers.T, slope).sum(1)
    value, gradient = gaussian.loss_and_gradient(students, teachers, slope)
    squares = rest.square() / 2
    assert abs(value - squares.mean()) < 4 * squares.std() / len(x) ** 0.5
    w = students[0]
    z = x @ w
    gates = gate(z, slope).to(F)[:, None]
    terms = rest[:, None] * (w.norm() * gates * x + activate(z, slope)[:, None] * w / w.norm())
    assert ((gradient[0] - terms.mean(0)).abs() < 4.5 * terms.std(0) / len(x) ** 0.5).all()


@given(seeds, slopes, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_gradient_agrees_with_finite_differences(seed, slope, m, r, d):
    students, teachers = random(seed, m, d), random(seed + 1, r, d)
    value, gradient = gaussian.loss_and_gradient(students, teachers, slope)
    alone, in_tensors = gaussian.loss_and_gradient_in_tensors(students, teachers, slope)
    torch.testing.assert_close(value, alone, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(gradient, in_tensors, rtol=1e-11, atol=1e-12)
    direction, step = random(seed + 2, m, d), 1e-4
    along = [gaussian.loss(students + i * step * direction, teachers, slope) for i in (-2, -1, 1, 2)]
    slope_along = (along[0] - 8 * along[1] + 8 * along[2] - along[3]) / (12 * step)
    # The third derivative jumps in one dimension, and where nodes cross within a step.
    if d > 1:
        scale = 1 + gradient.norm() * direction.norm()
        assert abs(slope_along - (gradient * direction).sum()) < 1e-6 * scale
    assert value >= 0


@given(seeds, slopes, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_gradient_without_the_loss_is_the_same(seed, slope, m, r, d):
    students, teachers = random(seed, 3, 2, m, d), random(seed + 1, 2, r, d)
    students[0, 0, 0] = 0
    wanted = gaussian.loss_and_gradient_in_tensors(students, teachers, slope)[1]
    found = gaussian.gradient_in_tensors(students, teachers, slope)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)
    assert torch.equal(
        gaussian.gradient(students, teachers, slope), gaussian.loss_and_gradient(students, teachers, slope)[1]
    )
    shared = gaussian.gradient_in_tensors(students, teachers[0], slope)
    torch.testing.assert_close(shared[:, 0], found[:, 0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("slope", SLOPES)
def test_gradient_agrees_with_finite_differences_to_eight_digits(slope):
    students, teachers = random(0, 5, 4), random(1, 3, 4)
    _, gradient = gaussian.loss_and_gradient(students, teachers, slope)
    step = 1e-4
    for j in range(5):
        for i in range(4):
            by = torch.zeros(5, 4, dtype=F)
            by[j, i] = step
            ahead = [gaussian.loss(students + k * by, teachers, slope) for k in (-2, -1, 1, 2)]
            found = (ahead[0] - 8 * ahead[1] + 8 * ahead[2] - ahead[3]) / (12 * step)
            assert found.item() == pytest.approx(gradient[j, i].item(), rel=1e-8, abs=1e-8)


def test_loss_is_the_sum_of_kernels():
    students, teachers = random(0, 7, 5, 4), random(1, 3, 4)
    for slope in SLOPES:
        direct = gaussian.kernel(students, students, slope)
        lengths = students.norm(dim=-1)
        cross = gaussian.kernel(students, teachers, slope)
        expected = torch.einsum("ei,eij,ej->e", lengths, direct, lengths) / 2 - torch.einsum(
            "ei,eij->e", lengths, cross
        )
        expected = expected + gaussian.kernel(teachers, teachers, slope).sum() / 2
        torch.testing.assert_close(gaussian.loss(students, teachers, slope), expected, rtol=1e-10, atol=1e-10)


SOLUTIONS = [(3, 3, 5), (9, 3, 5), (6, 3, 2), (12, 4, 8)]


@pytest.mark.parametrize("compute", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", SOLUTIONS)
def test_tiny_losses_and_gradients_have_correct_digits(compute, shape):
    """Relative errors are below 10⁻⁶ for losses above 10⁻¹⁵, and below 1% for smaller ones."""
    lowest = 1.0
    with mp.workdps(50):
        for delta in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
            students, teachers = around(7, *shape, delta, balanced=shape[0] > shape[1])
            value, gradient = compute(students, teachers)
            exact, slopes = exact_gradient(students, teachers)
            least = 1e-6 if exact > 1e-15 else 1e-2
            assert abs(float((mp.mpf(value.item()) - exact) / exact)) < least
            assert distance(gradient, slopes) < max(least, 1e-4)
            lowest = min(lowest, value.item())
    assert lowest < 1e-10


def test_the_textbook_formula_loses_digits_that_the_closed_forms_keep():
    off, negative = [], []
    with mp.workdps(50):
        for seed in range(6):
            students, teachers = around(10 * seed, 9, 3, 5, 1e-5)
            exact = exact_gradient(students, teachers)[0]
            assert 1e-17 < exact < 1e-12
            by_book = _textbook(students, teachers)
            off.append(abs(float((mp.mpf(by_book.item()) - exact) / exact)))
            negative.append(by_book.item() < 0)
            for compute in IMPLEMENTATIONS:
                assert abs(float((mp.mpf(compute(students, teachers)[0].item()) - exact) / exact)) < 1e-4
    assert min(off) > 0.01 and any(negative)
    students, teachers = random(0, 5, 4), random(1, 3, 4)
    torch.testing.assert_close(gaussian.loss(students, teachers), _textbook(students, teachers))


@pytest.mark.parametrize("compute", IMPLEMENTATIONS)
def test_copies_of_the_teacher_have_zero_loss_and_all_values_are_defined(compute):
    for seed, slope in enumerate(SLOPES):
        teachers = random(seed, 4, 6)
        copies = teachers / teachers.norm(dim=1, keepdim=True).sqrt()
        flipped = -copies if slope == -1.0 else copies
        split = torch.cat([copies, flipped, torch.zeros(2, 6, dtype=F)]) * 0.5**0.5
        for students in (copies, split):
            value, gradient = compute(students, teachers, slope)
            assert 0 <= value < (10 * torch.finfo(F).eps * teachers.norm()) ** 2
            assert (gradient.abs() < 1e-14).all()
    unit = torch.eye(3, dtype=F)
    assert compute(unit, unit)[0] == 0
    same = torch.ones(5, 3, dtype=F)
    assert all(part.isfinite().all() for part in compute(same, torch.cat([same, -same])))
    nothing = torch.zeros(4, 3, dtype=F)
    value, gradient = compute(nothing, unit)
    torch.testing.assert_close(value, gaussian.kernel(unit, unit).sum() / 2)
    assert (gradient == 0).all()


@pytest.mark.parametrize("compute", IMPLEMENTATIONS)
def test_gradients_of_zero_students_are_zero(compute):
    _, gradient = compute(torch.cat([torch.zeros(2, 3, dtype=F), random(0, 2, 3)]), random(1, 2, 3))
    assert (gradient[:2] == 0).all() and gradient.isfinite().all() and (gradient[2:] != 0).all()


@given(seeds, st.floats(1e-3, 1e3))
def test_loss_is_rotation_invariant_and_homogeneous(seed, by):
    """f is of degree 2 in the students, f* of degree 1 in the teacher nodes."""
    students, teachers = around(seed, 6, 3, 4, 0.1)
    turn = torch.linalg.qr(random(seed + 9, 4, 4))[0]
    value, gradient = gaussian.loss_and_gradient(students, teachers)
    turned, turned_gradient = gaussian.loss_and_gradient(students @ turn, teachers @ turn)
    torch.testing.assert_close(turned, value, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(turned_gradient, gradient @ turn, rtol=1e-8, atol=1e-12)
    stretched, steeper = gaussian.loss_and_gradient(by**0.5 * students, by * teachers)
    torch.testing.assert_close(stretched, by**2 * value, rtol=1e-9, atol=0)
    torch.testing.assert_close(steeper, by**1.5 * gradient, rtol=1e-8, atol=1e-12 * by**1.5)
    flipped = gaussian.loss_and_gradient(-students, teachers)
    torch.testing.assert_close(flipped[0], value, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(flipped[1], -gradient, rtol=1e-8, atol=1e-12)


def test_opposite_relu_students_have_zero_loss_if_the_teacher_nodes_sum_to_zero():
    """Claim 1 of Zhou, Ge & Jin 2021: Σ σ(vᵀx) − Σ σ(−vᵀx) = Σ vᵀx."""
    teachers = tensor([1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)])
    rounding = (16 * torch.finfo(torch.float64).eps) ** 2  # a few roundings of numbers near 1, squared
    assert gaussian.loss(-teachers, teachers, 0.0) < rounding
    assert gaussian.loss(-teachers, teachers, 0.1) < rounding
    assert gaussian.loss(-teachers[:2], teachers, 0.0) > 0.01


@pytest.mark.parametrize("compute", IMPLEMENTATIONS)
def test_results_of_a_batch_agree_with_those_of_each_problem(compute):
    students, teachers = random(0, 4, 3, 7, 5), random(1, 3, 2, 5)
    value, gradient = compute(students, teachers)
    assert value.shape == (4, 3) and gradient.shape == (4, 3, 7, 5)
    for i in range(4):
        for j in range(3):
            one, other = compute(students[i, j], teachers[j])
            torch.testing.assert_close(value[i, j], one, rtol=1e-14, atol=0)
            torch.testing.assert_close(gradient[i, j], other, rtol=1e-13, atol=1e-13)


# Hermite coefficients of activations (lemma C.6).


def _polynomial(k, x):
    """h_k(x) by recurrence."""
    before, now = 0.0, 1.0
    for n in range(k):
        before, now = now, (x * now - math.sqrt(n) * before) / math.sqrt(n + 1)
    return now


@pytest.mark.parametrize("k", range(21))
def test_hermite_coefficients_agree_with_quadrature(k):
    """Integrate over x > 0; x < 0 contributes the same times the slope, with the opposite sign where h_k is even."""

    def integrand(x):
        return x * _polynomial(k, x) * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    above = math.fsum(integral(integrand, low, low + 1) for low in range(16))
    for slope in (-1.0, 0.0, 0.2):
        wanted = above * (1 + slope if k % 2 else 1 - slope)
        assert gaussian.hermite(k, slope) == pytest.approx(wanted, abs=1e-13)


def test_hermite_coefficients_agree_with_the_papers_formula_and_decay():
    """σ̂² is of order k^(−5/2): (k−1)!!²/k! goes as k^(−½), and (k−3)!! is (k−1)!!/(k−1)."""
    assert gaussian.hermite(0) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-15)
    assert gaussian.hermite(2) == pytest.approx(math.sqrt(1 / math.pi), rel=1e-15)
    for k in range(4, 60, 2):
        double = math.prod(range(k - 3, 0, -2))
        wanted = (-1) ** (k // 2 - 1) * math.sqrt(2 / (math.pi * math.factorial(k))) * double
        assert gaussian.hermite(k) == pytest.approx(wanted, rel=1e-13)
    far = [gaussian.hermite(k) for k in (10_000, 40_000)]
    assert far[0] / far[1] == pytest.approx(4**1.25, rel=1e-3)


@given(st.floats(-0.9, 0.9), slopes)
def test_the_kernel_is_the_power_series_of_squared_hermite_coefficients(cosine, slope):
    """E[h_k(x) h_k(y)] = ρᵏ for ρ-correlated normals (claim C.1)."""
    series = math.fsum(gaussian.hermite(k, slope) ** 2 * cosine**k for k in range(400))
    found = gaussian.kernel(tensor([1.0, 0.0]), tensor([cosine, math.sqrt(1 - cosine**2)]), slope)
    assert found.item() == pytest.approx(series, abs=1e-12)


# On a GPU.


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-4])
def test_gpu_and_cpu_agree(delta):
    problems = [around(10 * seed, 6, 3, 5, delta) for seed in range(20)]
    students, teachers = (torch.stack(part) for part in zip(*problems, strict=True))
    there = students.cuda(), teachers.cuda()
    value, gradient = gaussian.loss_and_gradient(*there)
    wanted, slopes = gaussian.loss_and_gradient(students, teachers)
    assert value.is_cuda and gradient.is_cuda
    torch.testing.assert_close(gaussian.gradient(*there), gradient, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(value.cpu(), wanted, rtol=1e-14 / delta**2 + 1e-11, atol=0)
    torch.testing.assert_close(gradient.cpu(), slopes, rtol=1e-10, atol=1e-13)
    for slope in SLOPES:
        found = gaussian.kernel(*there, slope).cpu()
        torch.testing.assert_close(found, gaussian.kernel(students, teachers, slope), rtol=1e-12, atol=1e-13)
    for one, other in zip(
        gaussian.decompose_residual(*there),
        gaussian.decompose_residual(students, teachers),
        strict=True,
    ):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-8, atol=1e-15)
    least = gaussian.least_eigenvalue(there[1]).cpu()
    torch.testing.assert_close(least, gaussian.least_eigenvalue(teachers), rtol=0, atol=1e-13)


# Invalid arguments.


def test_invalid_arguments_are_rejected():
    good = random(0, 3, 4)
    for function in (gaussian.kernel, gaussian.loss, gaussian.decompose_residual, *IMPLEMENTATIONS):
        with pytest.raises(UserError, match=r"float64, got float32: use \.double\(\)"):
            function(good.float(), good)
    with pytest.raises(UserError, match="must be at least 0, got -1"):
        gaussian.hermite(-1)
    with pytest.raises(UserError, match=r"teacher nodes 0 to 2, got \[0, 3\]"):
        gaussian.decompose_residual(good, good, torch.tensor([0, 3, 0]))


@pytest.mark.wrong_shapes
def test_vectors_of_different_dimensions_are_rejected():
    good = random(0, 3, 4)
    for function in (gaussian.kernel, gaussian.loss, gaussian.decompose_residual, *IMPLEMENTATIONS):
        with pytest.raises(UserError, match="same inputs, got 4 and 5"):
            function(good, random(1, 3, 5))
        with pytest.raises(UserError, match=r"at least one node, got \[0, 4\]"):
            function(good, good[:0])
        with pytest.raises(UserError, match=r"\[\.\.\., node, input\]"):
            function(good[0], good)
