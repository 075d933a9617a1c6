"""Max-margin vectors (S3 eqs. 3.6 and 3.7): by hand, against every subset, against another solver."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy._random import Stream, normal
from understudy.data.separable import orthogonally_separable
from understudy.errors import UserError
from understudy.papers.distillation.theory.soft_labels import hard_target
from understudy.papers.separable.theory.max_margin import margins, max_margin, max_margins

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _positive(seed, count, dim):
    return normal(seed, Stream.TRAIN, 0, count * dim).view(count, dim).abs()


def _by_subsets(x):
    """The shortest feasible w of all that some examples carry: the answer is among them."""
    best = None
    for size in range(1, x.shape[1] + 1):
        for some in itertools.combinations(range(len(x)), size):
            w = np.linalg.lstsq(x[list(some)], np.ones(size), rcond=None)[0]
            if (x @ w >= 1 - 1e-9).all() and (best is None or w @ w < best @ best):
                best = w
    return best


def test_by_hand_in_the_plane():
    # (1, 0) and (0, 1): w = (1, 1), both carry it. (2, 2) is beyond.
    found = max_margin(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], dtype=F))
    assert found.vector.tolist() == pytest.approx([1, 1], abs=1e-14)
    assert found.multipliers.tolist() == pytest.approx([1, 1, 0], abs=1e-14)
    assert found.supports.tolist() == [True, True, False] and found.spans
    # One example alone: w = x/‖x‖²; it does not span the plane.
    found = max_margin(torch.tensor([[3.0, 4.0], [6.0, 9.0]], dtype=F))
    assert found.vector.tolist() == pytest.approx([3 / 25, 4 / 25], abs=1e-15)
    assert found.multipliers.tolist() == pytest.approx([1 / 25, 0])
    assert not found.spans
    # Who attains the margin is a support example, also one that carries nothing: w = (1, 0).
    found = max_margin(torch.tensor([[1.0, 0.0], [1.0, 5.0]], dtype=F))
    assert found.supports.tolist() == [True, True] and found.spans
    assert found.multipliers.tolist() == pytest.approx([1, 0], abs=1e-14)
    # Twice the same example.
    assert max_margin(torch.tensor([[2.0, 0.0], [2.0, 0.0]], dtype=F)).vector.tolist() == pytest.approx([0.5, 0])


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 4))
def test_it_is_the_best_of_all_subsets(seed, count, dim):
    x = _positive(seed, count, dim)
    found = max_margin(x)
    np.testing.assert_allclose(found.vector, _by_subsets(x.numpy()), rtol=1e-8, atol=1e-9)
    assert found.residual < 1e-8


@pytest.mark.parametrize(("count", "dim"), [(30, 5), (60, 20), (10, 40)])
def test_another_solver_finds_the_same(count, dim):
    from scipy.optimize import minimize

    x = _positive(4, count, dim).numpy()
    other = minimize(
        lambda w: w @ w / 2,
        np.ones(dim) * 2 / x.sum(1).min(),
        jac=lambda w: w,
        constraints={"type": "ineq", "fun": lambda w: x @ w - 1, "jac": lambda w: x},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1_000},
    )
    found = max_margin(torch.from_numpy(x))
    np.testing.assert_allclose(found.vector, other.x, atol=1e-6 * np.abs(other.x).max())
    assert found.residual < 1e-10
    assert float(found.vector @ found.vector) <= other.x @ other.x * (1 + 1e-9)


@given(st.integers(0, 10**6), st.integers(2, 25), st.integers(2, 60), st.floats(-6, 6))
def test_its_conditions_hold_at_any_scale(seed, dim, count, power):
    x = _positive(seed, count, dim) * 10**power
    found = max_margin(x)
    assert found.residual < 1e-8
    np.testing.assert_allclose((x @ found.vector).min(), 1, rtol=1e-8)
    # Strong duality: ‖w‖² = Σ α; and the nearest point of the hull is w/‖w‖².
    square = float(found.vector @ found.vector)
    assert float(found.multipliers.sum()) == pytest.approx(square, rel=1e-8)
    hull = (found.multipliers / found.multipliers.sum()) @ x
    torch.testing.assert_close(hull, found.vector / square, rtol=1e-6, atol=1e-8 * float(x.abs().max()))
    once = max_margin(_positive(seed, count, dim))
    torch.testing.assert_close(found.vector * 10**power, once.vector, rtol=1e-6, atol=1e-8)
    assert torch.equal(found.supports, once.supports)


@given(st.integers(0, 10**6))
def test_a_turned_set_has_turned_vectors(seed):
    x, y = orthogonally_separable(4, 40, [seed])
    turn, _ = torch.linalg.qr(normal(seed, Stream.TRAIN, 9, 16).view(4, 4))
    torch.testing.assert_close(max_margins(x @ turn, y), max_margins(x, y) @ turn)


def test_logistic_regression_grows_along_it():
    # Soudry and others 2018: descent on one class alone is w log t and what stays bounded.
    x = torch.tensor([[1.0, 0.2], [0.3, 1.0], [2.0, 1.0]], dtype=F)
    wanted, w, kept = max_margin(x).vector, torch.zeros(2, dtype=F), []
    for step in range(1, 20_001):
        w = w + 0.1 * torch.sigmoid(-(x @ w)) @ x
        if step in (20, 200, 2_000, 20_000):
            kept.append(w)
    growth = torch.stack(kept).diff(dim=0) / math.log(10)
    gaps = ((growth - wanted).norm(dim=1) / wanted.norm()).tolist()
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.02


def test_both_classes_of_many_sets():
    x, y = orthogonally_separable(3, 30, [1, 2])
    found = max_margins(x, y)
    for net in range(2):
        one = margins(x[net], y[net])
        assert torch.equal(found[net], one.vectors)
        torch.testing.assert_close(one.positive.vector, max_margin(x[net][y[net] > 0]).vector)
        products = x[net] @ one.vectors.T
        assert torch.equal(one.supports[y[net] > 0], one.positive.supports)
        assert (products[y[net] > 0, 0] > 1 - 1e-9).all() and (products[y[net] < 0, 1] > 1 - 1e-9).all()
        # Orthogonal separability: neither is active for the other class (eq. B.49).
        assert (products[y[net] > 0, 1] <= 0).all() and (products[y[net] < 0, 0] <= 0).all()


@pytest.mark.parametrize(
    "x", [[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0], [2.0, 1.0]], [[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0]]]
)
def test_examples_that_no_margin_separates_are_refused(x):
    with pytest.raises(UserError, match="0 is within their convex hull"):
        max_margin(torch.tensor(x, dtype=F))


def test_what_has_no_margin_is_said():
    with pytest.raises(UserError, match="0 examples were given"):
        max_margin(torch.zeros(0, 2, dtype=F))
    with pytest.raises(UserError, match="of finite numbers"):
        max_margin(torch.tensor([[math.nan, 1.0]], dtype=F))
    with pytest.raises(UserError, match="half the examples are zero"):
        max_margin(torch.zeros(3, 2, dtype=F))
    with pytest.raises(UserError, match="allowed are those of two"):
        margins(torch.ones(3, 2, dtype=F), torch.ones(3, dtype=F))


def test_an_example_just_beyond_the_margin_is_no_support():
    found = max_margin(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5 + 1e-6], [0.5, 0.5]], dtype=F))
    assert found.supports.tolist() == [True, True, False, True]


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 9))
def test_it_is_the_separator_that_hard_targets_of_the_same_side_end_in(seed, count, dim):
    x = _positive(seed, count, dim)
    separator = hard_target(x[None], torch.ones(dim, dtype=F))[0]
    torch.testing.assert_close(max_margin(x).vector, separator, rtol=1e-7, atol=1e-9)
