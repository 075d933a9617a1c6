"""The study on Gaussian inputs: what it trains, what its runs decide (D5, D7, D8), and what it draws."""

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
from understudy import students
from understudy.errors import UserError
from understudy.lab.execute import execute
from understudy.lab.study import ranked
from understudy.measures.modulation import modulation
from understudy.nets import Layer, Shape
from understudy.papers.luck.gaus import claims as gaus_claims
from understudy.papers.luck.gaus.claims import (
    Modulated,
    Setting,
    claims,
    first_epoch,
    late_gain,
    modulated,
    networks,
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


class FakeRun:
    """A run whose curves are given: (kind, norm, data, metric) → [layer, epoch], nearly the same for all seeds."""

    def __init__(self, curves, seeds=3, epochs=20, diverged=(), weights=None):
        self.settings = list(dict.fromkeys(key[:3] for key in curves))
        rows = [(*setting, seed) for setting in self.settings for seed in range(1, seeds + 1)]
        self.networks = pa.table(
            {"network": list(range(len(rows)))}
            | {name: [row[i] for row in rows] for i, name in enumerate(("kind", "norm", "data", "seed"))}
            | {"diverged_at": pa.array([7 if n in diverged else None for n in range(len(rows))], pa.int64())}
        )
        self.epochs, self._curves, self._seeds, self._weights = np.arange(epochs + 1), curves, seeds, weights or {}

    def column(self, name):
        return self.networks[name].to_numpy(zero_copy_only=False)

    def series(self, metric, layer=-1):
        every = []
        for setting in self.settings:
            curve = np.asarray(self._curves[(*setting, metric)], dtype=float)
            there = layer < len(curve)
            one = curve[layer] if there else np.full(len(self.epochs), np.nan)
            every += [np.broadcast_to(one, len(self.epochs)) + 0.001 * seed for seed in range(self._seeds)]
        return np.stack(every)

    def weights(self, who):
        return self._weights[who]


def rising(*ends, start=0.3, epochs=20, knee=1.0):
    """[layer, epoch]: from the start to each end, the faster the smaller the knee."""
    time = np.arange(epochs + 1) / epochs
    shape = 1 - np.exp(-3 * time / knee)
    return start + (np.array(ends)[:, None] - start) * shape / shape[-1]


def ranks(*early, first=0.4):
    """[layer, epoch]: `first` before training, then `early`."""
    return np.array([[first] + [e] * 20 for e in early])


def whole(**changed):
    """A run in which everything that the paper claims is so, but for what is changed: `fc_none_finite=…`."""
    made = {
        "fc_none_infinite": rising(0.9, 0.7, 0.6, 0.6),
        "fc_after_infinite": rising(0.95, 0.75, 0.65, 0.6),
        "cnn_none_infinite": rising(0.8, 0.6, 0.5),
        "cnn_after_infinite": rising(0.95, 0.8, 0.7),
        "cnn_none_finite": rising(0.7, 0.5, 0.4, knee=0.1),
        "cnn_after_finite": rising(0.8, 0.6, 0.5, knee=0.1),
        "small_none_infinite": rising(0.99, 0.9, 0.85, 0.8),
        "small_after_infinite": rising(0.98, 0.8, 0.75, 0.7),
    } | {name: value for name, value in changed.items() if not name.startswith("rank_")}
    curves = {}
    for name, rho in made.items():
        if rho is not None:
            kind, norm, data = name.split("_")
            setting = ("fc-small" if kind == "small" else kind, norm, data)
            curves[*setting, "rho_mean"] = rho
            curves[*setting, "mean_rank"] = changed.get(f"rank_{kind}_{norm}", ranks(*[0.05] * len(rho)))
    return curves


def decided(run, study=None):
    return {claim.part: claim for claim in claims(study or Gaus(seeds=3), run)}


@pytest.fixture(autouse=True)
def no_matrices(monkeypatch):
    """What claims ask for comes from weights, which runs made by hand have not."""
    grown = np.zeros((3, 4, 2, 2))
    grown[..., 0, :], grown[..., 1, :] = (0.01, 0.3), (0.01, 0.1)
    monkeypatch.setattr(gaus_claims, "modulated", lambda *_: Modulated(np.arange(3), grown, ()))


# What it trains


def test_every_kind_of_network_is_trained_with_and_without_batchnorm_on_both_kinds_of_data():
    experiment = TINY.experiment()
    apart = [(row["kind"], row["norm"], row["data"]) for row in experiment.parameters[:: TINY.seeds]]
    assert apart == [(k, n, d) for k in KINDS for n in NORMS for d in DATA]
    assert [row["seed"] for row in experiment.parameters] == [1, 2] * 12
    for (kind, norm, data), group in zip(apart, experiment.groups, strict=True):
        assert group.students.shape.norm == (None if norm == "none" else "after")
        assert group.teacher.shape.norm is None
        assert group.students.sizes[1:-1] == tuple(2 * m for m in TINY.layers(kind))
        assert group.students.image == ((6, 6) if kind == "cnn" else None)
        assert (group.data.fresh, group.data.train) == ((True, 320) if data == "infinite" else (False, 64))
        assert group.data.std == 10


def test_rates_are_those_of_the_squared_error_averaged_over_outputs():
    lr = TINY.experiment().optimiser.lr
    assert lr == pytest.approx([r * 2 / 4 for r in [0.05] * 8 + [0.02] * 4 + [0.03] * 4 + [0.05] * 8])


def test_outputs_of_every_teacher_are_standardised_on_its_evaluation_inputs():
    for kind in KINDS:
        teacher, source = TINY.teacher(kind).to(dtype=torch.float64), TINY.source(kind, "infinite")
        for i, seed in enumerate(TINY.seed_names):
            y = teacher[i](source.evaluating(seed, dtype=torch.float64))[0]
            assert y.mean(0).abs().max() < 1e-5
            assert (y.std(0, correction=0) - 1).abs().max() < 1e-5


def test_teachers_are_made_of_five_values_with_biases_within_a_half():
    teacher = TINY.teacher("cnn")
    assert set(teacher.layers[0].weight.unique().tolist()) <= {-0.5, -0.25, 0.0, 0.25, 0.5}
    for layer in teacher.layers[:-1]:
        assert layer.bias.abs().max() <= 0.5
        assert layer.bias.std() > 0.05


def test_finite_and_fresh_data_start_from_the_same_students_and_are_judged_on_the_same_inputs():
    fresh, finite = TINY.experiment().groups[:2]
    assert all(
        torch.equal(a.weight, b.weight) for a, b in zip(fresh.students.layers, finite.students.layers, strict=True)
    )
    assert torch.equal(fresh.data.evaluating(1), finite.data.evaluating(1))
    assert not torch.equal(fresh.data.training(1, 1), fresh.data.training(1, 2))
    assert torch.equal(finite.data.training(1, 1), finite.data.training(1, 2))


def test_a_part_of_the_study_trains_the_networks_that_the_whole_trains():
    part = replace(TINY, networks=("cnn",), norm=("after",), data=("finite",)).experiment()
    assert len(part.groups) == 1
    same = TINY.experiment().groups[7]
    assert torch.equal(part.groups[0].students.layers[1].weight, same.students.layers[1].weight)
    assert torch.equal(part.groups[0].teacher.layers[-1].weight, same.teacher.layers[-1].weight)


@pytest.mark.parametrize("epochs", [1, 2, 20, 40])
def test_ranks_are_known_before_training_after_the_first_epoch_and_at_the_end(epochs):
    study = replace(TINY, epochs=epochs)
    assert {0, 1, epochs} <= set(ranked(epochs))
    assert sorted(set(ranked(epochs))) == list(ranked(epochs))
    assert study.experiment().ranks == frozenset(ranked(epochs))


def test_early_is_after_as_many_steps_as_the_released_codes_first_epoch():
    assert first_epoch(Gaus()) == 4
    assert first_epoch(Gaus(epochs=40, steps=1_562, train=100_000)) == 1
    assert first_epoch(Gaus.quick()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"networks": ()}, "--networks: no value was given; give one or more of fc, cnn, fc-small"),
        ({"networks": ("rnn",)}, "--networks: rnn was given; allowed are fc, cnn, fc-small"),
        ({"norm": ("before",)}, "--norm: before was given; allowed are none, after"),
        ({"data": ("finite", "finite")}, "--data: finite finite was given; name each value once"),
        ({"image": 6}, "--image: 6 was given; 3 convolutions take 6 pixels off, and allowed is a whole number from 7"),
        ({"batch": 1}, "--batch: 1 was given; allowed with BatchNorm (--norm after) is a whole number from 2"),
        ({"finite": 32}, "--batch: 64 was given; allowed is up to the number of training samples, 32"),
        ({"train": 32}, "--batch: 64 was given; allowed is up to the number of training samples, 32"),
        ({"fc_layers": ()}, "--fc-layers: no value was given"),
        ({"cnn_layers": (64, 0)}, "--cnn-layers: 0 was given; allowed is a whole number from 1"),
        ({"multiple": 0.01}, "--multiple: 0.01 was given; times 50 teacher nodes makes 0.5 student nodes"),
        ({"cnn_norm_lr": 0.0}, "--cnn-norm-lr: 0.0 was given; allowed is a number above 0"),
        ({"input_std": float("nan")}, "--input-std: nan was given"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(UserError, match="^" + words.replace("(", r"\(").replace(")", r"\)")):
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
def test_what_a_part_does_not_use_is_not_refused(options):
    assert Gaus(**options)


def test_students_that_cannot_fit_are_refused_before_they_are_made():
    huge = replace(TINY, networks=("cnn",), multiple=1e6)
    with pytest.raises(UserError, match=r"^memory: 4 networks need"):
        huge.experiment()


# What is read off a run


def test_networks_of_a_setting_come_by_seed_without_those_that_diverged():
    run = FakeRun(whole(), diverged=(4,))
    assert networks(run, Setting("fc", "none")).tolist() == [0, 1, 2]
    assert networks(run, Setting("fc", "after")).tolist() == [3, -1, 5]
    assert networks(run, Setting("fc", "none", "finite")).tolist() == []


def test_speed_is_the_mean_over_layers_and_epochs_after_the_start():
    run = FakeRun({("fc", "none", "infinite", "rho_mean"): [[0.5, 0.2, 0.4], [0.5, 0.6, 0.8]]}, seeds=2, epochs=2)
    study = replace(TINY, fc_layers=(4, 5))
    assert speed(study, run, Setting("fc", "none")) == pytest.approx([0.5, 0.501])


def test_the_late_gain_is_what_the_second_half_adds():
    curve = [[0.1, 0.2, 0.3, 0.35, 0.4], [0.1, 0.4, 0.5, 0.6, 0.8]]
    run = FakeRun({("fc", "none", "infinite", "rho_mean"): curve}, seeds=1, epochs=4)
    assert late_gain(replace(TINY, fc_layers=(4, 5)), run, Setting("fc", "none")) == pytest.approx([0.2])


# Claims


def test_all_claims_hold_where_everything_is_as_in_the_paper():
    found = decided(FakeRun(whole()))
    assert [claim.id for claim in found.values()] == ["D5"] * 9 + ["D7"] * 4 + ["D8"] * 2
    assert all(claim.holds and claim.n == 3 for claim in found.values())
    assert set(found) >= {"CNN with BatchNorm, rank", "CNN, BatchNorm", "small against large", "H* against β*"}


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("FC without BatchNorm, correlation", {"fc_none_infinite": rising(0.7, 0.9, 0.6, 0.6)}),  # the second is best
        ("FC without BatchNorm, correlation", {"fc_none_infinite": rising(0.9, 0.7, 0.6, 0.29)}),  # one layer falls
        ("CNN with BatchNorm, rank", {"rank_cnn_after": ranks(0.1, 0.12, 0.14)}),  # not small
        ("CNN with BatchNorm, rank", {"rank_cnn_after": ranks(0.09, 0.09, 0.09, first=0.05)}),  # smaller before
        ("CNN, BatchNorm", {"cnn_after_infinite": rising(0.7, 0.5, 0.4)}),
        ("small against large", {"small_none_infinite": rising(0.8, 0.6, 0.5, 0.5)}),
        ("small, BatchNorm", {"small_after_infinite": rising(0.99, 0.95, 0.9, 0.9)}),
        ("finite data, with BatchNorm", {"cnn_after_finite": rising(0.9, 0.7, 0.6)}),  # lower, but still on its way
        ("finite data, without BatchNorm", {"cnn_none_finite": rising(0.9, 0.8, 0.7, knee=0.1)}),  # stalls higher up
        ("finite data, without BatchNorm", {"cnn_none_infinite": rising(0.8, 0.6, 0.5, knee=0.01)}),  # both stall
    ],
)
def test_a_claim_does_not_hold_where_the_run_says_otherwise(part, changed):
    assert not decided(FakeRun(whole(**changed)))[part].holds


