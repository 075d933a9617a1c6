"""Exact alignment at zero gradient: Tian 2020, theorem 1, and Tian 2019, theorem 4."""

import pytest
import torch

from support.pairs import gaussian, near_copy, network, random_network
from understudy.papers.specialization.theory.exact import SAME, theorem_1, theorem_4_deep

TEACHER = network(([[1.0, 0.0], [0.6, 0.8]], [0.1, -0.2]), ([[1.0, -0.5], [0.3, 0.8]], [0.0, 0.1]))
X = gaussian(1, 400, 2)


def test_a_student_equal_to_the_teacher_is_exactly_aligned():
    for found in theorem_1(TEACHER, TEACHER, X):
        assert found.applies
        assert found.agrees
        assert found.eps == SAME


def test_split_and_idle_nodes_do_not_prevent_a_certificate():
    (w, b), (v, c) = ((layer.weight[0], layer.bias[0]) for layer in TEACHER.layers)
    student = network(
        (torch.cat((w, 2 * w[:1], torch.ones(1, 2))), torch.cat((b, 2 * b[:1], torch.ones(1)))),
        (torch.cat((torch.stack((0.4 * v[:, 0], v[:, 1]), 1), 0.3 * v[:, :1], torch.zeros(2, 1)), 1), c),
    )
    assert all(found.applies and found.agrees for found in theorem_1(TEACHER, student, X))


def test_a_small_gradient_is_not_a_zero_gradient():
    for found in theorem_1(TEACHER, near_copy(TEACHER, 1, 1e-6), X):
        assert not found.applies
        assert found.failing[0].name.startswith("zero gradient at every sample")


def test_a_student_that_fits_every_sample_and_not_the_teacher_is_not_certified():
    """Three samples far from the boundary, fitted exactly by other nodes: only points between them differ."""
    teacher = network(([[1.0], [1.0]], [0.0, 4.0]), ([[1.0, 0.5]], [0.0]))
    x = torch.tensor([[-1.0], [1.0], [2.0]], dtype=torch.float64)
    student = network(([[2.0], [1.0]], [0.0, 4.0]), ([[0.5, 0.5]], [0.0]))
    same = theorem_1(teacher, student, x)[0]
    assert same.applies
    shifted = network(([[1.0], [1.0], [1.0]], [0.5, -0.5, 4.0]), ([[0.5, 0.5, 0.5]], [0.0]))
    assert torch.equal(shifted(x), teacher(x))
    found = theorem_1(teacher, shifted, x)[0]
    assert not found.applies
    assert found.failing[-1].name == "zero gradient on the boundary and beside it"


def test_data_on_one_side_shows_no_boundary():
    x = X.clone()
    x[:, 0] = x[:, 0].abs() + 1
    found = theorem_1(TEACHER, TEACHER, x)[0]
    assert [h.name for h in found.failing] == ["observed"]


def test_two_teacher_nodes_on_one_boundary_are_refused():
    teacher = network(
        ([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]], [0.1, -0.2, 0.3]), ([[1.0, -0.5, 0.7], [0.3, 0.8, 0.9]], [0.0, 0.1])
    )
    found = theorem_1(teacher, teacher, X)[0]
    assert not found.applies
    assert "on the same boundary" in found.failing[-1].name


@pytest.mark.parametrize("seed", range(5))
def test_no_deep_certificate_is_contradicted(seed):
    teacher = random_network(seed, 2, 3, 3, 2)
    findings = theorem_4_deep(teacher, teacher, gaussian(seed, 2_000, 2))
    assert not any(found.contradicted for found in findings)
    other = random_network(seed + 50, 2, 3, 3, 2)
    assert not any(found.applies for found in theorem_4_deep(teacher, other, gaussian(seed, 500, 2)))


def test_a_deep_student_equal_to_its_teacher_is_exactly_aligned_where_it_is_observed():
    teacher = network(([[1.0, 0.0], [0.6, 0.8]], [0.1, -0.2]), ([[1.0, 0.7]], [1.5]), ([[1.0], [0.5]], [0.0, 0.0]))
    assert all(found.applies and found.agrees for found in theorem_4_deep(teacher, teacher, X))
