"""The study warm-up: losses and gradients of one and two students compared with formulas derived by hand."""

import math

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from support.commands import Said
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.papers.local.theory.gaussian import loss_and_gradient
from understudy.papers.local.warm_up.claims import approach, power, slope
from understudy.papers.local.warm_up.study import WarmUp, place_students

TEACHER = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(WarmUp(), tmp_path_factory.mktemp("runs"), Said())


def one(delta):
    """L = 1 − E|ux||vx|, and the norm of the gradient from its components across and along w."""
    loss = 1 - (2 / math.pi) * (math.sin(delta) + (math.pi / 2 - delta) * math.cos(delta))
    across = (1 - 2 * delta / math.pi) * math.sin(delta)
    along = 1 - 2 / math.pi * math.sin(delta) - (1 - 2 * delta / math.pi) * math.cos(delta)
    return loss, math.hypot(across, 2 * along)


def two(delta):
    """R is r sin(δ − |φ|)/cos δ where the students' signs differ, |φ| < δ from the teacher's boundary, else 0."""
    loss = (2 * delta - math.sin(2 * delta)) / (2 * math.pi * math.cos(delta) ** 2)
    pull = 2 * delta * math.tan(delta) / math.pi
    return loss, pull * math.sqrt((1 + 3 * math.sin(delta) ** 2) / math.cos(delta))


def exact(count, delta):
    loss, gradient = loss_and_gradient(torch.from_numpy(place_students(count, np.array([delta]))), TEACHER)
    return float(loss), float(gradient.norm())


@given(delta=st.floats(0.01, 1.2))
def test_losses_and_gradients_agree_with_formulas_derived_by_hand(delta):
    assert exact(1, delta) == pytest.approx(one(delta), rel=1e-8)
    assert exact(2, delta) == pytest.approx(two(delta), rel=1e-8)


@given(exponent=st.floats(-6, -3))
def test_leading_terms_of_small_angles(exponent):
    delta = 10**exponent
    loss, gradient = exact(1, delta)
    assert loss == pytest.approx(delta**2 / 2, rel=2 * delta)
    assert gradient == pytest.approx(delta, rel=2 * delta)
    loss, gradient = exact(2, delta)
    assert loss == pytest.approx(2 * delta**3 / (3 * math.pi), rel=1e-3)
    assert gradient == pytest.approx(2 * delta**2 / math.pi, rel=1e-3)


def test_losses_agree_with_samples():
    x = np.random.default_rng(1).standard_normal((400_000, 2))
    for count in (1, 2):
        w = place_students(count, np.array([0.3]))[0]
        squares = ((np.linalg.norm(w, axis=1) * np.abs(x @ w.T)).sum(1) - np.abs(x[:, 0])) ** 2 / 2
        error = squares.std() / math.sqrt(len(x))
        assert abs(squares.mean() - exact(count, 0.3)[0]) < 4 * error


@given(delta=st.floats(1e-6, 1.5))
def test_students_are_placed_as_in_claim_2(delta):
    (alone,), (first, second) = (place_students(count, np.array([delta]))[0] for count in (1, 2))
    assert np.linalg.norm(alone) == pytest.approx(1)
    assert math.atan2(alone[1], alone[0]) == pytest.approx(delta)
    lengths = np.linalg.norm([first, second], axis=1)
    assert lengths == pytest.approx(1 / math.sqrt(2 * math.cos(delta)))
    assert lengths @ np.stack([first, second]) == pytest.approx([1, 0], abs=1e-12)


def test_slopes_are_two_and_three(run):
    assert [claim.holds for claim in run.claims] == [True, True]
    slopes = [claim.values[0] for claim in run.claims]
    assert slopes == pytest.approx([2, 3], abs=0.01)
    assert "loss/δ^2 = 0.5000" in run.claims[0].measured
    assert f"loss/δ^3 = {2 / (3 * math.pi):.4f}" in run.claims[1].measured


def test_pl_holds_for_one_student_and_fails_for_two(run):
    alone, both = (approach(run).sel(students=students) for students in (1, 2))
    assert alone["squared_ratio"][0] == pytest.approx(2, rel=1e-4)
    assert alone["squared_ratio"].min() > 1.5
    assert both["squared_ratio"][0] == pytest.approx(6e-6 / math.pi, rel=1e-3)
    assert slope(both["squared_ratio"]) == pytest.approx(1, abs=0.01)
    assert both["ratio"].min() > 1
    assert both["ratio"][0] == pytest.approx(3e6, rel=1e-3)


def test_quantities_of_the_proofs_are_recorded_at_every_angle(run):
    deltas = np.geomspace(1e-6, 0.3, len(run.epochs))
    assert run.series("lemma C.4 left")[0] == pytest.approx(deltas**2, rel=1e-6)  # one student of length 1, at δ
    assert run.series("lemma C.3 left")[1] == pytest.approx(1 / np.cos(deltas))  # two of ‖w‖² = 1 / 2 cos δ
    rows = [row for row in run.nodes.to_pylist() if row["role"] == "teacher" and row["network"] == 1]
    assert [row["count"] for row in rows] == [2] * len(deltas)
    assert np.array([row["gap"] for row in rows]) == pytest.approx(0, abs=1e-15)
    assert np.isfinite(run.series("lemma 12 left")).all() and np.isfinite(run.series("descent")).all()


def test_a_wrong_order_is_detected(run):
    deltas = np.geomspace(1e-6, 0.1, 30)
    assert slope(xr.DataArray(deltas**2.9, {"delta": deltas}, ("delta",))) == pytest.approx(2.9)
    assert math.isnan(slope(xr.DataArray(deltas, {"delta": deltas + 1}, ("delta",))))


@pytest.mark.parametrize("options", [{"least": 1e-5}, {"most": 0.05}, {"angles": 10}])
def test_other_angles_decide_nothing(options, run):
    assert WarmUp().claims(run)
    assert WarmUp(**options).claims(run) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"least": 0.0}, "--least must be at least 10⁻⁷, got 0"),
        ({"most": 1e-7}, "--most must be above --least (1e-06) and below π/2, got 1e-07"),
        ({"most": 2.0}, "--most must be .*, got 2"),
        ({"angles": 1}, "--angles must be at least 2, got 1"),
        ({"dtype": "float32"}, "--dtype must be float64, got float32"),
    ],
)
def test_invalid_options_are_rejected(options, words):
    with pytest.raises(UserError, match=words.replace("(", r"\(").replace(")", r"\)")):
        WarmUp(**options)


def test_powers_use_a_minus_sign_and_none_before_zero():
    assert [power(x) for x in (-0.001, -1.0, 2.998)] == ["0.00", "−1.00", "3.00"]