def test_the_rank_is_taken_at_the_epoch_that_counts():
    rank = np.full((4, 21), 0.01)
    rank[:, :4], rank[:, 4] = 0.45, [0.04, 0.08, 0.12, 0.16]
    claim = decided(FakeRun(whole(rank_fc_none=rank)))["FC without BatchNorm, rank"]
    assert claim.values == pytest.approx((0.1, 0.101, 0.102))
    assert "1,600 steps" in claim.statement
    assert not claim.holds  # the median is above a tenth


def test_what_batchnorm_does_to_the_large_teacher_stands_beside():
    (beside,) = decided(FakeRun(whole()))["small, BatchNorm"].variants
    assert (beside.where, beside.measured, beside.holds) == ("large teacher", "higher without in 0 of 3", False)


def test_networks_that_diverged_do_not_count():
    found = decided(FakeRun(whole(), diverged=(0, 7)))
    assert found["FC without BatchNorm, correlation"].n == 2
    assert found["FC with BatchNorm, correlation"].n == 3
    assert found["CNN, BatchNorm"].n == 2
    assert all(claim.holds for claim in found.values())


def test_a_setting_in_which_every_network_diverged_decides_nothing():
    found = decided(FakeRun(whole(), diverged=(6, 7, 8)))
    assert not {"CNN without BatchNorm, rank", "CNN, BatchNorm", "finite data, without BatchNorm"} & set(found)
    assert "finite data, with BatchNorm" in found


