"""The study `cifar-luck`: its teachers and students, claim D6, its figures, and the options it refuses."""

import dataclasses
import json
import re
import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch

import understudy as us
from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.papers.luck.cifar_luck.study import CifarLuck

LUCK = CifarLuck(
    seeds=2,
    train=200,
    evaluation=100,
    images="plain",
    batch=20,
    device="cpu",
    fc_layers=(3, 4, 5),
    cnn_layers=(3, 2),
    over_realization=2.0,
    teacher_epochs=2,
    teacher_decay=0.0,
    teacher_lr=0.001,
    cnn_teacher_lr=0.001,
    epochs=2,
    lr=0.001,
    cnn_lr=0.001,
    cnn_norm_lr=0.001,
)


def at(study, folder):
    return dataclasses.replace(study, data=str(folder))


@pytest.fixture(scope="module")
def luck(cifar, tmp_path_factory):
    return execute(at(LUCK, cifar), tmp_path_factory.mktemp("runs"), Said())


def same(one, other):
    parts = zip((*one.layers, *one.norms), (*other.layers, *other.norms), strict=True)
    return all(torch.equal(a, b) for left, right in parts for a, b in zip(left, right, strict=True))


def figures_of(study, run):
    return {figure.name: figure for figure in study.story(run).figures}


# Teachers and students


def test_teachers_have_batchnorm_and_the_sizes_of_the_paper():
    fc, cnn = CifarLuck().depends_on()
    assert (fc.network, fc.layers, fc.norm) == ("fc", (50, 75, 100, 125), "after")
    assert (cnn.network, cnn.layers, cnn.norm) == ("cnn", (64, 64, 64), "after")
    assert [need.network for need in CifarLuck(networks=("cnn",)).depends_on()] == ["cnn"]


def test_teachers_learn_with_the_given_weight_decay():
    assert [(need.decay, need.epochs, need.lr) for need in CifarLuck().depends_on()] == [(0.2, 100, 0.002)] * 2
    assert CifarLuck(teacher_decay=0.3).depends_on()[1].decay == 0.3


def test_students_with_and_without_batchnorm_share_a_teacher(luck):
    assert luck.column("network_kind").tolist() == ["fc"] * 4 + ["cnn"] * 4
    assert luck.column("norm").tolist() == ["none", "none", "after", "after"] * 2
    groups, teachers = luck.weights("epoch.0"), luck.weights("teacher")
    assert [group.shape.norm for group in groups] == [None, "after", None, "after"]
    assert [group.sizes for group in groups[1:3]] == [(3072, 6, 8, 10, 10), (3, 6, 4, 10)]
    assert same(teachers[0], teachers[1]) and same(teachers[2], teachers[3])
    assert all(teacher.shape.norm == "after" for teacher in teachers)


def test_each_kind_of_student_has_its_own_learning_rate(luck, cifar):
    study = dataclasses.replace(at(LUCK, cifar), lr=0.1, cnn_lr=0.02, cnn_norm_lr=0.003)
    runs = [execute(need, luck.folder.parents[1], Said()) for need in study.depends_on()]
    rates = study.experiment(*runs).optimiser.lr
    assert rates == pytest.approx([0.1] * 4 + [0.02] * 2 + [0.003] * 2)
    fc, cnn = dataclasses.replace(study, teacher_lr=0.7, cnn_teacher_lr=0.07).depends_on()
    assert (fc.lr, cnn.lr) == (0.7, 0.07)


def test_ranks_of_the_final_winners_are_recorded(luck):
    rank = luck.series("mean_rank", 0)
    assert ((rank >= 0) & (rank <= 1)).all()
    assert (rank[:, -1] == 0).all()
    assert (rank[:, 0] > 0).any()


# The report


def test_the_report_needs_no_images(luck, cifar, tmp_path):
    names = {name for name in figures_of(at(LUCK, cifar), luck) if not name.startswith("modulation")}
    assert set(figures_of(at(LUCK, tmp_path / "nowhere"), luck)) == names


