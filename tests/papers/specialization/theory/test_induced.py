"""Theorem 5 of Tian 2020: boundaries of higher layers in the input space, and certificates for deep networks."""

import pytest
import torch

from support.pairs import gaussian, network, random_network
from understudy.nets import activate
from understudy.papers.specialization.theory.exact import theorem_4_deep
from understudy.papers.specialization.theory.induced import MOST, induced_planes, theorem_5
from understudy.theory.boundaries import layer_planes, plane_distances
from understudy.theory.pair_geometry import PairGeometry

# One node above two others: its boundary bends where it meets theirs.
FIRST = ([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
ABOVE = ([[1.0, 1.0]], [-1.0])
TOP = ([[1.0]], [0.0])


def test_a_bent_boundary_by_hand():
    """σ(x) + σ(y) = 1 has three pieces: x + y = 1 where both are positive, x = 1 and y = 1 where one is."""
    teacher = network(FIRST, ABOVE, TOP)
    student = network(([[1.0, 0.0]], [5.0]), ([[1.0]], [9.0]), TOP)
    corners = torch.tensor([[0.5, 0.5], [0.5, -0.5], [-0.5, 0.5], [-0.5, -0.5]], dtype=torch.float64)
    pair = PairGeometry(teacher, student, corners)
    found = induced_planes(pair, 0, corners)
    expected, _ = layer_planes(
        torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64),
        torch.tensor([-1.0, -1.0, -1.0, 14.0], dtype=torch.float64),
    )
    for i in range(len(found)):
        assert float(plane_distances(found.select(torch.tensor([i])), expected).eps.min()) < 1e-12
    for i in range(len(expected)):
        assert float(plane_distances(expected.select(torch.tensor([i])), found).eps.min()) < 1e-12


@pytest.mark.parametrize("slope", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_no_gate_changes_on_a_segment_away_from_every_plane(seed, slope):
    """The proof needs this: across the boundary of node j, no other gate of either network changes."""
    teacher, student = random_network(seed, 2, 3, 3, 2, slope=slope), random_network(seed + 9, 2, 4, 3, 2, slope=slope)
    pair = PairGeometry(teacher, student, gaussian(seed, 3_000, 2))
    one, reach = pair.teacher_plane(0), 0.02
    inside = pair.x[one.distances(pair.x)[:, 0].abs() <= reach]
    every = torch.cat((pair.other_planes(0).distances(inside), induced_planes(pair, 0, inside).distances(inside)), 1)
    alone = inside[(every.abs() > 2 * reach).all(1)]
    assert len(alone)
    for t in torch.linspace(-2, 2, 41):
        points = alone + t * reach * one.normal
        for net in (teacher, student):
            kept = [0] if net is teacher else []
            assert _gates(net, points, kept) == _gates(net, alone, kept)


def _gates(net, points, left_out):
    h, signs = points, []
    for i, (weight, bias) in enumerate(net.layers[:-1]):
        z = h @ weight[0].T + bias[0]
        sign = z >= 0
        signs.append(sign[:, [k for k in range(sign.shape[1]) if i or k not in left_out]])
        h = activate(z, net.slope)
    return torch.cat(signs, 1).tolist()


def test_a_deep_student_equal_to_its_teacher_is_certified():
    teacher = network(([[1.0, 0.0], [0.6, 0.8]], [0.1, -0.2]), ([[1.0, 0.7]], [1.5]), ([[1.0], [0.5]], [0.0, 0.0]))
    (w, b), *above = ((layer.weight[0], layer.bias[0]) for layer in teacher.layers)
    student = network((w + 1e-10 * gaussian(1, 2, 2), b), *above)
    findings = theorem_5(teacher, student, gaussian(2, 200_000, 2))
    assert [found.applies for found in findings] == [True, True]
    assert all(found.agrees for found in findings)


@pytest.mark.parametrize("seed", [0, 5, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 5))])
def test_no_deep_certificate_is_contradicted(seed):
    teacher = random_network(seed, 2, 2, 2, 2)
    (w, b), *above = ((layer.weight[0], layer.bias[0]) for layer in teacher.layers)
    for delta in (1e-10, 1e-3, 1.0):
        student = network((w + delta * gaussian(seed + 3, 2, 2), b), *above)
        for theorem in (theorem_5, theorem_4_deep):
            assert not any(found.contradicted for found in theorem(teacher, student, gaussian(seed, 20_000, 2)))


def test_a_boundary_of_a_higher_layer_is_not_mistaken_for_a_students():
    """The teacher's own upper node has its boundary on node 0's: the kinks cancel without any student there."""
    teacher = network(([[1.0, 0.0]], [0.0]), ([[1.0]], [0.0]), ([[1.0]], [0.0]))
    findings = theorem_5(teacher, teacher, gaussian(1, 30_000, 2))
    assert not any(found.contradicted for found in findings)


def test_more_boundaries_than_can_be_counted_fail_a_hypothesis(monkeypatch):
    monkeypatch.setattr("understudy.papers.specialization.theory.induced.MOST", 3)
    teacher, student = random_network(1, 2, 3, 3, 2), random_network(2, 2, 4, 4, 2)
    found = theorem_5(teacher, student, gaussian(1, 5_000, 2))[0]
    assert not found.applies
    assert found.failing[0].name == "boundaries that can be counted"
    assert MOST == 20_000
