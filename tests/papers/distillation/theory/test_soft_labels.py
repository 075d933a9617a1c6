"""Solutions of linear distillation (Phuong 2021, sec. 5.3.1): by hand, in limits and against other solvers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from understudy._errors import UserError
from understudy.papers.distillation.theory.soft_labels import (
    allowed_error,
    angle,
    gain,
    gradient,
    hard_path,
    hard_target,
    less_biased,
    limit,
    loss,
    soft_labels,
    solution,
    span,
    unsigned_angle,
)

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _problem(seed, n, d, nets=3):
    make = torch.Generator().manual_seed(seed)
    return torch.randn(nets, n, d, dtype=F, generator=make), torch.randn(d, dtype=F, generator=make)


def test_one_input_in_the_plane_by_hand():
    # The projection of the teacher (2, 0) on (1, 1)/√2 is (1, 1), at 45°.
    x, teacher = torch.tensor([[[3.0, 3.0]]], dtype=F), torch.tensor([2.0, 0.0], dtype=F)
    found = solution(x, teacher)
    torch.testing.assert_close(found, torch.tensor([[1.0, 1.0]], dtype=F))
    assert float(angle(found, teacher)) == pytest.approx(math.pi / 4)
    assert float(soft_labels(x, teacher)) == pytest.approx(1 / (1 + math.exp(-6)))
    # The max-margin separator of one input is along it, with wᵀx = 1.
    torch.testing.assert_close(hard_target(x, teacher), torch.tensor([[1 / 6, 1 / 6]], dtype=F))
    torch.testing.assert_close(hard_target(-x, teacher), torch.tensor([[1 / 6, 1 / 6]], dtype=F))


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 7))
def test_the_loss_is_cross_entropy_minus_its_minimum_and_its_gradient_that_of_autograd(seed, n, d):
    x, teacher = _problem(seed, n, d)
    w = torch.randn(3, d, dtype=F, generator=torch.Generator().manual_seed(seed + 1)).requires_grad_()
    y = (x @ teacher).sigmoid()
    entropy = torch.nn.functional.binary_cross_entropy(y, y, reduction="none")
    plain = torch.nn.functional.binary_cross_entropy_with_logits((x @ w.unsqueeze(-1)).squeeze(-1), y, reduction="none")
    wanted = (plain - entropy).mean(-1)
    torch.testing.assert_close(loss(w.detach(), x, teacher), wanted.detach(), rtol=1e-9, atol=1e-12)
    (slope,) = torch.autograd.grad(wanted.sum(), w)
    torch.testing.assert_close(gradient(w.detach(), x, teacher), slope)
    zero = loss(torch.zeros(3, d, dtype=F), x, teacher)
    torch.testing.assert_close(gain(w.detach(), x, teacher), zero - wanted.detach(), rtol=1e-9, atol=1e-12)


def test_the_loss_of_large_logits_does_not_overflow_and_that_of_the_teacher_is_zero():
    x, teacher = torch.tensor([[[1.0]]], dtype=F), torch.tensor([1.0], dtype=F)
    far = loss(torch.tensor([[-2000.0], [2000.0], [1.0]], dtype=F), x, teacher)
    y = 1 / (1 + math.exp(-1))
    entropy = -y * math.log(y) - (1 - y) * math.log(1 - y)
    assert far.tolist() == pytest.approx([2000 * y - entropy, 2000 * (1 - y) - entropy, 0])


def test_the_gain_of_a_small_start_is_accurate():
    x, teacher = _problem(3, 4, 6)
    down = -gradient(torch.zeros(3, 6, dtype=F), x, teacher)
    for small in (1e-6, 1e-12, 1e-100):
        torch.testing.assert_close(gain(small * down, x, teacher), small * down.square().sum(-1), rtol=1e-5, atol=0)
        assert (gain(-small * down, x, teacher) < 0).all()


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 8))
def test_the_solution_is_that_of_the_pseudoinverse_and_with_enough_inputs_the_teacher(seed, n, d):
    x, teacher = _problem(seed, n, d)
    found = solution(x, teacher)
    wanted = torch.linalg.pinv(x) @ (x @ teacher).unsqueeze(-1)
    torch.testing.assert_close(found, wanted.squeeze(-1), rtol=1e-6, atol=1e-8)
    if n >= d:
        assert torch.equal(found, teacher.expand(3, d))


def test_linearly_dependent_inputs_are_handled_by_their_rank():
    x, teacher = _problem(1, 3, 6)
    again = torch.cat((x, x[:, :1] * -4, torch.zeros(3, 1, 6, dtype=F)), dim=1)
    assert (span(again).square().sum((-2, -1)) - 3).abs().max() < 1e-9
    torch.testing.assert_close(solution(again, teacher), solution(x, teacher))
    # More inputs than dimensions, one of which is always 0, like the corners of images of digits.
    flat = torch.cat((_problem(2, 9, 5)[0], torch.zeros(3, 9, 1, dtype=F)), dim=-1)
    torch.testing.assert_close(solution(flat, teacher)[:, :5], teacher[:5].expand(3, 5))
    assert float(solution(flat, teacher)[:, 5].abs().max()) == 0
    # A set with a repeated input does not affect the others.
    mixed = torch.stack((x[0], torch.stack((x[1, 0], x[1, 0], x[1, 1]))))
    torch.testing.assert_close(solution(mixed, teacher)[0], solution(x, teacher)[0])
    torch.testing.assert_close(solution(mixed, teacher)[1], solution(x[1:2, :2], teacher)[0])


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 8))
def test_lemma_5_1_more_inputs_never_increase_the_angle(seed, n, d):
    x, teacher = _problem(seed, n + 1, d)
    before, after = (unsigned_angle(solution(part, teacher), teacher) for part in (x[:, :n], x))
    assert (after <= before + 1e-12).all()
    # cos ᾱ is the relative length of the solution (Phuong 2021, eq. 5.26).
    lengths = torch.linalg.vector_norm(solution(x, teacher), dim=-1) / teacher.norm()
    torch.testing.assert_close(after.cos(), lengths, rtol=1e-9, atol=1e-9)


def test_angles_are_accurate_near_zero_and_pi_and_a_zero_vector_has_a_right_angle():
    one = torch.tensor([1.0, 0.0], dtype=F)
    other = torch.tensor([[3.0, 3e-9], [-2.0, 2e-9], [0.0, 5.0], [0.0, 0.0]], dtype=F)
    found = angle(other, one)
    assert found.tolist() == pytest.approx([1e-9, math.pi - 1e-9, math.pi / 2, math.pi / 2], rel=1e-12)
    assert unsigned_angle(other, one)[1].item() == pytest.approx(1e-9, rel=1e-6)


def test_the_allowed_error_makes_5_11_an_equality():
    for depth in (1, 2, 3, 5):
        for start, length in ((1e-3, 1.0), (0.3, 2.0)):
            eps = float(allowed_error(start, length, depth))
            wanted = eps**depth * (eps**2 * length ** (-2 / depth) + length ** (2 - 2 / depth)) ** (-depth / 2)
            assert wanted == pytest.approx(start, rel=1e-12)
    assert float(allowed_error(2.0, 1.0, 2)) == math.inf
    assert float(allowed_error(0.0, 1.0, 3)) == 0


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.floats(1e-6, 0.9))
def test_the_limit_is_within_theorem_5_2s_error_of_the_solution_and_minimises_the_loss(seed, n, depth, share):
    x, teacher = _problem(seed, n, 6)
    reached = solution(x, teacher)
    lengths = torch.linalg.vector_norm(reached, dim=-1)
    make = torch.Generator().manual_seed(seed + 1)
    start = torch.nn.functional.normalize(torch.randn(3, 6, dtype=F, generator=make), dim=-1)
    start = start * (share * lengths).unsqueeze(-1)
    found = limit(start, x, teacher, depth)
    off = torch.linalg.vector_norm(found - reached, dim=-1)
    assert (off <= allowed_error(share * lengths, lengths, depth) * (1 + 1e-9)).all()
    assert (loss(found, x, teacher) < 1e-20).all()
    # Phuong 2021, eq. D.32 between the start and the limit.
    across = [torch.linalg.vector_norm(w - solution(x, w), dim=-1) for w in (start, found)]
    grown = (torch.linalg.vector_norm(found, dim=-1) / torch.linalg.vector_norm(start, dim=-1)).pow((depth - 1) / depth)
    torch.testing.assert_close(across[1] / across[0], grown, rtol=1e-7, atol=0)


def test_the_limit_from_a_start_orthogonal_to_all_inputs_by_hand():
    # d = 2, L = 2, ŵ = (1, 0), w(0) = (0, s): z (z − s) = 1 and w(∞) = ŵ + √(z/s) w(0).
    s = 0.1
    x, teacher = torch.tensor([[[2.0, 0.0]]], dtype=F), torch.tensor([1.0, 5.0], dtype=F)
    z = (s + math.sqrt(s * s + 4)) / 2
    found = limit(torch.tensor([[0.0, s]], dtype=F), x, teacher, 2)
    torch.testing.assert_close(found, torch.tensor([[1.0, math.sqrt(z / s) * s]], dtype=F))


def test_less_biased_learners_fit_the_labels_at_the_given_distance():
    x, teacher = _problem(5, 4, 9, nets=6)
    seeds = list(range(6))
    found = less_biased(x, teacher, [0.0, 0.5, 10.0], seeds)
    reached = solution(x, teacher)
    torch.testing.assert_close(found[0], reached)
    for delta, w in zip((0.5, 10.0), found[1:], strict=True):
        assert (loss(w, x, teacher) < 1e-20).all()
        torch.testing.assert_close((w - reached).norm(dim=-1), delta * reached.norm(dim=-1))
    # One q for all δ, independent of the other sets, and none if the inputs span the whole space.
    torch.testing.assert_close((found[2] - reached) / 10, (found[1] - reached) / 0.5)
    torch.testing.assert_close(less_biased(x[3:4], teacher, [0.5], [3])[0, 0], found[1, 3], rtol=1e-12, atol=1e-12)
    full, teacher = _problem(6, 9, 9)
    assert torch.equal(less_biased(full, teacher, [7.0], [0, 1, 2])[0], teacher.expand(3, 9))


def test_the_orthogonal_direction_is_uniform():
    # d = 4, two inputs along the first axes: q is a uniform direction in the plane of the other two.
    x = torch.eye(2, 4, dtype=F).expand(4000, 2, 4)
    teacher = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=F)
    (w,) = less_biased(x, teacher, [1.0], range(4000))
    torch.testing.assert_close(w[:, 2:].norm(dim=1), torch.ones(4000, dtype=F))
    turned = torch.atan2(w[:, 3], w[:, 2])
    assert abs(float(turned.cos().mean())) < 4 * math.sqrt(0.5 / 4000)
    assert abs(float((2 * turned).cos().mean())) < 4 * math.sqrt(0.5 / 4000)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 6))
def test_the_max_margin_separator_has_margin_1_and_equals_that_of_slsqp(seed, n, d):
    x, teacher = _problem(seed, n, d, nets=2)
    x = x * torch.logspace(-2, 1, n, dtype=F).unsqueeze(-1)
    found = hard_target(x, teacher)
    for rows, w in zip(x * (x @ teacher).sign().unsqueeze(-1), found, strict=True):
        margins = rows @ w
        assert float(margins.min()) == pytest.approx(1, abs=1e-7)
        z = rows.numpy()
        # In units in which the solution has length about 1.
        unit = z * float(w.norm())
        other = minimize(
            lambda v: v @ v / 2,
            teacher.numpy() / (unit @ teacher.numpy()).min(),
            jac=lambda v: v,
            method="SLSQP",
            constraints={"type": "ineq", "fun": lambda v, z=unit: z @ v - 1, "jac": lambda v, z=unit: z},
            options={"maxiter": 1000, "ftol": 1e-14},
        )
        if other.success and (unit @ other.x).min() > 1 - 1e-9:
            assert float(np.linalg.norm(other.x)) >= 1 - 1e-7
            assert float(w @ torch.from_numpy(other.x)) / float(w.norm()) == pytest.approx(1, abs=1e-5)


def test_descent_on_hard_labels_equals_a_plain_loop_and_approaches_the_max_margin_direction():
    x, teacher = _problem(11, 3, 5)
    y = (x @ teacher >= 0).to(F)
    w = torch.zeros(3, 5, dtype=F)
    for _ in range(20):
        w = w - 0.7 * (((x @ w.unsqueeze(-1)).squeeze(-1).sigmoid() - y).unsqueeze(1) @ x).squeeze(1) / 3
    torch.testing.assert_close(hard_path(x, teacher, 0.7, [20])[0], w)
    off = angle(hard_path(x, teacher, 3.0, [1, 100, 20_000]), hard_target(x, teacher)).amax(1).tolist()
    assert off[0] > off[1] > off[2] and off[2] < 0.15
    path = hard_path(x, teacher, 0.7, [1, 20, 20, 33])
    torch.testing.assert_close(path, torch.cat([hard_path(x, teacher, 0.7, [steps]) for steps in (1, 20, 20, 33)]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w: span(x[:, :0]), "got 0 inputs of 2 numbers"),
        (lambda x, w: limit(w[None], x, w, 0), "0 layers"),
        (lambda x, w: limit(0 * w[None], x, w, 2), "stays"),
        (lambda x, w: less_biased(x, w, [1.0], [1, 2]), r"one seed per set of inputs is needed \(1\), got 2"),
        (lambda x, w: less_biased(x, w, [math.inf], [1]), "deltas must be finite"),
        (lambda x, w: hard_path(x, w, 0.1, [0]), r"steps must be at least 1 .* got \[0\]"),
        (lambda x, w: hard_path(x, w, 0.1, [3, 2]), "in ascending order"),
        (lambda x, w: hard_path(x, w, 0.1, []), r"steps must be at least 1 .* got \[\]"),
        (lambda x, w: hard_path(x, w, 0.0, [1]), "rate must be finite and above 0, got 0.0"),
        (lambda x, w: hard_target(torch.eye(1, 2, dtype=F)[None], torch.tensor([0.0, 1.0], dtype=F)), "boundary"),
    ],
)
def test_invalid_arguments_are_refused(call, words):
    with pytest.raises(UserError, match=words):
        call(torch.ones(1, 1, 2, dtype=F), torch.ones(2, dtype=F))


def test_a_set_with_one_more_input_has_another_orthogonal_direction():
    x, teacher = _problem(5, 4, 9, nets=6)
    seeds = list(range(6))
    fewer, more = (less_biased(some, teacher, [1.0], seeds)[0] - solution(some, teacher) for some in (x[:, :-1], x))
    basis = torch.linalg.svd(x, full_matrices=False).Vh
    kept = fewer - (fewer.unsqueeze(1) @ basis.mT @ basis).squeeze(1)
    assert (torch.nn.functional.cosine_similarity(kept, more).abs() < 0.99).all()


def test_students_with_infinite_weights_have_no_angle():
    v = torch.tensor([[1.0, 0.0]], dtype=F)
    found = [float(angle(torch.tensor([[a, 0.0]], dtype=F), v)) for a in (math.nan, math.inf, 1e100, 0.0, -2.0)]
    assert math.isnan(found[0]) and math.isnan(found[1])
    assert found[2:] == pytest.approx([0.0, math.pi / 2, math.pi])


@pytest.mark.parametrize("function", [loss, gradient])
def test_a_loss_without_inputs_is_refused(function):
    with pytest.raises(UserError, match="a set needs 1 or more inputs of 1 or more numbers, got 0 inputs of 3 numbers"):
        function(torch.ones(1, 3, dtype=F), torch.ones(1, 0, 3, dtype=F), torch.ones(3, dtype=F))
