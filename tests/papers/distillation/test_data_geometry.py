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
    """A run of three sets per κ with these mean risks, or (mean, low, high)."""
    rows = {kappa: value if isinstance(value, tuple) else (value,) * 3 for kappa, value in means.items()}
    settings = [
        {"kappa": kappa, "mean risk": mean, "low risk": low, "high risk": high} | BOUNDS
        for kappa, (mean, low, high) in rows.items()
    ]
    sets = [
        {"kappa": kappa, "seed": seed, "risk": mean, "angle": mean}
        for kappa, (mean, *_) in rows.items()
        for seed in (1, 2, 3)
    ]
    return made_run([], sets=pa.Table.from_pylist(sets), settings=pa.Table.from_pylist(settings))


def decided(means):
    return {claim.part: claim for claim in claims(DataGeometry(), made({0.5: 0.02, 1.0: 0.01, 2.0: 0.0} | means))}


def test_tables_hold_the_exact_risks_of_the_end_of_gradient_flow(run):
    settings = read_settings(run)
    found = estimates(settings, "risk", "kappa")
    assert found["kappa"].values.tolist() == [0.5, 1.0, 2.0]
    task = AngleTask(50, 1.0)
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
    fewer = computed_run(dataclasses.replace(SMALL, seeds=10, kappa=(1.0,)))
    assert risks(fewer, 1.0).tolist() == risks(run, 1.0)[:10].tolist()


def test_as_many_inputs_as_dimensions_leave_no_risk():
    found = computed_run(DataGeometry(seeds=3, dim=4, inputs=5, kappa=(1.0,)))
    assert risks(found, 1.0).tolist() == [0, 0, 0]
    assert read_settings(found)["bound"].to_pylist() == [0]


def test_the_claim_that_the_risk_falls_needs_every_step_to_fall():
    found = decided({0.5: (0.02, 0.015, 0.025), 1.0: (0.01, 0.005, 0.016)})["falls"]
    assert found.holds
    assert "disjoint at 1 of 2 steps" in found.measured
    assert found.n == 3 and found.values == (0.02, 0.01, 0.0)
    assert found.variants[0].holds
    assert not decided({1.0: 0.02})["falls"].holds
    assert not decided({0.5: 0.0, 2.0: 0.02})["falls"].holds
    assert not decided({0.5: 0.55})["falls"].variants[0].holds


@pytest.mark.parametrize(
    ("kappa", "low", "high", "holds"),
    [
        (0.5, 0.0160, 0.0166, True),
        (0.5, 0.0160, 0.0164, False),
        (0.5, 0.0176, 0.0180, False),
        (1.0, 0.0004, 0.0005, True),
        (1.0, 0.0005, 0.0006, False),
        (2.0, 0.0, 1e-7, True),
        (2.0, 6e-5, 7e-5, False),
    ],
)
def test_a_value_is_found_if_the_interval_contains_a_number_rounded_to_it(kappa, low, high, holds):
    assert decided({kappa: ((low + high) / 2, low, high)})[f"κ = {kappa:g}"].holds is holds


def test_claims_are_decided_only_in_the_settings_of_the_figure(run):
    assert claims(SMALL, run) == []
    for other in ({"dim": 500}, {"inputs": 21}, {"kappa": (0.5, 1.0)}, {"seeds": 999}):
        assert claims(dataclasses.replace(DataGeometry(), **other), run) == []
    assert len(claims(DataGeometry(kappa=(0.5, 1.0, 2.0), seeds=1_000), run)) == 4


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
