"""Students near their teachers (Tian et al. 2019, theorem 4): constants by hand, bounds along trajectories."""

import math

import pytest
import torch
from scipy.special import ndtr

from understudy.nets import Layer, Population
from understudy.papers.luck.theory.near_students import (
    order_by_teacher,
    projected_velocity,
    theorem_4_bounds,
    theorem_4_rate,
)
from understudy.papers.luck.theory.overlap import angles, extended_weights, gaussian, lipschitz
from understudy.papers.luck.theory.simulation import expected_dynamics, lucky_pair
from understudy.theory import results

pytestmark = pytest.mark.usefixtures("one_thread")
F = torch.float64
theorem = next(r for r in results() if r.name == "S2 theorem 4")


def _samples(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def _at(*degrees):
    """Unit weights in the plane, with a bias of 0."""
    turn = torch.tensor(degrees, dtype=F).deg2rad()
    return torch.stack((turn.cos(), turn.sin(), torch.zeros_like(turn)), dim=-1)


def _whitened(seed, samples, dim):
    x = _samples(seed, samples, dim)
    x = x - x.mean(0)
    return torch.linalg.solve_triangular(torch.linalg.cholesky(x.T @ x / samples), x.T, upper=False).T


def test_theorem_4_by_hand():
    theta, k, eps, least = (torch.tensor(v, dtype=F) for v in (math.pi / 3, 0.5, 0.1, 0.4))
    found = theorem_4_rate(theta, k, eps, least, 3)
    m_d = 1.5 * 1.5**2 / math.cos(math.pi / 6)
    assert found.m_d.item() == pytest.approx(m_d)
    assert found.gamma.item() == pytest.approx(0.5 - 2 * 0.1 * m_d)
    assert found.d_bar.item() == pytest.approx(0.5 * 0.4)
    assert found.rate.item() == pytest.approx(found.gamma.item() * 0.2)


def test_the_printed_lower_bound_of_d_is_an_upper_bound():
    """d̄ with a plus sign exceeds d*_jj already at the start; with a minus sign it is a lower bound at every step."""
    teacher, students = lucky_pair(3, 0, 10, threshold=1.0, cosine=-0.45, angle=0.02, missed=0, fan_out=0, seeds=[1, 2])
    refs = extended_weights(teacher.layers[0])
    path = expected_dynamics(teacher, students, lr=3.0, steps=40, top_down=False).w
    own = gaussian(path, refs.unsqueeze(1)).d.diagonal(dim1=2, dim2=3)
    k = lipschitz(refs.unsqueeze(1), path, gaussian).k_d.amax(1)
    theta = angles(refs.unsqueeze(1), path).amax(2)[:, 0]
    found = theorem_4_rate(theta, k, k, own[:, 0].amin(1), 3)
    printed = (1 + 2 * k * (theta / 2).sin()) * own[:, 0].amin(1)
    assert (own.amin((1, 2)) >= found.d_bar).all()
    assert (own[:, 0].amin(1) < printed).all()


def test_the_projected_dynamics_by_hand():
    refs, now = _at(90.0), _at(0.0)
    moved = projected_velocity(refs, now, gaussian(now, refs), gaussian(now, now))
    assert torch.allclose(moved, 0.25 * _at(90.0), atol=1e-15)
    signal = torch.tensor([[2.0]], dtype=F)
    assert torch.allclose(
        projected_velocity(refs, now, gaussian(now, refs), gaussian(now, now), signal, 7.0), 2 * moved
    )


@pytest.mark.parametrize(
    ("nodes", "threshold", "cosine", "angle", "in_force"),
    [(2, 0.0, -0.9, 0.02, True), (3, 1.0, -0.45, 0.02, True), (5, 2.5, 0.0, 0.005, True), (5, 0.0, 0.0, 0.1, False)],
)
def test_theorem_4_holds_at_every_step_where_it_is_in_force(nodes, threshold, cosine, angle, in_force):
    at = {"threshold": threshold, "cosine": cosine, "angle": angle}
    teacher, students = lucky_pair(nodes, 0, 10, **at, missed=0, fan_out=0, seeds=range(1, 5))
    lr = 0.5 / float(ndtr(-threshold))
    path = expected_dynamics(teacher, students, lr=lr, steps=30, top_down=False)
    along = theorem_4_bounds(extended_weights(teacher.layers[0]), path.w, lr)
    assert along.in_force.tolist() == [in_force] * 4
    assert (along.measured <= along.bound * (1 + 1e-9) + 1e-12).all()
    assert along.bound.isfinite().all() == in_force
    assert not in_force or not (along.measured <= 0.2 * along.bound).all()  # the bound is not vacuous


def test_theorem_4_is_not_in_force_for_steps_that_overshoot():
    teacher, students = lucky_pair(3, 0, 10, threshold=1.0, cosine=-0.45, angle=0.02, missed=0, fan_out=0, seeds=[1])
    path = expected_dynamics(teacher, students, lr=0.1, steps=3, top_down=False)
    refs = extended_weights(teacher.layers[0])
    assert theorem_4_bounds(refs, path.w, 0.1).in_force.all()
    assert not theorem_4_bounds(refs, path.w, 1.01 / float(ndtr(-1.0))).in_force.any()


def _uniform(networks):
    """Give all nodes the same fan-out of length 1, for a uniform top-down signal."""
    hidden, top = networks.layers
    return Population((hidden, Layer(torch.ones_like(top.weight[:, :1]), None)), networks.seeds)


def test_the_result_applies_to_rarely_coactive_nodes():
    teacher, students = lucky_pair(2, 0, 3, threshold=1.0, cosine=-0.9, angle=0.01, missed=0, fan_out=0, seeds=[1])
    x = _whitened(3, 200_000, 3)
    (found,) = theorem(_uniform(teacher), _uniform(students), x)
    assert found.applies, [str(h) for h in found.failing]
    assert found.agrees
    assert "1 − " in found.conclusion


def test_the_result_names_the_failing_hypotheses():
    teacher, students = lucky_pair(2, 1, 3, threshold=1.0, cosine=-0.4, angle=0.01, missed=0.1, fan_out=0.2, seeds=[1])
    (found,) = theorem(teacher, students, _samples(1, 1000, 3))
    failing = {h.name.split(" =")[0] for h in found.failing}
    assert {"whitened inputs", "students", "top-down signal"} <= failing
    assert all(h.change for h in found.failing)
    longer = Population((Layer(2 * teacher.layers[0].weight, teacher.layers[0].bias), teacher.layers[1]), teacher.seeds)
    (found,) = theorem(longer, students, _samples(1, 1000, 3))
    assert "lengths of [w, b]" in {h.name for h in found.failing}
    assert not found.contradicted


def test_students_are_reordered_by_their_teachers():
    teacher, students = lucky_pair(3, 2, 5, threshold=0.5, cosine=0.0, angle=0.01, missed=0.1, fan_out=0.2, seeds=[4])
    order = [4, 2, 0, 3, 1]
    (w, b), (v, _) = students.layers
    mixed = Population((Layer(w[:, order], b[:, order]), Layer(v[:, :, order], None)), students.seeds)
    again = order_by_teacher(teacher, mixed)
    assert torch.equal(again.layers[0].weight[:, :3], w[:, :3])
    assert torch.equal(again.layers[1].weight[:, :, :3], v[:, :, :3])
    x = _samples(7, 20, 5)
    assert torch.allclose(again(x), students(x))
