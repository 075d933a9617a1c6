"""One input more: what every learner gains and risks beside what theory says, and what is decided on made-up runs."""

import math

import numpy as np
import pytest
import torch

from support.fake_gpu import FakeGpu
from support.made import Made
from understudy.errors import UserError
from understudy.papers.distillation.monotonicity.claims import EARLIER, Correlation, claims, correlation, learners
from understudy.papers.distillation.monotonicity.story import story
from understudy.papers.distillation.monotonicity.study import DESCENT, DISTILLATION, LIMIT, PATH, Monotonicity
from understudy.papers.distillation.shared import Cell
from understudy.papers.distillation.theory import soft_labels as distillation
from understudy.papers.distillation.theory.risk import Estimate, mean_risk, monotonicity

SMALL = {"seeds": 60, "dim": 12, "inputs": 3, "deltas": (0.5, 1.0), "steps": 30, "longest": 100, "looks": 5}


@pytest.fixture(scope="module")
def small():
    study = Monotonicity(**SMALL)
    return study, Made(study)


def test_every_learner_is_what_theory_has_of_the_same_sets(small):
    study, run = small
    found = learners(run)
    assert tuple(found) == study.learners == (DISTILLATION, "δ = 0.5", "δ = 1", DESCENT, LIMIT)
    seeds, teacher = range(1, 61), study.task.teacher
    x = study.task.inputs(seeds, 4)
    by_hand = {
        DISTILLATION: lambda x: distillation.solution(x, teacher),
        "δ = 1": lambda x: distillation.less_biased(x, teacher, [1.0], seeds)[0],
        DESCENT: lambda x: distillation.hard_descent(x, teacher, 1.0, 30),
        LIMIT: lambda x: distillation.hard_target(x, teacher),
    }
    for name, learn in by_hand.items():
        fewer, more = learn(x[:, :3]), learn(x)
        risks = study.task.risk(distillation.angle(fewer, teacher))
        assert found[name].values["risk"] == pytest.approx(risks.numpy(), rel=1e-9)
        assert found[name].means["risk"] == pytest.approx(mean_risk(risks))
        assert found[name].means["index"] == pytest.approx(monotonicity(fewer, more, teacher))
    assert found[DISTILLATION].values["nearer"].all()
    assert [cell.parameters["delta"] for cell in found.values()] == [0.0, 0.5, 1.0, None, None]


def test_it_does_not_matter_how_many_sets_are_computed_together(small, monkeypatch):
    study, run = small
    monkeypatch.setattr("understudy.papers.distillation.monotonicity.study._TOGETHER", 7)
    other = learners(Made(study))
    for name, cell in learners(run).items():
        assert other[name].values["risk"] == pytest.approx(cell.values["risk"], rel=1e-9)
        assert other[name].values["nearer"].tolist() == cell.values["nearer"].tolist()


def test_the_path_passes_through_the_descent_and_ends_at_its_longest(small):
    study, run = small
    first = int(np.flatnonzero(run.column("learner") == PATH)[0])
    assert run.epochs[-1] == 100
    x, teacher = study.task.inputs(range(1, 61), 3), study.task.teacher
    descended = distillation.hard_descent(x, teacher, 1.0, 100)
    wanted = mean_risk(study.task.risk(distillation.angle(descended, teacher)))
    assert run.series("mean risk")[first, -1] == pytest.approx(wanted.mean)
    assert run.series("high risk")[first, -1] == pytest.approx(wanted.high)


def cell(name, risk, index, sets=1_000, spread=0.001):
    """A learner of this mean risk and index, its risks all alike but for every other set."""
    risks = risk + spread * np.where(np.arange(sets) % 2, 1, -1)
    nearer = (np.arange(sets) < round(index * sets)).astype(float)
    wide = 1.96 * math.sqrt(index * (1 - index) / sets) + 0.002
    means = {
        "risk": Estimate(risk, risk - 1e-4, risk + 1e-4, sets),
        "index": Estimate(index, index - wide, min(1.0, index + wide), sets),
    }
    values = {"risk": risks, "nearer": nearer, "angle": risks, "angle with one more": risks}
    return Cell({"learner": name}, np.arange(sets), values, means, {})