def test_matrices_are_of_the_first_network_of_each_kind_that_did_not_diverge(luck, cifar):
    run = us.store.Run(luck.folder)
    found = figures_of(at(LUCK, cifar), run)
    assert [found[f"modulation-{kind}"].kind.network for kind in ("fc", "cnn")] == [0, 4]
    assert "(FC, no BatchNorm), over 100 evaluation samples." in found["modulation-fc"].caption
    place = run.networks.column_names.index("diverged_at")
    lost = pa.array([3, None, None, None, 3, 3, 3, None], pa.int64())
    run.__dict__["networks"] = run.networks.set_column(place, "diverged_at", lost)
    found = figures_of(at(LUCK, cifar), run)
    assert [found[f"modulation-{kind}"].kind.network for kind in ("fc", "cnn")] == [1, 7]
    assert "(ConvNet, BatchNorm), over 16 evaluation samples at all positions." in found["modulation-cnn"].caption
    assert found["layer-specialization-fc"].kind.groups == ("no BatchNorm", "BatchNorm")
    assert found["layer-specialization-cnn"].kind.groups == ("BatchNorm",)


def test_the_headline_states_the_lowest_and_the_highest_accuracy_relative_to_the_teacher(luck):
    accuracy, teacher = (luck.series(name)[:, -1] for name in ("accuracy", "teacher_accuracy"))
    points = 100 * (accuracy - teacher).reshape(4, 2).mean(axis=1)
    low, high = (f"{p:+.1f}".replace("-", "−") for p in (points.min(), points.max()))
    headline = (luck.folder / "headline.txt").read_text(encoding="utf-8")
    assert re.search(rf"nodes end {re.escape(low)} \([^)]*\) to {re.escape(high)} \([^)]*\) points of", headline)
    assert re.search(r"grow in [0-4] of 4 settings", headline)


def test_networks_of_different_depth_appear_in_one_report(luck):
    from understudy.lab.summary import summarise

    assert np.isfinite(luck.series("rho_mean", 2)[:4]).all()
    assert np.isnan(luck.series("rho_mean", 2)[4:]).all()
    assert all(np.isfinite(setting.recovered) for setting in summarise(luck))
    assert luck.claims == []
    names = {path.stem for path in (luck.folder / "figures").iterdir()}
    assert names == {
        *("layer-curves", "layer-specialization-cnn", "layer-specialization-fc", "mean-rank"),
        *("modulation-cnn", "modulation-fc", "accuracy", "losses"),
    }


# D6


