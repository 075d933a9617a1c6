"""Data geometry: what is in the tables, what counts, and what is refused."""

import dataclasses

import numpy as np
import pytest

from support.made import Made
from understudy.errors import UserError
from understudy.papers.distillation.data_geometry.claims import _counts, _falls, claims, tasks
from understudy.papers.distillation.data_geometry.story import _headline
from understudy.papers.distillation.data_geometry.study import DataGeometry
from understudy.papers.distillation.shared import Cell
from understudy.papers.distillation.theory.risk import Estimate
from understudy.papers.distillation.theory.soft_labels import angle, solution
from understudy.papers.distillation.theory.tasks import AngleTask

SMALL = DataGeometry(seeds=40, dim=50, inputs=4, kappa=(2.0, 0.5, 1.0))
BOUNDS = {"bound": 0.5, "printed bound": 0.6, "corollary": 0.7}


@pytest.fixture(scope="module")
def run():
    return Made(SMALL)


def cell(kappa, mean, low=None, high=None, risks=None):
    risk = Estimate(mean, mean if low is None else low, mean if high is None else high, 1000)
    values = {"risk": np.full(3, mean) if risks is None else np.array(risks)}
    return Cell({"kappa": kappa}, np.arange(3), values, {"risk": risk}, BOUNDS)


def test_tables_are_the_exact_risks_of_what_flow_ends_in(run):
    found = tasks(run)
    assert [c.parameters["kappa"] for c in found] == [0.5, 1.0, 2.0]
    task = AngleTask(50, 1.0)
    x = task.compact(range(1, 41), 4)
    wanted = task.risk(angle(solution(x, task.teacher[:5]), task.teacher[:5]))
    assert found[1].values["risk"] == pytest.approx(wanted.numpy(), rel=1e-12)
    assert found[1].means["risk"].mean == pytest.approx(float(wanted.mean()))
    assert found[1].means["risk"].sets == 40
    # Uniform angles, n = 4: corollary 5.2 is (1 + log 4)/4.
    assert found[1].once["corollary"] == pytest.approx((1 + np.log(4)) / 4)
    for one in found:
        assert one.means["risk"].mean < one.once["bound"] <= one.once["printed bound"] <= one.once["corollary"]


def made(study, metric):
    rows = next(study.pieces()).make(0)["metrics"].to_pylist()
    return [row["value"] for row in rows if row["metric"] == metric]


def test_a_set_follows_from_its_seed_alone(run):
    fewer = dataclasses.replace(SMALL, seeds=10, kappa=(1.0,))
    assert made(fewer, "risk") == tasks(run)[1].values["risk"][:10].tolist()


def test_as_many_inputs_as_dimensions_leave_no_risk():
    study = DataGeometry(seeds=3, dim=4, inputs=5, kappa=(1.0,))
    assert made(study, "risk") == [0, 0, 0]
    assert made(study, "bound") == [0]


def test_the_risk_falls_with_kappa_where_it_does():
    fine = [cell(0.5, 0.02, 0.015, 0.025), cell(1.0, 0.01, 0.005, 0.016), cell(2.0, 0.0)]
    claim = _falls(fine)
    assert claim.holds
    assert "apart at 1 of 2 steps" in claim.measured
    assert claim.beside[0].holds
    assert not _falls([fine[0], fine[0]]).holds
    assert not _falls(fine[::-1]).holds
    assert not _falls([cell(0.5, 0.55), cell(1.0, 0.1)]).beside[0].holds


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
def test_a_value_counts_where_the_interval_holds_a_number_rounded_to_it(kappa, low, high, holds):
    assert _counts(cell(kappa, (low + high) / 2, low, high)).holds is holds


def test_it_is_decided_at_the_settings_of_the_figure_alone(run):
    assert claims(SMALL, run) == []
    for other in ({"dim": 500}, {"inputs": 21}, {"kappa": (0.5, 1.0)}, {"seeds": 999}):
        assert claims(dataclasses.replace(DataGeometry(), **other), run) == []
    assert len(claims(DataGeometry(kappa=(0.5, 1.0, 2.0), seeds=1_000), run)) == 4


def test_the_headline_is_true_of_one_kappa_and_of_risks_that_rise(run):
    assert "falls at every step from" in SMALL.story(run).headline
    assert "goes from 0.01 at κ = 1 to 0.02 at κ = 2." in _headline(SMALL, [cell(1.0, 0.01), cell(2.0, 0.02)])
    assert "a linear student is 0.01 at κ = 1." in _headline(SMALL, [cell(1.0, 0.01)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": (-1.0,)}, "--kappa: -1.0 was given; allowed is a number above 0"),
        ({"kappa": (0.0, 1.0)}, "--kappa: 0.0 was given; allowed is a number above 0"),
        ({"kappa": (1.0, 1.0)}, "name each value once"),
        ({"inputs": 0}, "--inputs: 0 was given; allowed is a whole number from 1"),
        ({"dim": 1}, "--dim: 1 was given; allowed is a whole number from 2"),
        ({"confidence": 1.0}, "--confidence: 1 was given; allowed is a number above 0 and below 1"),
        ({"dtype": "float32"}, "theory is computed in float64 alone"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, words):
    with pytest.raises(UserError) as error:
        DataGeometry(**options)
    assert words in str(error.value)
