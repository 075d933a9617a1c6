"""Canonical correlations: by hand, under the maps that leave them unchanged, and of random layers."""

import math

import pytest
import torch

import understudy.measures as measures
from support.problems import gaussians
from understudy._errors import UserError


def layers(samples=400, m=4, n=6, seed=1):
    return gaussians(seed, 2, samples, m, dtype=torch.float64), gaussians(seed + 1, 2, samples, n, dtype=torch.float64)


def test_by_hand():
    # Orthogonal columns of mean 0: the first is shared, the second is at 60° to the student's plane.
    a, b, c, d = torch.tensor(
        [[1, 1, -1, -1] * 2, [1, -1, 1, -1] * 2, [1, -1, -1, 1] * 2, [1] * 4 + [-1] * 4], dtype=torch.float64
    )
    teacher = torch.stack((a, 0.5 * b + math.sqrt(0.75) * c), 1).unsqueeze(0)
    student = torch.stack((a + 3 * b, a - b, d), 1).unsqueeze(0)
    found = measures.canonical_correlations(teacher, student)
    torch.testing.assert_close(found.correlation, torch.tensor([[1.0, 0.5]], dtype=torch.float64))
    assert (found.teacher.item(), found.student.item()) == (2, 3)
    torch.testing.assert_close(measures.svcca(teacher, student, 1.0), torch.tensor([0.75], dtype=torch.float64))


def test_svcca_drops_directions_of_little_variance_by_hand():
    a, b, c = torch.tensor([[1, 1, -1, -1] * 2, [1, -1, 1, -1] * 2, [1, -1, -1, 1] * 2], dtype=torch.float64)
    teacher, student = (torch.stack(each, 1).unsqueeze(0) for each in ((10 * a, b), (10 * a, c, 0 * a)))
    # The first direction holds 100 of 101 parts of the variance: enough for 99%, but not for 99.5%.
    both = measures.canonical_correlations(teacher, student, 0.995).correlation
    torch.testing.assert_close(both, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert measures.svcca(teacher, student, 0.995).item() == pytest.approx(0.5)
    found = measures.canonical_correlations(teacher, student, 0.99)
    assert (found.teacher.item(), found.student.item()) == (1, 1)
    assert measures.svcca(teacher, student).item() == pytest.approx(1.0)


def test_cca_is_unchanged_by_invertible_maps_and_svcca_by_rotations():
    t, s = layers()
    s = s + t.repeat(1, 1, 2)[..., :6]
    before = measures.canonical_correlations(t, s).correlation
    mixed = s @ gaussians(9, 6, 6, dtype=torch.float64) + 100
    torch.testing.assert_close(measures.canonical_correlations(t, mixed).correlation, before, atol=1e-9, rtol=0)
    rotation, _ = torch.linalg.qr(gaussians(8, 6, 6, dtype=torch.float64))
    torch.testing.assert_close(measures.svcca(t, s @ rotation, 0.9), measures.svcca(t, s, 0.9))
    assert not torch.allclose(measures.svcca(t, mixed, 0.9), measures.svcca(t, s, 0.9))


def test_a_layer_and_linear_maps_of_it_correlate_fully():
    t, other = layers()
    copies = torch.cat((t @ gaussians(7, 4, 4, dtype=torch.float64), other), 2)
    torch.testing.assert_close(measures.svcca(t, copies, 1.0), torch.ones(2, dtype=torch.float64))


def test_dead_and_repeated_nodes_add_no_direction():
    t, s = layers()
    plain = measures.canonical_correlations(t, s)
    padded = torch.cat((s, torch.full_like(s[..., :1], 3.0), s[..., :2] * 2), 2)
    for dtype in (torch.float64, torch.float32):
        found = measures.canonical_correlations(t.to(dtype), padded.to(dtype))
        assert found.student.tolist() == [6, 6]
        torch.testing.assert_close(found.correlation.double(), plain.correlation, atol=1e-5, rtol=0)
    nothing = measures.canonical_correlations(t, torch.zeros_like(s))
    assert (nothing.correlation == 0).all()
    assert measures.svcca(t, torch.zeros_like(s)).tolist() == [0.0, 0.0]


def test_of_two_single_nodes_it_is_their_correlation():
    t, s = layers(m=1, n=1)
    both = t + 0.5 * s
    expected = measures.correlation(t, both).abs()[:, :, 0]
    torch.testing.assert_close(measures.canonical_correlations(t, both).correlation, expected)


def test_unrelated_layers_correlate_as_chance_has_it():
    # The squared correlations of independent Gaussian spaces of m and n of N dimensions add up to m n / N on average.
    nets, samples, m, n = 400, 101, 3, 5
    t, s = gaussians(3, nets, samples, m, dtype=torch.float64), gaussians(4, nets, samples, n, dtype=torch.float64)
    total = measures.canonical_correlations(t, s).correlation.square().sum(1)
    expected = m * n / (samples - 1)
    assert abs(total.mean().item() - expected) < 4 * total.std().item() / math.sqrt(nets)


@pytest.mark.parametrize(
    ("teacher", "student", "variance", "words"),
    [
        ((1, 20, 3), (1, 21, 3), 0.9, "must agree in networks and samples"),
        ((1, 6, 3), (1, 6, 3), 0.9, "canonical correlations of 6 nodes need more samples than that, got 6"),
        ((1, 20, 3), (1, 20, 3), 0.0, "variance must be above 0 and at most 1, got 0.0"),
        ((1, 20, 3), (1, 20, 3), 1.1, "variance must be above 0 and at most 1, got 1.1"),
    ],
)
@pytest.mark.wrong_shapes
def test_what_cannot_be_computed_is_refused(teacher, student, variance, words):
    with pytest.raises(UserError, match=words):
        measures.svcca(torch.zeros(teacher), torch.zeros(student), variance)
