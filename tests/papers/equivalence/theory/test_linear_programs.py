"""The compiled dual simplex against HiGHS, on polytopes with many rows, degenerate ones, and empty ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.papers.equivalence.theory import linear_programs as programs
from understudy.papers.equivalence.theory.linear_programs import (
    FEASIBLE,
    Maximum,
    box_rows,
    by_highs,
    chebyshev_centre,
    crossing,
)


def maximise(rows, bounds, objective):
    """Maximise objective·u over a polytope by the compiled simplex, or HiGHS where it is unresolved; None if empty."""
    point = np.empty(rows.shape[1])
    status = programs._maximum(rows, bounds, objective, -np.inf, point)
    if status == programs._UNRESOLVED:
        return by_highs(rows, bounds, objective)
    return None if status == programs._EMPTY else Maximum(float(objective @ point), point)


def polytope(seed: int, inputs: int, cuts: int, nearest: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """The box with random cuts; with `nearest` < 0 the centre is cut off, and the polytope is often empty."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(cuts, inputs))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    box, bounds = box_rows(inputs)
    return np.vstack([box, rows]), np.append(bounds, random.uniform(nearest, 1, cuts))


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 30), st.sampled_from([0.1, -0.4]))
def test_maximum_and_centre_are_those_of_highs(seed, inputs, cuts, nearest):
    rows, bounds = polytope(seed, inputs, cuts, nearest)
    objective = np.random.default_rng(seed + 1).normal(size=inputs)
    ours, theirs = maximise(rows, bounds, objective), by_highs(rows, bounds, objective)
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        assert ours.value == pytest.approx(theirs.value, abs=1e-7)
        assert (rows @ ours.point <= bounds + 10 * FEASIBLE).all()
    ball = chebyshev_centre(rows, bounds)
    wide = by_highs(np.hstack([rows, np.ones((len(rows), 1))]), bounds, np.eye(inputs + 1)[-1])
    assert wide is not None
    if wide.value > 1e-6:
        assert ball is not None
        assert ball.value == pytest.approx(wide.value, abs=1e-7)
        assert (rows @ ball.point + ball.value <= bounds + 10 * FEASIBLE).all()
    elif wide.value < -1e-6:
        assert ball is None


def test_the_box_itself():
    rows, bounds = box_rows(3)
    found = maximise(rows, bounds, np.array([1.0, -2.0, 0.0]))
    assert found.value == 3
    assert found.point[:2].tolist() == [1, -1]
    assert chebyshev_centre(rows, bounds).value == 1


def test_many_rows_through_one_corner_do_not_cycle():
    box, bounds = box_rows(3)
    corner = np.array([0.25, 0.25, 0.25])
    rows = np.random.default_rng(0).uniform(0.1, 1, (40, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows, bounds = np.vstack([box, rows, rows]), np.concatenate([bounds, rows @ corner, rows @ corner])
    objective = np.ones(3)
    assert maximise(rows, bounds, objective).value == pytest.approx(by_highs(rows, bounds, objective).value, abs=1e-9)


def test_what_the_simplex_leaves_unresolved_is_given_to_highs(monkeypatch):
    rows, bounds = polytope(3, 4, 9)
    objective, inside = np.arange(4.0), np.zeros(4)
    weights, biases = np.eye(4), np.array([0.0, -0.05, 5.0, -5.0])
    expected = maximise(rows, bounds, objective).value, chebyshev_centre(rows, bounds).value
    crossed = crossing(rows, bounds, inside, weights, biases, 1e-9)
    unresolved = 3
    monkeypatch.setattr(programs, "_maximum", lambda *_: unresolved)
    monkeypatch.setattr(programs, "_centre", lambda *_: unresolved)
    monkeypatch.setattr(programs, "_crossing", lambda *_: np.full(4, unresolved))
    assert (maximise(rows, bounds, objective).value, chebyshev_centre(rows, bounds).value) == pytest.approx(expected)
    assert crossing(rows, bounds, inside, weights, biases, 1e-9).tolist() == crossed.tolist()
    assert crossed.tolist() == [True, True, False, False]