FIGURE = {
    DISTILLATION: (0.0052, 1.0),
    "δ = 0.0625": (0.006, 0.72),
    "δ = 0.125": (0.007, 0.68),
    "δ = 0.25": (0.009, 0.64),
    "δ = 0.5": (0.015, 0.61),
    "δ = 1": (0.027, 0.55),
    DESCENT: (0.020, 0.69),
    LIMIT: (0.032, 0.22),
}


def decided(monkeypatch, **changed):
    found = {name: cell(name, *changed.get(name, values)) for name, values in FIGURE.items()}
    monkeypatch.setattr("understudy.papers.distillation.monotonicity.claims.learners", lambda run: found)
    return {claim.part: claim for claim in claims(Monotonicity(), None)}


def test_what_is_like_the_figure_holds(monkeypatch):
    found = decided(monkeypatch)
    assert [claim.holds for claim in found.values()] == [True] * 4
    assert {claim.id for claim in found.values()} == {"K5"}
    assert all(claim.n == 1_000 for claim in found.values())
    assert [other.holds for other in found["correlation"].variants] == [True, True]
    assert max(found["values"].values) < 1


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"δ = 0.0625": (0.004, 0.72)}, {"lowest risk"}),
        ({"δ = 0.0625": (0.0052, 0.72)}, {"lowest risk"}),
        ({DISTILLATION: (0.0052, 0.99)}, {"highest index"}),
        ({DESCENT: (0.020, 0.0)}, {"values"}),
        ({"δ = 0.0625": (0.006, 0.999)}, {"highest index"}),
        ({DISTILLATION: (0.0059, 1.0)}, {"values"}),
        ({DESCENT: (0.020, 0.9)}, {"values"}),
        ({"δ = 1": (0.05, 0.999)}, {"correlation", "highest index", "values"}),
    ],
)
def test_what_is_not_does_not_hold(monkeypatch, changed, failing):
    found = decided(monkeypatch, **changed)
    assert {part for part, claim in found.items() if not claim.holds} == failing


@pytest.mark.parametrize(
    "options",
    [{"seeds": 999}, {"kappa": 2.0}, {"dim": 50}, {"inputs": 6}, {"steps": 100}, {"confidence": 0.9}],
)
def test_other_settings_decide_nothing(monkeypatch, options):
    assert decided(monkeypatch)
    assert claims(Monotonicity(**options), None) == []
    assert claims(Monotonicity(seeds=2_000, longest=10, looks=4), None)


def test_the_values_that_count_are_of_the_learners_there_are():
    assert set(EARLIER) <= set(Monotonicity().learners)


def test_correlation_is_that_of_numpy_and_knows_when_there_is_none():
    rng = np.random.default_rng(3)
    some = [cell(str(i), r, m) for i, (r, m) in enumerate(rng.uniform(0.1, 0.9, (6, 2)).round(3))]
    risk, index = ([float(c.values[name].mean()) for c in some] for name in ("risk", "nearer"))
    found = correlation(some)
    assert found.value == pytest.approx(np.corrcoef(risk, index)[0, 1])
    assert found.low < found.value < found.high
    assert "−" in str(correlation([cell("a", 0.1, 0.9), cell("b", 0.2, 0.5)]))
    alike = correlation([cell("a", 0.1, 1.0), cell("b", 0.2, 1.0)])
    assert math.isnan(alike.value) and not alike.negative
    assert str(alike) == "none, as all of either are equal"


def test_the_interval_of_a_correlation_narrows_with_more_sets():
    few, many = (
        correlation([cell("a", 0.1, 0.9, n), cell("b", 0.2, 0.6, n), cell("c", 0.15, 0.7, n)]) for n in (50, 5_000)
    )
    assert many.high - many.low < (few.high - few.low) / 3


