"""Linear distillation: what is in the tables, what the claims decide, and a user's own data."""

import dataclasses

import numpy as np
import pytest
import torch

from support.made import Made
from understudy.errors import UserError
from understudy.papers.distillation.linear_distillation.claims import (
    Ends,
    Followed,
    _learned,
    _under,
    claims,
    followed,
    risks,
)
from understudy.papers.distillation.linear_distillation.story import neither
from understudy.papers.distillation.linear_distillation.study import (
    DESCENT,
    FLOW,
    MARGIN,
    OWN,
    POLYNOMIAL,
    LinearDistillation,
)
from understudy.papers.distillation.shared import Cell, read_data
from understudy.papers.distillation.theory.linear_students import balanced, end_to_end
from understudy.papers.distillation.theory.risk import Estimate, polynomial_bound, risk_bound
from understudy.papers.distillation.theory.soft_labels import angle, limit, solution
from understudy.papers.distillation.theory.tasks import AngleTask

SMALL = LinearDistillation(
    seeds=40,
    dim=4,
    inputs=(2, 4),
    depths=(1, 2),
    students=3,
    learned_inputs=(2, 6),
    steps=200,
    looks=10,
    scales=(1e-3, 1.0),
)


@pytest.fixture(scope="module")
def run():
    return Made(SMALL)


def of(run, **wanted):
    (found,) = [f for f in followed(run) if all(getattr(f, name) == value for name, value in wanted.items())]
    return found


def test_flow_ends_in_the_closed_form_and_its_error_is_from_the_projection(run):
    task, seeds = AngleTask(4), [1, 2, 3]
    x = task.inputs(seeds, 2)
    start = end_to_end(balanced(x, task.teacher, 2, SMALL.scale, seeds, SMALL.width))
    wanted = (limit(start, x, task.teacher, 2) - solution(x, task.teacher)).norm(dim=-1)
    found = of(run, task=POLYNOMIAL, depth=2, inputs=2, by=FLOW)
    assert found.end == pytest.approx(wanted.numpy(), rel=1e-4)
    assert (found.off < 1e-9).all()
    assert (found.hold == 1).all()
    assert (found.gain > 0).all()
    assert (found.imbalance < 1e-12).all()
    assert (found.end <= found.epsilon).all()
    assert found.error.shape == (3, 10)
    enough = of(run, task=MARGIN, depth=1, inputs=6, by=FLOW)
    assert (enough.end < 1e-9).all()
    assert (enough.time[:, -1] == 1e14).all()


def test_descent_is_recorded_in_time_of_its_own_rate_and_lowers_the_loss(run):
    found = of(run, task=POLYNOMIAL, depth=1, inputs=6, by=DESCENT)
    assert (np.diff(found.loss, axis=1) < 0).all()
    assert (found.time[:, 0] == 0).all()
    x = AngleTask(4).inputs([1, 2, 3], 6)
    wanted = 200 * 4 * 6 / torch.linalg.matrix_norm(x, ord=2).square()
    assert found.time[:, -1] == pytest.approx(wanted.numpy())


def test_risks_and_bounds_are_those_of_the_theory(run):
    found = risks(run)
    assert list(found) == [(POLYNOMIAL, 1), (POLYNOMIAL, 2), (MARGIN, 1), (MARGIN, 2)]
    few, enough = found[POLYNOMIAL, 1]
    task = AngleTask(4)
    x = task.inputs(range(1, 41), 2)
    exact = task.risk(angle(solution(x, task.teacher), task.teacher))
    assert few.values["risk"] == pytest.approx(exact.numpy())
    assert few.once["bound"] == pytest.approx(float(risk_bound(task.p, [2], 4).risk))
    assert few.once["corollary"] == pytest.approx(float(polynomial_bound(1.0, [2])))
    assert few.once["bound"] <= few.once["printed bound"]
    assert enough.means["risk"].mean == 0 == enough.once["bound"]
    deep = found[POLYNOMIAL, 2][0]
    assert deep.once["bound"] > few.once["bound"]
    assert deep.once["printed bound"] > deep.once["bound"]
    assert claims(SMALL, run) == []


def test_starts_of_which_neither_sign_is_downhill_are_found_among_long_ones(run):
    lengths, shares = neither(run)[POLYNOMIAL]
    assert lengths.tolist() == [1e-3, 1.0]
    assert shares[0] <= shares[1]
    assert shares[1] > 0


def kept(depth, error, epsilon=1e-3, hold=1.0, by=FLOW, inputs=2):
    errors, ones = np.array(error)[:, None], np.ones(len(error))
    rest = (epsilon * ones, ones, 0 * ones, hold * ones, 0 * ones)
    return Followed(POLYNOMIAL, depth, inputs, by, np.arange(len(error)), errors * 0, errors, errors, *rest)


@pytest.mark.parametrize(
    ("depth", "many", "error", "hold", "holds"),
    [
        (1, False, [1e-7, 9e-7], 1.0, True),
        (1, False, [1e-7, 2e-6], 1.0, False),
        (1, True, [np.nan], 1.0, False),
        (2, False, [9e-4], 1.0, True),
        (2, False, [1.1e-3], 1.0, False),
        (2, True, [9e-4], 1.0, False),
        (2, True, [9e-7], 1.0, True),
        (2, False, [9e-4], 0.0, False),
    ],
)
def test_students_must_end_as_near_as_the_theorems_say(depth, many, error, hold, holds):
    steps = [kept(depth, [1.0], by=DESCENT)]
    claim = _learned([kept(depth, error, hold=hold)], steps, depth, many)
    assert claim.holds is holds
    assert not claim.variants[0].holds
    assert claim.n == len(error)


