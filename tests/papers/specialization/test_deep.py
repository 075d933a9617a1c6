"""The studies of deep networks: what they train, what they conclude (D1, D2, D3), and how they tell it."""

import dataclasses
import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch

from support.curve_figures import labels, stacked, titles
from understudy import CrossEntropy, SquaredError
from understudy.errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.lab.matrices import modulated
from understudy.lab.study import ranked
from understudy.papers.specialization.deep.claims import first_passed, laid_out
from understudy.papers.specialization.deep.study import Deep
from understudy.papers.specialization.deep_samples.claims import Cells
from understudy.papers.specialization.deep_samples.study import DeepSamples
from understudy.store import Run

FULL, SAMPLES = Deep(seeds=4), DeepSamples(seeds=4)
EPOCHS = np.arange(101)


class ByHand:
    """A run's tables made by hand: what the claims ask of one."""

    def __init__(self, parameters, rho, losses=None, diverged=()):
        networks = range(len(parameters))
        self.networks = pa.table(
            {"network": list(networks)}
            | {name: [row[name] for row in parameters] for name in parameters[0]}
            | {"diverged_at": pa.array([5 if n in diverged else None for n in networks], pa.int64())}
        )
        self.rho, self.losses = np.array(rho, dtype=float), losses
        self.rho[list(diverged)] = np.nan
        self.epochs = np.arange(self.rho.shape[-1])

    def column(self, name):
        return self.networks[name].to_numpy()

    def series(self, metric, layer=-1):
        if metric == "rho_mean":
            return self.rho[:, layer]
        return np.repeat(np.asarray(self.losses, dtype=float)[:, None], len(self.epochs), axis=1)


def passing(*when, end=0.9985):
    """[layer, epoch]: layers that pass 0.95 at these epochs, never where it is infinite."""
    return np.array([np.where(w <= EPOCHS, end, 0.6) for w in when])


def deep_run(*networks, multiples=(10.0,), **more):
    seeds = len(networks) // len(multiples)
    parameters = [{"multiple": k, "seed": s} for k in multiples for s in range(1, seeds + 1)]
    return ByHand(parameters, np.stack(networks), **more)


def decided(study, run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = study.claims(run)
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    return {claim.id: claim for claim in found}


# D1 and D2


def test_the_first_epoch_that_passes():
    rho = np.array([[0.1, 0.96, 0.9, 0.99], [0.95, 0.95, 0.95, 0.951], [0.1, np.nan, 0.2, 0.3]])
    assert first_passed(rho, np.array([0, 2, 4, 6])).tolist() == [2, 6, np.inf]


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ((3, 10, 25, 20), True),  # the fourth layer is not asked for
        ((3, 10, np.inf, np.inf), True),  # the third comes after every epoch
        ((3, 10, 10, 40), False),
        ((10, 3, 25, 40), False),
        ((3, np.inf, np.inf, np.inf), False),  # two that never pass are in no order
    ],
)
def test_d1_asks_for_layers_one_two_three_in_this_order(when, holds):
    assert decided(FULL, deep_run(passing(*when), passing(*when)))["D1"].holds is holds


def test_d1_asks_every_network():
    good, bad = passing(3, 10, 25, 40), passing(3, 30, 25, 40)
    claim = decided(FULL, deep_run(good, good, good, bad))["D1"]
    assert not claim.holds
    assert (claim.n, claim.values, claim.low) == (4, (7, 7, 7, -5), 1)
    assert claim.measured == "medians 3, 10, 25; in this order in 3 of 4"


def test_half_the_networks_never_passing_is_no_epoch():
    claim = decided(FULL, deep_run(passing(3, 10, 80, 90), passing(3, 10, np.inf, np.inf)))["D1"]
    assert claim.measured.startswith("medians 3, 10, never;")


@pytest.mark.parametrize(("end", "holds"), [(0.9981, True), (0.998, True), (0.9979, False)])
def test_d2_asks_for_0998_at_every_layer(end, holds):
    close, last = passing(3, 10, 25, 40, end=0.9995), passing(3, 10, 25, 40, end=end)
    run = deep_run(np.concatenate([close[:3], last[3:]]))
    claim = decided(FULL, run)["D2"]
    assert claim.holds is holds
    assert claim.values == (end,)
    assert claim.measured.startswith(f"0.9995, 0.9995, 0.9995, {end:.4f};")


