"""The study `deep-samples`: what it trains, what it decides (D3), and what it reports."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from support.commands import Said
from support.curve_figures import labels, stacked, titles
from support.runs import made_run
from understudy import CrossEntropy, SquaredError
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.lab.study import ranked
from understudy.papers.specialization.deep_samples.study import DeepSamples

FULL = DeepSamples(seeds=4)
SMALL = {"teacher_layers": (4, 6), "dim": 8, "outputs": 5, "evaluation": 501}


# Claim D3


def samples_run(study, rho=None, loss=None, diverged=(), changed=None):
    """Correlations and losses by kind of loss and position of the number of samples; by default better with samples.

    `changed` gives other correlations to single networks.
    """
    rho = rho or (lambda kind, size: [0.6 + 0.05 * size - 0.1 * i for i in range(4)])
    loss = loss or (lambda kind, size: 10.0**-size)
    rows = [
        {"loss": kind, "samples": n, "seed": s} for kind in study.loss for n in study.samples for s in study.seed_names
    ]
    places = [(row["loss"], sorted(study.samples).index(row["samples"])) for row in rows]
    ends = np.array([rho(*place) for place in places])
    for network, value in (changed or {}).items():
        ends[network] = value
    metrics = {("rho_mean", layer): np.stack([0.1 * np.ones(len(rows)), ends[:, layer]], 1) for layer in range(4)}
    metrics["eval_loss"] = np.repeat([[loss(*place)] for place in places], 2, axis=1)
    rows = [row | {"diverged_at": 5 if i in diverged else None} for i, row in enumerate(rows)]
    return made_run(rows, (0, 1), metrics)


def parts(run, study=FULL):
    found = study.claims(run)
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    assert {claim.id for claim in found} <= {"D3"}
    return {claim.part: claim.holds for claim in found}


ALL = [f"{name}, {part}" for name in ("MSE", "cross-entropy") for part in ("correlation", "loss", "lowest layer")]


def test_d3_is_decided_part_by_part():
    assert parts(samples_run(FULL)) == dict.fromkeys(ALL, True)


def test_d3_requires_every_layer_to_rise_with_every_number_of_samples():
    def rho(kind, size):
        dip = 0.06 if (kind, size) == ("mse", 3) else 0
        return np.array([0.9, 0.6, 0.5, 0.4 - dip]) + 0.02 * size

    assert parts(samples_run(FULL, rho=rho)) == dict.fromkeys(ALL, True) | {"MSE, correlation": False}


def test_d3_requires_the_loss_to_fall_with_every_number_of_samples():
    run = samples_run(FULL, loss=lambda kind, size: 3.0 if (kind, size) == ("cross-entropy", 1) else 2.0 - 0.1 * size)
    assert parts(run) == dict.fromkeys(ALL, True) | {"cross-entropy, loss": False}


def test_d3_requires_the_lowest_layer_to_be_best_with_every_number_of_samples():
    def rho(kind, size):
        return np.array([0.45 if (kind, size) == ("mse", 0) else 0.9, 0.5, 0.4, 0.3]) + 0.01 * size

    run = samples_run(FULL, rho=rho)
    assert parts(run) == dict.fromkeys(ALL, True) | {"MSE, lowest layer": False}
    (claim,) = [c for c in FULL.claims(run) if c.part == "MSE, lowest layer"]
    assert claim.measured == "best in 4 of 5, least lead −0.050"
    assert claim.values == pytest.approx([-0.05, 0.4, 0.4, 0.4, 0.4])
    assert claim.statement.startswith("10,000 to 200,000 samples: the lowest layer")


def test_d3_is_decided_on_medians_of_networks_that_did_not_diverge():
    run = samples_run(FULL, diverged={0}, changed={1: 0.99})  # one of the three left with the fewest samples
    assert parts(run) == dict.fromkeys(ALL, True)
    assert {c.n for c in FULL.claims(run)} == {3, 4}


def test_d3_is_not_decided_for_a_loss_whose_networks_with_some_number_of_samples_all_diverged():
    assert list(parts(samples_run(FULL, diverged=range(4)))) == ALL[3:]


@pytest.mark.parametrize(
    "other",
    [
        {"teacher_layers": (10, 15, 20, 25)},
        {"over_realization": 5.0},
        {"lr": 0.1},
        {"batch": 16},
        {"epochs": 50},
        {"input_std": 1.5},
        {"samples": (10_000,)},
    ],
)
def test_nothing_is_decided_away_from_the_papers_settings(other):
    study = dataclasses.replace(FULL, **other)
    assert study.claims(samples_run(study)) == []


def test_a_quick_run_decides_nothing():
    assert DeepSamples.quick().claims(samples_run(FULL)) == []


def test_numbers_of_samples_are_read_in_ascending_order():
    study = dataclasses.replace(FULL, samples=(30_000, 10_000))
    run = samples_run(study)
    rho = run.array("rho_mean", "loss samples seed layer")
    assert rho["samples"].to_numpy().tolist() == [10_000, 30_000]
    assert rho["network"].sel(loss="mse", samples=10_000).to_numpy().tolist() == [4, 5, 6, 7]
    assert parts(run, study) == dict.fromkeys(ALL, True)


# What is trained


def test_the_experiment():
    made = DeepSamples(seeds=2, samples=(100, 200), **SMALL).experiment()
    assert [(g.data.train, g.data.fresh, g.objective) for g in made.groups] == [
        (n, False, objective) for objective in (SquaredError(), CrossEntropy()) for n in (100, 200)
    ]
    assert {g.students.sizes for g in made.groups} == {(8, 8, 12, 5)}
    assert len({id(g.teacher) for g in made.groups}) == 1
    assert made.parameters[3] == {"loss": "mse", "samples": 200, "seed": 2}
    assert made.parameters[4] == {"loss": "cross-entropy", "samples": 100, "seed": 1}
    assert made.optimiser.lr == pytest.approx([0.08] * 4 + [DeepSamples().ce_lr] * 4)


def test_both_kinds_of_loss_have_the_same_samples():
    made = DeepSamples(seeds=1, samples=(100, 200), **SMALL).experiment()
    few, many, *others = (g.data for g in made.groups)
    assert others == [few, many]
    assert torch.equal(few.training(1), many.training(1)[:100])


def test_one_output_is_enough_for_the_squared_error():
    made = DeepSamples(seeds=1, samples=(100,), loss=("mse",), **SMALL | {"outputs": 1}).experiment()
    assert made.groups[0].students.sizes[-1] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": (32, 100)}, "--samples must be at least the batch size (64), got 32"),
        ({"samples": (100, 100)}, "--samples takes each value once, got 100 100"),
        ({"loss": ("mae",)}, "--loss must be one of mse, cross-entropy, got mae"),
        ({"loss": ()}, "--loss needs at least one value"),
        ({"loss": ("mse", "mse")}, "--loss takes each value once, got mse mse"),
        ({"ce_lr": 0.0}, "--ce-lr must be above 0, got 0"),
        ({"outputs": 1}, "--outputs must be at least 2 with --loss cross-entropy, got 1"),
        ({"over_realization": 0.5}, "--over-realization 0.5 × 75 teacher nodes = 37.5 student nodes; choose"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        DeepSamples(**options)
    assert str(error.value).startswith(words)


def test_networks_that_do_not_fit_in_memory_are_refused_before_they_are_built():
    with pytest.raises(UserError, match=r"networks need .* GB"):
        DeepSamples(over_realization=1e5).experiment()


# From training to report


TINY = DeepSamples(seeds=2, samples=(64, 128), epochs=3, steps=20, **SMALL)
FIGURES = {
    *("layer-samples", "loss-samples", "layer-curves"),
    *("layer-specialization", "mean-rank", "modulation"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return execute(TINY, tmp_path_factory.mktemp("deep-samples"), Said())


def test_from_training_to_report(trained):
    story = TINY.story(trained)
    assert story.headline.endswith(".")
    assert "nan" not in story.headline + "".join(n.value for n in story.numbers)
    assert 3 <= len(story.numbers) <= 4
    assert trained.claims == []
    assert {path.stem for path in (trained.folder / "figures").glob("*.pdf")} == FIGURES
    assert (trained.folder / "report.html").stat().st_size > 10_000
    assert trained.column("network").tolist() == list(range(8))
    curves = next(figure.kind for figure in story.figures if figure.name == "layer-curves")
    np.testing.assert_allclose(curves.panels[0].series[0].network_y[1], trained.series("rho_mean", 0)[1])


def test_figures_have_a_panel_per_loss_and_number_of_samples(trained):
    kinds = {figure.name: figure.kind for figure in TINY.story(trained).figures}
    cells = ("MSE, 64", "MSE, 128", "cross-entropy, 64", "cross-entropy, 128")
    assert titles(kinds["layer-curves"]) == titles(kinds["mean-rank"]) == cells
    assert kinds["mean-rank"].panels[0].series[0].x.tolist() == list(ranked(TINY.epochs))
    assert kinds["modulation"].network == 2  # the first network of MSE with 128 samples
    for name, lines in {"layer-samples": ("layer 1", "layer 2"), "loss-samples": ("evaluation", "training")}.items():
        assert (titles(kinds[name]), labels(kinds[name])) == (("MSE", "cross-entropy"), lines)
        assert kinds[name].panels[0].series[0].x.tolist() == [64, 128]
    last = trained.series("eval_loss")[:, -1].reshape(2, 2, 2)
    np.testing.assert_allclose(stacked(kinds["loss-samples"], "y")[:, 0], np.median(last, axis=2))


def test_a_run_in_which_every_network_diverged(tmp_path):
    study = dataclasses.replace(TINY, lr=1e8, ce_lr=1e8)
    run = execute(study, tmp_path, Said())
    assert all(at is not None for at in run.networks["diverged_at"].to_pylist())
    assert study.story(run).headline.startswith("All 8 networks diverged, the first at step ")
    assert study.story(run).figures == ()


def test_networks_of_one_loss_diverged(tmp_path):
    study = dataclasses.replace(TINY, ce_lr=1e8)
    run = execute(study, tmp_path, Said())
    story = study.story(run)
    assert "(MSE)" in story.headline
    assert "cross-entropy" not in story.headline
    assert story.headline.endswith("median of 2 seeds. 4 of 8 networks diverged.")
    assert len(story.numbers) == 2


def test_the_study_is_registered():
    assert studies()["deep-samples"] is DeepSamples