def test_networks_whose_conditions_fail_do_not_count_and_are_told():
    ends = Ends(np.array([0.5, 2.0]), np.array([1.0, 1.0]), np.array([True, False]))
    assert ends.holds
    assert ends.words == "1 of 1 networks, largest distance 0.5; conditions fail in 1 more, which do not count"


def cell(n, mean, low, bound):
    once = {"bound": bound, "printed bound": bound, "corollary": 2 * bound}
    return Cell({"inputs": n}, np.arange(3), {}, {"risk": Estimate(mean, low, mean, 1000)}, once)


def test_a_mean_risk_above_its_bound_does_not_hold_and_chance_is_told_apart():
    fine = [cell(1, 0.1, 0.09, 0.2), cell(30, 0.0, 0.0, 0.0)]
    claim = _under(POLYNOMIAL, 1, fine)
    assert claim.holds
    assert claim.values == (0.5,)
    assert [other.where for other in claim.variants] == ["as printed", "corollary 5.2"]
    over = _under(MARGIN, 1, [cell(1, 0.3, 0.25, 0.2), cell(2, 0.11, 0.09, 0.1)])
    assert not over.holds
    assert "not at n = 1, 2, of which the low limits are under it at 2" in over.measured
    assert over.variants[1].where == "corollary 5.1"
    assert over.variants[1].holds
    assert not over.variants[0].holds
    assert len(_under(POLYNOMIAL, 2, fine).variants) == 1


def test_it_is_decided_at_its_own_settings_alone(run):
    plain = LinearDistillation()
    for other in ({"dim": 20}, {"scale": 1e-3}, {"seeds": 999}, {"students": 19}, {"depths": (1, 2)}, {"margin": 0.2}):
        assert claims(dataclasses.replace(plain, **other), run) == []


@pytest.fixture
def own(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 3)), rng.integers(0, 2, 90)
    x[:, 0] += 4 * y - 2
    return x, np.where(y, "cat", "dog"), tmp_path / "own.npz"


def test_ones_own_data_has_a_teacher_fitted_and_its_bound(own):
    x, y, file = own
    np.savez(file, x=x, y=y)
    study = dataclasses.replace(SMALL, data=str(file), inputs=(1, 5), seeds=20)
    found = Made(study)
    told = study.story(found)
    assert "a logistic regression that is right on" in told.headline
    assert [figure.name for figure in told.figures] == ["risk", "angles"]
    few, more = risks(found)[OWN, 1]
    assert more.means["risk"].mean <= few.means["risk"].mean <= few.once["bound"]
    # A file's inputs need not span everything, so that nothing is promised from n = d on.
    assert more.once["bound"] > 0
    assert followed(found) == []
    before = study.config()["contents"]
    np.savez(file, x=x, w=np.eye(3)[0])
    assert study.config()["contents"] != before
    given = read_data(str(file))
    assert given.fitted is None
    assert given.task.teacher.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.arange(90) % 3}, "labels must have two classes, got 3 classes (0, 1, 2)"),
        ({"y": np.zeros(90)}, "labels must have two classes, got 1 class"),
        ({"y": np.zeros(9)}, "one label per input is needed (90), got 9"),
        ({}, "holds neither y nor w"),
        ({"y": np.zeros(90), "w": np.ones(3)}, "holds both y and w"),
        ({"w": np.ones(4)}, "3 numbers each, but the teacher has 4"),
        ({"w": np.zeros(3)}, "the teacher is zero"),
        ({"w": np.array([1.0, np.nan, 0.0])}, "not all finite numbers"),
        ({"y": np.array([None] * 90)}, "Python objects"),
    ],
)
@pytest.mark.wrong_shapes
def test_data_that_cannot_be_is_refused_in_words(own, arrays, words):
    x, _, file = own
    np.savez(file, x=x, **arrays)
    with pytest.raises(UserError) as error:
        dataclasses.replace(SMALL, data=str(file)).config()
    assert str(error.value).startswith("--data: ")
    assert words in str(error.value)


def test_more_inputs_than_the_file_has_to_draw_from_are_refused(own):
    x, y, file = own
    np.savez(file, x=x, y=y)
    with pytest.raises(UserError, match="--inputs: 31 was given; allowed is up to 30"):
        dataclasses.replace(SMALL, data=str(file), inputs=(1, 31)).config()
    with pytest.raises(UserError, match=r"allowed is a \.npz"):
        dataclasses.replace(SMALL, data="inputs.npy").config()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": -1.0}, "--kappa: -1.0 was given; allowed is a number above 0"),
        ({"inputs": (0,)}, "--inputs: 0 was given; allowed is a whole number from 1"),
        ({"learned_inputs": (0,)}, "--learned-inputs: 0"),
        ({"depths": (0, 1)}, "--depths: 0 was given; allowed is a whole number from 1"),
        ({"depths": (2, 2)}, "name each value once"),
        ({"margin": 0.0}, "--margin: 0.0 was given; allowed is a number above 0"),
        ({"margin": 1.6}, "--margin: 1.6 was given; allowed is an angle above 0 and below π/2"),
        ({"scale": 0.0}, "--scale: 0.0"),
        ({"dim": 1}, "--dim: 1 was given; allowed is a whole number from 2"),
        ({"confidence": 0.0}, "--confidence: 0 was given"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, words):
    with pytest.raises(UserError) as error:
        LinearDistillation(**options)
    assert words in str(error.value)