def test_d2_is_the_median_over_seeds():
    good, bad = passing(3, 10, 25, 40), passing(3, 10, 25, 40, end=0.97)
    assert decided(FULL, deep_run(good, good, bad))["D2"].holds
    claim = decided(FULL, deep_run(good, bad, bad))["D2"]
    assert not claim.holds
    assert claim.measured.endswith("lowest of any network 0.9700")


def test_gaussian_inputs_decide_under_their_own_name():
    run = deep_run(passing(3, 10, 25, 40))
    assert {c.part for c in decided(FULL, run).values()} == {"uniform ±15"}
    gaussian = dataclasses.replace(FULL, inputs="gaussian")
    assert {c.part for c in decided(gaussian, run).values()} == {"Gaussian, std 10"}
    assert decided(dataclasses.replace(gaussian, half_width=3.0), run)
    assert decided(dataclasses.replace(gaussian, input_std=1.5), run) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"teacher_layers": (10, 15, 20, 25)},
        {"dim": 20},
        {"outputs": 100},
        {"epochs": 99},
        {"steps": 1_000},
        {"batch": 16},
        {"lr": 0.1},
        {"halve_after": 50},
        {"half_width": 1.0},
        {"train": 10_000},
        {"evaluation": 1_000},
    ],
)
def test_nothing_is_decided_away_from_the_papers_settings(other):
    assert Deep(seeds=4, **other).claims(deep_run(passing(3, 10, 25, 40))) == []


def test_a_quick_run_decides_nothing():
    assert Deep.quick().claims(deep_run(passing(3, 10, 25, 40))) == []
    assert DeepSamples.quick().claims(samples_run(SAMPLES)) == []


def test_ten_times_decides_and_other_widths_stand_beside_it():
    good, slow = passing(3, 10, 25, 40), passing(3, 30, 25, 40, end=0.97)
    study = dataclasses.replace(FULL, multiple=(10.0, 2.0))
    claims = decided(study, deep_run(good, good, slow, slow, multiples=(10.0, 2.0)))
    assert claims["D1"].holds
    assert claims["D2"].holds
    assert [str(b) for b in claims["D1"].variants] == ["2×: 3, 30, 25; in this order in 0 of 2 (does not hold)"]
    assert [str(b) for b in claims["D2"].variants] == ["2×: 0.9700, 0.9700, 0.9700, 0.9700 (does not hold)"]
    assert decided(dataclasses.replace(FULL, multiple=(2.0,)), deep_run(good, multiples=(2.0,))) == {}


def test_networks_that_diverged_are_left_out():
    good = passing(3, 10, 25, 40)
    claims = decided(FULL, deep_run(good, good, good, diverged={1}))
    assert [(c.holds, c.n) for c in claims.values()] == [(True, 2)] * 2
    assert decided(FULL, deep_run(good, diverged={0})) == {}


def test_networks_are_laid_out_by_what_sets_them_apart():
    run = deep_run(*[passing(3, 10, 25, 40)] * 4, multiples=(10.0, 2.0), diverged={2})
    axes = {"multiple": np.array([2.0, 10.0]), "seed": np.array([1, 2])}
    assert laid_out(run, axes).tolist() == [[-1, 3], [0, 1]]


# D3


def samples_run(study, rho=None, loss=None, diverged=()):
    """Correlations and losses by kind of loss and place among the sizes; better with samples unless said otherwise."""
    rho = rho or (lambda kind, size: [0.6 + 0.05 * size - 0.1 * i for i in range(4)])
    loss = loss or (lambda kind, size: 10.0**-size)
    rows = [
        {"loss": kind, "samples": n, "seed": s}
        for kind in study.loss
        for n in study.samples
        for s in range(1, study.seeds + 1)
    ]
    sizes = sorted(study.samples)
    places = [(row["loss"], sizes.index(row["samples"])) for row in rows]
    ends = np.array([rho(*place) for place in places])
    return ByHand(rows, np.stack([0.1 * np.ones_like(ends), ends], axis=-1), [loss(*p) for p in places], diverged)


def parts(run, study=SAMPLES):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = study.claims(run)
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    assert {claim.id for claim in found} <= {"D3"}
    return {claim.part: claim.holds for claim in found}


ALL = [f"{name}, {part}" for name in ("MSE", "cross-entropy") for part in ("correlation", "loss", "lowest layer")]


