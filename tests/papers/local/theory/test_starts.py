"""Initial students (Zhou, Ge & Jin 2021, sec. 3.3 and appendix E)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.descent import descend
from understudy.papers.local.theory.gaussian.pairs import units
from understudy.papers.local.theory.geometry import least_angle
from understudy.papers.local.theory.starts import (
    draw_normal,
    estimate_moment,
    estimate_span,
    initialise,
    least_squares,
    nearest,
    place_near,
    scatter,
    scatter_in_subspace,
    stable_rate,
    subspace_angle,
    teacher_moment,
)
from understudy.papers.local.theory.teachers import random_teachers

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")
seeds = st.integers(0, 10**6)


def _tensor(*rows):
    return torch.tensor([rows], dtype=F)


def _directions(students, size, seed):
    """Directions of algorithm 1, which depend on the number of students."""
    return units(normal(seed, Stream.STUDENT, students, students * size).view(students, size))[0]


def test_every_network_may_have_its_own_angle():
    teachers = random_teachers(2, 3, [1, 2])
    both = place_near(teachers, 4, torch.tensor([0.1, 0.2], dtype=F), [1, 2]).students
    each = [place_near(teachers[i : i + 1], 4, angle, [1 + i]).students for i, angle in enumerate((0.1, 0.2))]
    assert torch.equal(both, torch.cat(each))
    with pytest.raises(UserError, match="angle must be between 0 and π/2"):
        place_near(teachers, 4, torch.tensor([0.1, 2.0], dtype=F), [1, 2])


@given(seeds, st.integers(1, 4), st.integers(0, 9), st.integers(2, 6), st.floats(0, math.pi / 2))
def test_near_students_are_at_the_given_angle_and_share_the_length(seed, r, more, d, angle):
    teachers = random_teachers(r, d, [seed, seed + 1], w_min=0.5, w_max=2.0)
    start = place_near(teachers, r + more, angle, [seed, seed + 1])
    which = torch.arange(r + more) % r
    ours, lengths = units(start.students)
    own = units(teachers)[0][:, which]
    found = 2 * torch.atan2((ours - own).norm(dim=-1), (ours + own).norm(dim=-1))
    torch.testing.assert_close(found, torch.full_like(found, angle), rtol=1e-9, atol=1e-12)
    shared = torch.zeros(2, r, dtype=F).index_add(1, which, lengths.square())
    torch.testing.assert_close(shared, teachers.norm(dim=-1))
    assert not start.notes
    if angle == 0:
        assert float(gaussian.loss(start.students, teachers).max()) < 1e-25


@given(seeds, st.integers(1, 4), st.integers(1, 9), st.integers(2, 6))
def test_the_nearest_teacher_neuron_is_the_assignment_of_the_residual(seed, r, m, d):
    teachers = random_teachers(r, d, [seed, seed + 1])
    students = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, m, d)))
    which, angle = nearest(students, teachers)
    found = gaussian.decompose_residual(students, teachers)
    assert torch.equal(which, found.assignment)
    torch.testing.assert_close(angle, found.angles)


def test_normal_students_have_the_given_standard_deviation():
    found = draw_normal(random_teachers(2, 5, range(3)), 2_000, 0.3, range(3)).students
    assert found.shape == (3, 2_000, 5)
    assert float(found.std()) == pytest.approx(0.3, rel=4 / math.sqrt(2 * found.numel()))
    torch.testing.assert_close(found[1], draw_normal(random_teachers(2, 5, [1]), 2_000, 0.3, [1]).students[0])


@given(seeds, st.integers(1, 4), st.integers(0, 40), st.integers(1, 6))
def test_lengths_satisfy_the_optimality_conditions_of_least_squares(seed, r, more, d):
    """Karush–Kuhn–Tucker conditions: lengths and slopes are nonnegative, and one of both is zero."""
    teachers = random_teachers(min(r, d) if d == 1 else r, d, [seed])
    start = scatter(teachers, r + more, [seed])
    directions = _directions(r + more, d, seed).unsqueeze(0)
    z = start.students.norm(dim=-1).square()[0]
    torch.testing.assert_close(z.sqrt().unsqueeze(-1) * directions[0], start.students[0])
    slope = gaussian.kernel(directions, directions)[0] @ z - gaussian.kernel(directions, teachers)[0].sum(-1)
    scale = float(teachers.norm(dim=-1).sum())
    assert float(slope.min()) > -1e-9 * scale
    assert float((z * slope).abs().max()) < 1e-9 * scale**2


def test_lengths_of_one_direction_by_hand():
    # One direction u and one neuron v: z = E|uᵀx||vᵀx|, which is 2/π (sin φ + (π/2 − φ) cos φ) for unit vectors.
    teachers = _tensor([2.0, 0.0])
    (student,) = scatter(teachers, 1, [3]).students[0]
    phi = float(least_angle(torch.stack([student, teachers[0, 0]])))
    expected = 2 * 2 / math.pi * (math.sin(phi) + (math.pi / 2 - phi) * math.cos(phi))
    assert float(student.norm() ** 2) == pytest.approx(expected)


def test_least_squares_finds_a_teacher_among_the_directions():
    gram, target = (
        gaussian.kernel(_tensor([1.0, 0.0], [0.6, 0.8], [0.0, 1.0]), other)[0].numpy()
        for other in (
            _tensor([1.0, 0.0], [0.6, 0.8], [0.0, 1.0]),
            _tensor([1.8, 2.4]),
        )
    )
    z, rank = least_squares(gram, target.sum(-1))
    assert z == pytest.approx([0, 3, 0], abs=1e-12)
    assert rank == 3


def test_least_squares_on_samples_converge_to_the_exact_ones():
    """The error of scipy's solution on samples of |w̄ᵀx| and f* falls as one over the root of their number."""
    teachers = random_teachers(3, 4, [1], separation=0.5)
    start = scatter(teachers, 12, [1])
    z = start.students.norm(dim=-1).square()[0].numpy()
    directions = _directions(12, 4, 1).numpy()
    gaps = []
    for samples in (1_000, 100_000):
        each = []
        for draw in range(8):
            x = np.random.default_rng(draw).standard_normal((samples, 4))
            each.append(nnls(np.abs(x @ directions.T), np.abs(x @ teachers[0].numpy().T).sum(1))[0] - z)
        gaps.append(float(np.sqrt(np.mean(np.square(each)))))
    assert gaps[1] < 0.01
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.5)


