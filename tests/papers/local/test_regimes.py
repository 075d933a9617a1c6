"""The study regimes: initial students, targets, trajectories and claims."""

import dataclasses

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from support.commands import Said
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.lab.study import named_pieces
from understudy.papers.local.regimes.claims import (
    add_turns,
    heavy,
    largest_angles,
    largest_turns,
    lazy_students_stay,
    light_words,
    matches,
    regimes,
    stays,
)
from understudy.papers.local.regimes.study import LARGE, LAZY, LOCAL, MEAN_FIELD, REGIMES, Regimes
from understudy.papers.local.theory.gaussian import decompose_residual, kernel, loss
from understudy.papers.local.theory.geometry import local_geometry

SHORT = Regimes(seeds=2, steps=3_000, probes=20)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SHORT, tmp_path_factory.mktemp("runs"), Said())


def output(students, x):
    return (students.norm(dim=-1).unsqueeze(-2) * (x @ students.mT).abs()).sum(-1)


@pytest.mark.parametrize("regime", REGIMES)
def test_a_problem_does_not_depend_on_batch_composition(regime):
    alone, among = SHORT.problem(regime, [5]), SHORT.problem(regime, [6, 5])
    for one, several in zip(alone, among, strict=True):
        assert torch.equal(one[0], several[1])


def test_teachers_are_separated_and_of_length_one():
    teachers = SHORT.problem(MEAN_FIELD, range(1, 41)).teachers
    assert teachers.norm(dim=-1).numpy() == pytest.approx(np.ones((40, 3)))
    off = (teachers @ teachers.mT).abs()[:, ~torch.eye(3, dtype=torch.bool)]
    assert float(off.max()) <= np.cos(0.5) + 1e-12


def test_lazy_students_start_at_the_loss_of_the_zero_function():
    """The centred model is 0 initially, so that the loss is ½ E f*²."""
    made = SHORT.problem(LAZY, range(1, 9))
    halves = kernel(made.teachers, made.teachers).sum((-2, -1)) / 2
    assert loss(made.students, made.target).numpy() == pytest.approx(halves.numpy())