def test_d3_holds_part_by_part():
    assert parts(samples_run(SAMPLES)) == dict.fromkeys(ALL, True)


def test_d3_asks_every_layer_to_rise_with_every_size():
    def rho(kind, size):
        dip = 0.06 if (kind, size) == ("mse", 3) else 0
        return np.array([0.9, 0.6, 0.5, 0.4 - dip]) + 0.02 * size

    assert parts(samples_run(SAMPLES, rho=rho)) == dict.fromkeys(ALL, True) | {"MSE, correlation": False}


def test_d3_asks_the_loss_to_fall_with_every_size():
    run = samples_run(
        SAMPLES, loss=lambda kind, size: 3.0 if (kind, size) == ("cross-entropy", 1) else 2.0 - 0.1 * size
    )
    assert parts(run) == dict.fromkeys(ALL, True) | {"cross-entropy, loss": False}


def test_d3_asks_the_lowest_layer_to_be_best_in_every_cell():
    def rho(kind, size):
        return np.array([0.45 if (kind, size) == ("mse", 0) else 0.9, 0.5, 0.4, 0.3]) + 0.01 * size

    run = samples_run(SAMPLES, rho=rho)
    assert parts(run) == dict.fromkeys(ALL, True) | {"MSE, lowest layer": False}
    (claim,) = [c for c in SAMPLES.claims(run) if c.part == "MSE, lowest layer"]
    assert claim.measured == "best in 4 of 5, least lead -0.050"
    assert claim.values == pytest.approx([-0.05, 0.4, 0.4, 0.4, 0.4])


def test_d3_is_decided_on_medians_of_what_is_left():
    run = samples_run(SAMPLES, diverged={0})
    run.rho[1] = 0.99  # one seed of the three that are left at the fewest samples
    assert parts(run) == dict.fromkeys(ALL, True)
    assert {c.n for c in SAMPLES.claims(run)} == {3, 4}


def test_d3_says_nothing_of_a_loss_with_an_empty_cell():
    assert list(parts(samples_run(SAMPLES, diverged=range(4)))) == ALL[3:]


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
def test_d3_is_decided_at_the_papers_settings_alone(other):
    study = dataclasses.replace(SAMPLES, **other)
    assert study.claims(samples_run(study)) == []


def test_sizes_are_read_in_their_order_whichever_way_they_were_given():
    study = dataclasses.replace(SAMPLES, samples=(30_000, 10_000))
    run = samples_run(study)
    cells = Cells.of(study, run)
    assert cells.samples.tolist() == [10_000, 30_000]
    assert cells.network[0, 0].tolist() == [4, 5, 6, 7]
    assert parts(run, study) == dict.fromkeys(ALL, True)


# What is trained


SMALL = {"teacher_layers": (4, 6), "dim": 8, "outputs": 5, "evaluation": 501}


def test_the_teacher_is_active_on_half_of_its_inputs_and_has_standard_outputs():
    study = Deep(seeds=2, dtype="float64", **(SMALL | {"teacher_layers": (20, 10)}))
    source = study.source(100, fresh=True)
    teacher = study.teacher(source)
    assert teacher.seeds.tolist() == [1, 2]
    for n in range(2):
        seen = teacher[n].activations(source.evaluating(n + 1, dtype=torch.float64))
        for hidden in seen.hidden:
            assert ((hidden[0] > 0).double().mean(0) - 0.5).abs().max() <= 1 / 501
        assert seen.output[0].mean(0).abs().max() < 1e-12
        assert (seen.output[0].std(0, correction=0) - 1).abs().max() < 1e-12
    for layer in teacher.layers[:-1]:
        torch.testing.assert_close(layer.weight.norm(dim=2), torch.ones(2, layer.weight.shape[1], dtype=torch.float64))


def test_teacher_weights_are_made_of_nine_values():
    teacher = Deep(seeds=1, dtype="float64", **SMALL).teacher(Deep(**SMALL).source(1, fresh=True))
    row = teacher.layers[0].weight[0, 0]
    smallest = row[row != 0].abs().min()
    assert any(
        torch.allclose(scaled := row / smallest * k / 4, scaled.mul(4).round() / 4, atol=1e-9)
        and scaled.abs().max() <= 1
        for k in range(1, 5)
    )


