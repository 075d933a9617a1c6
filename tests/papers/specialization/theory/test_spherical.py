"""The pull of a teacher node on a student node (Tian 2019, theorem 6): by hand, by identities, by simulation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

import understudy as us
from understudy._errors import UserError
from understudy.papers.specialization.theory.spherical import (
    CHANCE,
    COMPONENTS,
    angle,
    compare_pull,
    draw_inputs,
    largest_by_chance,
    pull,
    pull_square,
    sample_pulls,
)
from understudy.theory import find_result

theorem = find_result("S1 theorem 6")
slopes = st.sampled_from([0.0, 0.1, 0.5])
F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _tensor(*rows):
    return torch.tensor(rows, dtype=F)


def _random(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def _networks(teacher, student, slope=0.0, bias=None):
    """Two-layer networks with these first weights and one output."""

    def network(weight):
        nodes = len(weight)
        offset = None if bias is None else torch.full((1, nodes), bias, dtype=F)
        top = us.nets.Layer(torch.ones(1, 1, nodes, dtype=F), None if bias is None else torch.zeros(1, 1, dtype=F))
        return us.Population((us.nets.Layer(weight[None], offset), top), torch.ones(1, dtype=torch.int64), slope)

    return network(teacher), network(student)


def test_the_angle_by_hand_and_at_its_ends():
    a = _tensor([1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 3.0])
    b = _tensor([5.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [1.0, 1e-9], [1e-12, -1.0])
    expected = _tensor(0.0, math.pi / 2, math.pi, 1e-9, math.pi - 1e-12)
    torch.testing.assert_close(angle(a, b), expected, rtol=1e-12, atol=1e-24)
    assert angle(a[0], torch.zeros(2, dtype=F)).isnan()


def test_the_pull_by_hand():
    """Parallel nodes give half of E[x xᵀ] w*, opposite ones nothing, orthogonal ones a quarter plus a part across."""
    w = _tensor([2.0, 0.0])
    torch.testing.assert_close(pull(w, _tensor([3.0, 0.0]))[0, 0], _tensor(1.0, 0.0))
    torch.testing.assert_close(pull(w, _tensor([-1.0, 0.0]))[0, 0], torch.zeros(2, dtype=F))
    torch.testing.assert_close(pull(w, _tensor([0.0, 7.0]))[0, 0], _tensor(0.5, 1 / math.pi))


@given(st.floats(0.01, 3.13), slopes)
def test_the_pull_is_the_integral_over_the_circle(theta, slope):
    """x = (cos φ, sin φ)·√2, which has variance 1 in each of two inputs."""
    turned = np.array([math.cos(theta), math.sin(theta)])

    def integrand(phi, component):
        x = math.sqrt(2) * np.array([math.cos(phi), math.sin(phi)])
        gate = 1.0 if x @ turned >= 0 else slope
        return x[component] * gate * (x[0] if x[0] >= 0 else slope * x[0]) / (2 * math.pi)

    kinks = sorted(
        {(k + math.pi) % (2 * math.pi) - math.pi for k in (math.pi / 2, -math.pi / 2)}
        | {(theta + s * math.pi / 2 + math.pi) % (2 * math.pi) - math.pi for s in (1, -1)}
    )
    expected = [quad(integrand, -math.pi, math.pi, args=(c,), points=kinks, epsabs=1e-11)[0] for c in (0, 1)]
    found = pull(_tensor([1.0, 0.0]), torch.from_numpy(turned)[None], 1.0, slope)[0, 0]
    assert found.numpy() == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 8), st.floats(0.1, 10), slopes)
def test_scaling_the_student_changes_nothing_and_scaling_the_teacher_scales(seed, dim, by, slope):
    teacher, student = _random(seed, 3, dim), _random(seed + 1, 4, dim)
    plain = pull(teacher, student, 1.0, slope)
    torch.testing.assert_close(pull(teacher, by * student, 1.0, slope), plain)
    torch.testing.assert_close(pull(by * teacher, student, 1.0, slope), by * plain)
    torch.testing.assert_close(pull(teacher, student, by, slope), by * plain)


@given(st.integers(0, 10**6), st.integers(2, 8))
def test_the_pull_rotates_with_the_inputs_and_lies_between_the_two(seed, dim):
    teacher, student = _random(seed, 1, dim), _random(seed + 1, 1, dim)
    rotation = torch.linalg.qr(_random(seed + 2, dim, dim))[0]
    found = pull(teacher, student)[0, 0]
    torch.testing.assert_close(pull(teacher @ rotation.T, student @ rotation.T)[0, 0], found @ rotation.T)
    parts = torch.linalg.lstsq(torch.stack([teacher[0], student[0]], 1), found[:, None])
    assert (parts.solution >= -1e-12).all()
    whole = angle(teacher[0], student[0])
    assert angle(teacher[0], found) + angle(found, student[0]) == pytest.approx(float(whole), abs=1e-7)


def test_populations_agree_with_single_pairs():
    teacher, student = _random(1, 5, 3, 4), _random(2, 5, 6, 4)
    found = pull(teacher, student, 2.0, 0.2)
    assert found.shape == (5, 6, 3, 4)
    for net, k, j in ((0, 0, 0), (4, 5, 2), (2, 1, 1)):
        one = pull(teacher[net, [j]], student[net, [k]], 2.0, 0.2)[0, 0]
        torch.testing.assert_close(found[net, k, j], one)


def test_a_slope_of_one_is_linear():
    teacher, student = _random(3, 2, 5), _random(4, 3, 5)
    torch.testing.assert_close(pull(teacher, student, 1.5, 1.0), 1.5 * teacher.expand(3, 2, 5))


@pytest.mark.parametrize("inputs", ["normal", "sphere"])
@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_the_pull_is_the_mean_over_many_inputs(inputs, slope):
    teacher, student = _random(5, 3, 6), _random(6, 4, 6)
    x = draw_inputs(3, 0, 100_000, 6, inputs, 1.7)
    found = compare_pull(teacher, student, x, slope)
    assert float(found.off.max()) < largest_by_chance(found.off.numel())
    torch.testing.assert_close(found.closed, pull(teacher, student, 1.7**2, slope), rtol=0.02, atol=0)
    assert float((found.error / found.closed.norm(dim=-1, keepdim=True)).max()) < 0.02


def test_means_by_a_loop():
    teacher, student, x = _random(7, 2, 3), _random(8, 2, 3), _random(9, 50, 3)
    found = compare_pull(teacher, student, x, 0.2)
    for k in range(2):
        for j in range(2):
            rows = []
            for sample in x:
                ours, theirs = float(sample @ student[k]), float(sample @ teacher[j])
                rows.append(sample * (1 if ours >= 0 else 0.2) * (theirs if theirs >= 0 else 0.2 * theirs))
            torch.testing.assert_close(found.mean[k, j], torch.stack(rows).mean(0))
    torch.testing.assert_close(found.closed, pull(teacher, student, float(x.square().mean()), 0.2))


def test_second_moments_by_hand():
    """Parallel nodes: E[x⁴]/2 along and E[x²y²]/2 across; opposite nodes: zero."""
    w = _tensor([2.0, 0.0, 0.0])
    torch.testing.assert_close(pull_square(w, w)[0, 0], 4 * _tensor(1.5, 0.5, 0.5))
    torch.testing.assert_close(pull_square(w, -w)[0, 0], torch.zeros(3, dtype=F), rtol=0, atol=1e-15)
    torch.testing.assert_close(pull_square(w, -w, 1.0)[0, 0], 4 * _tensor(3.0, 1.0, 1.0))


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_second_moments_are_means_over_many_inputs(slope):
    teacher, student, x = _random(15, 2, 4), _random(16, 3, 4), _random(17, 400_000, 4)
    gates, f = (torch.where(x @ w.T >= 0, 1.0, slope) for w in (student, teacher))
    f = f * (x @ teacher.T)
    for k in range(3):
        for j in range(2):
            values = (x * (gates[:, k] * f[:, j]).unsqueeze(1)).square()
            error = values.std(0) / math.sqrt(len(x))
            assert ((values.mean(0) - pull_square(teacher, student, slope)[k, j]).abs() < 4.5 * error).all()


@pytest.mark.parametrize("inputs", ["normal", "sphere"])
def test_standard_errors_are_the_spread_of_means(inputs):
    """Over 200 sets of 200 inputs, including nearly opposite nodes, which few samples pass."""
    teacher = _tensor([1.0, 0.0, 0.0])
    student = _tensor([1.0, 1.0, 0.0], [-1.0, 0.3, 0.1])
    found = [compare_pull(teacher, student, draw_inputs(seed, 0, 200, 3, inputs, 1.5), 0.1) for seed in range(200)]
    off = torch.stack([(each.mean - each.closed) / each.error for each in found])
    torch.testing.assert_close(off.std(0), torch.ones_like(off[0]), rtol=0, atol=0.3)
    assert float(off.mean(0).abs().max()) < 4 / math.sqrt(200)


@pytest.mark.parametrize("inputs", ["normal", "sphere"])
def test_inputs_have_the_requested_variance(inputs):
    x = draw_inputs(1, 0, 40_000, 5, inputs, 2.0)
    torch.testing.assert_close(x.T @ x / len(x), 4.0 * torch.eye(5, dtype=F), rtol=0, atol=0.15)
    assert (float(x.norm(dim=1).std()) < 1e-12) is (inputs == "sphere")


def test_sampled_pairs_have_independent_planes_angles_and_inputs():
    found = sample_pulls(4, [1, 2, 3], 2_000)
    assert found.mean.shape == (3, len(COMPONENTS))
    assert len(set(found.theta.tolist())) == 3
    assert len(set(found.mean[:, 0].tolist())) == 3
    alone = sample_pulls(4, [2], 2_000)
    for one, every in zip(alone, found, strict=True):
        torch.testing.assert_close(one[0], every[1], rtol=0, atol=0)
    t = found.theta
    torch.testing.assert_close(found.closed[:, 0], (math.pi - t + t.sin() * t.cos()) / (2 * math.pi))
    torch.testing.assert_close(found.closed[:, 1], t.sin().square() / (2 * math.pi))
    torch.testing.assert_close(found.closed[:, 2], torch.zeros(3, dtype=F), rtol=0, atol=1e-15)
    assert sample_pulls(2, [1], 500).mean[0, 2].isnan()


def test_errors_of_sampled_pairs_are_those_of_chance():
    found = sample_pulls(5, range(1, 61), 4_000, "normal", 1.5)
    off = ((found.mean - found.closed) / found.error).flatten()
    assert 0.8 < float(off.square().mean()) < 1.25
    assert float(off.abs().max()) < largest_by_chance(off.numel())
    wrong = (found.mean - 1.1 * found.closed) / found.error
    assert float(wrong[:, 0].square().mean()) > 3


def test_the_bound_grows_with_the_number_of_comparisons():
    assert largest_by_chance(1) == pytest.approx(4.0)
    assert 1_000 * math.erfc(largest_by_chance(1_000) / math.sqrt(2)) == pytest.approx(CHANCE)
    assert pytest.approx(6.33e-5, rel=1e-3) == CHANCE


def test_normal_inputs_meet_every_hypothesis_and_the_conclusion():
    for seed, slope in ((1, 0.0), (2, 0.2)):
        teacher, student = _networks(_random(seed, 5, 10), 0.01 * _random(seed + 50, 8, 10), slope)
        (finding,) = theorem(teacher, student, 1.5 * _random(seed + 100, 5_000, 10))
        assert finding.applies, finding.failing
        assert finding.agrees
        assert not finding.contradicted
        assert "5 teacher nodes" in finding.about


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (lambda x: x + 0.2, "inputs are centred"),
        (lambda x: x * torch.linspace(0.9, 1.1, x.shape[1], dtype=F), "inputs vary alike in all directions"),
        (lambda x: torch.erf(x / math.sqrt(2)), "moments along inputs and nodes"),
    ],
)
def test_inputs_that_are_not_spherical_fail_a_hypothesis(change, fails):
    teacher, student = _networks(_random(1, 3, 3), _random(2, 4, 3))
    (finding,) = theorem(teacher, student, change(_random(3, 50_000, 3)))
    assert fails in {hypothesis.name for hypothesis in finding.failing}
    assert all(hypothesis.change for hypothesis in finding.failing)
    assert not finding.contradicted


def test_biases_and_nodes_without_weights_are_named():
    x = _random(4, 500, 3)
    (finding,) = theorem(*_networks(_random(1, 2, 3), _random(2, 2, 3), bias=-0.1), x)
    assert [h.name for h in finding.failing] == ["largest bias over the length of its weights"]
    (finding,) = theorem(*_networks(_random(1, 2, 3), _random(2, 2, 3), bias=0.0), x)
    assert finding.applies, finding.failing
    (finding,) = theorem(*_networks(_random(1, 2, 3), _random(2, 2, 3) * _tensor([0.0], [1.0])), x)
    assert [h.name for h in finding.failing] == ["shortest weights"]


def test_a_single_input_satisfies_the_theorem():
    x = _random(5, 4_000, 1)
    (finding,) = theorem(*_networks(_tensor([1.0], [-2.0]), _tensor([3.0], [-1.0])), x)
    assert finding.applies, finding.failing
    assert finding.agrees


def test_too_few_samples_give_no_comparison_and_no_contradiction():
    for seed in range(20):
        (finding,) = theorem(*_networks(_random(seed, 3, 2), _random(seed + 50, 4, 2)), _random(seed + 99, 100, 2))
        assert finding.agrees is None
        assert "too few" in finding.measured


def test_pairs_that_few_samples_pass_are_not_compared():
    teacher, student = _networks(_tensor([1.0, 0.0]), _tensor([1.0, 0.1], [-1.0, 0.01]))
    (finding,) = theorem(teacher, student, _random(3, 4_000, 2))
    assert finding.agrees
    assert "1 of 2 pairs are compared" in finding.measured


def test_one_sample_is_refused():
    with pytest.raises(UserError, match="needs 2 samples or more, got 1"):
        theorem(*_networks(_random(1, 2, 3), _random(2, 2, 3)), _random(3, 1, 3))