def d6(ahead=(0.0, 0.0), diverged=(), grown=True, teacher=0.864, rank=(0.2, 0.1), early=(0.4, 0.5), **more):
    """Claims of convolutional students, five seeds per setting, by their part.

    Per setting, without BatchNorm and with it: points above the teacher, mean rank and accuracy after the first of two
    epochs. Seeds differ a little. Correlations double, or fall.
    """
    study = dataclasses.replace(CifarLuck(networks=("cnn",)), **more)
    networks = [{"network_kind": "cnn", "norm": norm, "seed": s} for norm in ("none", "after") for s in range(1, 6)]
    for network in diverged:
        networks[network]["diverged_at"] = 5
    apart = np.tile(np.linspace(-1, 1, 5), 2) * np.repeat((1, 2), 5)
    accuracy = teacher + np.repeat(ahead, 5) + 1e-3 * apart
    rho, first = np.full(10, 0.8 if grown else -0.8), np.repeat(early, 5) + 0.01 * apart
    ranks, zero = np.repeat(rank, 5) + 0.01 * apart, np.zeros(10)
    metrics = {
        "accuracy": np.stack([zero + 0.1, first, accuracy], axis=1),
        "teacher_accuracy": np.full((10, 3), teacher),
        **{("rho_mean", layer): np.stack([rho / 2, rho * 0.7, rho], axis=1) for layer in range(3)},
        **{("mean_rank", layer): np.stack([zero + 0.5, ranks, zero], axis=1) for layer in range(3)},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = study.claims(made_run(networks, (0, 1, 2), metrics))
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    return {claim.part: claim for claim in found}


def test_d6_asks_students_to_come_within_a_point_of_their_teacher():
    found = d6(ahead=(-0.02, 0.011))
    assert {part: claim.holds for part, claim in found.items()} == {
        "ConvNet, no BatchNorm, correlation": True,
        "ConvNet, BatchNorm, correlation": True,
        "ConvNet, no BatchNorm, accuracy": False,
        "ConvNet, BatchNorm, accuracy": True,
        "ConvNet, BatchNorm and rank": True,
        "ConvNet, BatchNorm and accuracy": True,
    }
    assert found["ConvNet, BatchNorm, accuracy"].measured.startswith("+1.10 points, ")
    assert found["ConvNet, BatchNorm, accuracy"].measured.endswith("; teacher 86.4%")
    assert np.mean(found["ConvNet, no BatchNorm, accuracy"].values) == pytest.approx(-2)


@pytest.mark.parametrize(("behind", "holds"), [(-0.0091, True), (-0.0095, False), (-0.0101, False)])
def test_d6_is_a_point_within_two_standard_errors(behind, holds):
    """The standard error of the seeds −0.1, −0.05, 0, 0.05 and 0.1 points is 0.035 points."""
    assert d6(ahead=(behind, 0))["ConvNet, no BatchNorm, accuracy"].holds is holds


def test_a_point_above_the_teacher_is_shown_beside():
    found = d6(ahead=(0.0, 0.01))
    beside = [found[f"ConvNet, {norm}, accuracy"].variants[0] for norm in ("no BatchNorm", "BatchNorm")]
    assert [(each.measured, each.holds) for each in beside] == [("0 of 5", False), ("5 of 5", True)]
    assert beside[0].where == "0.5 to 1.5 points above, in half of the networks at least"


def test_d6_asks_batchnorm_to_lower_ranks_and_to_speed_up_accuracy():
    found = d6(rank=(0.2, 0.3), early=(0.5, 0.4))
    assert [found[f"ConvNet, BatchNorm and {what}"].holds for what in ("rank", "accuracy")] == [False, False]
    assert found["ConvNet, BatchNorm and rank"].measured.startswith(
        "0.300 with, 0.200 without, in 0 of 5 seeds better,"
    )
    assert found["ConvNet, BatchNorm and accuracy"].measured.startswith(
        "40.0 with, 50.0 without, in 0 of 5 seeds better"
    )
    # 0.005 ahead, give or take 0.0035 (standard error of the mean over five seeds)
    close = d6(rank=(0.205, 0.2), early=(0.4, 0.405))
    assert [close[f"ConvNet, BatchNorm and {what}"].holds for what in ("rank", "accuracy")] == [False, False]
    (beside,) = found["ConvNet, BatchNorm and accuracy"].variants
    assert (beside.where.endswith("(paper: not faster)"), beside.holds) == (True, False)


@pytest.mark.parametrize(("teacher", "decided"), [(0.85, True), (0.848, False), (0.878, True), (0.88, False)])
def test_d6_needs_teachers_as_accurate_as_the_papers(teacher, decided):
    for claim in d6(teacher=teacher).values():
        assert (claim.holds is not None) is decided
        assert claim.would_decide == ("" if decided else "teachers within 1.5 points of 86.40%")


def test_d6_asks_correlations_to_grow():
    assert not any(claim.holds for part, claim in d6(grown=False).items() if part.endswith("correlation"))


def test_d6_decides_nothing_for_a_setting_in_which_all_networks_diverged():
    assert set(d6(diverged=range(5))) == {"ConvNet, BatchNorm, correlation", "ConvNet, BatchNorm, accuracy"}
    found = d6(diverged=(0,))
    assert found["ConvNet, no BatchNorm, accuracy"].n == 4
    assert found["ConvNet, BatchNorm and rank"].n == 4


@pytest.mark.parametrize(
    "other", [{"over_realization": 5.0}, {"train": 1_000}, {"epochs": 9}, {"cnn_layers": (64, 64)}, {"seeds": 4}]
)
def test_d6_is_decided_in_the_settings_of_the_paper_only(other):
    assert not d6(**other)


# Options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 1, "norm": ("none",)}, "--batch"),
        ({"networks": ()}, "--networks needs at least one value"),
        ({"networks": ("rnn",)}, "--networks must be one of fc, cnn, got rnn"),
        ({"norm": ("after", "after")}, "--norm takes each value once, got after after"),
        ({"over_realization": 0.5}, "--over-realization 0.5 × 75 teacher nodes = 37.5 student nodes"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError) as caught:
        CifarLuck(**options)
    assert words in str(caught.value)
