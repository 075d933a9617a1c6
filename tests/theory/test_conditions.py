"""Conditions on the data: η, μ, τ, bands and augmentation; and noisy recovery."""

import math

import pytest
import torch

from support.pairs import gaussian, near_copy, network, random_network
from understudy.data.augmentation import agnostic, aware
from understudy.papers.specialization.theory.noisy import recovery, theorem_5
from understudy.theory.conditions import WIDTHS, conditions, has_mirrored_pair
from understudy.theory.pair_geometry import PairGeometry

TEACHER = network(([[1.0, 0.0], [0.6, 0.8]], [0.1, -0.2]), ([[1.0, -0.5], [0.3, 0.8]], [0.0, 0.1]))


def test_gaussian_data_has_the_constants_of_its_density():
    """η is at least the largest density of a projection times 2, and μ of each direction at most the variance."""
    found = conditions(PairGeometry(TEACHER, near_copy(TEACHER, 2, 0.0), gaussian(1, 50_000, 2)))
    assert 0.95 * 2 / math.sqrt(2 * math.pi) < found.eta_own.value < 1.5
    assert found.mu_own.value <= found.mu_bound
    assert found.mu_random.value <= found.mu_bound
    assert found.mu_bound == pytest.approx(1.0, rel=0.05)
    density = 2 / math.sqrt(2 * math.pi) * math.exp(-(0.1**2) / 2)
    assert float(found.tau[0]) == pytest.approx(min(density, 0.68), rel=0.1)


def test_bands_are_counted_and_boundaries_without_data_on_both_sides_reported():
    x = torch.tensor([[-0.1, 5.0], [-0.095, 0.0], [0.5, 0.0], [3.0, 3.0]], dtype=torch.float64)
    found = conditions(PairGeometry(TEACHER, TEACHER, x))
    assert found.bands[0].tolist() == [sum(abs(v + 0.1) <= w for v in x[:, 0].tolist()) for w in WIDTHS]
    assert bool(found.crossed[0]) is False
    assert bool(found.crossed[1]) is True


def test_the_direction_that_attains_a_constant_is_named():
    found = conditions(PairGeometry(TEACHER, near_copy(TEACHER, 2, 0.0), gaussian(1, 5_000, 2)))
    assert found.eta_own.where.split()[0] in {"teacher", "student"}
    assert found.eta_random.where.startswith("random direction")


def test_both_augmentations_are_detected_and_plain_data_has_none():
    x = gaussian(1, 300, 2)
    plain = conditions(PairGeometry(TEACHER, TEACHER, x))
    assert plain.agnostic == 0.0
    assert float(plain.aware.max()) == 0.0
    along_axes = conditions(PairGeometry(TEACHER, TEACHER, agnostic(x, 0.5, 4)))
    assert along_axes.agnostic == pytest.approx(300 / 1500)
    near = conditions(PairGeometry(TEACHER, TEACHER, aware(x, TEACHER, 1.0, 4)))
    assert float(near.aware.min()) > 0.2


def test_a_sample_needs_both_mirrored_points_at_one_distance():
    along = torch.tensor([0.6, 0.8], dtype=torch.float64)
    base = torch.tensor([1.0, -2.0], dtype=torch.float64)
    positions = torch.tensor([0.0, 0.5, -0.5, 2.0], dtype=torch.float64)
    x = torch.cat((base + positions.unsqueeze(1) * along, gaussian(1, 20, 2)))
    assert has_mirrored_pair(x, along).nonzero().flatten().tolist() == [0]


def test_on_a_long_line_every_augmented_sample_is_detected_and_hardly_any_other():
    x, along = gaussian(1, 3_000, 1), torch.ones(1, dtype=torch.float64)
    found = has_mirrored_pair(torch.cat((x, x + 0.01, x - 0.01)), along)
    assert bool(found[:3_000].all())
    assert float(found[3_000:].double().mean()) < 0.01
    assert float(has_mirrored_pair(x, along).double().mean()) < 0.01


def test_a_long_line_gives_the_same_as_all_pairs(monkeypatch):
    """Whole numbers with gaps and repeats, in pieces of any size."""
    values = torch.randint(0, 400, (90,), generator=torch.Generator().manual_seed(1)).double()
    there = set(values.tolist())
    expected = [any(v + s in there and v - s in there for s in range(1, 400)) for v in values.tolist()]
    assert 0 < sum(expected) < 90
    for at_once in (1, 100, 1 << 20):
        monkeypatch.setattr("understudy.theory.conditions._PAIRS_AT_ONCE", at_once)
        assert has_mirrored_pair(values.unsqueeze(1), torch.ones(1, dtype=torch.float64)).tolist() == expected


def test_in_one_dimension_every_teacher_node_has_the_same_direction():
    teacher = network(([[1.0], [-1.0]], [0.1, 0.2]), ([[1.0, -0.5]], [0.0]))
    x = gaussian(1, 1_000, 1)
    found = conditions(PairGeometry(teacher, teacher, torch.cat((x, x + 0.3, x - 0.3))))
    assert found.aware.shape == (2,)
    assert float(found.aware.min()) > 0.25
    assert found.agnostic == pytest.approx(1 / 3, abs=0.01)


def test_noisy_recovery_by_hand():
    """In the plane: V_0 = 1 and V_1(r) = 2r, so M = 5/(r − q)."""
    found = recovery(eps=0.001, alpha=0.5, radius=1.01, dim=2, count=4, largest=3.0)
    m = 10 / (2 * (1.01 - 0.01))
    assert found.sin == pytest.approx(4 * m * 0.002)
    assert found.gap == pytest.approx((2 * 3 * m * 4 + 5) * 0.002)


def test_noisy_recovery_in_its_limits():
    assert recovery(0.0, 1.0, 1.0, 3, 5, 1.0) == (0.0, 0.0)
    assert recovery(1.0, 1.0, 1.0, 3, 5, 1.0).sin == math.inf
    assert recovery(0.1, 0.0, 1.0, 3, 5, 1.0).sin == math.inf
    assert recovery(1e-3, 1.0, 1.0, 1, 5, 1.0).sin == math.inf
    double = [recovery(eps, 1.0, 1.0, 4, 5, 1.0).sin for eps in (1e-9, 2e-9)]
    assert double[1] / double[0] == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-8, 1e-4, 1e-2])
def test_noisy_recovery_reports_a_conclusion_and_certifies_nothing(delta):
    for found in theorem_5(TEACHER, near_copy(TEACHER, 2, delta), gaussian(1, 3_000, 2)):
        assert not found.applies
        assert found.agrees
    assert not theorem_5(TEACHER, random_network(3, 2, 4, 2), gaussian(1, 500, 2))[0].applies
