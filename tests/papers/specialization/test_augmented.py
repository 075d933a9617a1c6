"""The study `augmented`: what it trains, what it decides (P3), and what it reports."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.papers.specialization.augmented.claims import EXPONENTS, aligned_share, samples_needed, sizes
from understudy.papers.specialization.augmented.study import AugmentedData, SampleSetting

FULL = AugmentedData()
TINY = AugmentedData(
    seeds=2,
    samples=(10, 60),
    dim=(3, 5),
    teacher_nodes=(2,),
    active=(0.5,),
    over_realization=2.0,
    epochs=3,
    steps=50,
    evaluation=50,
    outputs=3,
)


def aligned_run(study, needed):
    """Half of the nodes are aligned with few samples, and all (ε = 0.1) from `needed(data, cell, seed)` on.

    The distance falls as the square of the number of samples.
    """
    rows, sin = [], []
    for cell in study.settings:
        for kind in study.data:
            for samples in study.samples:
                for seed in study.seed_names:
                    rows.append({"data": kind, "samples": samples} | cell._asdict() | {"seed": seed})
                    own = np.full(max(study.teacher_nodes), np.nan)
                    own[: cell.teacher_nodes] = 0.01
                    own[: cell.teacher_nodes // 2] = min(1.0, 0.0999 * (needed(kind, cell, seed) / samples) ** 2)
                    sin.append(own)
    angles = np.array(sin)[:, None]
    return made_run(rows, (20,), nodes={("teacher", "sin_angle"): angles, ("teacher", "bias_gap"): angles / 2})


def decided(study, run):
    found = study.claims(run)
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    return {claim.part: claim for claim in found}


# Claim P3


def linear(kind, cell, seed):
    """As many samples as a number of parameters, a little different between seeds."""
    return (1 + 0.1 * (seed % 3)) * cell.dim * cell.teacher_nodes * 0.9


def quadratic(kind, cell, seed):
    """Grows as d², but as little as `linear` with the nodes."""
    return (1 + 0.1 * (seed % 3)) * cell.dim**2 * cell.teacher_nodes * 0.06


def test_p3_holds_where_samples_grow_as_the_number_of_parameters():
    claims = decided(FULL, aligned_run(FULL, linear))
    assert list(claims) == [
        f"{name}, {symbol}" for name in ("theorem 3", "theorem 4") for symbol in ("d", "K", "1/κ", "1/ε")
    ]
    assert all(claim.holds and claim.n == 16 for claim in claims.values())
    assert "two standard errors allowed" in claims["theorem 3, d"].statement
    assert claims["theorem 4, d"].paper == "exponent 1"


def test_p3_does_not_hold_for_theorem_4_where_samples_grow_as_d_squared():
    claims = decided(FULL, aligned_run(FULL, quadratic))
    assert {part for part, claim in claims.items() if not claim.holds} == {"theorem 4, d"}


def test_p3_is_not_decided_where_a_student_is_never_aligned():
    def needed(kind, cell, seed):
        return np.inf if (seed, cell.dim, kind) == (3, 32, "aware") else linear(kind, cell, seed)

    claims = decided(FULL, aligned_run(FULL, needed))
    assert {part for part, claim in claims.items() if claim.holds is None} == {"theorem 4, d"}
    assert claims["theorem 4, d"].would_decide.startswith("more samples")


def test_the_samples_needed_are_those_from_which_on_enough_nodes_are_aligned():
    def needed(kind, cell, seed):
        return 70 if cell.dim == 32 else 15

    run = aligned_run(FULL, needed)
    values, found = samples_needed(FULL, run, "plain", "dim")
    np.testing.assert_array_equal(values, [4, 8, 16, 32])
    np.testing.assert_array_equal(found, [[15] * 16] * 3 + [[70] * 16])
    np.testing.assert_array_equal(sizes(FULL, "teacher_nodes", np.array([2, 4])), [12, 24])
    np.testing.assert_allclose(sizes(FULL, "active", np.array([0.25])), 4)
    values, found = samples_needed(FULL, run, "plain", "active")
    density = np.exp(-(0.674489750196**2) / 2)  # of N(0, 1) at its upper quartile, relative to that at 0
    assert found[list(values).index(0.25), 0] == pytest.approx(15 * density)
    assert found[list(values).index(0.5), 0] == 15
    values, found = samples_needed(FULL, run, "plain", "eps")
    np.testing.assert_array_equal(values, [0.03, 0.05, 0.1, 0.2])
    np.testing.assert_array_equal(found[:, 0], [30, 30, 15, 15])  # 15 √(0.1/ε) is 27.4, 21.2, 15 and 10.6
    np.testing.assert_allclose(sizes(FULL, "eps", values), 1 / values)


def test_the_aligned_share_is_that_of_the_networks_own_teacher():
    run = aligned_run(FULL, lambda kind, cell, seed: 100)
    share = aligned_share(run, 0.1)
    few = run.column("samples") < 100
    assert (share[few] == 0.5).all() and (share[~few] == 1).all()


@pytest.mark.parametrize("other", [{"eps": (0.2,)}, {"seeds": 8}, {"samples": (10, 100)}, {"epochs": 10}])
def test_nothing_is_decided_in_other_settings(other):
    study = dataclasses.replace(FULL, **other)
    assert not study.claims(aligned_run(study, linear))


def test_the_exponents_are_those_of_the_theorems():
    """N = O(K^{5/2} d² ε⁻¹ κ⁻¹), and O(K^{5/2} d ε⁻¹ κ⁻¹) with teacher-aware augmentation."""
    assert EXPONENTS["agnostic"] == {"dim": 2, "teacher_nodes": 2.5, "active": 1, "eps": 1}
    assert EXPONENTS["aware"] == EXPONENTS["agnostic"] | {"dim": 1}


# What is trained


def test_one_value_is_varied_at_a_time():
    study = AugmentedData(dim=(8, 4), teacher_nodes=(4, 2), active=(0.5, 0.2))
    assert study.settings == (
        SampleSetting(8, 4, 0.5),
        SampleSetting(4, 4, 0.5),
        SampleSetting(8, 2, 0.5),
        SampleSetting(8, 4, 0.2),
    )
    assert study.boundaries(SampleSetting(8, 4, 0.5)) == 4 + 20


def test_teacher_nodes_are_active_on_the_given_share():
    study = AugmentedData(seeds=2)
    teacher = study.teacher(SampleSetting(8, 4, 0.25))
    x = us.data.Gaussian(8, 1.0, evaluation=20_000).evaluating(1)
    active = (teacher.activations(x).hidden[0] > 0).double().mean(1)
    assert (active - 0.25).abs().max() < 4 * np.sqrt(0.25 * 0.75 / 20_000)


def test_groups_are_trained_on_augmented_data():
    made = TINY.experiment()
    assert len(made.parameters) == sum(len(group.students) for group in made.groups) == 2 * 3 * 2 * 2
    rows = iter(made.parameters)
    for group in made.groups:
        for seed in group.students.seeds.tolist():
            row = next(rows)
            assert row["seed"] == seed and row["dim"] == group.data.dim
            plain = us.data.Gaussian(row["dim"], 1.0, train=row["samples"]).training(seed, dtype=torch.float64)
            if row["data"] == "plain":
                expected = plain
            elif row["data"] == "agnostic":
                expected = us.data.agnostic(plain, 0.1, 6)
            else:
                expected = us.data.aware(plain, group.teacher, 0.1, 6)
            assert torch.equal(group.data.training(seed), expected.float())


def test_options_are_validated():
    assert list(AugmentedData(seeds=2, first_seed=101).seed_names) == [101, 102]
    assert studies()["augmented"] is AugmentedData
    with pytest.raises(UserError, match="--active must be above 0 and below 1, got 1"):
        AugmentedData(active=(1.0,))
    with pytest.raises(UserError, match="--data must be one of agnostic, aware, plain, got blind"):
        AugmentedData(data=("blind",))
    with pytest.raises(UserError, match=r"--samples must be at least the batch size \(8\), got 7"):
        AugmentedData(samples=(7, 20))


# Report


def test_from_training_to_report(tmp_path):
    run = execute(TINY, tmp_path, Said())
    assert run.claims == []
    story = TINY.story(run)
    assert story.headline.startswith("Students are aligned with 75% of the teacher nodes from this number of samples")
    figures = {figure.name: figure.kind for figure in story.figures}
    assert list(figures) == ["aligned", "needed"]
    share = aligned_share(run, 0.1)
    (panel,) = figures["aligned"].panels
    first = (run.column("dim") == 3) & (run.column("data") == "aware")
    expected = [share[first & (run.column("samples") == n)].mean() for n in TINY.samples]
    np.testing.assert_allclose(panel.series[1].y, expected)
    assert (run.folder / "report.html").stat().st_size > 10_000


def test_a_run_in_which_every_network_diverged(tmp_path):
    study = dataclasses.replace(TINY, lr=1e9, epochs=1)
    assert study.story(execute(study, tmp_path, Said())).headline.startswith("All 24 networks diverged")
