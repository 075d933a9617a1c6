"""Radii of balls on a boundary, which noisy recovery (Tian 2019, theorem 5) estimates from the samples."""

import pytest
import torch

from support.pairs import gaussian, random_network
from understudy.papers.specialization.theory import noisy
from understudy.theory.boundaries import plane_distances
from understudy.theory.pair_geometry import PairGeometry


@pytest.mark.parametrize("rows", [7, 2_048])
def test_radii_are_those_of_balls_around_projected_samples(rows, monkeypatch):
    monkeypatch.setattr(noisy, "_ROWS", rows)
    pair = PairGeometry(random_network(1, 4, 3, 2), random_network(2, 4, 5, 2), gaussian(3, 100, 4))
    radii = noisy._radii(pair)
    for j in range(3):
        one = pair.teacher_plane(j)
        feet = pair.x - one.distances(pair.x) * one.normal
        inside = pair.largest_norm - torch.linalg.vector_norm(feet, dim=1, keepdim=True)
        room = pair.student_planes.distances(feet) / plane_distances(one, pair.student_planes).sin
        expected = torch.minimum(inside, room).amax(0).clamp_min(0.0)
        assert (expected > 0).any()
        torch.testing.assert_close(radii[j], expected, rtol=1e-12, atol=1e-12)
