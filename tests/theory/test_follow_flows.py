"""Gradient flows of many networks: a flow solved by hand, a solver that gives up, and invalid times."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from understudy._errors import UserError
from understudy.theory.follow_flows import follow_flows


def _decay(i, start, times):
    """ẏ = −(i + 1) y."""
    return solve_ivp(lambda _, y: -(i + 1) * y, (0, times[-1]), start, "RK45", times, rtol=1e-10, atol=1e-12).y.T


def test_exponential_decay_by_hand():
    starts, times = np.array([[1.0, -2.0], [3.0, 0.5]]), [0.0, 0.0, 0.5, 2.0]
    found = follow_flows(starts, times, _decay)
    for i, start in enumerate(starts):
        wanted = [start * math.exp(-(i + 1) * t) for t in times]
        np.testing.assert_allclose(found[:, i], wanted, rtol=1e-8)
    np.testing.assert_array_equal(found[:2], [starts, starts])
    np.testing.assert_array_equal(found[:, 1:], follow_flows(starts, times, lambda i, *rest: _decay(1, *rest))[:, 1:])


def test_positions_after_a_solver_gave_up_are_nan():
    found = follow_flows(np.ones((2, 3)), [0.0, 1.0, 2.0], lambda i, start, times: np.array([start, start])[: i + 1])
    assert np.isfinite(found[:, 1]).all()
    assert np.isfinite(found[:2, 0]).all() and np.isnan(found[2, 0]).all()


def test_at_time_0_no_solver_is_called():
    np.testing.assert_array_equal(follow_flows(np.eye(2), [0.0], lambda *_: pytest.fail("called")), [np.eye(2)])


@pytest.mark.parametrize("times", [[1.0, 0.5], [-1.0], [math.inf], [math.nan]])
def test_invalid_times_are_refused(times):
    with pytest.raises(UserError, match="times must be finite, at least 0 and in ascending order"):
        follow_flows(np.ones((1, 1)), times, _decay)
