"""The study `monotonicity`: its tables against theory, the verdicts of its claims, its story, refused options."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch

from support.fake_gpu import FakeGpu
from support.made import computed_run
from support.runs import made_run
from understudy._errors import UserError
from understudy.papers.distillation.monotonicity.claims import RiskCorrelation, claims, correlation, read_learners
from understudy.papers.distillation.monotonicity.story import read_steps, story
from understudy.papers.distillation.monotonicity.study import DESCENT, DISTILLATION, LIMIT, PATH, Monotonicity
from understudy.papers.distillation.theory import soft_labels as distillation
from understudy.papers.distillation.theory.risk import estimate_share, mean_risk, nearer
from understudy.papers.distillation.theory.tasks import AngleTask

SMALL = {"seeds": 60, "dim": 12, "inputs": 3, "deltas": (0.5, 1.0), "steps": 30, "longest": 100, "probes": 5}


@pytest.fixture(scope="module")
def small():
    study = Monotonicity(**SMALL, device="cpu")
    return study, computed_run(study)


def values(study, run, name, column="risk"):
    return read_learners(study, run).sets[column].sel(learner=name).values


def test_every_learner_is_that_of_theory_on_sets_of_its_own(small):
    study, run = small
    found = read_learners(study, run)
    assert tuple(found.sets["learner"].values) == study.learners == (DISTILLATION, "δ = 0.5", "δ = 1", DESCENT, LIMIT)
    seeds, teacher = range(1, 61), study.task().teacher
    by_hand = {
        DISTILLATION: lambda x: distillation.solution(x, teacher),
        "δ = 1": lambda x: distillation.less_biased(x, teacher, [1.0], seeds, 2)[0],
        DESCENT: lambda x: distillation.hard_path(x, teacher, 1.0, [30])[0],
        LIMIT: lambda x: distillation.hard_target(x, teacher),
    }
    for name, learn in by_hand.items():
        x = AngleTask(12, 1.0, draw=study.learners.index(name)).inputs(seeds, 4)
        fewer, more = learn(x[:, :3]), learn(x)
        risks = study.task().risk(distillation.angle(fewer, teacher))
        assert values(study, run, name) == pytest.approx(risks.numpy(), rel=1e-9)
        for means, wanted in (
            (found.risk, mean_risk(risks)),
            (found.monotonicity, estimate_share(nearer(fewer, more, teacher))),
        ):
            for end in ("mean", "low", "high"):
                assert means[end].sel(learner=name).item() == pytest.approx(getattr(wanted, end))
    assert values(study, run, DISTILLATION, "nearer").all()
    assert run.table("settings")["delta"].to_pylist() == [0.0, 0.5, 1.0, None, None]


def test_the_number_of_sets_computed_together_does_not_matter(small, monkeypatch):
    study, run = small
    monkeypatch.setattr("understudy.papers.distillation.monotonicity.study._TOGETHER", 7)
    other = computed_run(study)
    for name in study.learners:
        assert values(study, other, name) == pytest.approx(values(study, run, name), rel=1e-9)
        assert values(study, other, name, "nearer").tolist() == values(study, run, name, "nearer").tolist()


def test_the_path_of_descent_ends_at_its_longest(small):
    study, run = small
    assert run.epochs[-1] == 100
    assert run.select().values("learner") == [PATH]
    x, teacher = study.task(DESCENT).inputs(range(1, 61), 3), study.task().teacher
    descended = distillation.hard_path(x, teacher, 1.0, [100])[0]
    risks = study.task().risk(distillation.angle(descended, teacher))
    last, wanted = read_steps(run).to_pylist()[-1], mean_risk(risks)
    assert run.select().end("risk") == pytest.approx(risks.numpy())
    assert last["step"] == 100
    assert last["mean risk"] == pytest.approx(wanted.mean)
    assert last["high risk"] == pytest.approx(wanted.high)


def test_steps_of_an_older_run_are_read_from_its_metrics(small):
    _, run = small
    steps = read_steps(run)
    names = [name for name in steps.column_names if name != "step"]
    nothing = np.full(steps.num_rows, np.nan)
    older = made_run(
        [{"learner": PATH}, {"learner": PATH}],
        epochs=steps["step"].to_numpy(),
        metrics={name: [steps[name].to_numpy(), nothing] for name in names},
    )
    assert read_steps(older).to_pylist() == steps.to_pylist()


def made(learners, sets=1_000, spread=0.001):
    """A run of learners with these mean risks and indices; risks alternate around their mean."""
    rows, settings = [], []
    for name, (risk, index) in learners.items():
        wide = 1.96 * math.sqrt(index * (1 - index) / sets) + 0.002
        risks = {"mean risk": risk, "low risk": risk - 1e-4, "high risk": risk + 1e-4}
        indices = {"mean index": index, "low index": index - wide, "high index": min(1.0, index + wide)}
        settings.append({"learner": name} | risks | indices)
        each = risk + spread * np.where(np.arange(sets) % 2, 1, -1)
        nearer = (np.arange(sets) < round(index * sets)).astype(float)
        columns = {"risk": each, "nearer": nearer, "angle": each, "angle with one more": each}
        rows.append(pa.table({"learner": [name] * sets, "seed": np.arange(1, sets + 1)} | columns))
    steps = {f"{end} {name}": [0.1, 0.2] for name in ("risk", "index") for end in ("mean", "low", "high")}
    return made_run(
        [],
        sets=pa.concat_tables(rows),
        settings=pa.Table.from_pylist(settings),
        steps=pa.table({"step": [1, 10]} | steps),
    )


def correlate(learners):
    return correlation(read_learners(Monotonicity(), made(learners)).sets)


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


def decided(changed=None):
    return {claim.part: claim for claim in claims(Monotonicity(), made(FIGURE | (changed or {})))}


def test_values_like_those_of_the_figure_hold():
    found = decided()
    assert list(found) == ["correlation", "lowest risk", "highest index"]
    assert all(claim.holds for claim in found.values())
    assert {claim.id for claim in found.values()} == {"K5"}
    assert all(claim.n == 1_000 for claim in found.values())
    assert [other.holds for other in found["correlation"].variants] == [True, True]
    # Risks alternate by 0.001 around their means: standard errors of 0.001/√1000, and of differences √2 times that.
    assert min(found["lowest risk"].values) == pytest.approx(0.0008 / (0.001 * math.sqrt(2 / 1000)), rel=1e-3)


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"δ = 0.0625": (0.004, 0.72)}, {"lowest risk"}),
        ({DISTILLATION: (0.0052, 0.99)}, {"highest index"}),
        ({"δ = 0.0625": (0.006, 0.999)}, {"highest index"}),
        ({"δ = 1": (0.05, 0.999)}, {"correlation", "highest index"}),
    ],
)
def test_other_values_do_not_hold(changed, failing):
    assert {part for part, claim in decided(changed).items() if not claim.holds} == failing


@pytest.mark.parametrize(("next_risk", "holds"), [(0.0052, None), (0.00527, None), (0.00531, True), (0.0051, False)])
def test_risks_within_the_errors_are_not_decided(next_risk, holds):
    found = decided({"δ = 0.0625": (next_risk, 0.72)})["lowest risk"]
    assert found.holds is holds
    assert ("more transfer sets" in found.would_decide) is (holds is None)


@pytest.mark.parametrize(
    "options",
    [{"seeds": 999}, {"kappa": 2.0}, {"dim": 50}, {"inputs": 6}, {"steps": 100}, {"confidence": 0.9}],
)
def test_other_settings_decide_nothing(options):
    run = made(FIGURE)
    assert claims(Monotonicity(**options), run) == []
    assert claims(Monotonicity(seeds=2_000, longest=10, probes=4), run)


def test_correlation_is_that_of_numpy_and_undefined_for_equal_values():
    rng = np.random.default_rng(3)
    run = made({str(i): (r, m) for i, (r, m) in enumerate(rng.uniform(0.1, 0.9, (6, 2)).round(3))})
    sets = read_learners(Monotonicity(), run).sets
    found = correlation(sets)
    assert found.value == pytest.approx(np.corrcoef(sets["risk"].mean("seed"), sets["nearer"].mean("seed"))[0, 1])
    assert found.low < found.value < found.high
    assert "−" in str(correlate({"a": (0.1, 0.9), "b": (0.2, 0.5)}))
    alike = correlate({"a": (0.1, 1.0), "b": (0.2, 1.0)})
    assert math.isnan(alike.value) and not alike.verdict(1).holds
    assert str(alike) == "undefined, as all risks or all indices are equal"


def test_the_interval_of_a_correlation_narrows_with_more_sets():
    three = {"a": (0.1, 0.9), "b": (0.2, 0.6), "c": (0.15, 0.7)}
    few, many = (correlation(read_learners(Monotonicity(), made(three, n)).sets) for n in (50, 5_000))
    assert many.high - many.low < (few.high - few.low) / 3


@pytest.mark.parametrize("changed", [{}, {"δ = 1": (0.001, 0.55)}, {DISTILLATION: (0.0052, 0.5)}])
def test_the_headline_is_true_for_other_values(changed):
    words = story(Monotonicity(), made(FIGURE | changed)).headline
    assert ("the lowest of 8 learners" in words) == ("δ = 1" not in changed)
    assert ("where δ = 1 has 0.0010" in words) == ("δ = 1" in changed)
    assert ("more than for any other" in words) == (DISTILLATION not in changed)
    assert ("where δ = 0.0625 has 72.0%" in words) == (DISTILLATION in changed)
    assert "nan" not in words.lower()


def test_one_set_is_enough_for_a_story():
    study = Monotonicity(**SMALL | {"seeds": 1})
    found = story(study, computed_run(study))
    assert "nan" not in " ".join([found.headline, *(n.value for n in found.numbers)]).lower()
    assert len(found.figures) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": -1.0}, "--kappa must be above 0, got -1"),
        ({"kappa": math.nan}, "--kappa must be above 0, got nan"),
        ({"inputs": 0}, "--inputs must be at least 1, got 0"),
        ({"inputs": 99}, "--inputs must be at most dim − 2 = 98, got 99"),
        ({"dim": 2}, "--dim must be at least 3, got 2"),
        ({"deltas": ()}, "--deltas needs at least one value"),
        ({"deltas": (1.0, 1.0)}, "--deltas takes each value once, got 1 1"),
        ({"deltas": (0.0,)}, "--deltas must be above 0, got 0"),
        ({"rate": 0.0}, "--rate must be above 0, got 0"),
        ({"steps": 0}, "--steps must be at least 1, got 0"),
        ({"probes": 1}, "--probes must be at least 2, got 1"),
        ({"confidence": 1.0}, "--confidence must be above 0 and below 1, got 1"),
        ({"dtype": "float32"}, "--dtype must be float64, got float32"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError) as refused:
        Monotonicity(**options)
    assert words in str(refused.value)


def test_a_set_depends_only_on_its_seed():
    alone, among = (Monotonicity(**SMALL | {"seeds": n}) for n in (1, 5))
    risks = [values(study, computed_run(study), LIMIT)[0] for study in (alone, among)]
    assert risks[0] == pytest.approx(risks[1], rel=1e-9)
    assert torch.equal(alone.task(LIMIT).inputs([1], 3)[0], among.task(LIMIT).inputs([1, 2], 3)[0])


def test_learners_are_computed_on_the_chosen_gpu(small, monkeypatch):
    study, run = small
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with FakeGpu() as gpu:
        there = computed_run(Monotonicity(**SMALL, device="cuda"))
    assert gpu.calls > 500
    for name in study.learners:
        assert values(study, there, name) == pytest.approx(values(study, run, name), rel=1e-6, abs=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_learners_on_a_gpu_are_those_of_the_cpu(small):
    study, run = small
    there = computed_run(Monotonicity(**SMALL, device="cuda"))
    for name in study.learners:
        assert values(study, there, name) == pytest.approx(values(study, run, name), rel=1e-6, abs=1e-9)


def test_a_correlation_is_negative_if_its_whole_interval_is():
    assert RiskCorrelation(-0.4, -0.6, -0.1).verdict(1).holds
    assert not RiskCorrelation(-0.4, -0.9, 0.1).verdict(1).holds
    assert not RiskCorrelation(0.1, -0.9, -0.1).verdict(1).holds


def test_learners_of_almost_equal_deltas_have_different_names():
    names = Monotonicity(deltas=(0.1234567, 0.1234568, 0.5)).learners
    assert len(set(names)) == len(names) and "δ = 0.5" in names