def test_parallel_directions_are_fitted_and_reported():
    """With one input all directions are parallel: the Gram matrix has rank 1."""
    start = scatter(_tensor([3.0]), 5, [1])
    assert float(start.students.square().sum()) == pytest.approx(3)
    assert start.singular == (4,)
    assert start.notes[0] == (
        "the Gram matrix of the 5 directions is singular: least squares ignored 4 of its dimensions"
    )
    assert float(gaussian.loss(start.students, _tensor([3.0]))) < 1e-25


def test_students_of_length_zero_are_reported():
    teachers = random_teachers(3, 5, [1, 2])
    start = scatter(teachers, 60, [1, 2])
    idle = (start.students == 0).all(-1).sum(-1)
    assert 0 < int(idle.max()) < 60
    assert start.notes == (
        f"least squares gave up to {int(idle.max())} of the 60 students length 0; their gradient is 0, so that they "
        "stay there",
    )


def test_more_students_start_at_a_smaller_loss():
    teachers = random_teachers(3, 4, range(8), separation=0.4)
    medians = [
        float(gaussian.loss(scatter(teachers, m, range(8)).students, teachers).median()) for m in (5, 20, 80, 320)
    ]
    assert medians == sorted(medians, reverse=True)
    assert medians[-1] < medians[0] / 10


def test_lengths_of_hundreds_of_students_are_fitted():
    teachers = random_teachers(3, 2, [1], separation=0.4)
    start = scatter(teachers, 600, [1])
    assert "is singular" in start.notes[0]
    assert float(gaussian.loss(start.students, teachers)) < 1e-6
    directions = _directions(600, 2, 1)
    z = start.students[0].square().sum(-1)
    slope = gaussian.kernel(directions, directions) @ z - gaussian.kernel(directions, teachers[0]).sum(-1)
    assert float(slope.min()) > -1e-9
    assert float((z * slope).abs().max()) < 1e-9


def test_the_estimated_span_is_that_of_the_teacher():
    """Orthogonal neurons are eigenvectors of M (lemma E.2)."""
    teachers = 2 * torch.eye(4, dtype=F)[None, :2]
    basis = estimate_span(teachers, 300_000, [1])
    assert basis.shape == (1, 4, 2)
    assert float(subspace_angle(basis, teachers)) < 0.02
    torch.testing.assert_close(basis.mT @ basis, torch.eye(2, dtype=F)[None])


