"""Lemmas 6 and 7 of Tian 2020: samples in bands, the constants, and the kink at a sample."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.pairs import gaussian
from understudy.theory.boundaries import Planes, layer_planes, plane_distances
from understudy.theory.isolation import isolation, kink_bound, largest_moment_across, samples_needed, smallest_eta


def plane(normal: list[float], offset: float) -> Planes:
    direction = torch.tensor([normal], dtype=torch.float64)
    return Planes(direction / direction.norm(), torch.tensor([offset], dtype=torch.float64))


def several(seed: int, count: int, dim: int) -> Planes:
    normal = gaussian(seed, count, dim)
    return Planes(normal / normal.norm(dim=1, keepdim=True), 0.5 * gaussian(seed + 1, count))


def test_a_node_without_a_direction_has_no_boundary():
    made, which = layer_planes(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([10.0, 1.0]))
    assert which.tolist() == [0]
    assert made.normal.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    assert made.offset.tolist() == [2.0]


def test_opposite_weights_and_biases_give_one_boundary_and_an_opposite_weight_alone_does_not():
    one = plane([1, 0], 0.5)
    both = plane_distances(one, Planes(-one.normal, -one.offset))
    alone = plane_distances(one, Planes(-one.normal, one.offset))
    assert float(both.eps[0]) == 0.0
    assert float(alone.gap[0]) == 1.0


def test_plane_distances_by_hand():
    found = plane_distances(plane([1, 0], 0.25), plane([1, 1], 0.0))
    assert float(found.sin[0]) == pytest.approx(math.sqrt(0.5))
    assert float(found.gap[0]) == pytest.approx(0.25)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(3, 60))
def test_eta_is_the_smallest_that_holds_for_every_width(seed, dim, samples):
    distances = gaussian(seed, samples, 1).round(decimals=1)
    eta = float(smallest_eta(distances, dim)[0])
    widths = distances.abs().flatten().unique().tolist()
    excess = [(float((distances.abs() <= t).sum()) - (dim + 1), t) for t in widths]
    assert all(over <= eta * t * samples * (1 + 1e-12) for over, t in excess if over > 0) or math.isinf(eta)
    tight = max((over / (t * samples) if t else math.inf for over, t in excess if over > 0), default=0.0)
    assert eta == pytest.approx(tight)


def test_mu_is_the_second_moment_without_the_normal_direction():
    x = torch.tensor([[100.0, 3.0], [-100.0, -1.0]], dtype=torch.float64)
    assert largest_moment_across(plane([1, 0], 0.0), x) == pytest.approx(5.0)
    assert largest_moment_across(plane([1], 0.0), x[:, :1]) == 0.0


def test_constants_by_hand():
    """One orthogonal boundary: η is that of the samples' second coordinate."""
    one, other = plane([1, 0], 0.5), plane([0, 1], 0.0)
    inside = torch.tensor([[-0.5, v] for v in (0.1, 0.2, 0.3, 0.4, 0.5)], dtype=torch.float64)
    found = isolation(one, other, inside, 0.1, 2.0)
    eta = max((i - 3) / (v * 5) for i, v in ((4, 0.4), (5, 0.5)))
    mu = (0.01 + 0.04 + 0.09 + 0.16 + 0.25) / 5
    assert found.eta == pytest.approx(eta, rel=1e-9)
    assert found.mu == pytest.approx(mu)
    assert found.m1 == pytest.approx(5 * eta * 2)
    assert found.m2 == pytest.approx(3 + found.m1 * (0.5 + math.sqrt(5 * mu * 2 / 3)))
    assert found.needed == samples_needed(2.0, 2, 2) == 30


@pytest.mark.parametrize("seed", range(12))
def test_lemma_6_some_sample_is_isolated_unless_a_boundary_is_aligned(seed):
    """The conclusion is verified on the samples wherever the conditions hold."""
    dim, count = 2 + seed % 2, 2 + seed % 4
    one, others = several(seed, 1, dim), several(1000 + seed, count - 1, dim)
    x, e, gamma = gaussian(2000 + seed, 200_000, dim), 0.002 * (1 + seed % 3), 2.0
    inside = x[one.distances(x)[:, 0].abs() <= e]
    found = isolation(one, others, inside, e, gamma)
    far = plane_distances(one, others)
    assert len(inside) >= found.needed
    aligned = bool(((far.sin <= found.m1 * e) & (far.gap <= found.m2 * e)).any())
    isolated = bool((others.distances(inside).abs() > gamma * e).all(1).any())
    assert aligned or isolated
    if far.eps.min() > 0.3 and found.m1 * e < 0.3:
        assert isolated


def test_constants_are_finite_for_nearly_parallel_boundaries():
    one = plane([1, 0], 0.0)
    inside = torch.stack((0.01 * gaussian(1, 500), gaussian(2, 500)), 1)
    for angle in (0.0, 1e-16, 1e-12, 1e-9, 1e-6):
        found = isolation(one, plane([math.cos(angle), math.sin(angle)], 1e-9), inside, 0.01, 2.0)
        assert math.isfinite(found.m1)
        assert math.isfinite(found.m2)


def test_samples_on_one_plane_make_eta_infinite():
    one, other = plane([1, 0], 0.0), plane([0, 1], 0.0)
    inside = torch.zeros(50, 2, dtype=torch.float64)
    assert isolation(one, other, inside, 0.1, 2.0).m1 == math.inf


@given(st.floats(-0.5, 0.5), st.floats(0.51, 2.0), st.floats(-3, 3), st.floats(0, 0.9))
def test_lemma_7_the_gradient_is_large_at_one_of_three_points(at, step, linear, slope):
    """h(x) = c σ(x) + a x + b at x and x ± step, for the line that minimises the largest of the three."""
    c, e = 1.7, 0.5
    h = [c * (z if z >= 0 else slope * z) + linear * z for z in (at, at + step, at - step)]
    best = min(
        max(abs(v - shift - tilt * d) for v, d in zip(h, (0.0, step, -step), strict=True))
        for tilt in [(h[1] - h[2]) / (2 * step)]
        for shift in [(h[0] + (h[1] + h[2]) / 2) / 2]
    )
    assert best >= kink_bound(c * (1 - slope), step, e) * (1 - 1e-9)
