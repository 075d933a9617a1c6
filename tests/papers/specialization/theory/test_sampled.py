"""Theorems 3 and 4 of Tian 2020 on given networks: certificates, attacks on them, and missing hypotheses."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pairs import gaussian, near_copy, network, random_network
from understudy.papers.specialization.theory import sampled
from understudy.papers.specialization.theory.exact import theorem_1
from understudy.papers.specialization.theory.sampled import augmentation_reach, augmentation_shift, theorem_3, theorem_4
from understudy.theory import results
from understudy.theory.boundaries import layer_planes, plane_distances
from understudy.theory.isolation import samples_needed
from understudy.theory.pair_geometry import PairGeometry
from understudy.theory.result import UNRIVALLED

TEACHER = network(([[1.0, 0.0], [0.6, 0.8]], [0.1, -0.2]), ([[1.0, -0.5], [0.3, 0.8]], [0.0, 0.1]))
both = pytest.mark.parametrize("theorem", [theorem_3, theorem_4])


@both
def test_the_smallest_documented_setting_certifies_every_teacher_node(theorem):
    """Two dimensions, two teacher nodes, four students equal up to 10⁻⁸, 60,000 samples."""
    findings = theorem(TEACHER, near_copy(TEACHER, 2, 1e-8), gaussian(1, 60_000, 2))
    assert len(findings) == 2
    for found in findings:
        assert found.applies
        assert found.agrees
        assert 0 < found.eps < 1


@both
def test_with_ten_times_the_samples_the_guarantee_is_about_ten_times_better(theorem):
    eps = [
        max(found.eps for found in theorem(TEACHER, near_copy(TEACHER, 2, 1e-10), gaussian(2, n, 2)))
        for n in (60_000, 600_000)
    ]
    assert 5 < eps[0] / eps[1] < 20


@both
def test_too_few_samples_fail_by_a_reported_factor(theorem):
    found = theorem(TEACHER, near_copy(TEACHER, 2, 1e-8), gaussian(1, 60, 2))[0]
    assert not found.applies
    lacking = found.failing[0]
    assert "samples of the band" in lacking.name
    assert lacking.factor > 1
    assert "times as many samples" in lacking.change


@both
def test_one_dimension_needs_no_angle(theorem):
    """All boundaries are parallel: the guarantee is (1 + γ) e for the bias."""
    teacher = network(([[1.0]], [0.25]), ([[2.0]], [0.0]))
    found = theorem(teacher, near_copy(teacher, 1, 1e-12), gaussian(3, 5_000, 1))[0]
    assert found.applies
    assert found.eps < 0.05


def test_the_observers_gradient_is_backpropagated():
    student, points = random_network(5, 2, 4, 2), gaussian(9, 50, 2)
    pair = PairGeometry(TEACHER, student, points)
    (w, b), (v, c) = ((layer.weight[0], layer.bias[0]) for layer in student.layers)
    before = (points @ w.T + b).requires_grad_()
    loss = 0.5 * (TEACHER(points)[0] - (before.clamp_min(0) @ v.T + c)).square().sum()
    expected = -torch.autograd.grad(loss, before)[0]
    found = pair.gradient(points)
    assert torch.allclose(found.value, expected, atol=1e-13)
    assert ((found.value - expected).abs() <= found.rounding).all()


@pytest.mark.parametrize("slope", [0.0, 0.3])
@pytest.mark.parametrize("hidden", [(4,), (4, 3)])
def test_the_largest_gradient_beside_samples_is_that_at_all_points(hidden, slope):
    teacher, student = random_network(1, 3, *hidden, 2, slope=slope), random_network(5, 3, *hidden, 2, slope=slope)
    x, some, shift = gaussian(9, 50, 3), torch.tensor([3, 7, 8, 20]), torch.tensor([0.3, -0.2, 0.5]).double()
    pair = PairGeometry(teacher, student, x)
    for k in range(hidden[0]):
        found = pair.gradient(torch.cat((x[some], x[some] + shift, x[some] - shift)))
        bound = pair.largest_gradient_beside(k, some, shift)
        assert float(found.upper[:, k].max()) <= bound * (1 + 1e-13) + 1e-300
        assert bound == pytest.approx(float(found.upper[:, k].max()), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("hidden", [(4,), (4, 3)])
def test_alphas_are_those_of_each_student(hidden):
    pair = PairGeometry(random_network(1, 3, *hidden, 2), random_network(5, 3, *hidden, 2), gaussian(9, 20, 3))
    for j in range(len(pair.teacher_planes)):
        expected = torch.stack([pair.alpha(k, j, pair.x) for k in range(hidden[0])], 1)
        torch.testing.assert_close(pair.alphas(j, pair.x), expected, rtol=1e-13, atol=1e-15)


def test_the_narrowest_band_has_just_enough_samples():
    pair = PairGeometry(TEACHER, random_network(5, 2, 6, 2), gaussian(9, 2_000, 2))
    for j, aware in itertools.product(range(len(pair.teacher_planes)), (False, True)):
        found = sampled._narrowest(pair, j)[aware]
        gamma, _ = augmentation_reach(pair.teacher_plane(j), aware)
        least = samples_needed(gamma, len(pair.other_planes(j)) + 1, 2)
        assert set(found) == {k for k in pair.student_nodes.tolist() if pair.active[:, k].any()}
        for k, (enough, width) in found.items():
            near = pair.away(j)[pair.active[:, k]]
            assert enough == (len(near) >= least)
            assert width == float(near.kthvalue(least if enough else max(1, len(near) // 10)).values)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_alpha_is_the_kink_of_the_gradient(slope):
    """The second difference of g_k across a teacher node's boundary is α_kj (1 − slope) times the step."""
    teacher = network(([[1.2, 0.0], [0.6, 0.8]], [0.1, -0.2]), ([[1.0, -0.5], [0.3, 0.8]], [0.0, 0.1]), slope=slope)
    student = random_network(6, 2, 3, 2, slope=slope)
    pair = PairGeometry(teacher, student, gaussian(1, 400, 2))
    one, step = pair.teacher_plane(0), 1e-4
    feet = pair.x - one.distances(pair.x) * one.normal
    rest = pair.other_planes(0)
    for k in range(3):
        alone = (rest.distances(feet).abs() > 2 * step).all(1)
        active = PairGeometry(teacher, student, feet).active[:, k]
        p = feet[alone & active][:5]
        assert len(p)
        g = [pair.gradient(p + t * step * one.normal).value[:, k] for t in (1, -1, 0)]
        second = g[0] + g[1] - 2 * g[2]
        expected = pair.alpha(k, 0, p) * (1 - slope) * step
        assert torch.allclose(second, expected, atol=1e-11)