def test_a_teacher_is_the_same_alone_and_among_others():
    alone, among = (Deep(seeds=n, **SMALL) for n in (1, 3))
    one, three = (study.teacher(study.source(1, fresh=True)) for study in (alone, among))
    for a, b in zip(one.layers, three.layers, strict=True):
        assert torch.equal(a.weight[0], b.weight[0])
        assert torch.equal(a.bias[0], b.bias[0])


@pytest.mark.parametrize(
    ("inputs", "std", "largest"), [("uniform", 15 / np.sqrt(3), (14.9, 15.0)), ("gaussian", 10.0, (35.0, 70.0))]
)
def test_inputs_are_as_wide_as_they_are_said_to_be(inputs, std, largest):
    x = Deep(inputs=inputs).source(1_000, fresh=True).training(1)
    assert x.std().item() == pytest.approx(std, rel=0.02)
    assert largest[0] < x.abs().max().item() <= largest[1]


def test_the_rate_is_that_of_the_error_averaged_over_outputs():
    study = Deep(outputs=8, lr=0.2)
    output, target = torch.randn(8, dtype=torch.float64, requires_grad=True), torch.randn(8, dtype=torch.float64)
    (wanted,) = torch.autograd.grad((output - target).square().mean(), output)
    ours = SquaredError().residual(output.detach(), target)
    torch.testing.assert_close(study.rate * ours, study.lr * wanted)


def test_what_deep_trains():
    study = Deep(seeds=2, multiple=(1.0, 10.0), **SMALL)
    made = study.experiment()
    assert [g.students.sizes for g in made.groups] == [(8, 4, 6, 5), (8, 40, 60, 5)]
    assert all(g.data.fresh and g.data.train == 100_000 for g in made.groups)
    assert made.parameters == tuple({"multiple": k, "seed": s} for k in (1.0, 10.0) for s in (1, 2))
    assert (made.epochs, made.steps, made.optimiser.batch) == (100, 1_562, 64)
    assert made.optimiser.lr == pytest.approx(0.08)
    assert made.optimiser.schedule == ((21, 0.5),)
    assert made.ranks == set(ranked(100)) and len(made.ranks) == 15  # ranks are costly
    weight = made.groups[1].students.layers[1].weight
    assert weight.abs().max().item() <= 1 / np.sqrt(40)


def test_what_deep_samples_trains():
    made = DeepSamples(seeds=2, samples=(100, 200), **SMALL).experiment()
    assert [(g.data.train, g.data.fresh, g.objective) for g in made.groups] == [
        (n, False, objective) for objective in (SquaredError(), CrossEntropy()) for n in (100, 200)
    ]
    assert {g.students.sizes for g in made.groups} == {(8, 8, 12, 5)}
    assert len({id(g.teacher) for g in made.groups}) == 1
    assert made.parameters[3] == {"loss": "mse", "samples": 200, "seed": 2}
    assert made.parameters[4] == {"loss": "cross-entropy", "samples": 100, "seed": 1}
    assert made.optimiser.lr == pytest.approx([0.08] * 4 + [DeepSamples().ce_lr] * 4)


def test_both_kinds_of_loss_see_the_same_samples():
    made = DeepSamples(seeds=1, samples=(100, 200), **SMALL).experiment()
    few, many, *others = (g.data for g in made.groups)
    assert others == [few, many]
    assert torch.equal(few.training(1), many.training(1)[:100])


@pytest.mark.parametrize(
    ("study", "options", "words"),
    [
        (Deep, {"teacher_layers": (10, 0)}, "--teacher-layers: 0 was given; allowed is a whole number from 1"),
        (Deep, {"teacher_layers": ()}, "--teacher-layers: no value was given; give one or more numbers"),
        (Deep, {"multiple": (1.5,)}, "--multiple: 1.5 was given; times 75 teacher nodes makes 112.5 student nodes"),
        (Deep, {"multiple": (2.0, 2.0)}, "--multiple: 2 2 was given; name each value once"),
        (Deep, {"half_width": 0.0}, "--half-width: 0.0 was given; allowed is a number above 0"),
        (Deep, {"input_std": float("inf")}, "--input-std: inf was given; allowed is a number above 0"),
        (Deep, {"halve_after": 0}, "--halve-after: 0 was given; allowed is a whole number from 1"),
        (Deep, {"lr": -0.1}, "--lr: -0.1 was given; allowed is a number above 0"),
        (Deep, {"train": 10}, "--batch: 64 was given; allowed is up to the number of training samples, 10"),
        (DeepSamples, {"samples": (32, 100)}, "--samples: 32 was given; allowed is a whole number from the samples of"),
        (DeepSamples, {"samples": (100, 100)}, "--samples: 100 100 was given; name each value once"),
        (DeepSamples, {"loss": ("mae",)}, "--loss: mae was given; allowed are mse, cross-entropy"),
        (DeepSamples, {"loss": ()}, "--loss: no value was given; give one or more of mse, cross-entropy"),
        (DeepSamples, {"loss": ("mse", "mse")}, "--loss: mse mse was given; name each value once"),
        (DeepSamples, {"ce_lr": 0.0}, "--ce-lr: 0.0 was given; allowed is a number above 0"),
        (
            DeepSamples,
            {"outputs": 1},
            "--outputs: 1 was given; allowed with --loss cross-entropy is a whole number from",
        ),
        (
            DeepSamples,
            {"over_realization": 0.5},
            "--over-realization: 0.5 was given; times 75 teacher nodes makes 37.5",
        ),
    ],
)
def test_options_that_cannot_be(study, options, words):
    with pytest.raises(UserError) as error:
        study(**options)
    assert str(error.value).startswith(words)