def test_settings_without_a_seed_in_common_are_not_compared():
    found = decided(FakeRun(whole(), diverged=(6, 7, 11)))
    assert {"CNN without BatchNorm, rank", "CNN with BatchNorm, rank"} <= set(found)
    assert "CNN, BatchNorm" not in found


def test_parts_of_the_study_decide_what_they_can():
    curves = {key: value for key, value in whole().items() if key[0] == "fc-small"}
    assert list(decided(FakeRun(curves))) == ["small, BatchNorm"]
    curves = {key: value for key, value in whole().items() if key[0] == "cnn" and key[1] == "after"}
    assert list(decided(FakeRun(curves))) == [
        "CNN with BatchNorm, correlation",
        "CNN with BatchNorm, rank",
        "finite data, with BatchNorm",
    ]


@pytest.mark.parametrize(
    "other",
    [{"lr": 0.4}, {"cnn_norm_lr": 0.01}, {"dim": 30}, {"cnn_layers": (64, 64)}, {"epochs": 19}, {"finite": 1_000}],
)
def test_claims_are_decided_at_their_own_settings_alone(other):
    assert claims(Gaus(seeds=3, **other), FakeRun(whole())) == []


def test_a_longer_run_decides_too():
    assert claims(Gaus(seeds=3, epochs=20, steps=1_562, train=100_000), FakeRun(whole()))


