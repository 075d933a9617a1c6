"""Max-margin vectors (Phuong 2021, eqs. 3.6, 3.7): by hand, against all subsets and against other solvers."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.data.separable import orthogonally_separable
from understudy.papers.distillation.theory.soft_labels import hard_target
from understudy.papers.separable.theory.max_margin import margins, max_margin, max_margins

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


def _positive(seed, count, dim):
    return normal(seed, Stream.TRAIN, 0, count * dim).view(count, dim).abs()


def _by_subsets(x):
    """The shortest feasible w among those with w·x = 1 on some subset: the max-margin vector is one of them."""
    best = None
    for size in range(1, x.shape[1] + 1):
        for some in itertools.combinations(range(len(x)), size):
            w = np.linalg.lstsq(x[list(some)], np.ones(size), rcond=None)[0]
            if (x @ w >= 1 - 1e-9).all() and (best is None or w @ w < best @ best):
                best = w
    return best


def test_by_hand_in_the_plane():
    # (1, 0) and (0, 1) give w = (1, 1), with both as support examples; (2, 2) has a larger margin.
    found = max_margin(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], dtype=F))
    assert found.vector.tolist() == pytest.approx([1, 1], abs=1e-14)
    assert found.multipliers.tolist() == pytest.approx([1, 1, 0], abs=1e-14)
    assert found.supports.tolist() == [True, True, False] and found.spans
    # A single support example gives w = x/‖x‖², and does not span the plane.
    found = max_margin(torch.tensor([[3.0, 4.0], [6.0, 9.0]], dtype=F))
    assert found.vector.tolist() == pytest.approx([3 / 25, 4 / 25], abs=1e-15)
    assert found.multipliers.tolist() == pytest.approx([1 / 25, 0])
    assert not found.spans
    # An example that attains the margin is a support example, even if its multiplier is 0: w = (1, 0).
    found = max_margin(torch.tensor([[1.0, 0.0], [1.0, 5.0]], dtype=F))
    assert found.supports.tolist() == [True, True] and found.spans
    assert found.multipliers.tolist() == pytest.approx([1, 0], abs=1e-14)
    # The same example twice.
    assert max_margin(torch.tensor([[2.0, 0.0], [2.0, 0.0]], dtype=F)).vector.tolist() == pytest.approx([0.5, 0])


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 4))
def test_max_margin_is_the_best_of_all_subsets(seed, count, dim):
    x = _positive(seed, count, dim)
    found = max_margin(x)
    np.testing.assert_allclose(found.vector, _by_subsets(x.numpy()), rtol=1e-8, atol=1e-9)
    assert found.residual < 1e-8


@pytest.mark.parametrize(("count", "dim"), [(30, 5), (60, 20), (10, 40)])
def test_slsqp_finds_the_same_vector(count, dim):
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
def test_kkt_conditions_hold_at_any_scale(seed, dim, count, power):
    x = _positive(seed, count, dim) * 10**power
    found = max_margin(x)
    assert found.residual < 1e-8
    np.testing.assert_allclose((x @ found.vector).min(), 1, rtol=1e-8)
    # Strong duality: ‖w‖² = Σ α. The point of the convex hull nearest to 0 is w/‖w‖².
    square = float(found.vector @ found.vector)
    assert float(found.multipliers.sum()) == pytest.approx(square, rel=1e-8)
    hull = (found.multipliers / found.multipliers.sum()) @ x
    torch.testing.assert_close(hull, found.vector / square, rtol=1e-6, atol=1e-8 * float(x.abs().max()))
    once = max_margin(_positive(seed, count, dim))
    torch.testing.assert_close(found.vector * 10**power, once.vector, rtol=1e-6, atol=1e-8)
    assert torch.equal(found.supports, once.supports)


@given(st.integers(0, 10**6))
def test_rotated_examples_have_rotated_vectors(seed):
    x, y = orthogonally_separable(4, 40, [seed])
    turn, _ = torch.linalg.qr(normal(seed, Stream.TRAIN, 9, 16).view(4, 4))
    torch.testing.assert_close(max_margins(x @ turn, y), max_margins(x, y) @ turn)


def test_logistic_regression_grows_along_the_max_margin_vector():
    # Soudry et al. 2018: gradient descent on one class is w log t plus a bounded term.
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
        assert (products[y[net] > 0, 0] > 1 - 1e-9).all() and (products[y[net] < 0, 1] > 1 - 1e-9).all()
        # By orthogonal separability neither vector is active for the other class (Phuong 2021, eq. B.49).
        assert (products[y[net] > 0, 1] <= 0).all() and (products[y[net] < 0, 0] <= 0).all()


@pytest.mark.parametrize(
    "x", [[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0], [2.0, 1.0]], [[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0]]]
)
def test_examples_that_no_margin_separates_are_refused(x):
    with pytest.raises(UserError, match="their convex hull contains 0"):
        max_margin(torch.tensor(x, dtype=F))


def test_invalid_examples_are_refused():
    with pytest.raises(UserError, match="got 0 examples"):
        max_margin(torch.zeros(0, 2, dtype=F))
    with pytest.raises(UserError, match="of finite numbers"):
        max_margin(torch.tensor([[math.nan, 1.0]], dtype=F))
    with pytest.raises(UserError, match="half of the examples or more are zero"):
        max_margin(torch.zeros(3, 2, dtype=F))
    with pytest.raises(UserError, match=r"labels must have two classes, got 1 \(1\)"):
        margins(torch.ones(3, 2, dtype=F), torch.ones(3, dtype=F))


def test_an_example_just_beyond_the_margin_is_not_a_support_example():
    found = max_margin(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5 + 1e-6], [0.5, 0.5]], dtype=F))
    assert found.supports.tolist() == [True, True, False, True]


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 9))
def test_max_margin_equals_the_batched_solver_of_distillation(seed, count, dim):
    x = _positive(seed, count, dim)
    separator = hard_target(x[None], torch.ones(dim, dtype=F))[0]
    torch.testing.assert_close(max_margin(x).vector, separator, rtol=1e-7, atol=1e-9)