def test_the_constant_of_equation_14_by_simulation():
    x = torch.from_numpy(np.random.default_rng(1).standard_normal(1_000_000))
    values = x.abs() * (x.square() - 1)
    assert abs(float(values.mean()) - math.sqrt(2 / math.pi)) < 4 * float(values.std()) / 1_000


def test_the_estimated_moment_converges_to_that_of_the_teacher():
    """M of orthogonal neurons by hand, and M̂ within 5 standard errors of M in every entry."""
    assert torch.allclose(
        teacher_moment(2 * torch.eye(3, dtype=F)[:2]), 2 * math.sqrt(2 / math.pi) * _tensor(1, 1, 0)[0].diag()
    )
    teachers = random_teachers(2, 3, [1], w_min=0.5, w_max=2.0)
    x = normal(1, Stream.SPAN, 0, 20_000 * 3).view(20_000, 3)
    terms = (x @ teachers[0].T).abs().sum(1)[:, None, None] * (x[:, :, None] * x[:, None, :] - torch.eye(3))
    found = estimate_moment(teachers, 20_000, [1])[0]
    torch.testing.assert_close(found, terms.mean(0))
    assert ((found - teacher_moment(teachers[0])).abs() < 5 * terms.std(0) / math.sqrt(20_000)).all()


def test_the_angle_of_the_span_falls_as_one_over_the_root_of_the_samples():
    teachers = random_teachers(2, 8, range(12), separation=0.8)
    found = [float(subspace_angle(estimate_span(teachers, n, range(12)), teachers).mean()) for n in (2_000, 50_000)]
    assert math.log(found[1] / found[0]) / math.log(25) == pytest.approx(-0.5, abs=0.1)


def test_samples_may_be_drawn_in_parts(monkeypatch):
    teachers = random_teachers(2, 5, [1])
    whole = estimate_span(teachers, 1_000, [1])
    assert torch.equal(whole, estimate_span(teachers, 1_000, [1]))
    monkeypatch.setattr("understudy.papers.local.theory.starts._NUMBERS", 5 * 300)
    parts = estimate_span(teachers, 200_000, [1])
    assert float(subspace_angle(parts, teachers)) < 0.05


@given(st.floats(1e-12, math.pi / 2), seeds)
def test_the_angle_between_two_planes_by_hand(angle, seed):
    turn, _ = torch.linalg.qr(torch.from_numpy(np.random.default_rng(seed).standard_normal((5, 5))))
    teachers = _tensor([1.0, 0, 0, 0, 0], [1.0, 2.0, 0, 0, 0]) @ turn
    basis = torch.tensor([[2.0, 0, 0, 0, 0], [1.0, math.cos(angle), math.sin(angle), 0, 0]], dtype=F) @ turn
    found = float(subspace_angle(basis.mT[None], teachers))
    assert found == pytest.approx(angle, rel=1e-6, abs=1e-15)


def test_angles_between_spaces_of_different_dimensions():
    first, plane = torch.eye(3, dtype=F)[:, :1], torch.eye(3, dtype=F)[:, :2]
    assert float(subspace_angle(plane, _tensor([1.0, 0, 0])[0])) == 0
    assert float(subspace_angle(plane, _tensor([3.0, 1.0, 0], [6.0, 2.0, 0])[0])) < 1e-15
    assert float(subspace_angle(first, _tensor([1.0, 0, 0], [0, 1.0, 0])[0])) == pytest.approx(math.pi / 2)


def test_students_of_algorithm_2_lie_in_the_subspace_and_have_a_smaller_loss():
    teachers = random_teachers(2, 12, range(6), separation=0.6)
    start = scatter_in_subspace(teachers, 30, 20_000, range(6))
    basis = estimate_span(teachers, 20_000, range(6))
    outside = start.students - start.students @ basis @ basis.mT
    assert float(outside.abs().max()) < 1e-12
    here, elsewhere = (gaussian.loss(s.students, teachers).median() for s in (start, scatter(teachers, 30, range(6))))
    assert float(here) < float(elsewhere) / 10


