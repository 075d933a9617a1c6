"""The study `linear-distillation`: its tables, the verdicts of its claims, and a user's own data."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from support.made import computed_run
from support.runs import made_run
from understudy._errors import UserError
from understudy.papers.distillation.linear_distillation.claims import (
    Ends,
    at_start,
    claims,
    ends,
    loss_decays,
    risk_decays,
    risk_under_bound,
    select_students,
    students_learn,
)
from understudy.papers.distillation.linear_distillation.story import neither_share, read_angles
from understudy.papers.distillation.linear_distillation.study import (
    APPROXIMATE,
    DESCENT,
    FLOW,
    LEARNED,
    MARGIN,
    OWN,
    POLYNOMIAL,
    LinearDistillation,
)
from understudy.papers.distillation.shared import read_data, read_settings
from understudy.papers.distillation.theory.linear_students import balanced, end_to_end
from understudy.papers.distillation.theory.rates import limit_rate, proved_rate
from understudy.papers.distillation.theory.risk import polynomial_bound, risk_bound
from understudy.papers.distillation.theory.soft_labels import angle, limit, solution
from understudy.papers.distillation.theory.tasks import AngleTask
from understudy.store.units import read_units, unit_array

SMALL = LinearDistillation(
    seeds=40,
    dim=4,
    inputs=(2, 4),
    depths=(1, 2),
    students=3,
    learned_inputs=(2, 6),
    steps=200,
    probes=10,
    scales=(1e-3, 1.0),
)


@pytest.fixture(scope="module")
def run():
    return computed_run(SMALL)


def test_descent_that_diverges_is_drawn_as_far_as_it_went():
    study = dataclasses.replace(SMALL, rate=1e4, depths=(3,))
    story = study.story(run := computed_run(study))
    assert run.networks["diverged_at"].null_count < run.networks.num_rows
    (training,) = (figure.kind for figure in story.figures if figure.name == "training")
    flow, descent = training.panels[0].series
    assert np.isfinite(flow.y).all() and np.isfinite(descent.y[0]) and np.isnan(descent.y[-1])
    assert len(descent.x) == len(descent.y) == study.probes - 1


def test_the_tasks_of_fig_52_are_drawn_in_the_plane(run):
    (plane,) = (figure.kind for figure in SMALL.story(run).figures if figure.name == "plane")
    widest = [np.pi / 2 - 0.3, np.pi / 2, np.pi / 2]
    shares = []
    for panel, most in zip(plane.panels, widest, strict=True):
        (inputs,) = (series for series in panel.series if series.label == "input")
        angles = np.arctan2(np.abs(inputs.y), np.abs(inputs.x))
        assert len(angles) == 500 and angles.max() <= most
        shares.append((angles > np.pi / 4).mean())
    assert shares[1] == pytest.approx(1 / 2, abs=0.07) and shares[2] == pytest.approx(1 / 4, abs=0.07)


def test_flow_ends_in_the_closed_form_and_its_error_is_from_the_projection(run):
    task, seeds = AngleTask(4), [1, 2, 3]
    x = task.inputs(seeds, 2)
    start = end_to_end(balanced(x, task.teacher, 2, SMALL.scale, seeds, SMALL.width))
    wanted = (limit(start, x, task.teacher, 2) - solution(x, task.teacher)).norm(dim=-1)
    found = select_students(run, task=POLYNOMIAL, depth=2, inputs=2, by=FLOW)
    assert ends(found).error == pytest.approx(wanted.numpy(), rel=1e-4)
    assert (at_start(found, "off") < 1e-9).all()
    assert (at_start(found, "hold") == 1).all()
    assert (at_start(found, "gain") > 0).all()
    assert (at_start(found, "imbalance") < 1e-12).all()
    assert (ends(found).error <= at_start(found, "epsilon")).all()
    assert (ends(found).allowed == at_start(found, "epsilon")).all()
    assert found.array("error").shape == (3, 10)
    enough = select_students(run, task=MARGIN, depth=1, inputs=6, by=FLOW)
    assert (ends(enough).error < 1e-9).all()
    assert (enough.end("time") == 1e14).all()


def test_descent_is_recorded_in_time_of_its_own_rate_until_it_is_near(run):
    found = select_students(run, task=POLYNOMIAL, depth=1, inputs=6, by=DESCENT)
    steps, losses = at_start(found, "steps"), found.array("loss").to_numpy()
    assert (found.start("time") == 0).all()
    assert (np.diff(losses, axis=1) <= 0).all() and (losses[:, -1] < losses[:, 0]).all()
    x = AngleTask(4).inputs([1, 2, 3], 6)
    wanted = np.nan_to_num(steps, nan=200) * (4 * 6 / torch.linalg.matrix_norm(x, ord=2).square()).numpy()
    assert found.end("time") == pytest.approx(wanted)
    there = np.isfinite(steps)
    assert there.any() and not there.all()
    assert np.array_equal(ends(found).within, there)


def test_descent_from_approximately_balanced_starts_is_followed_too(run):
    found = select_students(run, task=MARGIN, depth=2, inputs=2, by=APPROXIMATE)
    balanced_start = select_students(run, task=MARGIN, depth=2, inputs=2, by=DESCENT)
    assert (at_start(balanced_start, "imbalance") < 1e-12).all()
    assert (at_start(found, "imbalance") > 0.01).all() and (at_start(found, "imbalance") < 0.6).all()
    assert (at_start(found, "hold") == 0).all()
    assert found.end("error") == pytest.approx(balanced_start.end("error"), rel=0.5)


def test_rates_are_those_of_theory(run):
    found = select_students(run, task=POLYNOMIAL, depth=2, inputs=2, by=FLOW)
    x, teacher = AngleTask(4).inputs([1, 2, 3], 2), AngleTask(4).teacher
    start = end_to_end(balanced(x, teacher, 2, SMALL.scale, [1, 2, 3], SMALL.width))
    for name, rate in (("proved", proved_rate), ("limit", limit_rate)):
        assert at_start(found, f"{name} rate") == pytest.approx(rate(start, x, teacher, 2).numpy())
    assert (at_start(found, "slowest rate") > at_start(found, "proved rate")).all()


def test_only_students_that_are_trained_are_networks(run):
    assert run.select().values("part") == [LEARNED]
    assert len(run.select()) == 2 * 2 * (2 + 3) * 3
    assert read_units(run, "sets").num_rows == 2 * 2 * 2 * 40


def by_setting(run):
    return {(row["task"], row["depth"], row["inputs"]): row for row in read_settings(run, part="risk").to_pylist()}


def test_risks_and_bounds_are_those_of_the_theory(run):
    found = by_setting(run)
    assert list(found) == [(t, d, n) for t in (POLYNOMIAL, MARGIN) for n in (2, 4) for d in (1, 2)]
    few, enough, deep = (found[POLYNOMIAL, *where] for where in ((1, 2), (1, 4), (2, 2)))
    task = AngleTask(4, draw=2)  # sets of different sizes are independent
    x = task.inputs(range(1, 41), 2)
    exact = task.risk(angle(solution(x, task.teacher), task.teacher))
    risks = unit_array(read_units(run, "sets"), "risk", "seed", task=POLYNOMIAL, depth=1, inputs=2)
    assert risks.values == pytest.approx(exact.numpy())
    assert few["bound"] == pytest.approx(risk_bound(task.p, 2, 4))
    assert few["corollary"] == pytest.approx(polynomial_bound(1.0, 2))
    assert few["bound"] <= few["printed bound"]
    assert enough["mean risk"] == 0 == enough["bound"]
    assert deep["bound"] > few["bound"]
    assert deep["printed bound"] > deep["bound"]
    assert claims(SMALL, run) == []


def test_starts_where_neither_sign_lowers_the_loss_are_found_among_long_ones(run):
    shares = neither_share(run).sel(task=POLYNOMIAL)
    assert shares["scale"].values.tolist() == [1e-3, 1.0]
    assert shares[0] <= shares[1]
    assert shares[1] > 0


def test_angles_of_an_older_run_are_read_from_its_metrics(run):
    angles = read_angles(run)
    tasks = [angles.filter(pc.equal(angles["task"], task)) for task in (POLYNOMIAL, MARGIN)]
    metrics = {name: [each[name].to_numpy() for each in tasks] for name in angles.column_names if name != "task"}
    networks = [{"part": "angles", "task": POLYNOMIAL}, {"part": "angles", "task": MARGIN}]
    assert read_angles(made_run(networks, epochs=range(91), metrics=metrics)).to_pylist() == angles.to_pylist()


def followed(depth, many, error, hold, **more):
    """A run of students by flow that end at these distances, and of two by descent, of which one arrived."""
    setting = {"part": LEARNED, "task": POLYNOMIAL, "depth": depth, "inputs": 30 if many else 5}
    networks = [setting | {"by": FLOW, "diverged_at": 0 if np.isnan(e) else None} for e in error]
    networks += [setting | {"by": by} for by in (DESCENT, DESCENT, APPROXIMATE)]
    ones = np.ones((len(networks), 1))
    ended = np.nan_to_num(np.array([*error, 1e-7, 1.0, 1e-7]), nan=1.0)[:, None]
    allowed = (1e-6 if many or depth == 1 else 1e-3) * ones
    steps = np.array([*[np.nan] * len(error), 500, np.nan, 700])[:, None]
    metrics = {"error": ended, "allowed": allowed, "hold": hold * ones, "off": 0 * ones, "steps": steps}
    rates = {"slowest": 3.0, "proved": 2.0, "last": 4.0, "limit": 4.0} | more
    metrics |= {f"{name} rate": value * ones for name, value in rates.items()}
    return made_run(networks, metrics=metrics)


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
def test_students_must_end_as_near_as_the_theorems_state(depth, many, error, hold, holds):
    verdict = students_learn(LinearDistillation(), followed(depth, many, error, hold), depth, many)
    assert verdict.holds is holds
    descent, *noisy = verdict.variants
    assert descent.holds is None and descent.measured.startswith("1 of 2 networks, after 500 steps; the others at 10")
    assert [other.holds for other in noisy] == [True] * (depth > 1)
    assert verdict.n == len(error)


@pytest.mark.parametrize(
    ("rates", "holds"),
    [
        ({}, True),
        ({"slowest": 1.9}, False),
        ({"proved": 0.0}, False),
        ({"last": 3.7}, False),
        ({"last": 3.9}, True),
    ],
)
def test_the_loss_must_decay_at_the_proved_rate_and_in_the_end_at_that_of_the_limit(rates, holds):
    verdict = loss_decays(LinearDistillation(), followed(2, False, [1e-4, 2e-4], 1.0, **rates), 2)
    assert verdict.holds is holds
    if not rates:
        assert verdict.measured.startswith("the slowest fitted rate is 1.5 to 1.5 times c; the last rate 1 times")


def test_networks_whose_conditions_fail_do_not_count_and_are_reported():
    ends = Ends(np.array([0.5, 2.0]), np.array([1.0, 1.0]), np.array([True, False]))
    assert ends.holds
    assert ends.words == "1 of 1 networks, largest distance 0.5; conditions fail in 1 more, which do not count"


def under(task, depth, *rows):
    """The verdict on rows (n, mean risk, its low limit, its bound)."""
    where = {"task": task, "depth": depth}
    settings = [
        where
        | {"inputs": n, "mean risk": mean, "low risk": low, "high risk": mean}
        | {"bound": bound, "printed bound": bound, "corollary": 2 * bound}
        for n, mean, low, bound in rows
    ]
    sets = [where | {"inputs": n, "seed": seed, "risk": mean} for n, mean, *_ in rows for seed in (1, 2, 3)]
    made = made_run([], sets=pa.Table.from_pylist(sets), settings=pa.Table.from_pylist(settings))
    return risk_under_bound(LinearDistillation(), made, task, depth, "")


def test_a_mean_risk_above_its_bound_does_not_hold_and_chance_is_distinguished():
    fine = ((1, 0.1, 0.09, 0.2), (30, 0.0, 0.0, 0.0))
    verdict = under(POLYNOMIAL, 1, *fine)
    assert verdict.holds
    assert verdict.n == 3
    assert verdict.values == (0.5,)
    assert [other.where for other in verdict.variants] == ["as printed", "corollary 5.2"]
    over = under(MARGIN, 1, (1, 0.3, 0.25, 0.2), (2, 0.11, 0.09, 0.1))
    assert not over.holds
    assert "not at n = 1, 2, of which the low limits are under it at 2" in over.measured
    assert over.variants[1].where == "corollary 5.1"
    assert over.variants[1].holds
    assert not over.variants[0].holds
    assert len(under(POLYNOMIAL, 2, *fine).variants) == 1


def decay(*rows):
    """The verdict on rows (n, mean risk, its distance in half of the sets, its corollary) of 40 sets."""
    where = {"task": POLYNOMIAL, "depth": 1}
    settings = [where | {"inputs": n, "corollary": bound} for n, *_, bound in rows]
    sets = [
        where | {"inputs": n, "seed": seed, "risk": mean + wide * (-1) ** seed}
        for n, mean, wide, _ in rows
        for seed in range(40)
    ]
    made = made_run([], sets=pa.Table.from_pylist(sets), settings=pa.Table.from_pylist(settings))
    return risk_decays(LinearDistillation(), made, POLYNOMIAL, "")


def test_the_risk_must_decay_faster_than_the_corollary_beyond_the_errors():
    fast = decay((1, 0.2, 0.01, 1.0), (2, 0.08, 0.01, 0.5), (4, 0.02, 0.01, 0.25), (30, 0.5, 0.01, 0.1))
    assert fast.holds and fast.n == 40
    # Ratios 0.2 ± 0.01 and 0.16 ± 0.02 of 40 sets each.
    assert fast.values[0] == pytest.approx(0.04 / (np.hypot(0.01, 0.02) / np.sqrt(39)))
    assert decay((1, 0.2, 0.01, 1.0), (2, 0.2, 0.01, 0.5), (4, 0.02, 0.01, 0.25)).holds is False
    for unsure in ((2, 0.1, 0.01, 0.5), (2, 0.095, 0.05, 0.5), (2, 0.101, 0.01, 0.5)):
        verdict = decay((1, 0.2, 0.01, 1.0), unsure, (4, 0.02, 0.01, 0.25))
        assert (
            verdict.holds is None and "more sets, until every step is beyond 2 standard errors" in verdict.would_decide
        )
    few = decay((1, 0.2, 0.01, 1.0), (2, 0.0, 0.0, 0.5), (4, 0.0, 0.0, 0.25))
    assert few.holds is None and "30 sets or more" in few.would_decide


def test_claims_are_decided_only_in_the_default_settings(run):
    plain = LinearDistillation()
    assert claims.applies(dataclasses.replace(plain, probes=5, steps=10, rate=0.5, scales=(1.0,)))
    for other in ({"dim": 20}, {"scale": 1e-3}, {"seeds": 999}, {"students": 19}, {"depths": (1, 2)}, {"margin": 0.2}):
        assert claims(dataclasses.replace(plain, **other), run) == []


@pytest.fixture
def own(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 3)), rng.integers(0, 2, 90)
    x[:, 0] += 4 * y - 2
    return x, np.where(y, "cat", "dog"), tmp_path / "own.npz"


def test_a_users_data_get_a_fitted_teacher_and_a_bound(own):
    x, y, file = own
    np.savez(file, x=x, y=y)
    study = dataclasses.replace(SMALL, data=str(file), inputs=(1, 5), seeds=20)
    found = computed_run(study)
    story = study.story(found)
    assert "a logistic regression with an accuracy of" in story.headline
    assert [figure.name for figure in story.figures] == ["risk", "angles"]
    few, more = (by_setting(found)[OWN, 1, n] for n in (1, 5))
    assert more["mean risk"] <= few["mean risk"] <= few["bound"]
    # The inputs of a file need not span the space, so that nothing is guaranteed from n = d on.
    assert more["bound"] > 0
    assert select_students(found) is None
    before = study.config()["contents"]
    np.savez(file, x=x, w=np.eye(3)[0])
    assert study.config()["contents"] != before
    given = read_data(str(file))
    assert given.right is None
    assert given.teacher.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.arange(90) % 3}, "labels must have two classes, got 3 classes (0, 1, 2)"),
        ({"y": np.zeros(90)}, "labels must have two classes, got 1 class"),
        ({"y": np.zeros(9)}, "one label per input is needed (90), got 9"),
        ({}, "the file holds neither y nor w"),
        ({"y": np.zeros(90), "w": np.ones(3)}, "the file holds both y and w"),
        ({"w": np.ones(4)}, "3 numbers each, but the teacher has 4"),
        ({"w": np.zeros(3)}, "the teacher is zero"),
        ({"w": np.array([1.0, np.nan, 0.0])}, "not all finite numbers"),
        ({"y": np.array([None] * 90)}, "Python objects"),
    ],
)
@pytest.mark.wrong_shapes
def test_data_that_cannot_be_used_are_refused(own, arrays, words):
    x, _, file = own
    np.savez(file, x=x, **arrays)
    with pytest.raises(UserError) as error:
        dataclasses.replace(SMALL, data=str(file)).config()
    assert str(error.value).startswith("--data: ")
    assert words in str(error.value)


def test_more_inputs_than_the_file_has_to_draw_from_are_refused(own):
    x, y, file = own
    np.savez(file, x=x, y=y)
    with pytest.raises(UserError, match=r"--inputs must be at most 30, .* got 31"):
        dataclasses.replace(SMALL, data=str(file), inputs=(1, 31)).config()
    with pytest.raises(UserError, match=r"--data must be a \.npz"):
        dataclasses.replace(SMALL, data="inputs.npy").config()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": -1.0}, "--kappa must be above 0, got -1"),
        ({"inputs": (0,)}, "--inputs must be at least 1, got 0"),
        ({"learned_inputs": (0,)}, "--learned-inputs must be at least 1, got 0"),
        ({"depths": (0, 1)}, "--depths must be at least 1, got 0"),
        ({"depths": (2, 2)}, "--depths takes each value once"),
        ({"margin": 0.0}, "--margin must be above 0 and below π/2, got 0"),
        ({"margin": 1.6}, "--margin must be above 0 and below π/2, got 1.6"),
        ({"scale": 0.0}, "--scale must be above 0, got 0"),
        ({"dim": 1}, "--dim must be at least 2, got 1"),
        ({"confidence": 0.0}, "--confidence must be above 0 and below 1, got 0"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError) as error:
        LinearDistillation(**options)
    assert words in str(error.value)
