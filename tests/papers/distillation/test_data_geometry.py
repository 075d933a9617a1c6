"""The study `data-geometry`: its tables, the verdicts of its claims, its headline and the options it refuses."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from support.made import computed_run
from support.runs import made_run
from understudy._errors import UserError
from understudy.papers.distillation.data_geometry.claims import claims
from understudy.papers.distillation.data_geometry.study import DataGeometry
from understudy.papers.distillation.shared import estimates, read_settings
from understudy.papers.distillation.theory.soft_labels import angle, solution
from understudy.papers.distillation.theory.tasks import AngleTask
from understudy.store.units import read_units, unit_array

SMALL = DataGeometry(seeds=40, dim=50, inputs=4, kappa=(2.0, 0.5, 1.0))
BOUNDS = {"bound": 0.5, "printed bound": 0.6, "corollary": 0.7}


@pytest.fixture(scope="module")
def run():
    return computed_run(SMALL)


def risks(run, kappa):
    return unit_array(read_units(run, "sets"), "risk", "kappa seed").sel(kappa=kappa).values


def made(means):
    """A run of three sets per κ with these mean risks, or (mean, their distance from it)."""
    rows = {kappa: value if isinstance(value, tuple) else (value, 1e-4) for kappa, value in means.items()}
    settings = [
        {"kappa": kappa, "mean risk": mean, "low risk": mean, "high risk": mean} | BOUNDS
        for kappa, (mean, _) in rows.items()
    ]
    sets = [
        {"kappa": kappa, "seed": seed, "risk": mean + away * wide, "angle": mean}
        for kappa, (mean, wide) in rows.items()
        for seed, away in ((1, -1), (2, 0), (3, 1))
    ]
    return made_run([], sets=pa.Table.from_pylist(sets), settings=pa.Table.from_pylist(settings))


def decided(means):
    (claim,) = claims(DataGeometry(), made({0.5: 0.02, 1.0: 0.01, 2.0: 0.0} | means))
    return claim


def test_tables_hold_the_exact_risks_of_the_end_of_gradient_flow(run):
    settings = read_settings(run)
    found = estimates(settings, "risk", "kappa")
    assert found["kappa"].values.tolist() == [0.5, 1.0, 2.0]
    task = AngleTask(50, 1.0, draw=1)  # the second of the κ in their order
    x = task.compact(range(1, 41), 4)
    wanted = task.risk(angle(solution(x, task.teacher[:5]), task.teacher[:5]))
    assert risks(run, 1.0) == pytest.approx(wanted.numpy(), rel=1e-12)
    assert found["mean"].sel(kappa=1.0).item() == pytest.approx(float(wanted.mean()))
    assert len(risks(run, 1.0)) == 40
    rows = {row["kappa"]: row for row in settings.to_pylist()}
    # Uniform angles, n = 4: corollary 5.2 is (1 + log 4)/4.
    assert rows[1.0]["corollary"] == pytest.approx((1 + np.log(4)) / 4)
    for row in rows.values():
        assert row["mean risk"] < row["bound"] <= row["printed bound"] <= row["corollary"]


def test_a_set_depends_only_on_its_seed(run):
    fewer = computed_run(dataclasses.replace(SMALL, seeds=10))
    assert risks(fewer, 1.0).tolist() == risks(run, 1.0)[:10].tolist()


def test_as_many_inputs_as_dimensions_leave_no_risk():
    found = computed_run(DataGeometry(seeds=3, dim=4, inputs=5, kappa=(1.0,)))
    assert risks(found, 1.0).tolist() == [0, 0, 0]
    assert read_settings(found)["bound"].to_pylist() == [0]


def test_the_sets_of_different_kappa_are_independent(run):
    first = computed_run(dataclasses.replace(SMALL, kappa=(0.5, 0.5001)))
    one, other = risks(first, [0.5, 0.5001])
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.5


def test_the_claim_that_the_risk_falls_needs_every_step_to_fall_beyond_the_errors():
    found = decided({})
    assert found.holds and found.n == 3
    # The standard error of three risks ± 10⁻⁴ around their mean is 10⁻⁴/√3.
    assert found.values == pytest.approx([0.01 / (1e-4 * np.sqrt(2 / 3))] * 2)
    assert found.variants[0].holds
    assert not decided({1.0: 0.02}).holds
    assert not decided({0.5: 0.0, 2.0: 0.02}).holds
    assert decided({1.0: (0.01, 0.008)}).holds and not decided({1.0: (0.01, 0.0087)}).holds
    assert not decided({0.5: 0.55}).variants[0].holds


def test_claims_are_decided_only_in_the_settings_of_the_figure(run):
    assert claims(SMALL, run) == []
    for other in ({"dim": 500}, {"inputs": 21}, {"kappa": (0.5, 1.0)}, {"seeds": 999}):
        assert claims(dataclasses.replace(DataGeometry(), **other), run) == []
    assert len(claims(DataGeometry(seeds=1_000), run)) == 1


def test_the_headline_is_true_for_one_kappa_and_for_risks_that_rise(run):
    assert "falls at every step from" in SMALL.story(run).headline
    assert "goes from 0.01 at κ = 1 to 0.02 at κ = 2." in SMALL.story(made({1.0: 0.01, 2.0: 0.02})).headline
    assert "a linear student is 0.01 at κ = 1." in SMALL.story(made({1.0: 0.01})).headline


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": (-1.0,)}, "--kappa must be above 0, got -1"),
        ({"kappa": (0.0, 1.0)}, "--kappa must be above 0, got 0"),
        ({"kappa": (1.0, 1.0)}, "--kappa takes each value once"),
        ({"inputs": 0}, "--inputs must be at least 1, got 0"),
        ({"dim": 1}, "--dim must be at least 2, got 1"),
        ({"confidence": 1.0}, "--confidence must be above 0 and below 1, got 1"),
        ({"dtype": "float32"}, "--dtype must be float64"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError) as error:
        DataGeometry(**options)
    assert words in str(error.value)