# H* and β*


def planted(study, order):
    """Teachers, students as they start, and students that hold the teacher in the nodes of `order`, all else silent."""
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


def test_a_student_that_has_become_its_teacher_is_found_node_by_node_and_its_diagonal_has_grown():
    study = Gaus(seeds=2, fc_layers=(4, 5), multiple=2.0, dim=6, outputs=3, evaluation=300, image=16)
    generator = torch.Generator().manual_seed(0)
    order = [torch.randperm(2 * n, generator=generator)[:n] for n in study.fc_layers]
    teacher, start, end = planted(study, order)
    weights = {"teacher": [teacher], "epoch.0": [start], "epoch.20": [end]}
    run = FakeRun({("fc", "none", "infinite", "rho_mean"): rising(0.9, 0.9)}, seeds=2, weights=weights)
    found = modulated(study, run, Setting("fc", "none"))
    assert found.networks.tolist() == [0, 1]
    assert found.diagonal.shape == (2, 2, 2, 2)
    growth = found.diagonal[..., 1] - found.diagonal[..., 0]
    assert (growth[:, :, 0] > 0).all()
    hidden = teacher[0].activations(study.source("fc", "infinite").evaluating(1, dtype=torch.float64)[:256]).hidden
    for layer, here in enumerate(order):
        live = hidden[layer][0].amax(0) > 0  # a teacher node that is never active matches nobody
        assert live.sum() > 2
        image = found.shown[layer][1]
        assert image.student[: len(here)][live.numpy()].tolist() == here[live].tolist()
        assert np.abs(image.values[len(here) :]).max() == 0  # who has no fan-out is not moved
        h = image.values[: len(here)]
        assert image.diagonal == pytest.approx(np.square(np.diag(h)).sum() / np.square(h).sum())
    top = teacher.layers[-1].weight[0]
    beta = found.shown[-1][3].values[: len(here)][live.numpy()]
    np.testing.assert_allclose(beta, (top.T @ top)[live].numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    ("h", "beta", "grows", "more"),
    [
        ((0.01, 0.3), (0.01, 0.1), True, True),
        ((0.01, 0.1), (0.01, 0.3), True, False),
        ((0.3, 0.2), (0.1, 0.05), False, False),
        ((0.01, 0.3), (0.1, 0.05), False, True),
    ],
)
def test_d8_asks_for_growth_and_for_more_of_it_in_h(monkeypatch, h, beta, grows, more):
    diagonal = np.zeros((3, 4, 2, 2))
    diagonal[..., 0, :], diagonal[..., 1, :] = h, beta
    monkeypatch.setattr(gaus_claims, "modulated", lambda *_: Modulated(np.arange(3), diagonal, ()))
    found = decided(FakeRun(whole()))
    assert (found["grows"].holds, found["H* against β*"].holds) == (grows, more)
    assert found["H* against β*"].values == pytest.approx([(h[1] - h[0]) - (beta[1] - beta[0])] * 3)
    assert [b.where for b in found["grows"].variants] == [
        "FC with BatchNorm",
        "small FC without BatchNorm",
        "small FC with BatchNorm",
    ]