@both
def test_the_augmentation_moves_as_far_as_the_proof_needs(theorem):
    aware = theorem is theorem_4
    one = PairGeometry(TEACHER, TEACHER, gaussian(1, 9, 2)).teacher_plane(1)
    gamma, step = augmentation_reach(one, aware)
    x = gaussian(4, 7, 2)
    shift = augmentation_shift(one, 0.01, aware)
    points = torch.cat((x, x + shift, x - shift))
    along = one.distances(points)[:, 0].view(3, -1)
    assert torch.allclose(along[1] - along[0], torch.full((7,), step * 0.01, dtype=torch.float64))
    assert torch.allclose(along[0] - along[2], along[1] - along[0])
    assert step >= 2
    assert float((points[7:14] - x).norm(dim=1).max()) <= gamma * 0.01 * (1 + 1e-12)


@both
@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([0.0, 1e-12, 1e-7, 1e-4, 1e-2, 1.0]), st.booleans())
def test_no_certificate_is_contradicted(theorem, seed, nodes, delta, leaky):
    teacher = random_network(seed % 500, 2, nodes, 2, slope=0.2 if leaky else 0.0)
    student = near_copy(teacher, seed % 3, delta, seed)
    for found in theorem(teacher, student, gaussian(seed, 8_000, 2)):
        assert not found.contradicted


@both
def test_a_student_just_outside_the_guaranteed_ball_is_not_certified(theorem):
    x = gaussian(1, 50_000, 2)
    student = near_copy(TEACHER, 2, 1e-10)
    sure = theorem(TEACHER, student, x)[0]
    (w, b), (v, c) = ((layer.weight[0].clone(), layer.bias[0].clone()) for layer in student.layers)
    b[0] += 1.01 * sure.eps
    again = theorem(TEACHER, network((w, b), (v, c)), x)[0]
    assert not again.contradicted
    far = plane_distances(PairGeometry(TEACHER, TEACHER, x).teacher_plane(0), layer_planes(w, b)[0]).eps.min()
    assert not again.applies or float(far) <= again.eps


