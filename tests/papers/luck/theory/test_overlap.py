"""Overlap of nodes and its Lipschitz constants (Tian et al. 2019, sec. 3): by hand, in limits and by simulation."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import ndtr

from understudy.papers.luck.theory.overlap import angles, empirical, gaussian, lipschitz, small_overlap

pytestmark = pytest.mark.usefixtures("one_thread")
F = torch.float64


def _nodes(seed, *shape, bias=True):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F)
    if not bias:
        drawn[..., -1] = 0
    return drawn


def _at(*degrees, bias=0.0):
    """Unit weights in the plane, with a bias."""
    turn = torch.tensor(degrees, dtype=F).deg2rad()
    return torch.stack((turn.cos(), turn.sin(), torch.full_like(turn, bias)), dim=-1)


def test_overlaps_without_biases_by_hand():
    found = gaussian(_at(0.0), _at(0.0, 90.0, 180.0))
    assert found.d[0].tolist() == pytest.approx([0.5, 0.25, 0.0], abs=1e-15)
    assert found.l[0].tolist() == pytest.approx([0.5, 1 / (2 * math.pi), 0.0], abs=1e-15)


@given(st.integers(0, 100))
def test_overlaps_without_biases_are_the_arc_cosine_kernels(seed):
    a, b = _nodes(seed, 3, 6, bias=False), _nodes(seed + 1000, 4, 6, bias=False)
    theta = angles(a.unsqueeze(1), b.unsqueeze(0))
    lengths = a.norm(dim=1).unsqueeze(1) * b.norm(dim=1)
    found = gaussian(a, b)
    assert torch.allclose(found.d, (math.pi - theta) / (2 * math.pi), atol=1e-14)
    assert torch.allclose(
        found.l, lengths * (theta.sin() + (math.pi - theta) * theta.cos()) / (2 * math.pi), atol=1e-13
    )


@pytest.mark.parametrize("bias", [-2.0, -0.5, 1e-30, -1e-30, 1.5])
def test_a_node_with_itself_is_a_truncated_normal(bias):
    found = gaussian(_at(10.0, bias=bias), _at(10.0, bias=bias))
    density = math.exp(-(bias**2) / 2) / math.sqrt(2 * math.pi)
    assert found.d.item() == pytest.approx(ndtr(bias), abs=1e-15)
    assert found.l.item() == pytest.approx((1 + bias**2) * ndtr(bias) + bias * density, abs=1e-15)


def test_tiny_thresholds_of_opposite_sign_are_handled():
    tiny = torch.cat((_at(0.0, bias=1e-200), _at(60.0, bias=-1e-200)))
    assert torch.allclose(gaussian(tiny, tiny).d, gaussian(_at(0.0, 60.0), _at(0.0, 60.0)).d, atol=1e-15)


def test_orthogonal_nodes_are_active_independently():
    a, b = _at(0.0, bias=-1.0), _at(90.0, bias=-2.0)
    found = gaussian(a, b)
    alone = [math.exp(-(h**2) / 2) / math.sqrt(2 * math.pi) - h * ndtr(-h) for h in (1.0, 2.0)]
    assert found.d.item() == pytest.approx(ndtr(-1.0) * ndtr(-2.0), rel=1e-12)
    assert found.l.item() == pytest.approx(alone[0] * alone[1], rel=1e-11)


@given(st.integers(0, 20))
def test_overlaps_with_biases_equal_those_of_many_samples(seed):
    a, b = _nodes(seed, 2, 4), _nodes(seed + 100, 3, 4)
    x = torch.cat((_nodes(seed + 200, 40_000, 3), torch.ones(40_000, 1, dtype=F)), dim=1)
    closed, found = gaussian(a, b), empirical(x)(a, b)
    gates = ((x @ a.T > 0).to(F).unsqueeze(2) * (x @ b.T > 0).unsqueeze(1)).std(0) / 200
    products = ((x @ a.T).clamp_min(0).unsqueeze(2) * (x @ b.T).clamp_min(0).unsqueeze(1)).std(0) / 200
    assert ((closed.d - found.d).abs() <= 5 * gates + 1e-4).all()
    assert ((closed.l - found.l).abs() <= 5 * products + 1e-4).all()


def test_empirical_overlaps_by_hand():
    x = torch.tensor([[1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [0.0, 1.0]], dtype=F)
    found = empirical(x)(torch.tensor([[1.0, 0.0]], dtype=F), torch.tensor([[1.0, -1.0], [-1.0, 0.0]], dtype=F))
    assert found.d.tolist() == [[0.25, 0.0]]
    assert found.l.tolist() == [[0.5, 0.0]]


def test_the_lipschitz_constant_near_angle_zero_is_one_over_pi():
    near = lipschitz(_at(0.0), _at(0.05), gaussian)
    assert near.k_d.item() == pytest.approx(1 / math.pi, rel=1e-3)
    assert near.c_0.item() == pytest.approx(0.5, rel=1e-2)  # l* = ½ − θ²/4 + …
    assert near.kappa.item() < 1e-3
    biased = _at(0.0, bias=-1.0), _at(0.0, bias=-0.9999)
    assert lipschitz(*biased, gaussian).kappa > 0.5  # a first-order change: lemma 4 is false with biases


@given(st.integers(0, 50), st.floats(0.001, 0.3))
def test_the_lipschitz_constants_are_the_smallest_for_lemmas_2_to_4(seed, far):
    refs = _nodes(seed, 3, 5)
    refs = refs / refs.norm(dim=1, keepdim=True)
    now = refs + far * _nodes(seed + 100, 3, 5)
    now = now / now.norm(dim=1, keepdim=True)
    k = lipschitz(refs, now, gaussian)
    eps_d, eps_l = small_overlap(refs, gaussian)
    cross, own = gaussian(now, refs), gaussian(now, now)
    moved = (now - refs).norm(dim=1)
    # The overlap of opposite nodes is dominated by rounding, and so are the ratios to it.
    assume(min(float(cross.d.min()), float(own.d.min()), float(cross.l.min())) > 1e-9)
    for j in range(3):
        assert abs(cross.l[j, j] - own.l[j, j]) <= k.c_0 * cross.l[j, j] * moved[j] ** 2 * (1 + 1e-9) + 1e-14
        for i in range(3):
            if i == j:
                continue
            push = (refs[i] * cross.d[j, i] - now[i] * own.d[j, i]).norm()
            assert push <= (1 + k.k_d) * cross.d[j, i] * moved[i] * (1 + 1e-9)
            grown = (1 + k.k_d * moved[j]) ** 2  # eq. 20 has ‖δw_i‖ in one factor, which does not follow from eq. 26
            assert cross.d[j, i] <= eps_d * grown * cross.d[j, j] * (1 + 1e-9)
            assert cross.l[j, i] <= eps_l * (1 + k.k_l * moved[j]) ** 2 * cross.l[j, j] * (1 + 1e-9)
    ratios = [abs(cross.d - own.d) / (cross.d * moved), abs(gaussian(refs, refs).d - cross.d) / cross.d]
    assert k.k_d >= max(float(ratios[0].max()), float((ratios[1].diagonal() / moved).max())) * (1 - 1e-9)


def test_small_overlap_by_hand():
    eps_d, eps_l = small_overlap(_at(0.0, 120.0), gaussian)
    assert eps_d.item() == pytest.approx(1 / 3)
    assert eps_l.item() == pytest.approx((math.sin(2 * math.pi / 3) - math.pi / 6) / math.pi)
    assert [float(e) for e in small_overlap(_at(0.0), gaussian)] == [0.0, 0.0]