def test_one_output_is_enough_for_the_squared_error():
    made = DeepSamples(seeds=1, samples=(100,), loss=("mse",), **SMALL | {"outputs": 1}).experiment()
    assert made.groups[0].students.sizes[-1] == 1


@pytest.mark.parametrize(
    "study", [Deep(multiple=(1e5,)), DeepSamples(over_realization=1e5)], ids=lambda study: study.name
)
def test_networks_that_cannot_fit_are_refused_before_they_are_made(study):
    with pytest.raises(UserError, match=r"networks need .* GB at the least"):
        study.experiment()


# From training to report


class Silent:
    def start(self, folder, epoch, epochs): ...

    def epoch(self, progress): ...

    def say(self, what): ...


TINY = (
    Deep(seeds=2, multiple=(1.0, 3.0), epochs=3, steps=20, train=100, **(SMALL | {"teacher_layers": (4, 5, 6)})),
    DeepSamples(seeds=2, samples=(64, 128), epochs=3, steps=20, **SMALL),
)
FIGURES = {
    "deep": {
        *("layer-curves", "layer-epochs", "layer-specialization", "mean-rank"),
        *("modulation", "layer-distance", "losses"),
    },
    "deep-samples": {
        *("layer-samples", "loss-samples", "layer-curves"),
        *("layer-specialization", "mean-rank", "modulation"),
    },
}


@pytest.mark.parametrize("study", TINY, ids=lambda study: study.name)
def test_from_training_to_report(study, tmp_path):
    run = execute(study, tmp_path, Silent())
    story = study.story(run)
    assert story.headline.endswith(".")
    assert "nan" not in story.headline + "".join(n.value for n in story.numbers)
    assert 3 <= len(story.numbers) <= 4
    assert run.claims == []
    assert {path.stem for path in (run.folder / "figures").glob("*.pdf")} == FIGURES[study.name]
    assert (run.folder / "report.html").stat().st_size > 10_000
    assert run.column("network").tolist() == list(range(4 if study.name == "deep" else 8))
    curves = next(figure.kind for figure in story.figures if figure.name == "layer-curves")
    np.testing.assert_allclose(curves.panels[0].series[0].network_y[1], run.series("rho_mean", 0)[1])


@pytest.mark.parametrize("study", TINY, ids=lambda study: study.name)
def test_a_run_in_which_everything_diverged_is_told(study, tmp_path):
    rates = {"lr": 1e8} | ({"ce_lr": 1e8} if study.name == "deep-samples" else {})
    study = dataclasses.replace(study, **rates)
    run = execute(study, tmp_path, Silent())
    assert all(at is not None for at in run.networks["diverged_at"].to_pylist())
    assert study.story(run).headline.startswith(f"All {run.networks.num_rows} networks diverged, the first at step ")
    assert study.story(run).figures == ()


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains and records; the page is not drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.lab.execute.write_report", lambda *_: None)
        yield lambda study: execute(study, tmp_path_factory.mktemp("deep"), Silent())


@pytest.fixture(scope="module")
def trained(train):
    return train(TINY[0])


@pytest.fixture
def retold(trained):
    """Read anew, so that a test may change what it holds."""
    return Run(trained.folder)


