"""The study `gaus`: what it trains, claims D5, D7 and D8, and its figures."""

import dataclasses
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from support.curve_figures import labels, stacked, titles
from support.runs import made_run
from understudy import students
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.lab.matrices import dominance
from understudy.lab.study import ranked
from understudy.measures.modulation import modulation
from understudy.nets import Layer, Shape
from understudy.papers.luck.gaus import claims as gaus_claims
from understudy.papers.luck.gaus.claims import (
    GausSetting,
    Modulation,
    claims,
    curves,
    first_epoch,
    late_gain,
    modulated,
    speed,
)
from understudy.papers.luck.gaus.study import Gaus
from understudy.store import Run

KINDS, NORMS, DATA = ("fc", "cnn", "fc-small"), ("none", "after"), ("infinite", "finite")
TINY = Gaus(
    seeds=2,
    fc_layers=(4, 5, 6),
    small_layers=(3, 4),
    cnn_layers=(3, 3),
    multiple=2.0,
    dim=5,
    image=6,
    outputs=4,
    epochs=3,
    steps=20,
    batch=16,
    lr=0.05,
    cnn_lr=0.02,
    cnn_norm_lr=0.03,
    train=320,
    finite=64,
    evaluation=100,
)


class Silent:
    def start(self, folder, epoch, epochs): ...

    def epoch(self, progress): ...

    def say(self, what): ...


def fake_run(metrics, seeds=3, epochs=20, diverged=(), weights=None, spread=0.001):
    """A run with given curves: (kind, norm, data, metric) → [layer, epoch].

    Curves end higher by `spread` from each seed to the next, and by a little more from each setting to the next.
    """
    settings = list(dict.fromkeys(key[:3] for key in metrics))
    names = ("kind", "norm", "data", "seed")
    rows = [dict(zip(names, (*setting, seed), strict=True)) for setting in settings for seed in range(1, seeds + 1)]
    for network in diverged:
        rows[network]["diverged_at"] = 7
    layers = max(len(curve) for curve in metrics.values())
    values = {
        (metric, layer): np.full((len(rows), epochs + 1), np.nan)
        for metric in dict.fromkeys(key[3] for key in metrics)
        for layer in range(layers)
    }
    for i, setting in enumerate(settings):
        for (*owner, metric), curve in metrics.items():
            for layer, one in enumerate(np.asarray(curve, dtype=float) if tuple(owner) == setting else ()):
                for seed in range(seeds):
                    growth = np.linspace(0, 1, epochs + 1) * (1 + 0.01 * i)
                    values[metric, layer][i * seeds + seed] = one + spread * seed * growth
    return made_run(rows, range(epochs + 1), values, weights=weights)


def rising(*ends, start=0.3, epochs=20, knee=1.0):
    """[layer, epoch]: from the start to each end; a smaller knee rises faster."""
    time = np.arange(epochs + 1) / epochs
    shape = 1 - np.exp(-3 * time / knee)
    return start + (np.array(ends)[:, None] - start) * shape / shape[-1]


def ranks(*early, first=0.4):
    """[layer, epoch]: `first` before training, then `early`."""
    return np.array([[first] + [e] * 20 for e in early])


def whole(**changed):
    """Curves for which every claim holds, except where they are changed: `fc_none_finite=…`."""
    made = {
        "fc_none_infinite": rising(0.91, 0.7, 0.6, 0.6),
        "fc_after_infinite": rising(0.95, 0.75, 0.65, 0.6),
        "cnn_none_infinite": rising(0.92, 0.6, 0.5),
        "cnn_after_infinite": rising(0.95, 0.8, 0.7),
        "cnn_none_finite": rising(0.7, 0.5, 0.4, knee=0.1),
        "cnn_after_finite": rising(0.8, 0.6, 0.5, knee=0.1),
        "small_none_infinite": rising(0.99, 0.9, 0.85, 0.8),
        "small_after_infinite": rising(0.98, 0.8, 0.75, 0.7),
    } | {name: value for name, value in changed.items() if not name.startswith("rank_")}
    found = {}
    for name, rho in made.items():
        if rho is not None:
            kind, norm, data = name.split("_")
            setting = ("fc-small" if kind == "small" else kind, norm, data)
            found[*setting, "rho_mean"] = rho
            found[*setting, "mean_rank"] = changed.get(f"rank_{kind}_{norm}", ranks(*[0.05] * len(rho)))
    return found


