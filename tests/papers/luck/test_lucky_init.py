"""The study of lucky initialisation: what it records, decides and refuses."""

import numpy as np
import pytest

from support.commands import Said
from understudy import students
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.papers.luck.lucky_init import claims as lucky_init_claims
from understudy.papers.luck.lucky_init.claims import (
    applies_to_the_figure,
    bounds,
    bounds_hold,
    in_setting,
    nearest_fastest,
    norms,
    of_figure,
    tolerance,
)
from understudy.papers.luck.lucky_init.study import FIGURE, SETTINGS, LuckyInit
from understudy.papers.luck.theory.simulation import probe_students, simulate, unit_columns

SMALL = {"seeds": 2, "dim": 4, "teacher_nodes": 3, "outputs": 4, "multiple": (2.0,), "steps": 20, "every": 10}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    study = LuckyInit(**SMALL, bounded=8, device="cpu")
    return study, execute(study, tmp_path_factory.mktemp("runs"), Said())


def test_the_tables_agree_with_the_simulation(made):
    study, run = made
    teacher = unit_columns((4, 3, 4), seeds=[1, 2])
    start = students.near(teacher, multiple=2, weights=5.0, fan_out=0.0)
    for rule in study.rules:
        readings = [probe_students(teacher, now) for now in simulate(teacher, start, rule=rule, probes=study.probes)]
        for metric, part in (("v_u", "near"), ("v_r", "others"), ("cosine", "cosine")):
            found = of_figure(run, metric, rule).sel(start="(5, 0)", multiple=2.0)
            wanted = np.stack([getattr(each, part).numpy() for each in readings], axis=1)
            assert np.allclose(found, wanted, atol=1e-12)
    assert run.networks.num_rows == 2 * 4 * 2 + 2 * len(SETTINGS)
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert run.networks["setting"].to_pylist().count(FIGURE) == 16


def test_bounds_are_recorded_where_a_theorem_applies(made):
    _, run = made
    for setting in SETTINGS:
        found = bounds(run, setting)
        force = in_setting(run, setting, "in_force").isel(epoch=0).to_numpy().astype(bool)
        assert found.in_force.shape == (2, 9)
        assert (found.in_force.any(axis=1) == force).all()
        assert found.kept[found.in_force].all()
    assert all(bounds(run, s).in_force.any() for s in SETTINGS if s.theorem == 5)


def test_a_broken_bound_is_found(made, monkeypatch):
    study, run = made
    setting = next(s for s in SETTINGS if s.theorem == 4 and s.nodes == 3)
    assert bounds_hold(study, run, "", 4, "").holds
    series = type(run).series

    def smaller_bounds(self, metric, layer=-1):
        return series(self, metric, layer) * (0.01 if metric == "sin_angle_bound" else 1)

    monkeypatch.setattr(type(run), "series", smaller_bounds)
    found = bounds(run, setting)
    assert (found.in_force & ~found.kept).any()
    assert not bounds_hold(study, run, "", 4, "").holds


def test_a_theorem_that_applies_nowhere_does_not_hold(made, monkeypatch):
    study, run = made
    series = type(run).series

    def none(self, metric, layer=-1):
        return series(self, metric, layer) * (np.nan if metric.endswith("_bound") else 1)

    monkeypatch.setattr(type(run), "series", none)
    verdict = bounds_hold(study, run, "", 4, "")
    assert not verdict.holds
    assert "of 0 network-steps" in verdict.measured


@pytest.mark.parametrize(
    ("off", "times", "holds"),
    [(0.0, 1.0, True), (0.049, 1.0, True), (0.051, 1.0, False), (0.0, 1.24, True), (0.0, 1.26, False)],
)
def test_norms_are_compared_with_the_printed_values(made, monkeypatch, off, times, holds):
    study, run = made
    monkeypatch.setattr(lucky_init_claims, "AT", 20)
    u, r = (
        of_figure(run, name, "rescaled").sel(start="(1, 1)", multiple=2.0, epoch=20).mean().item()
        for name in ("v_u", "v_r")
    )
    verdict = norms(study, run, p_w=1.0, p_v=1.0, near=u - off, others=r * times, off=tolerance(r * times))
    assert verdict.holds == holds
    assert verdict.n == 2


@pytest.mark.parametrize(("value", "slack"), [(0.001, 0.0005), (0.09, 0.018), (0.37, 0.074)])
def test_small_norms_are_compared_up_to_a_share_or_half_of_the_last_digit(value, slack):
    assert tolerance(value) == pytest.approx(slack)


def test_no_theorem_applies_to_the_networks_of_the_figure(made):
    study, run = made
    verdict = applies_to_the_figure(study, run)
    assert not verdict.holds
    assert verdict.n == 8
    assert verdict.measured.startswith("in 0 of 8 networks; γ of theorem 4 is at most ")


def test_the_order_of_starts_is_reported_for_every_multiple(made):
    study, run = made
    verdict = nearest_fastest(study, run)
    left = of_figure(run, "v_r", "rescaled").sel(start=["(10, 10)", "(1, 1)", "(5, 0)"], multiple=2.0)
    left = (left.sel(epoch=20) / left.sel(epoch=0)).mean("seed").to_numpy()
    assert verdict.measured.endswith(f"2×: {', '.join(f'{share:.3f}' for share in left)}")


def test_every_claim_is_decided_if_the_settings_are_accepted(made, monkeypatch):
    study, run = made
    monkeypatch.setattr(lucky_init_claims, "AT", 20)
    monkeypatch.setattr(lucky_init_claims.claims, "applies", lambda study: True)
    found = study.claims(run)
    assert [claim.id for claim in found] == ["Y10"] * 4 + ["Y11"] * 4
    assert all(claim.measured for claim in found)


def test_claims_are_decided_on_the_papers_settings_only(made):
    study, run = made
    assert study.claims(run) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p_w": (1.0, 2.0), "p_v": (1.0,)}, r"--p-v must have as many values as --p-w \(2\), got 1"),
        ({"p_w": (1.0, 1.0), "p_v": (2.0, 2.0)}, "--p-w and --p-v must give each pair once"),
        ({"p_w": (-1.0,), "p_v": (0.0,)}, "--p-w must be at least 0, got -1"),
        ({"multiple": (1.0,)}, "--multiple must be above 1, got 1"),
        ({"every": 300}, r"--every must divide the number of steps \(20,000\), got 300"),
        ({"rules": ()}, "--rules needs at least one value"),
        ({"rules": ("sgd", "sgd")}, "--rules takes each value once, got sgd sgd"),
        ({"lr": 0.0}, "--lr must be above 0, got 0"),
        ({"teacher_nodes": 5, "multiple": (2.5,)}, "choose a multiple that gives whole numbers"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        LuckyInit(**options)
