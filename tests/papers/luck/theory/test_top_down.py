"""Tian et al. 2019, theorem 5: printed and corrected constants, and bounds along the expected dynamics."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from understudy.nets import Layer, Population
from understudy.papers.luck.theory.overlap import Lipschitz, gaussian
from understudy.papers.luck.theory.simulation import as_trajectory, expected_dynamics, lucky_pair
from understudy.papers.luck.theory.top_down import (
    InitialConditions,
    certified_rate,
    distances,
    initial_conditions,
    printed_constants,
    references,
    theorem_5_bounds,
)
from understudy.theory import results

pytestmark = pytest.mark.usefixtures("one_thread")
F = torch.float64
theorem = next(r for r in results() if r.name == "S2 theorem 5")
# nodes, others, inputs, then threshold, cosine, angle, missed, fan_out
IN_FORCE = [
    (2, 1, 10, 3.0, 0.0, 0.002, 0.1, 0.1),
    (3, 2, 10, 3.5, 0.0, 0.001, 0.05, 0.05),
    (2, 1, 10, 1.5, -0.45, 0.002, 0.1, 0.1),
]
NAMES = ("threshold", "cosine", "angle", "missed", "fan_out")


def _pair(setting, seeds=range(1, 5)):
    return lucky_pair(*setting[:3], **dict(zip(NAMES, setting[3:], strict=True)), seeds=seeds)


def _path(setting, steps=60, seeds=range(1, 5)):
    pair = _pair(setting, seeds)
    lr = 0.5 / float(ndtr(-setting[3]))
    return pair, expected_dynamics(*pair, lr=lr, steps=steps, top_down=True), lr


def _kept(along):
    """Whether all bounds hold at each step, up to rounding."""
    return (along.measured <= along.bound * (1 + 1e-9) + 1e-12).all(2)


def _start(**given):
    plain = {
        "theta": 0.1,
        "delta_v": 0.2,
        "v_r": 0.5,
        "v_least": 1.0,
        "v_most": 1.0,
        "eps_d": 0.0,
        "eps_l": 0.0,
        "d_u": 0.5,
        "l_u": 0.3,
        "l_r": 0.4,
        "d_most": 0.5,
        "l_most": 0.4,
    }
    return InitialConditions(**{name: torch.tensor([value], dtype=F) for name, value in (plain | given).items()})


def _constants(k_d=0.5, k_l=0.5, kappa=0.1, c_0=0.2):
    return Lipschitz(*(torch.tensor([value], dtype=F) for value in (k_d, k_l, kappa, c_0)))


def test_the_initial_conditions_by_hand():
    teacher, students = _pair((2, 1, 3, 0.0, 0.0, 0.1, 0.25, 0.5), seeds=[1])
    start = initial_conditions(teacher, students, gaussian)
    assert start.theta.item() <= math.atan(0.1) * 1.01
    assert start.delta_v.item() == pytest.approx(0.25)
    assert start.v_r.item() == pytest.approx(0.5)
    assert (start.v_least.item(), start.v_most.item()) == pytest.approx((1.0, 1.0))
    assert (start.eps_d.item(), start.d_u.item(), start.l_r.item()) == pytest.approx((0.5, 0.5, 0.5))
    assert start.eps_l.item() == pytest.approx(1 / math.pi)
    assert torch.equal(
        references(teacher, students)[:, 2], torch.cat((students.layers[0].weight[:, 2], torch.zeros(1, 1)), 1)
    )


def test_the_printed_constants_without_overlap_by_hand():
    """With ε = 0 nothing drifts, γ = min((B_v − B_δv) cos θ_0, 1 − κ) and λ̄ = min(d̄, l̄)."""
    gamma, lambda_bar, found = printed_constants(_start(), _constants(), 0.1, 3, 6)
    reach = 2 * math.sin(0.05)
    assert found.solved.all()
    assert found.drift.item() == 0
    assert gamma.item() == pytest.approx(min(0.8 * math.cos(0.1), 1 - 0.2 * reach * 1.2))
    assert lambda_bar.item() == pytest.approx((1 - 0.5 * reach) * 0.3)


@given(st.floats(1e-5, 0.01), st.floats(1e-5, 0.01), st.floats(0.1, 3.0))
def test_the_printed_constants_solve_their_equations(eps_d, eps_l, k):
    start, constants, lr, m, n = _start(eps_d=eps_d, eps_l=eps_l), _constants(k, k), 0.1, 2, 4
    found_gamma, lambda_bar, found = printed_constants(start, constants, lr, m, n)
    if not found.solved.all():
        return
    c_u, c_r, cos = 2 * k * math.sin(0.05), found.drift.item(), math.cos(0.05)
    m_uu, m_ur = (1 + k) * (1 + c_u) ** 2 / cos, (1 + k) * (1 + c_u) * (1 + c_r)
    m_ru, m_rr = m_ur / cos, (1 + k) * (1 + c_r) ** 2
    b_u, b_r = (m - 1) * m_uu + (n - m) * m_ur, (m - 1) * m_ru + (n - m) * m_rr
    gamma = min(
        0.8 * math.cos(0.1) - eps_d * 1.2 * max(b_u, b_r),
        1 - eps_l * max(b_u, b_r) - min(0.4 * math.sin(0.05), 0.1) * 1.2,
    )
    low = (1 - max(c_u, c_r)) * 0.3
    assert found_gamma.item() == pytest.approx(gamma, rel=1e-6)
    assert lambda_bar.item() == pytest.approx(low, rel=1e-6)
    assert found.rate.item() == pytest.approx(low * gamma, rel=1e-6)
    assert c_r == pytest.approx(eps_d * k * b_r * 1.2 / (low * gamma * (2 - lr * low * gamma)), rel=1e-6)


def test_equations_without_a_solution_are_reported_as_unsolved():
    gamma, _, printed = printed_constants(_start(eps_d=0.5), _constants(), 0.1, 3, 6)
    assert not printed.solved.any()
    assert gamma.item() < 0
    found = certified_rate(_start(eps_d=0.5, eps_l=0.5), _constants(), 0.1, 3, 6)
    assert not found.solved.any()
    assert found.bounds(0.1, 2).isinf().all()


def test_the_certified_rate_without_overlap_by_hand():
    """With ε = 0 and κ = 0 the rates are d* v·v* cos θ, l* and l of [r], at the initial levels."""
    found = certified_rate(_start(), _constants(kappa=0.0), 0.1, 2, 3)
    reach = 2 * math.sin(0.05)
    parts = 0.5 / (1 + 0.5 * reach) * 0.8 * math.cos(0.1), 0.3 / (1 + 0.5 * reach), 0.4
    assert found.solved.all()
    assert found.rate.item() == pytest.approx(min(parts))
    assert (found.s.item(), found.d.item(), found.b.item(), found.drift.item()) == pytest.approx(
        (math.sin(0.1), 0.2, 0.5, 0)
    )


def test_steps_that_overshoot_are_not_certified():
    assert certified_rate(_start(), _constants(), 1.6, 2, 3).solved.all()
    assert not certified_rate(_start(), _constants(), 1.7, 2, 3).solved.any()


@given(st.floats(0, 0.003), st.floats(1.0, 1.5))
def test_more_overlap_never_increases_the_rate(eps, more):
    rates = [certified_rate(_start(eps_d=e, eps_l=e), _constants(), 0.1, 2, 3).rate.item() for e in (eps, more * eps)]
    assert rates[1] <= rates[0] * (1 + 1e-9)


@pytest.mark.parametrize("setting", IN_FORCE)
def test_the_bounds_hold_at_every_step_where_they_are_in_force(setting):
    pair, path, lr = _path(setting)
    along = theorem_5_bounds(pair[0], path, lr)
    assert along.in_force.all()
    assert _kept(along).all()
    assert (along.measured[:, -1] < along.measured[:, 0]).all()
    assert not (along.measured <= 0.2 * along.bound).all()


def test_theorem_5_is_not_in_force_for_networks_like_fig_7():
    pair, path, lr = _path((5, 5, 10, 0.0, 0.0, 0.1, 0.1, 0.5), steps=3)
    assert not theorem_5_bounds(pair[0], path, lr).in_force.any()
    assert not theorem_5_bounds(pair[0], path, lr, as_printed=True).in_force.any()


def test_the_printed_constants_give_bounds_that_are_violated():
    """Fan-outs that start at their teachers' have B_δv = 0 and would have to stay there, but they move."""
    pair, path, lr = _path((1, 1, 10, 0.3, -0.99, 0.001, 0.0, 0.5), seeds=range(1, 9))
    along = theorem_5_bounds(pair[0], path, lr, as_printed=True)
    broken = along.in_force & ~_kept(along).all(1)
    assert broken.any()
    assert (along.measured[broken][:, :, 1].amax(1) > 1e-6).all()
    corrected = theorem_5_bounds(pair[0], path, lr)
    assert corrected.in_force[broken].all()
    assert _kept(corrected).all()