GROWN = np.broadcast_to([[0.01, 0.3], [0.01, 0.1]], (3, 4, 2, 2))
"""Shares on the diagonals of H* and β*, before and after training."""
RATIOS = np.broadcast_to([[1.0, 9.0], [1.0, 3.0]], (3, 4, 2, 2))
"""Mean entries on these diagonals, divided by the mean size of the others."""


def decided(run, study=None, diagonal=GROWN, ratio=RATIOS):
    """Claims by part, with given matrices: those of a run are computed from weights, which runs made by hand lack."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaus_claims, "modulated", lambda *_: Modulation(np.arange(3), diagonal, ratio, ()))
        return {claim.part: claim for claim in claims(study or Gaus(seeds=3), run)}


# Training


def test_every_kind_of_network_is_trained_with_and_without_batchnorm_on_fresh_and_finite_data():
    experiment = TINY.experiment()
    settings = [(row["kind"], row["norm"], row["data"]) for row in experiment.parameters[:: TINY.seeds]]
    assert settings == [(k, n, d) for k in KINDS for n in NORMS for d in DATA]
    assert [row["seed"] for row in experiment.parameters] == [1, 2] * 12
    for (kind, norm, data), group in zip(settings, experiment.groups, strict=True):
        assert group.students.shape.norm == (None if norm == "none" else "after")
        assert group.teacher.shape.norm is None
        assert group.students.sizes[1:-1] == tuple(2 * m for m in TINY.layers(kind))
        assert group.students.image == ((6, 6) if kind == "cnn" else None)
        assert (group.data.fresh, group.data.train) == ((True, 320) if data == "infinite" else (False, 64))
        assert group.data.std == 10


def test_rates_are_those_of_the_squared_error_averaged_over_outputs():
    lr = TINY.experiment().optimiser.lr
    assert lr == pytest.approx([r * 2 / 4 for r in [0.05] * 8 + [0.02] * 4 + [0.03] * 4 + [0.05] * 8])


@pytest.mark.parametrize("other", [{"momentum": 0.9}, {"epochs": 39}, {"cnn_norm_lr": 0.05}])
def test_other_training_than_that_of_the_released_code_decides_finite_data_only(other):
    study = Gaus(seeds=3, **other)
    assert study.training([({}, None, 0.1)]).optimiser.momentum == study.momentum
    found = decided(fake_run(whole()), study)
    assert set(found) == {"finite data, without BatchNorm", "finite data, with BatchNorm"}
    words = f"{study.epochs * study.steps:,} steps of rate {study.cnn_norm_lr:g} with momentum {study.momentum:g}: the"
    assert found["finite data, with BatchNorm"].statement.startswith(f"CNN with BatchNorm, {words} gain")


def test_outputs_of_every_teacher_are_standardised_on_its_evaluation_inputs():
    for kind in KINDS:
        teacher, source = TINY.teacher(kind).to(dtype=torch.float64), TINY.source(kind, "infinite")
        for i, seed in enumerate(TINY.seed_names):
            y = teacher[i](source.evaluating(seed, dtype=torch.float64))[0]
            assert y.mean(0).abs().max() < 1e-5
            assert (y.std(0, correction=0) - 1).abs().max() < 1e-5


def test_weights_of_teachers_have_five_values_and_biases_are_at_most_a_half():
    teacher = TINY.teacher("cnn")
    assert set(teacher.layers[0].weight.unique().tolist()) <= {-0.5, -0.25, 0.0, 0.25, 0.5}
    for layer in teacher.layers[:-1]:
        assert layer.bias.abs().max() <= 0.5
        assert layer.bias.std() > 0.05


def test_finite_and_fresh_data_have_the_same_initial_students_and_evaluation_inputs():
    fresh, finite = TINY.experiment().groups[:2]
    assert all(
        torch.equal(a.weight, b.weight) for a, b in zip(fresh.students.layers, finite.students.layers, strict=True)
    )
    assert torch.equal(fresh.data.evaluating(1), finite.data.evaluating(1))
    assert not torch.equal(fresh.data.training(1, 1), fresh.data.training(1, 2))
    assert torch.equal(finite.data.training(1, 1), finite.data.training(1, 2))


def test_a_part_of_the_study_trains_the_same_networks_as_the_whole():
    part = replace(TINY, networks=("cnn",), norm=("after",), data=("finite",)).experiment()
    assert len(part.groups) == 1
    same = TINY.experiment().groups[7]
    assert torch.equal(part.groups[0].students.layers[1].weight, same.students.layers[1].weight)
    assert torch.equal(part.groups[0].teacher.layers[-1].weight, same.teacher.layers[-1].weight)


@pytest.mark.parametrize("epochs", [1, 2, 20, 40])
def test_ranks_are_recorded_before_training_after_the_first_epoch_and_at_the_end(epochs):
    study = replace(TINY, epochs=epochs)
    assert {0, 1, epochs} <= set(ranked(epochs))
    assert sorted(set(ranked(epochs))) == list(ranked(epochs))
    assert study.experiment().ranks == frozenset(ranked(epochs))


def test_early_means_after_as_many_steps_as_the_first_epoch_of_the_released_code():
    assert first_epoch(Gaus()) == 1
    assert first_epoch(Gaus(epochs=160, steps=400)) == 4
    assert first_epoch(Gaus.quick()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"networks": ()}, "--networks needs at least one value"),
        ({"networks": ("rnn",)}, "--networks must be one of fc, cnn, fc-small, got rnn"),
        ({"norm": ("before",)}, "--norm must be one of none, after, got before"),
        ({"data": ("finite", "finite")}, "--data takes each value once, got finite finite"),
        ({"image": 6}, "--image must be at least 7 with 3 convolutions, each of which takes off 2 pixels, got 6"),
        ({"batch": 1}, "--batch must be at least 2 with BatchNorm (--norm after), got 1"),
        ({"finite": 32}, "--batch must be at most the number of training samples (32), got 64"),
        ({"train": 32}, "--batch must be at most the number of training samples (32), got 64"),
        ({"fc_layers": ()}, "--fc-layers needs at least one value"),
        ({"cnn_layers": (64, 0)}, "--cnn-layers must be at least 1, got 0"),
        ({"multiple": 0.01}, "--multiple 0.01 × 50 teacher nodes = 0.5 student nodes"),
        ({"cnn_norm_lr": 0.0}, "--cnn-norm-lr must be above 0, got 0"),
        ({"input_std": float("nan")}, "--input-std must be above 0, got nan"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError, match="^" + re.escape(words)):
        Gaus(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"networks": ("fc",), "image": 1},
        {"norm": ("none",), "batch": 1},
        {"data": ("infinite",), "finite": 32},
        {"data": ("finite",), "train": 32},
    ],
)
def test_options_that_a_part_does_not_use_are_not_refused(options):
    assert Gaus(**options)


def test_students_that_do_not_fit_in_memory_are_refused_before_they_are_built():
    huge = replace(TINY, networks=("cnn",), multiple=1e6)
    with pytest.raises(UserError, match=r"^memory: 4 networks need"):
        huge.experiment()


# Curves of a setting


def network_numbers(run, setting):
    return curves(run, setting)["network"].to_numpy().tolist()


def test_curves_of_a_setting_are_ordered_by_seed_without_networks_that_diverged():
    run = fake_run(whole(), diverged=(4,))
    assert network_numbers(run, GausSetting("fc", "none")) == [0, 1, 2]
    assert network_numbers(run, GausSetting("fc", "after")) == [3, -1, 5]
    assert np.isnan(curves(run, GausSetting("fc", "after"))[1]).all()
    assert network_numbers(run, GausSetting("fc", "none", "finite")) == []


def test_speed_is_the_mean_over_layers_and_epochs_after_the_start():
    run = fake_run({("fc", "none", "infinite", "rho_mean"): [[0.5, 0.2, 0.4], [0.5, 0.6, 0.8]]}, seeds=2, epochs=2)
    assert speed(curves(run, GausSetting("fc", "none"))) == pytest.approx([0.5, 0.50075])


def test_the_late_gain_is_that_of_the_second_half():
    curve = [[0.1, 0.2, 0.3, 0.35, 0.4], [0.1, 0.4, 0.5, 0.6, 0.8]]
    run = fake_run({("fc", "none", "infinite", "rho_mean"): curve}, seeds=1, epochs=4)
    assert late_gain(curves(run, GausSetting("fc", "none"))) == pytest.approx([0.2])


# Claims


def test_all_claims_hold_for_curves_as_in_the_paper():
    found = decided(fake_run(whole()))
    assert [claim.id for claim in found.values()] == ["D5"] * 9 + ["D7"] * 4 + ["D8"] * 2
    assert all(claim.holds and claim.n == 3 for claim in found.values())
    assert set(found) >= {"CNN with BatchNorm, rank", "CNN, BatchNorm", "small against large", "H* against β*"}


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("FC without BatchNorm, correlation", {"fc_none_infinite": rising(0.91, 0.95, 0.6, 0.6)}),  # the second is best
        ("FC without BatchNorm, correlation", {"fc_none_infinite": rising(0.91, 0.7, 0.6, 0.29)}),  # one layer falls
        ("FC without BatchNorm, correlation", {"fc_none_infinite": rising(0.89, 0.7, 0.6, 0.6)}),  # not learned
        ("CNN with BatchNorm, rank", {"rank_cnn_after": ranks(0.05, 0.05, 0.05, first=0.05)}),  # small from the start
        ("CNN with BatchNorm, rank", {"rank_cnn_after": ranks(0.09, 0.09, 0.09, first=0.05)}),  # lower before
        ("CNN, BatchNorm", {"cnn_after_infinite": rising(0.7, 0.5, 0.4)}),
        ("small against large", {"small_none_infinite": rising(0.8, 0.6, 0.5, 0.5)}),
        ("small, BatchNorm", {"small_after_infinite": rising(0.99, 0.95, 0.9, 0.9)}),
        ("finite data, with BatchNorm", {"cnn_after_finite": rising(0.9, 0.7, 0.6)}),  # lower, but still rising
        ("finite data, without BatchNorm", {"cnn_none_finite": rising(0.93, 0.8, 0.7, knee=0.1)}),  # stalls higher up
        ("finite data, without BatchNorm", {"cnn_none_infinite": rising(0.92, 0.6, 0.5, knee=0.01)}),  # both stall
    ],
)
def test_a_claim_does_not_hold_for_other_curves(part, changed):
    assert decided(fake_run(whole(**changed)))[part].holds is False


def test_correlations_must_rise_by_more_than_four_standard_errors_at_every_layer():
    """Rises of 0.05 plus 0, s and 2s have a mean of 0.05 + s and a standard error of s/√3."""
    rho = rising(0.95, 0.35, 0.6, 0.6)
    part = "FC without BatchNorm, correlation"
    for spread, holds in ((0.035, True), (0.041, False)):
        rose = (0.05 + spread) / (spread / 3**0.5)
        assert (rose > 4) is holds
        claim = decided(fake_run(whole(fc_none_infinite=rho), spread=spread))[part]
        assert claim.holds is holds
        assert f", {rose:.2g}, " in claim.measured
    assert decided(fake_run(whole(), seeds=1), Gaus(seeds=1))[part].holds is None


def test_differences_within_two_standard_errors_do_not_count():
    curves = {"rank_fc_none": ranks(0.39, 0.39, 0.39, 0.39)}  # falls by 0.01, and rises with the seed
    part = "FC without BatchNorm, rank"
    assert decided(fake_run(whole(**curves), spread=0.001))[part].holds
    assert not decided(fake_run(whole(**curves), spread=0.2))[part].holds


@pytest.mark.parametrize(
    ("middle", "holds"),
    [
        (ranks(0.01, 0.01, 0.01, 0.01), True),
        (ranks(0.01, 0.01, 0.01, 0.01, first=0.01), False),
    ],
    ids=["falls", "does not fall"],
)
def test_the_median_rank_must_fall_in_the_first_epoch(middle, holds):
    found = whole()
    found["fc", "none", "infinite", "median_rank"] = middle
    claims = decided(fake_run(found))
    assert [part for part, claim in claims.items() if claim.id == "L5"] == ["FC without BatchNorm"]
    assert claims["FC without BatchNorm"].holds is holds
    assert claims["FC without BatchNorm"].measured.endswith("the mean rank is then 0.050")


def test_finite_data_is_not_decided_before_fresh_data_is_learned():
    found = decided(fake_run(whole(cnn_none_infinite=rising(0.89, 0.95, 0.95))))
    claim = found["finite data, without BatchNorm"]
    assert claim.holds is None
    assert claim.would_decide == "training until the lowest layer, with fresh data, is above 0.9"
    assert found["finite data, with BatchNorm"].holds


def test_the_rank_is_taken_at_the_first_epoch_of_the_released_code():
    rank = np.full((4, 21), 0.01)
    rank[:, :4], rank[:, 4] = 0.45, [0.04, 0.08, 0.12, 0.16]
    study = Gaus(seeds=3, epochs=160, steps=400)
    claim = decided(fake_run(whole(rank_fc_none=rank), spread=0), study)["FC without BatchNorm, rank"]
    assert claim.values == pytest.approx((0.35, 0.35, 0.35))
    assert "1,600 steps" in claim.statement
    assert claim.measured.startswith(
        "from 0.450 to 0.100, 0.35 (all equal) above 0 (required: more than 2); by layer from"
    )


def test_the_effect_of_batchnorm_on_the_large_teacher_is_shown_beside():
    (beside,) = decided(fake_run(whole()))["small, BatchNorm"].variants
    assert (beside.where, beside.measured, beside.holds) == ("large teacher", "higher without in 0 of 3", False)


def test_networks_that_diverged_do_not_count():
    found = decided(fake_run(whole(), diverged=(0, 7)))
    assert found["FC without BatchNorm, correlation"].n == 2
    assert found["FC with BatchNorm, correlation"].n == 3
    assert found["CNN, BatchNorm"].n == 2
    assert all(claim.holds for claim in found.values())


def test_a_setting_in_which_every_network_diverged_decides_nothing():
    found = decided(fake_run(whole(), diverged=(6, 7, 8)))
    assert not {"CNN without BatchNorm, rank", "CNN, BatchNorm", "finite data, without BatchNorm"} & set(found)
    assert "finite data, with BatchNorm" in found


def test_settings_without_a_seed_in_common_are_not_compared():
    found = decided(fake_run(whole(), diverged=(6, 7, 11)))
    assert {"CNN without BatchNorm, rank", "CNN with BatchNorm, rank"} <= set(found)
    assert "CNN, BatchNorm" not in found


def test_parts_of_the_study_decide_the_claims_they_have_networks_for():
    some = {key: value for key, value in whole().items() if key[0] == "fc-small"}
    assert list(decided(fake_run(some))) == ["small, BatchNorm"]
    some = {key: value for key, value in whole().items() if key[0] == "cnn" and key[1] == "after"}
    assert list(decided(fake_run(some))) == [
        "CNN with BatchNorm, correlation",
        "CNN with BatchNorm, rank",
        "finite data, with BatchNorm",
    ]


@pytest.mark.parametrize(
    "other",
    [{"lr": 0.4}, {"input_std": 5.0}, {"dim": 30}, {"cnn_layers": (64, 64)}, {"multiple": 5.0}],
)
def test_claims_are_decided_in_their_settings_only(other):
    assert not decided(fake_run(whole()), Gaus(seeds=3, **other))


def test_a_longer_run_decides_claims_too():
    assert decided(fake_run(whole()), Gaus(seeds=3, epochs=50, finite=12_800))


# H* and β*


def planted(study, order):
    """Teachers, initial students, and students that are the teacher in the nodes of `order` and zero elsewhere."""
    teacher = study.teacher("fc").to(dtype=torch.float64)
    start = students.like_linear(teacher, multiple=study.multiple)
    layers, before = [], [torch.arange(teacher.sizes[0])]
    for i, (layer, mine) in enumerate(zip(teacher.layers, start.layers, strict=True)):
        here = order[i] if i < len(order) else torch.arange(teacher.sizes[-1])
        weight, bias = torch.zeros_like(mine.weight), torch.zeros_like(mine.bias)
        weight[:, here[:, None], before[-1]] = layer.weight
        bias[:, here] = layer.bias
        layers.append(Layer(weight, bias))
        before.append(here)
    return teacher, start, dataclasses.replace(start, layers=tuple(layers))


def test_students_equal_to_their_teacher_are_matched_node_by_node_and_their_diagonals_grow():
    study = Gaus(seeds=2, fc_layers=(4, 5), multiple=2.0, dim=6, outputs=3, evaluation=300, image=16)
    generator = torch.Generator().manual_seed(0)
    order = [torch.randperm(2 * n, generator=generator)[:n] for n in study.fc_layers]
    teacher, start, end = planted(study, order)
    weights = {"teacher": [teacher], "epoch.0": [start], "epoch.20": [end]}
    run = fake_run({("fc", "none", "infinite", "rho_mean"): rising(0.9, 0.9)}, seeds=2, weights=weights)
    found = modulated(study, run, GausSetting("fc", "none"))
    assert found.networks.tolist() == [0, 1]
    assert found.diagonal.shape == (2, 2, 2, 2)
    growth = found.diagonal[..., 1] - found.diagonal[..., 0]
    assert (growth[:, :, 0] > 0).all()
    hidden = teacher[0].activations(study.source("fc", "infinite").evaluating(1, dtype=torch.float64)[:256]).hidden
    for layer, here in enumerate(order):
        live = hidden[layer][0].amax(0) > 0  # a teacher node that is never active has no match
        assert live.sum() > 2
        image = found.shown[layer][1]
        assert image.student[: len(here)][live.numpy()].tolist() == here[live].tolist()
        assert np.abs(image.values[len(here) :]).max() == 0  # a student without fan-out is not moved
        h = image.values[: len(here)]
        assert image.diagonal == pytest.approx(np.square(np.diag(h)).sum() / np.square(h).sum())
        others = np.abs(image.values).sum() - np.abs(np.diag(h)).sum()
        ratio = np.diag(h).mean() / (others / (image.values.size - len(here)))
        assert found.dominance[0, layer, 0, 1] == pytest.approx(ratio)
    top = teacher.layers[-1].weight[0]
    beta = found.shown[-1][3].values[: len(here)][live.numpy()]
    np.testing.assert_allclose(beta, (top.T @ top)[live].numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    ("h", "beta", "more"),
    [((0.01, 0.3), (0.01, 0.1), True), ((0.01, 0.1), (0.01, 0.3), False), ((0.3, 0.2), (0.1, 0.05), False)],
)
def test_d8_asks_for_more_growth_in_h(h, beta, more):
    diagonal = np.zeros((3, 4, 2, 2))
    diagonal[..., 0, :], diagonal[..., 1, :] = h, beta
    claim = decided(fake_run(whole()), diagonal=diagonal)["H* against β*"]
    assert claim.holds is more
    assert claim.values == pytest.approx([(h[1] - h[0]) - (beta[1] - beta[0])] * 3)
    diagonal[0, :, 0, 1] += 1  # one of three networks differs: 1.8 standard errors at most
    assert not decided(fake_run(whole()), diagonal=diagonal)["H* against β*"].holds


@pytest.mark.parametrize(("layer", "ratio", "holds"), [(2, 3.0, True), (2, 2.9, False), (0, 2.9, False)])
def test_d8_asks_for_a_dominant_diagonal_of_both_matrices_at_every_layer(layer, ratio, holds):
    after = RATIOS.copy()
    after[:, layer, 1, 1] = ratio
    claim = decided(fake_run(whole()), ratio=after)["dominant"]
    assert claim.holds is holds
    assert claim.values == pytest.approx([ratio] * 3)
    assert [b.where for b in claim.variants] == [
        "FC with BatchNorm",
        "small FC without BatchNorm",
        "small FC with BatchNorm",
    ]


def test_dominance_by_hand():
    matrix = torch.tensor([[[4.0, -1.0], [0.0, 2.0], [1.0, -2.0]], [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])
    assert dominance(matrix).tolist() == [3.0, 0.0]  # 3 over a mean size of (1 + 0 + 1 + 2)/4
    assert dominance(torch.ones(1, 5, 3)).tolist() == [1.0]
    assert dominance(0.5 - torch.eye(3).double()[None]).item() == pytest.approx(-1)


# From training to report


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains and records without drawing the page, which tests/contracts does for every study."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.lab.execute.write_report", lambda *_: None)
        yield lambda study: execute(study, tmp_path_factory.mktemp("gaus"), Silent())


@pytest.fixture(scope="module")
def tiny_run(train):
    return train(TINY)


def test_the_figures_are_those_of_the_paper(tiny_run):
    story = TINY.story(tiny_run)
    assert [figure.name for figure in story.figures] == [
        "layer-correlation",
        "layer-specialization-fc",
        "layer-specialization-cnn",
        "layer-specialization-fc-small",
        "mean-rank",
        "median-rank",
        "small-against-large",
        "finite-cnn",
        "finite-fc",
        "finite-fc-small",
        "modulation",
        "modulation-cnn",
        "losses",
    ]
    ends = "N (with BatchNorm N) for FC 4-5-6, N (N) for CNN 3-3, N (N) for small FC"
    assert re.sub(r"\d\.\d\d", "N", story.headline).startswith(f"With fresh data mean best correlations end at {ends}")
    correlation = story.figures[0].kind
    assert titles(correlation)[:3] == ("FC 4-5-6", "FC 4-5-6, BatchNorm", "CNN 3-3")
    low, middle, high = (stacked(correlation, name) for name in ("low", "y", "high"))
    assert middle.shape == (6, 3, 4)
    assert len(correlation.panels[2].series) == 2  # the convolutional networks have two layers
    assert (low[0] <= middle[0]).all()
    assert (middle[0] <= high[0]).all()


def test_bands_are_the_smallest_and_the_largest_of_the_seeds(tiny_run):
    kind, each = TINY.story(tiny_run).figures[0].kind, tiny_run.series("rho_mean", 1)[:2]
    np.testing.assert_array_equal(kind.panels[0].series[1].low, each.min(0))
    np.testing.assert_array_equal(kind.panels[0].series[1].high, each.max(0))


def test_every_network_has_its_own_curve_in_the_line_of_its_setting(tiny_run):
    kind = next(f.kind for f in TINY.story(tiny_run).figures if f.name == "finite-cnn")
    assert labels(kind) == ("infinite", "infinite, BN", "finite", "finite, BN")
    found = [
        (network, series.label, curve)
        for series in kind.panels[0].series
        for network, curve in zip(series.network[:, 0].tolist(), series.network_y, strict=True)
    ]
    assert sorted(network for network, _, _ in found) == list(range(8, 16))
    for network, label, curve in found:
        assert label.startswith(tiny_run.column("data")[network])
        np.testing.assert_array_equal(curve, tiny_run.series("rho_mean", 0)[network])


def test_winners_rank_first_at_the_end(tiny_run):
    for kind in KINDS:
        for layer in range(len(TINY.layers(kind))):
            rank = tiny_run.series("mean_rank", layer)[tiny_run.column("kind") == kind]
            assert (rank[:, -1] == 0).all()
            assert (rank[:, 0] >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_figure_of_every_student_shows_them_as_measured_with_the_first_kind_of_data(tiny_run, kind):
    figure = next(f for f in TINY.story(tiny_run).figures if f.name == f"layer-specialization-{kind}")
    assert figure.kind.groups == ("without BatchNorm", "with BatchNorm")
    assert figure.kind.epochs.tolist() == [0, 1, 2, 3]
    for norm, row in zip(NORMS, figure.kind.cells, strict=True):
        these = network_numbers(tiny_run, GausSetting(kind, norm))
        for layer, (nodes, cell) in enumerate(zip(TINY.layers(kind), row, strict=True)):
            assert cell.network.tolist() == np.repeat(these, 2 * nodes).tolist()
            assert cell.student.tolist() == [*range(2 * nodes)] * 2
            for time in range(4):
                for name, shown in (("correlation", cell.correlation), ("fanout", cell.fan_out)):
                    found = tiny_run.matched("student", name, layer, time)[cell.network, cell.student]
                    np.testing.assert_array_equal(shown[time], found)
                    assert np.isfinite(found).all()
    rho = figure.kind.rho_mean[1, 0, -1]
    assert rho == pytest.approx(
        np.median(tiny_run.series("rho_mean", 0)[network_numbers(tiny_run, GausSetting(kind, "after")), -1])
    )


def test_matrices_are_of_the_first_network_of_each_kind_that_has_them(tiny_run):
    found = {figure.name: figure for figure in TINY.story(tiny_run).figures}
    assert found["modulation"].kind.network == 0 and found["modulation-cnn"].kind.network == 8
    assert "(FC without BatchNorm), over 100 evaluation samples." in found["modulation"].caption
    cnn = found["modulation-cnn"]
    assert "(CNN without BatchNorm), over 16 evaluation samples at all positions." in cnn.caption
    assert [row[0].values.shape for row in cnn.kind.cells] == [(6, 3), (6, 3)]
    teacher, student = (tiny_run.weights(who)[4][0] for who in ("teacher", "epoch.3"))
    x = TINY.source("cnn", "infinite").evaluating(1)[:16]
    for layer, part in enumerate(modulation(teacher, student, x, ("h_star", "beta_star"))):
        for image, matrix in zip(cnn.kind.cells[layer][1::2], (part.h_star, part.beta_star), strict=True):
            np.testing.assert_allclose(image.values, matrix[0].numpy()[image.student], rtol=1e-5, atol=1e-9)


def test_a_run_of_cnns_only_has_their_matrices_and_none_with_fewer_students_than_teacher_nodes(train):
    study = replace(TINY, networks=("cnn",), norm=("after",), data=("finite",), epochs=1, seeds=1)
    story = study.story(train(study))
    names = ["layer-correlation", "layer-specialization-cnn", "mean-rank", "median-rank", "modulation-cnn", "losses"]
    assert [figure.name for figure in story.figures] == names
    assert re.match(r"With finite data mean best correlations end at \d\.\d\d with BatchNorm for CNN", story.headline)
    fewer = replace(study, cnn_layers=(4, 2), multiple=0.5)
    assert [figure.name for figure in fewer.story(train(fewer)).figures] == [n for n in names if n != "modulation-cnn"]


def test_a_run_in_which_all_networks_diverged_names_the_rates_to_lower(train):
    study = replace(TINY, networks=("fc",), norm=("none",), data=("infinite",), epochs=1, lr=1e6)
    story = study.story(train(study))
    assert story.headline.startswith("All 2 networks diverged, the first at step")
    assert story.headline.endswith("smaller rates than --lr 1e+06, --cnn-lr 0.02 and --cnn-norm-lr 0.03.")


def test_if_all_networks_with_the_first_kind_of_data_diverged_the_other_is_shown(tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run.folder, tmp_path / "half")
    table = pq.read_table(folder / "networks.parquet")
    lost = [7 if data == TINY.data[0] else None for data in table["data"].to_pylist()]
    place = table.schema.get_field_index("diverged_at")
    pq.write_table(table.set_column(place, table.field(place), pa.array(lost, pa.int64())), folder / "networks.parquet")
    story = TINY.story(Run(folder))
    assert story.headline.startswith("With finite data") and "networks diverged" in story.headline
    assert f"({TINY.finite:,} training samples)" in story.figures[0].caption


def test_correlation_grows_in_every_layer_within_seconds(train):
    study = replace(
        Gaus.quick(), networks=("fc-small",), norm=("none",), data=("infinite",), epochs=4, small_layers=(3, 4)
    )
    run = train(study)
    for layer in range(2):
        rho = run.series("rho_mean", layer)
        assert (rho[:, -1] > rho[:, 0] + 0.1).all()
    assert (run.series("rho_mean", 0)[:, -1] > run.series("rho_mean", 1)[:, -1]).all()


def test_the_whole_study_takes_an_hour_on_a_large_gpu():
    """Counts the products of convolutional networks only: three times those of a pass, two operations each."""
    study = Gaus()
    shape = Shape((1, *(round(study.multiple * m) for m in study.cnn_layers), study.outputs), image=(16, 16))
    assert sum(shape.products) == pytest.approx(0.91e9, rel=0.01)
    work = 6 * sum(shape.products) * study.batch * study.steps * study.epochs * study.seeds * 4
    assert work / 1.2e14 < 3_700