@both
def test_a_boundary_that_the_data_hides_is_not_certified(theorem):
    x = gaussian(1, 20_000, 2)
    x[:, 0] = x[:, 0].abs() + 0.5
    student = near_copy(TEACHER, 2, 1e-10)
    (w, b), (v, c) = ((layer.weight[0].clone(), layer.bias[0].clone()) for layer in student.layers)
    b[0] += 0.2
    c -= 0.2 * v[:, 0]
    hidden = network((w, b), (v, c))
    assert float((TEACHER(x) - hidden(x)).abs().max()) < 1e-6
    assert not theorem(TEACHER, hidden, x)[0].applies


@both
def test_two_teacher_nodes_on_one_boundary_certify_nothing(theorem):
    teacher = network(([[1.0, 0.0], [1.0, 0.0]], [0.1, 0.1]), ([[1.0, -0.5], [0.3, 0.8]], [0.0, 0.1]))
    for found in theorem(teacher, near_copy(teacher, 1, 1e-10), gaussian(1, 20_000, 2)):
        assert not found.applies
        assert UNRIVALLED in {h.name for h in found.failing}


@both
def test_an_opposite_student_counts_as_aligned(theorem):
    """σ(z) = σ(−z) + z: with −w and −b, and an always active node for the linear part, the function is the same."""
    teacher = network(([[1.0, 0.0]], [0.1]), ([[1.5]], [0.0]))
    far = 60.0
    student = network(([[-1.0, 0.0], [1.0, 0.0]], [-0.1, 0.1 + far]), ([[1.5, 1.5]], [-1.5 * far]))
    x = gaussian(1, 20_000, 2)
    assert float((teacher(x) - student(x)).abs().max()) < 1e-12
    found = theorem(teacher, student, x)[0]
    assert found.applies
    assert found.agrees


@both
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_the_scale_of_weights_changes_no_verdict(theorem, scale):
    """w̃ and b of the teacher multiplied by c, its fan-outs divided: the same function, the same regular weights."""
    (w, b), (v, c) = ((layer.weight[0], layer.bias[0]) for layer in TEACHER.layers)
    other = network((scale * w, scale * b), (v / scale, c))
    student, x = near_copy(TEACHER, 2, 1e-9), gaussian(1, 60_000, 2)
    for one, two in zip(theorem(TEACHER, student, x), theorem(other, student, x), strict=True):
        assert one.applies == two.applies
        assert two.eps == pytest.approx(one.eps, rel=1e-3)


@both
@pytest.mark.parametrize("scale", [1e160, 1e-170])
def test_a_student_of_enormous_or_tiny_weights_still_has_its_boundary(theorem, scale):
    """[w̃, b] times c and v over c: the same function; squares of such weights would overflow or vanish."""
    teacher = network(([[1.0, 0.0]], [0.1]), ([[1.0]], [0.0]))
    student = network(
        ([[scale, 0.0], [0.3, 1.0], [0.3, 1.0]], [0.1 * scale, 0.2, 0.2]), ([[1 / scale, 1.0, -1.0]], [0.0])
    )
    for found in (
        *theorem(teacher, student, gaussian(1, 40_000, 2)),
        *theorem_1(teacher, student, gaussian(1, 400, 2)),
    ):
        assert not found.contradicted
        assert "student node 0 is nearest: sin θ = 0" in found.measured


@both
@pytest.mark.parametrize("scale", [1e160, 1e-160])
def test_overflow_and_underflow_give_no_wrong_certificate(theorem, scale):
    (w, b), (v, c) = ((layer.weight[0], layer.bias[0]) for layer in TEACHER.layers)
    student = near_copy(network((w, b), (scale * v, scale * c)), 2, 1e-3)
    for found in theorem(network((w, b), (scale * v, scale * c)), student, gaussian(1, 5_000, 2)):
        assert not found.contradicted