def test_useless_subspaces_are_reported():
    assert scatter_in_subspace(random_teachers(4, 3, [1]), 20, 100, [1]).notes[0] == (
        "4 neurons in 3 dimensions: the subspace is the whole space"
    )
    assert scatter_in_subspace(random_teachers(2, 30, [1]), 20, 7, [1]).notes[0] == (
        "7 samples in 30 dimensions are too few to estimate the span: it is mostly noise"
    )


@pytest.mark.parametrize(
    "start",
    [
        lambda t, s: place_near(t, 7, 0.2, s),
        lambda t, s: scatter(t, 7, s),
        lambda t, s: scatter_in_subspace(t, 7, 50, s),
        lambda t, s: draw_normal(t, 7, 0.2, s),
    ],
)
def test_initial_students_do_not_depend_on_batch_composition(start):
    teachers = random_teachers(3, 4, [5, 6, 7])
    together = start(teachers, [1, 2, 1]).students
    for i, seed in enumerate([1, 2, 1]):
        torch.testing.assert_close(start(teachers[i : i + 1], [seed]).students[0], together[i], rtol=1e-12, atol=1e-14)
    shared = start(teachers[:1], [1, 2]).students
    assert shared.shape == (2, 7, 4)
    assert not torch.equal(shared[0], shared[1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: place_near(_tensor([1.0, 0], [0, 1.0]), 1, 0.1, [1]),
            "must be at least 2, the teacher's neurons, got 1",
        ),
        (lambda: place_near(_tensor([1.0, 0]), 1, 2.0, [1]), "angle must be between 0 and π/2, got 2.0"),
        (lambda: place_near(_tensor([1.0]), 1, 0.1, [1]), "angle must be 0 with one input, .*got 0.1"),
        (lambda: scatter(_tensor([1.0, 0], [0, 1.0]), 1, [1]), "the number of students must be at least 2"),
        (lambda: scatter_in_subspace(_tensor([1.0, 0]), 2, 0, [1]), "the number of samples must be at least 1, got 0"),
        (lambda: draw_normal(_tensor([1.0, 0]), 2, 0.0, [1]), "scale must be positive and finite, got 0.0"),
        (
            lambda: place_near(torch.ones(2, 1, 2, dtype=F), 2, 0.1, [1, 2, 3]),
            "one per seed, got 2 teachers and 3 seeds",
        ),
    ],
)
def test_invalid_arguments_are_rejected(call, words):
    with pytest.raises(UserError, match=words):
        call()


# Named initialisations.


def test_named_initialisations_are_algorithms_1_and_2():
    teachers = random_teachers(2, 4, [1, 2], 0.5)
    assert torch.equal(initialise("scattered", teachers, 9, [1, 2], 1, 1.0).students, scatter(teachers, 9, [1, 2])[0])
    found = initialise("subspace", teachers, 9, [1, 2], 5_000, 1.0).students
    assert torch.equal(found, scatter_in_subspace(teachers, 9, 5_000, [1, 2])[0])


def test_normal_initialisations_have_the_given_mass():
    """Σ ‖w‖² = mass Σ ‖w*‖ on average."""
    teachers = 3 * random_teachers(2, 4, range(10), 0.5)
    for by, mass in (("small", 0.01), ("large", 20.0)):
        found = initialise(by, teachers, 150, range(10), 1, mass).students
        assert found.square().sum((1, 2)).mean().item() == pytest.approx(mass * 6, rel=0.05)


def test_rates_are_divided_by_the_excess_of_mass():
    teachers = torch.eye(2, dtype=F).unsqueeze(0)
    students = torch.tensor([[[2.0, 0.0], [0.0, 2.0]], [[0.1, 0.0], [0.0, 0.1]], [[1.0, 0.0], [0.0, 1.0]]], dtype=F)
    # Σ ‖w‖² is 8, 0.02 and 2; Σ ‖w*‖ is 2.
    assert stable_rate(0.1, students, teachers.expand(3, 2, 2)).tolist() == pytest.approx([0.025, 0.1, 0.1])


def test_large_initialisations_converge_at_the_reduced_rate_and_diverge_at_the_given_one():
    teachers = random_teachers(2, 4, [1, 2], 0.5)
    large = initialise("large", teachers, 6, [1, 2], 1, 30.0).students
    path = descend(large, teachers, stable_rate(0.1, large, teachers), 100, [0, 100])
    first, last = gaussian.loss(path, teachers)
    assert (last < first / 100).all()
    assert descend(large, teachers, 0.1, 100, [100]).isnan().all()