def test_distances_by_hand():
    teacher, students = _pair((1, 1, 2, 0.0, 0.0, 0.0, 0.25, 0.5), seeds=[1])
    assert distances(teacher, as_trajectory(students))[0, 0].tolist() == pytest.approx([0.0, 0.25, 0.5])


def _whitened(seed, samples, dim):
    x = torch.randn(samples, dim, generator=torch.Generator().manual_seed(seed), dtype=F)
    x = x - x.mean(0)
    return torch.linalg.solve_triangular(torch.linalg.cholesky(x.T @ x / samples), x.T, upper=False).T


def test_the_result_applies_to_rarely_coactive_nodes():
    teacher, students = _pair((1, 1, 2, 1.0, -0.5, 0.005, 0.1, 0.2), seeds=[2])
    (found,) = theorem(teacher, students, _whitened(1, 400_000, 2))
    assert found.applies, [str(h) for h in found.failing]
    assert found.agrees
    assert "stay below" in found.conclusion


def test_the_result_names_the_failing_hypotheses():
    teacher, students = _pair((2, 2, 4, 0.0, 0.0, 0.1, 0.1, 0.5), seeds=[1])
    (found,) = theorem(teacher, students, _whitened(1, 1000, 4))
    (failing,) = found.failing
    assert "none exists" in failing.value
    assert failing.change
    few = Population(
        (Layer(*(part[:, :2] for part in students.layers[0])), Layer(students.layers[1].weight[:, :, :2], None)),
        students.seeds,
    )
    (found,) = theorem(teacher, few, _whitened(1, 1000, 4))
    assert "students" in {h.name for h in found.failing}