def _leave_out(monkeypatch, name: str) -> None:
    """Leave one hypothesis of the theorems out."""
    real = sampled.BandTrial.hypotheses.func
    others = property(lambda band: tuple(h for h in real(band) if not h.name.startswith(name)))
    monkeypatch.setattr(sampled.BandTrial, "hypotheses", others)


def _contradicted(teacher, student, x) -> bool:
    return any(found.contradicted for found in theorem_4(teacher, student, x))


def test_without_the_hypothesis_on_other_boundaries_cancelling_nodes_would_be_certified(monkeypatch):
    """Two teacher nodes on one boundary cancel, and no student is there."""
    teacher = network(([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.1, 0.1, 0.0]), ([[1.0, -1.0, 1.0]], [0.0]))
    student = network(([[0.0, 1.0], [0.3, 1.0]], [0.0, 9.0]), ([[1.0, 1e-12]], [0.0]))
    x = gaussian(1, 60_000, 2)
    assert not _contradicted(teacher, student, x)
    _leave_out(monkeypatch, "no other boundary")
    assert _contradicted(teacher, student, x)


def test_without_augmented_points_data_on_one_side_would_give_a_certificate(monkeypatch):
    """The data touches the boundary from above, where the student is linear and correct."""
    teacher = network(([[1.0, 0.0], [0.0, 1.0]], [0.0, 9.0]), ([[1.0, 1.0]], [0.0]))
    student = network(([[1.0, 0.0], [0.0, 1.0]], [30.0, 9.0]), ([[1.0, 1.0]], [-30.0]))
    x = gaussian(1, 60_000, 2)
    x[:, 0] = x[:, 0].abs()
    assert not _contradicted(teacher, student, x)
    monkeypatch.setattr(sampled, "augmentation_shift", lambda one, e, aware: torch.zeros_like(one.normal[0]))
    assert _contradicted(teacher, student, x)


def test_without_the_bound_on_the_gradient_any_student_would_be_certified(monkeypatch):
    teacher, student = (
        network(([[1.0, 0.0]], [0.1]), ([[1.0]], [0.0])),
        network(([[0.0, 1.0]], [2.0]), ([[1.0]], [0.0])),
    )
    x = gaussian(1, 60_000, 2)
    assert not _contradicted(teacher, student, x)
    _leave_out(monkeypatch, "gradient")
    assert _contradicted(teacher, student, x)


def test_without_enough_samples_no_boundary_is_isolated(monkeypatch):
    """A few samples on a line: another boundary passes near all of them and is not aligned."""
    x = torch.stack((0.001 * gaussian(1, 6), 0.001 * gaussian(2, 6)), 1)
    x = torch.cat((x, torch.tensor([[5.0, 5.0], [-5.0, 5.0], [5.0, -5.0]], dtype=torch.float64)))
    teacher = network(([[1.0, 0.0], [0.0, 1.0]], [0.0, 50.0]), ([[1.0, 1.0]], [0.0]))
    for found in theorem_4(teacher, random_network(3, 2, 3, 1), x):
        assert not found.applies
    assert samples_needed(2.0, 5, 2) > len(x)


def test_a_student_with_orthogonal_fan_outs_observes_nothing():
    teacher = network(([[1.0, 0.0]], [0.1]), ([[1.0], [0.0]], [0.0, 0.0]))
    student = network(([[1.0, 0.0], [0.0, 1.0]], [0.1, 0.0]), ([[0.0, 0.0], [1.0, -1.0]], [0.0, 0.0]))
    found = theorem_4(teacher, student, gaussian(1, 5_000, 2))[0]
    assert not found.applies
    assert "α ≠ 0" in found.failing[0].name


def test_the_number_of_samples_needed_is_estimated_for_a_wide_network():
    teacher, student = random_network(1, 30, 5, 4), random_network(2, 30, 20, 4)
    found = theorem_3(teacher, student, gaussian(1, 2_000, 30))[0]
    assert "such samples" in found.conclusion
    assert math.isfinite(found.hypotheses[0].factor)


def test_both_are_registered_with_a_statement():
    names = {r.name: r for r in results()}
    for name in ("S0 theorem 3", "S0 theorem 4"):
        assert names[name].networks == "two layers"
        assert "augmentation" in names[name].statement
