"""The study of lucky starts: what it records, decides and refuses."""

import numpy as np
import pytest

from support.commands import Said
from understudy import students
from understudy.errors import UserError
from understudy.lab.execute import execute
from understudy.papers.luck.lucky_init import claims as lucky_init_claims
from understudy.papers.luck.lucky_init.claims import bounds, in_setting, of_figure
from understudy.papers.luck.lucky_init.study import FIGURE, SETTINGS, LuckyInit
from understudy.papers.luck.theory.simulation import probe_students, simulate, unit_columns
from understudy.store import Claim

SMALL = {"seeds": 2, "dim": 4, "teacher_nodes": 3, "outputs": 4, "multiple": (2.0,), "steps": 20, "every": 10}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    study = LuckyInit(**SMALL, bounded=8, device="cpu")
    return study, execute(study, tmp_path_factory.mktemp("runs"), Said())


def test_it_records_what_the_simulation_gives(made):
    study, run = made
    teacher = unit_columns((4, 3, 4), seeds=[1, 2])
    start = students.near(teacher, multiple=2, weights=5.0, fan_out=0.0)
    for rule in study.rules:
        looks = [probe_students(teacher, now) for now in simulate(teacher, start, rule=rule, probes=study.looks)]
        for metric, layer, part in (("v_u", 1, "near"), ("v_r", 1, "others"), ("cosine", 0, "cosine")):
            found = of_figure(run, metric, layer, rule, 2.0, (5.0, 0.0))
            wanted = np.stack([getattr(each, part).numpy() for each in looks], axis=1)
            assert np.allclose(found, wanted, atol=1e-12)
    assert run.networks.num_rows == 2 * 4 * 2 + 2 * len(SETTINGS)
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert run.networks["setting"].to_pylist().count(FIGURE) == 16


def test_bounds_are_recorded_where_a_theorem_is_in_force(made):
    _, run = made
    for setting in SETTINGS:
        found = bounds(run, setting)
        force = in_setting(run, setting, "in_force", -1)[:, 0].astype(bool)
        assert found.in_force.shape == (2, 9)
        assert (found.in_force.any(axis=1) == force).all()
        assert found.kept[found.in_force].all()
    assert all(bounds(run, s).in_force.any() for s in SETTINGS if s.theorem == 5)


def test_a_broken_bound_is_seen(made, monkeypatch):
    _, run = made
    setting = next(s for s in SETTINGS if s.theorem == 4 and s.nodes == 3)
    assert lucky_init_claims._rates(run, 4, "", "").holds
    series = type(run).series

    def larger(self, metric, layer=-1):
        return series(self, metric, layer) * (0.01 if metric == "sin_angle_bound" else 1)

    monkeypatch.setattr(type(run), "series", larger)
    found = bounds(run, setting)
    assert (found.in_force & ~found.kept).any()
    assert not lucky_init_claims._rates(run, 4, "", "").holds


def test_where_nothing_is_in_force_nothing_holds(made, monkeypatch):
    _, run = made
    series = type(run).series

    def none(self, metric, layer=-1):
        return series(self, metric, layer) * (np.nan if metric.endswith("_bound") else 1)

    monkeypatch.setattr(type(run), "series", none)
    claim = lucky_init_claims._rates(run, 4, "", "")
    assert not claim.holds
    assert "of 0 network-steps" in claim.measured


@pytest.mark.parametrize(
    ("off", "times", "holds"),
    [(0.0, 1.0, True), (0.049, 1.0, True), (0.051, 1.0, False), (0.0, 1.24, True), (0.0, 1.26, False)],
)
def test_norms_are_held_against_the_values_that_count(made, monkeypatch, off, times, holds):
    _, run = made
    monkeypatch.setattr(lucky_init_claims, "AT", 20)
    ended = [of_figure(run, name, 1, "rescaled", 2.0, (1.0, 1.0))[:, -1].mean() for name in ("v_u", "v_r")]
    claim = lucky_init_claims._norms(run, (1.0, 1.0), float(ended[0] - off), float(ended[1] * times))
    assert claim.holds == holds
    assert claim.n == 2


@pytest.mark.parametrize(("value", "slack"), [(0.001, 0.0005), (0.09, 0.018), (0.37, 0.074)])
def test_small_norms_are_held_to_a_share_of_them_or_to_their_last_digit(value, slack):
    assert lucky_init_claims.slack(value) == pytest.approx(slack)


def test_every_part_of_the_claims_can_be_told(made):
    study, run = made
    for claim in (lucky_init_claims._own_setting(study, run), lucky_init_claims._order(study, run)):
        assert isinstance(claim, Claim)
        assert claim.measured
    assert "in 0 of " in lucky_init_claims._own_setting(study, run).measured


def test_only_the_papers_settings_decide(made):
    study, run = made
    assert study.claims(run) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p_w": (1.0, 2.0), "p_v": (1.0,)}, "--p-v: 1 values were given for 2 of --p-w"),
        ({"p_w": (1.0, 1.0), "p_v": (2.0, 2.0)}, "no pair twice"),
        ({"p_w": (-1.0,), "p_v": (0.0,)}, "--p-w: -1.0 was given; allowed is a number from 0"),
        ({"multiple": (1.0,)}, "--multiple: 1.0 was given; allowed is a number above 1"),
        ({"every": 300}, "--every: 300 was given; allowed is a number that divides the 20,000 steps"),
        ({"rules": ()}, "--rules: name one or more"),
        ({"lr": 0.0}, "--lr: 0.0 was given"),
        ({"teacher_nodes": 5, "multiple": (2.5,)}, "choose a multiple that gives whole numbers"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        LuckyInit(**options)