def drawn(study, run):
    return {figure.name: figure for figure in study.story(run).figures}


def test_mean_ranks_are_drawn_at_the_epochs_at_which_they_were_looked_up(retold):
    study, kind = TINY[0], drawn(TINY[0], retold)["mean-rank"].kind
    assert (titles(kind), labels(kind), kind.note) == (("1×", "3×"), ("layer 1", "layer 2", "layer 3"), "n = 2 seeds")
    for panel, networks in enumerate(([0, 1], [2, 3])):
        for layer in range(3):
            each = retold.series("mean_rank", layer)[networks]
            series = kind.panels[panel].series[layer]
            np.testing.assert_array_equal(series.x, ranked(study.epochs))
            np.testing.assert_allclose(series.network_y, each)
            np.testing.assert_allclose(series.y, np.median(each, axis=0))
            np.testing.assert_allclose([series.low, series.high], np.percentile(each, (25, 75), axis=0))
    medians = stacked(kind, "y")
    assert (medians[..., -1] == 0).all() and (medians[..., 0] > 0).any()


def test_matrices_are_of_the_first_network_of_the_shown_multiple_that_did_not_diverge(retold):
    study = TINY[0]
    assert drawn(study, retold)["modulation"].kind.network == 2  # 10× is not there, and 3× is the widest
    lost = retold.networks.set_column(
        retold.networks.column_names.index("diverged_at"), "diverged_at", pa.array([None, None, 5, None], pa.int64())
    )
    retold.__dict__["networks"] = lost
    figure = drawn(study, retold)["modulation"]
    assert figure.kind.network == 3 and "network 3 (3×), over 256 evaluation samples" in figure.caption
    wanted = modulated(retold, [3], lambda: study.source(study.train, fresh=True))
    for ours, theirs in zip(figure.kind.cells, wanted.shown, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one.values, other.values)


def test_a_run_that_looked_no_ranks_up_is_told_without_them(retold):
    named = retold.metrics["metric"].cast(pa.string()).to_numpy(zero_copy_only=False)
    retold.__dict__["metrics"] = retold.metrics.filter(pa.array(named != "mean_rank"))
    assert set(drawn(TINY[0], retold)) == FIGURES["deep"] - {"mean-rank"}
    assert set(drawn(TINY[0], Run(retold.folder))) == FIGURES["deep"]


def test_students_fewer_than_their_teachers_nodes_have_no_matrices(train):
    study = dataclasses.replace(TINY[0], seeds=1, multiple=(0.5,), epochs=1, steps=2, teacher_layers=(4, 6))
    assert set(drawn(study, train(study))) == FIGURES["deep"] - {"modulation"}


def test_one_kind_of_loss_that_diverged_leaves_the_other(tmp_path):
    study = dataclasses.replace(TINY[1], ce_lr=1e8)
    run = execute(study, tmp_path, Silent())
    story = study.story(run)
    assert "(MSE)" in story.headline
    assert "cross-entropy" not in story.headline
    assert story.headline.endswith("median of 2 seeds. 4 of 8 networks diverged.")
    assert len(story.numbers) == 2


# Words


def _headline(*networks, multiple=10.0, epochs=100):
    from understudy.papers.specialization.deep.story import _headline

    study = dataclasses.replace(FULL, seeds=len(networks), epochs=epochs)
    rho = np.stack(networks)
    run = deep_run(*networks, multiples=(multiple,))
    return _headline(study, run, multiple, first_passed(rho, EPOCHS), rho)


def test_the_headline_says_when_each_layer_passed():
    assert _headline(passing(3, 10, 25, 40)) == (
        "With 10 times the teacher's nodes the mean best correlation passed 0.95 at epochs 3, 10, 25 and 40 in layers "
        "1, 2, 3 and 4; after 100 epochs it is 0.999, 0.999, 0.999 and 0.999, from the lowest layer up (median of 1 "
        "seed)."
    )


def test_the_headline_says_which_layers_never_passed():
    assert " passed 0.95 at epoch 3 in layer 1, and never in layers 2, 3 and 4; " in _headline(
        passing(3, np.inf, np.inf, np.inf)
    )
    assert "With as many nodes as the teacher the mean best correlation passed 0.95 never in layers" in _headline(
        passing(*[np.inf] * 4), multiple=1.0
    )


def test_both_are_registered():
    assert studies()["deep"] is Deep
    assert studies()["deep-samples"] is DeepSamples