@pytest.mark.parametrize("changed", [{}, {"δ = 1": (0.001, 0.55)}, {DISTILLATION: (0.0052, 0.5)}])
def test_the_headline_is_true_whatever_comes_out(monkeypatch, small, changed):
    found = {name: cell(name, *changed.get(name, values)) for name, values in FIGURE.items()}
    monkeypatch.setattr("understudy.papers.distillation.monotonicity.story.learners", lambda run: found)
    monkeypatch.setattr("understudy.papers.distillation.monotonicity.story._path", lambda *given: None)
    words = story(Monotonicity(), small[1]).headline
    assert ("the lowest of 8 learners" in words) == ("δ = 1" not in changed)
    assert ("where δ = 1 has 0.0010" in words) == ("δ = 1" in changed)
    assert ("more than for any other" in words) == (DISTILLATION not in changed)
    assert ("where δ = 0.0625 has 72.0%" in words) == (DISTILLATION in changed)
    assert "nan" not in words.lower()


def test_one_set_is_enough_for_a_story():
    study = Monotonicity(**SMALL | {"seeds": 1})
    told = story(study, Made(study))
    assert "nan" not in " ".join([told.headline, *(n.value for n in told.numbers)]).lower()
    assert len(told.figures) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": -1.0}, "--kappa: -1.0 was given; allowed is a number above 0"),
        ({"kappa": math.nan}, "--kappa: nan was given"),
        ({"inputs": 0}, "--inputs: 0 was given; allowed is a whole number from 1"),
        ({"inputs": 99}, "--inputs: 99 was given; allowed is up to 98, two fewer than an input has numbers"),
        ({"dim": 2}, "--dim: 2 was given; allowed is a whole number from 3"),
        ({"deltas": ()}, "--deltas: no value was given"),
        ({"deltas": (1.0, 1.0)}, "--deltas: 1 1 was given; name each value once"),
        ({"deltas": (0.0,)}, "--deltas: 0.0 was given; allowed is a number above 0"),
        ({"rate": 0.0}, "--rate: 0.0 was given; allowed is a number above 0"),
        ({"steps": 0}, "--steps: 0 was given; allowed is a whole number from 1"),
        ({"confidence": 1.0}, "--confidence: 1 was given; allowed is a number above 0 and below 1"),
        ({"dtype": "float32"}, "--dtype: float32 was given; theory is computed in float64 alone"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, words):
    with pytest.raises(UserError) as refused:
        Monotonicity(**options)
    assert words in str(refused.value)


def test_sets_of_a_seed_are_the_same_among_others():
    alone, among = (Monotonicity(**SMALL | {"seeds": n}) for n in (1, 5))
    risks = [learners(Made(study))[LIMIT].values["risk"][0] for study in (alone, among)]
    assert risks[0] == pytest.approx(risks[1], rel=1e-9)
    assert torch.equal(alone.task.inputs([1], 3)[0], among.task.inputs([1, 2], 3)[0])


def test_learners_are_computed_on_the_card_that_is_given(small, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with FakeGpu() as card:
        there = learners(Made(Monotonicity(**SMALL, device="cuda")))
    assert card.calls > 500
    for name, cell in learners(small[1]).items():
        assert there[name].values["risk"] == pytest.approx(cell.values["risk"], rel=1e-6, abs=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
def test_learners_on_a_card_are_those_of_the_cpu():
    there, here = (learners(Made(Monotonicity(**SMALL, device=device))) for device in ("cuda", "cpu"))
    for name, cell in here.items():
        assert there[name].values["risk"] == pytest.approx(cell.values["risk"], rel=1e-6, abs=1e-9)


def test_a_correlation_is_negative_where_its_whole_interval_is():
    assert Correlation(-0.4, -0.6, -0.1).negative
    assert not Correlation(-0.4, -0.9, 0.1).negative
    assert not Correlation(0.1, -0.9, -0.1).negative


def test_learners_of_deltas_that_are_almost_the_same_have_names_of_their_own():
    names = Monotonicity(deltas=(0.1234567, 0.1234568, 0.5)).learners
    assert len(set(names)) == len(names) and "δ = 0.5" in names