def test_one_layer_that_does_not_grow_is_enough(monkeypatch):
    diagonal = np.full((3, 4, 2, 2), 0.1)
    diagonal[..., 1] = 0.5
    diagonal[:, 2, 1, 1] = 0.09
    monkeypatch.setattr(gaus_claims, "modulated", lambda *_: Modulated(np.arange(3), diagonal, ()))
    assert not decided(FakeRun(whole()))["grows"].holds


# From training to report


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains and records; the page is not drawn, which every study is held to elsewhere."""
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
    curves, each = TINY.story(tiny_run).figures[0].kind, tiny_run.series("rho_mean", 1)[:2]
    np.testing.assert_array_equal(curves.panels[0].series[1].low, each.min(0))
    np.testing.assert_array_equal(curves.panels[0].series[1].high, each.max(0))


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
def test_the_l_of_a_kind_has_every_student_of_the_first_data_where_it_was_measured(tiny_run, kind):
    figure = next(f for f in TINY.story(tiny_run).figures if f.name == f"layer-specialization-{kind}")
    assert figure.kind.groups == ("without BatchNorm", "with BatchNorm")
    assert figure.kind.epochs.tolist() == [0, 1, 2, 3]
    for norm, row in zip(NORMS, figure.kind.cells, strict=True):
        these = networks(tiny_run, Setting(kind, norm))
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
        np.median(tiny_run.series("rho_mean", 0)[networks(tiny_run, Setting(kind, "after")), -1])
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


def test_a_run_of_convolutions_alone_has_theirs_and_with_fewer_students_none(train):
    study = replace(TINY, networks=("cnn",), norm=("after",), data=("finite",), epochs=1, seeds=1)
    story = study.story(train(study))
    names = ["layer-correlation", "layer-specialization-cnn", "mean-rank", "modulation-cnn", "losses"]
    assert [figure.name for figure in story.figures] == names
    assert re.match(r"With finite data mean best correlations end at \d\.\d\d with BatchNorm for CNN", story.headline)
    fewer = replace(study, cnn_layers=(4, 2), multiple=0.5)
    assert [figure.name for figure in fewer.story(train(fewer)).figures] == [n for n in names if n != "modulation-cnn"]


def test_a_run_in_which_all_diverged_says_so(train):
    study = replace(TINY, networks=("fc",), norm=("none",), data=("infinite",), epochs=1, lr=1e6)
    story = study.story(train(study))
    assert story.headline.startswith("All 2 networks diverged, the first at step")
    assert story.headline.endswith("and --cnn-norm-lr 0.03.")


def test_a_run_whose_first_data_all_diverged_shows_the_other(tiny_run, tmp_path):
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


def test_the_whole_study_is_laid_out_for_ten_minutes_of_a_large_card():
    """The convolutional networks' products alone: three times those of a pass, two operations each."""
    study = Gaus()
    shape = Shape((1, *(round(study.multiple * m) for m in study.cnn_layers), study.outputs), image=(16, 16))
    assert sum(shape.products) == pytest.approx(0.91e9, rel=0.01)
    work = 6 * sum(shape.products) * study.batch * study.steps * study.epochs * study.seeds * 4
    assert work / 1e14 < 600