def test_the_target_of_lazy_students_is_their_initial_output_plus_the_teacher():
    made = SHORT.problem(LAZY, [1, 2])
    x = torch.randn(2, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = (x @ made.target.mT).abs().sum(-1)
    assert torch.allclose(target, output(made.students, x) + (x @ made.teachers.mT).abs().sum(-1))
    for regime in (MEAN_FIELD, LOCAL, LARGE):
        assert SHORT.problem(regime, [1]).target.shape[1] == 3


def test_lazy_and_large_regimes_start_alike_and_rates_decrease_with_the_mass():
    lazy, large, small = (SHORT.problem(name, [1]) for name in (LAZY, LARGE, MEAN_FIELD))
    assert torch.equal(lazy.students, large.students)
    assert torch.allclose(lazy.students / 10, small.students / 0.01)
    mass = float(lazy.students.square().sum())
    assert float(lazy.rates) == pytest.approx(0.05 * 3 / mass)
    assert float(small.rates) == 0.05


@given(seed=st.integers(1, 5), students=st.integers(3, 25))
def test_local_students_are_spread_up_to_the_angle(seed, students):
    study = dataclasses.replace(SHORT, students=students)
    made = study.problem(LOCAL, [seed])
    found = decompose_residual(made.students, made.teachers, torch.arange(students)[None] % 3)
    most = -(-students // 3)
    wanted = [0.3 * (j // 3 + 1) / most for j in range(students)]
    assert found.angles[0].numpy() == pytest.approx(wanted, rel=1e-9)
    assert float(made.students.square().sum()) == pytest.approx(3)


def test_lazy_students_keep_their_directions_and_the_others_turn(run):
    found = regimes(run)
    turns = {name: largest_turns(found.sel(regime=name)) for name in REGIMES}
    assert turns[LAZY].max() < 0.02
    verdict = lazy_students_stay(SHORT, run)
    assert verdict.holds and verdict.n == 2
    assert [variant.holds for variant in verdict.variants] == [False]  # the large regime
    assert min(turns[name].min() for name in (MEAN_FIELD, LOCAL, LARGE)) > 0.1
    loss = found["loss"].sel(regime=[LAZY, MEAN_FIELD, LOCAL])
    assert (loss.isel(epoch=-1) < 0.05 * loss.isel(epoch=0)).all()
    left = (found["share"] * found["angle"]).sum("student").sel(regime=[MEAN_FIELD, LOCAL])
    assert (left.isel(epoch=-1) < 0.3 * left.isel(epoch=0)).all()


def test_tables_contain_every_trajectory(run):
    nodes = run.nodes.to_pydict()
    assert set(nodes["role"]) == {"student", "teacher", "target"}
    found = regimes(run).sel(regime=MEAN_FIELD)
    places = np.stack([found["x"], found["y"]], -1)
    assert places.shape == (2, len(run.epochs), 20, 2)
    assert np.allclose(places[:, 0], SHORT.problem(MEAN_FIELD, [1, 2]).students.numpy())
    x = run.matched("teacher", "x", epoch=0)
    assert np.allclose(x[:2], SHORT.problem(LAZY, [1, 2]).teachers[..., 0].numpy())
    assert run.claims == []


@pytest.mark.parametrize("regime", REGIMES)
def test_quantities_of_the_proofs_are_recorded_for_every_regime(run, regime):
    """For lazy students they refer to the nodes of their target, which include the initial students."""
    network = int(np.flatnonzero(run.column("regime") == regime)[0])
    metrics = {
        m for n, m in zip(*(run.metrics[c].to_pylist() for c in ("network", "metric")), strict=True) if n == network
    }
    assert {"gradient_norm", "ratio", "squared_ratio", "linear", "bent", "least_eigenvalue"} <= metrics
    assert ("descent" in metrics) == (regime != LAZY)  # some target nodes of lazy students have no student near them
    assert {f"lemma {lemma} left" for lemma in ("8", "9", "10", "11", "12", "13", "C.3", "C.4")} <= metrics
    rows = [row for row in run.nodes.to_pylist() if row["network"] == network and row["epoch"] == 0]
    made, role = SHORT.problem(regime, [1]), "target" if regime == LAZY else "teacher"
    found = local_geometry(made.students, made.target)
    nodes = [row for row in rows if row["role"] == role]
    assert [row["teacher"] for row in nodes] == list(range(made.target.shape[1]))
    for name, wanted in (
        ("count", found.counts),
        ("mass", found.mass),
        ("average", found.averages),
        ("gap", found.gaps),
    ):
        assert np.array([row[name] for row in nodes]) == pytest.approx(wanted[0].numpy(), abs=1e-12), name
    ours = [row for row in rows if row["role"] == "student"]
    owner, angle = ("target", "target_angle") if regime == LAZY else ("teacher", "angle")
    assert [row[owner] for row in ours] == found.assignment[0].tolist()
    assert [row[angle] for row in ours] == pytest.approx(found.angles[0].tolist(), abs=1e-12)
    assert [row["norm"] for row in ours] == pytest.approx(made.students[0].norm(dim=-1).tolist())
    for row, wanted in zip(ours, found.direction[0].tolist(), strict=True):
        assert row["direction"] is None if np.isnan(wanted).any() else row["direction"] == pytest.approx(wanted)


def test_a_rate_above_the_bound_causes_a_warning(capsys):
    high = dataclasses.replace(SHORT, rate=0.5)
    assert "--rate 0.5 is above" in high.warnings()[0]
    assert SHORT.warnings() == ()
    named_pieces(high)
    assert "warning: --rate 0.5" in capsys.readouterr().err


def test_diverged_networks_are_marked_and_reported(tmp_path):
    study = Regimes(seeds=1, steps=200, probes=10, rate=40.0)
    run = execute(study, tmp_path, Said())
    assert any(at is not None for at in run.networks["diverged_at"].to_pylist())
    for figure in study.story(run).figures:
        figure.kind.paper()
        figure.kind.page()
    found = regimes(run)
    assert np.isinf(largest_turns(found.sel(regime=[name for name in REGIMES if name != LAZY]))).all()
    assert not matches(found.sel(regime=MEAN_FIELD)).holds
    headline = (run.folder / "headline.txt").read_text(encoding="utf-8")
    assert "diverged" in headline
    assert "Warning: --rate 40 is above" in headline


def made(places, angles=None):
    """Students of one seed from positions [probe, student, 2], or of several from [seed, probe, student, 2]."""
    places = np.asarray(places, dtype=float)
    places = places if places.ndim == 4 else places[None]
    angles = np.zeros(places.shape[:3]) if angles is None else np.reshape(np.asarray(angles, float), places.shape[:3])
    dims = ("seed", "epoch", "student")
    nodes = {"x": (dims, places[..., 0]), "y": (dims, places[..., 1]), "angle": (dims, angles)}
    return add_turns(xr.Dataset(nodes | {"loss": (dims[:2], np.ones(places.shape[:2]))}))


def test_turns_are_angles_with_the_initial_direction_at_every_probe():
    turned = made([[[1, 0], [0, 2]], [[1, 1], [0, 1]], [[3, 0], [0, 5]]])
    assert turned["turn"][0, 1].to_numpy() == pytest.approx([np.pi / 4, 0])
    assert largest_turns(turned) == pytest.approx([np.pi / 4])
    assert not stays(turned).holds
    still = made([[[1, 0], [0, 2]], [[1, 0.09], [0, 1]]])
    assert stays(still).holds


def test_only_students_that_carry_mass_must_match_and_the_others_are_counted():
    ends = [[1, 0], [0, 1], [0.1, 0]]
    good = made([ends], [[0.009, 0.001, 0.5]])
    assert heavy(good).tolist() == [[True, True, False]]
    verdict = matches(good)
    assert verdict.holds
    assert verdict.values == (0.009,)
    assert "2 of these 2 students" in verdict.measured
    assert "1 of 3 students carry less" in verdict.measured
    assert "1 of them end farther away, by up to 0.5 rad" in verdict.measured
    assert not matches(made([ends], [[0.011, 0.001, 0.0]])).holds
    assert "end as near" in light_words(made([ends], [[0.0, 0.0, 0.0]]))
    assert light_words(made([ends[:2]])) == "no student carries less"


def test_every_seed_must_match():
    """One of two seeds matches and the other does not."""
    places, angles = np.ones((2, 1, 2, 2)), np.array([[[0.0, 0.001]], [[0.0, 0.02]]])
    both = made(places, angles)
    assert largest_angles(both) == pytest.approx([0.001, 0.02])
    assert not matches(both).holds
    assert matches(made(places, angles / 10)).holds
    still, turned = [[[1, 0]], [[1, 0.01]]], [[[1, 0]], [[0, 1]]]
    assert not stays(made([still, turned])).holds


@pytest.mark.parametrize(("share", "carries"), [(0.02, True), (0.011, True), (0.009, False)])
def test_students_with_one_percent_of_the_mass_count(share, carries):
    light = made([[[1, 0], [0, (share / (1 - share)) ** 0.5]]], [[0.0, 0.5]])
    assert light["share"][0, 0, 1].item() == pytest.approx(share)
    assert heavy(light).tolist() == [[True, carries]]
    assert matches(light).holds is not carries


def test_a_diverged_network_refutes_the_claims():
    gone = made([[[1, 0], [0, 1]], [[np.nan] * 2] * 2], [[0, 0], [np.nan, np.nan]])
    assert not matches(gone).holds
    assert not stays(gone).holds


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"students": 2}, r"--students must be at least the number of teacher nodes \(3\), got 2"),
        ({"separation": 1.1}, "--separation must be at most 1.047, the largest for 3 lines in the plane, got 1.1"),
        ({"angle": 2.0}, "--angle must be above 0 and at most π/2, got 2"),
        ({"large": 0.0}, "--large must be above 0, got 0"),
        ({"probes": 1}, "--probes must be at least 2, got 1"),
        ({"dtype": "tf32"}, "--dtype must be float64, got tf32"),
    ],
)
def test_invalid_options_are_rejected(options, words):
    with pytest.raises(UserError, match=words):
        Regimes(**options)


def test_the_former_name_of_an_option_is_understood():
    config = SHORT.config()
    config["options"]["looks"] = config["options"].pop("probes")
    assert Regimes.from_config(config) == SHORT
