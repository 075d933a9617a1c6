"""Sign-weighted second moments and the parts of the residual (Zhou, Ge & Jin 2021, eqs 2 to 4)."""

import math

import mpmath as mp
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.gaussian_digits import F, around, between, dot, length, precise, random, seeds, tensor
from understudy.papers.local.theory import gaussian

pytestmark = pytest.mark.usefixtures("one_thread")


def test_second_moments_by_hand_and_by_simulation():
    u, v = (
        tensor([1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        tensor([3.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
    )
    found = gaussian.second_moment(u, v)
    eye = torch.eye(3, dtype=F)
    plane = torch.zeros(3, 3, dtype=F)
    plane[0, 1] = plane[1, 0] = 2 / math.pi
    torch.testing.assert_close(found, torch.stack([eye, -eye, plane]))
    assert (gaussian.second_moment(u[0], torch.zeros(3, dtype=F)) == 0).all()
    u, v, x = random(0, 4), random(1, 4), random(2, 400_000, 4)
    terms = x[:, :, None] * x[:, None, :] * ((x @ u).sign() * (x @ v).sign())[:, None, None]
    off = (terms.mean(0) - gaussian.second_moment(u, v)).abs()
    assert (off < 4.5 * terms.std(0) / len(x) ** 0.5).all()


@given(seeds, st.floats(-16, 0))
def test_second_moments_of_two_nodes_give_their_kernel(seed, power):
    """E[x |vᵀx| sgn(uᵀx)] = M v, so that uᵀM v is the kernel, also for nodes that are nearly equal."""
    u = random(seed, 5)
    v = u + 10**power * random(seed + 1, 5)
    moment = gaussian.second_moment(u, v)
    torch.testing.assert_close(u @ moment @ v, gaussian.kernel(u[None], v[None])[0, 0], rtol=1e-13, atol=0)
    torch.testing.assert_close(moment, moment.T, rtol=0, atol=1e-15)
    values = torch.linalg.eigvalsh(moment)
    assert values.abs().max() <= 1 + 1e-14


def test_second_moments_of_nearly_parallel_nodes_keep_the_digits_of_their_difference():
    """I − M = 2/π [φ I + sin φ (nnᵀ − ppᵀ)]: across the plane 2φ/π, along n twice that."""
    phi = 1e-7
    moment = gaussian.second_moment(tensor(1.0, 0.0, 0.0), tensor(math.cos(phi), math.sin(phi), 0.0))
    away = torch.eye(3, dtype=F) - moment
    torch.testing.assert_close(
        away.diagonal(), tensor(0.0, 4 * phi / math.pi, 2 * phi / math.pi), rtol=1e-7, atol=1e-15
    )


@pytest.mark.parametrize("phi", [1e-3, 0.1, 1.0, math.pi / 2, 2.5])
def test_least_eigenvalue_of_two_nodes_by_hand(phi):
    """Lemma 10: λ_min(M) is of third order in the angle."""
    teachers = tensor([1.0, 0.0, 0.0], [2 * math.cos(phi), 2 * math.sin(phi), 0.0])
    folded = min(phi, math.pi - phi)
    assert gaussian.least_eigenvalue(teachers).item() == pytest.approx(
        2 / math.pi * (folded - math.sin(folded)), abs=3e-15
    )
    matrix = gaussian.gram_of_signs(teachers)
    assert matrix.shape == (6, 6) and torch.equal(matrix[:3, :3], torch.eye(3, dtype=F))
    torch.testing.assert_close(matrix[:3, 3:], gaussian.second_moment(teachers[0], teachers[1]))


@pytest.mark.parametrize("delta", [0.05, 0.4])
def test_the_parts_of_the_residual_agree_with_sample_means(delta):
    students, teachers = around(3, 7, 3, 4, delta, balanced=False)
    parts = gaussian.decompose_residual(students, teachers)
    own = parts.assignment
    turned = students * (students * teachers[own]).sum(1, keepdim=True).sign()
    x = random(5, 400_000, 4)
    signs, z = (x @ teachers.T).sign(), x @ turned.T
    one = ((x @ parts.averages.T) * signs).sum(1)
    two = ((z.sign() - signs[:, own]) * z) @ students.norm(dim=1)
    whole = (x @ students.T).abs() @ students.norm(dim=1) - (x @ teachers.T).abs().sum(1)
    torch.testing.assert_close(one + two, whole, rtol=0, atol=1e-12)
    for closed, samples in ((parts.linear, one), (parts.bent, two)):
        squares = samples.square()
        assert abs(closed - squares.mean()) < 4 * squares.std() / len(x) ** 0.5


def _moment(p, q, u, v):
    """E[sgn(pᵀx) sgn(qᵀx) uᵀx vᵀx]."""
    p, q = [x / length(p) for x in p], [x / length(q) for x in q]
    phi = between(p, q)
    level = (1 - 2 * phi / mp.pi) * dot(u, v)
    if phi < mp.mpf(10) ** -40:
        return level
    add, less = [a + b for a, b in zip(p, q, strict=True)], [a - b for a, b in zip(p, q, strict=True)]
    tangent = mp.tan(phi / 2)
    return level + (tangent * dot(add, u) * dot(add, v) - dot(less, u) * dot(less, v) / tangent) / mp.pi


def _exact_bent(students, teachers, own):
    """E R₂² as a sum of four products per pair of students."""
    theirs, own, total = precise(teachers), own.tolist(), mp.mpf(0)
    ours = [w if dot(w, theirs[i]) >= 0 else [-x for x in w] for w, i in zip(precise(students), own, strict=True)]
    for i, u in zip(own, ours, strict=True):
        for j, v in zip(own, ours, strict=True):
            b, c = theirs[i], theirs[j]
            term = _moment(u, v, u, v) - _moment(u, c, u, v) - _moment(b, v, u, v) + _moment(b, c, u, v)
            total += length(u) * length(v) * term
    return total


@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-2, 1e-4, 1e-6])
def test_the_norm_of_r2_has_correct_digits(delta):
    students, teachers = around(11, 5, 2, 4, delta, balanced=False)
    own = torch.arange(5) % 2
    found = gaussian.decompose_residual(students, teachers, own).bent.item()
    with mp.workdps(60):
        assert float(mp.mpf(found) / _exact_bent(students, teachers, own)) == pytest.approx(1, rel=1e-8)


@pytest.mark.parametrize("delta", [0.25, 0.19, 0.1, 1e-2])
def test_r2_of_students_displaced_in_the_same_direction_adds_up_across_teacher_nodes(delta):
    """Both are displaced along a third axis, where their parts of R₂ overlap most: a fraction of order δ."""
    teachers = tensor([1.0, 0.0, 0.0, 0.0], [0.3, 1.0, 0.0, 0.0])
    students = teachers + delta * tensor([0.0, 0.2, 1.0, 0.1], [0.1, 0.0, 1.0, -0.1])
    own = torch.arange(2)
    found = gaussian.decompose_residual(students, teachers, own).bent
    alone = sum(gaussian.decompose_residual(students[[i]], teachers[[i]]).bent for i in range(2))
    with mp.workdps(60):
        exact = _exact_bent(students, teachers, own)
        assert float(mp.mpf(found.item()) / exact) == pytest.approx(1, rel=1e-11)
    assert found - alone > 0.1 * delta * alone


@given(seeds, st.floats(-5, -0.5))
def test_the_norms_of_both_parts_bound_the_loss(seed, power):
    """‖R‖ is between |‖R₁‖ − ‖R₂‖| and ‖R₁‖ + ‖R₂‖; students parallel to their teacher nodes have R₂ = 0."""
    students, teachers = around(seed, 6, 3, 5, 10**power, balanced=False)
    parts, whole = gaussian.decompose_residual(students, teachers), (2 * gaussian.loss(students, teachers)).sqrt()
    one, two = parts.linear.sqrt(), parts.bent.sqrt()
    assert (one - two).abs() * (1 - 1e-6) <= whole <= (one + two) * (1 + 1e-6)
    at_rest = gaussian.decompose_residual(teachers, teachers)
    assert at_rest.bent == 0 and (at_rest.angles == 0).all()
    assert torch.equal(at_rest.assignment, torch.arange(3))
    lengths = teachers.norm(dim=1, keepdim=True)
    torch.testing.assert_close(at_rest.averages, (lengths - 1) * teachers)


def test_residuals_of_a_batch_agree_with_those_of_each_problem():
    students, teachers = random(0, 5, 6, 4), random(1, 5, 3, 4)
    together = gaussian.decompose_residual(students, teachers)
    shared = gaussian.decompose_residual(students, teachers[0], torch.arange(6) % 3)
    alone = gaussian.decompose_residual(students[4], teachers[0], torch.arange(6) % 3)
    torch.testing.assert_close(shared.bent[4], alone.bent, rtol=1e-12, atol=0)
    for e in range(5):
        alone = gaussian.decompose_residual(students[e], teachers[e])
        for many, one in zip(together, alone, strict=True):
            torch.testing.assert_close(many[e], one, rtol=1e-12, atol=1e-12)


def test_the_norm_of_r2_is_exact_and_does_not_depend_on_the_block_size(monkeypatch):
    students, teachers = around(17, 12, 3, 4, 0.05, balanced=False)
    own = torch.arange(12) % 3
    whole = gaussian.decompose_residual(students, teachers, own).bent.item()
    with mp.workdps(60):
        assert float(mp.mpf(whole) / _exact_bent(students, teachers, own)) == pytest.approx(1, rel=1e-10)
    monkeypatch.setattr("understudy.papers.local.theory.gaussian.residual._PAIRS", 7)
    assert gaussian.decompose_residual(students, teachers, own).bent.item() == pytest.approx(whole, rel=1e-13)
