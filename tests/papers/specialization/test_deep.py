"""The study `deep`: what it trains, what it decides (D1, D2, P1, P2), and what it reports."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
import xarray as xr

import understudy as us
from support.commands import Said
from support.curve_figures import labels, stacked, titles
from support.runs import made_run
from understudy import SquaredError
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.lab.matrices import measure_modulation
from understudy.lab.study import ranked
from understudy.measures import modulated_fan_out
from understudy.papers.specialization.deep.claims import first_passed, modulation_prunes_better
from understudy.papers.specialization.deep.story import _headline
from understudy.papers.specialization.deep.study import Deep
from understudy.store import Run
from understudy.theory.unexplained import unexplained

FULL = Deep(seeds=4)
EPOCHS = np.arange(101)


def passing(*when, end=0.9985):
    """[layer, epoch]: layers that pass 0.95 at these epochs, never where it is infinite."""
    return np.array([np.where(w <= EPOCHS, end, 0.6) for w in when])


def deep_run(*networks, multiples=(10.0,), diverged=()):
    """A run with the given mean best correlations [layer, epoch] of each network."""
    seeds = len(networks) // len(multiples)
    parameters = [{"multiple": k, "seed": s} for k in multiples for s in range(1, seeds + 1)]
    rows = [row | {"diverged_at": 5 if i in diverged else None} for i, row in enumerate(parameters)]
    rho = np.stack(networks)
    return made_run(rows, EPOCHS, {("rho_mean", layer): rho[:, layer] for layer in range(rho.shape[1])})


def decided(study, run):
    found = study.claims(run)
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    return {claim.id: claim for claim in found}


# Claims D1 and D2


def test_first_epoch_above_the_bound():
    rho = np.array([[0.1, 0.96, 0.9, 0.99], [0.95, 0.95, 0.95, 0.951], [0.1, np.nan, 0.2, 0.3], [np.nan] * 4])
    found = first_passed(xr.DataArray(rho, {"epoch": [0, 2, 4, 6]}, ("seed", "epoch")))
    np.testing.assert_array_equal(found, [2, 6, np.inf, np.nan])


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ((3, 10, 25, 40), True),
        ((3, 10, 25, np.inf), True),  # the fourth comes after every epoch
        ((3, 10, 25, 20), False),
        ((3, 10, 25, 25), False),
        ((3, 10, 10, 40), False),
        ((10, 3, 25, 40), False),
        ((3, np.inf, np.inf, np.inf), False),  # two layers that never pass are not in order
    ],
)
def test_d1_requires_all_four_layers_in_this_order(when, holds):
    assert decided(FULL, deep_run(passing(*when), passing(*when)))["D1"].holds is holds


def test_d1_requires_the_order_in_every_network():
    good, bad = passing(3, 10, 25, 40), passing(3, 30, 25, 40)
    claim = decided(FULL, deep_run(good, good, good, bad))["D1"]
    assert not claim.holds
    assert (claim.n, claim.values, claim.low) == (4, (7, 7, 7, -5), 0)
    assert claim.measured == "medians 3, 10, 25, 40; in this order in 3 of 4"


def test_d1_shows_other_readings_beside_it():
    claim = decided(FULL, deep_run(passing(3, 10, 25, 20), passing(3, 30, 25, 40)))["D1"]
    assert [str(b) for b in claim.variants] == [
        "layers 1 to 3: in 1 of 2 (does not hold)",
        "the lowest layer before all others: in 2 of 2 (holds)",
    ]


def test_the_median_epoch_is_never_if_half_of_the_networks_never_pass():
    claim = decided(FULL, deep_run(passing(3, 10, 80, 90), passing(3, 10, np.inf, np.inf)))["D1"]
    assert claim.measured.startswith("medians 3, 10, never, never;")


@pytest.mark.parametrize(("end", "holds"), [(0.9981, True), (0.998, True), (0.9979, False)])
def test_d2_requires_0998_in_every_layer(end, holds):
    close, last = passing(3, 10, 25, 40, end=0.9995), passing(3, 10, 25, 40, end=end)
    run = deep_run(np.concatenate([close[:3], last[3:]]))
    claim = decided(FULL, run)["D2"]
    assert claim.holds is holds
    assert claim.values == (end,)
    assert claim.measured.startswith(f"0.9995, 0.9995, 0.9995, {end:.4f};")


def test_d2_is_decided_on_the_median_over_seeds():
    good, bad = passing(3, 10, 25, 40), passing(3, 10, 25, 40, end=0.97)
    assert decided(FULL, deep_run(good, good, bad))["D2"].holds
    claim = decided(FULL, deep_run(good, bad, bad))["D2"]
    assert not claim.holds
    assert claim.measured.endswith("lowest of any network 0.9700")


def test_claims_name_the_distribution_of_the_inputs():
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
        {"leaky": 0.5},
    ],
)
def test_nothing_is_decided_away_from_the_papers_settings(other):
    assert Deep(seeds=4, **other).claims(deep_run(passing(3, 10, 25, 40))) == []


def test_a_quick_run_decides_nothing():
    assert Deep.quick().claims(deep_run(passing(3, 10, 25, 40))) == []


def test_10_times_decides_and_other_over_realizations_are_shown_beside_it():
    good, slow = passing(3, 10, 25, 40), passing(3, 30, 25, 40, end=0.97)
    study = dataclasses.replace(FULL, multiple=(10.0, 2.0))
    claims = decided(study, deep_run(good, good, slow, slow, multiples=(10.0, 2.0)))
    assert claims["D1"].holds
    assert claims["D2"].holds
    assert [str(b) for b in claims["D1"].variants] == [
        "layers 1 to 3: in 2 of 2 (holds)",
        "the lowest layer before all others: in 2 of 2 (holds)",
        "2×: medians 3, 30, 25, 40; in this order in 0 of 2 (does not hold)",
    ]
    assert [str(b) for b in claims["D2"].variants] == [
        "2×: 0.9700, 0.9700, 0.9700, 0.9700; lowest of any network 0.9700 (does not hold)"
    ]
    assert decided(dataclasses.replace(FULL, multiple=(2.0,)), deep_run(good, multiples=(2.0,))) == {}


def test_networks_that_diverged_are_left_out():
    good = passing(3, 10, 25, 40)
    claims = decided(FULL, deep_run(good, good, good, diverged={1}))
    assert [(c.holds, c.n) for c in claims.values()] == [(True, 2)] * 2
    assert decided(FULL, deep_run(good, diverged={0})) == {}


# Claim P1


def linear(loss=1e-5, recovered=(0.0, 0.02), diverged=()):
    """P1 of two linear students; the second recovers a part of the highest layer."""
    rows = [{"multiple": 10.0, "seed": s, "diverged_at": 5 if s in diverged else None} for s in (1, 2)]
    last = {("rho_mean", i): [0.5, 0.6] for i in range(4)} | {("recovered", i): [0.0, 0.0] for i in range(3)}
    last |= {("recovered", 3): recovered, "eval_loss": [loss / 2, loss]}
    metrics = {key: np.stack([value, value], axis=1) for key, value in last.items()}
    return decided(dataclasses.replace(FULL, leaky=1.0), made_run(rows, (0, 1), metrics))


def test_p1_is_decided_on_linear_networks_only():
    claims = linear()
    assert list(claims) == ["P1"]
    assert claims["P1"].holds and claims["P1"].values == (0.0, 0.02)
    assert "0.550, 0.550, 0.550, 0.550 (medians)" in claims["P1"].measured
    assert "P1" not in decided(FULL, deep_run(passing(3, 10, 25, 40)))


def test_p1_does_not_hold_where_a_layer_is_recovered():
    assert linear(recovered=(0.0, 0.06))["P1"].holds is False


def test_p1_is_not_decided_where_a_student_does_not_fit_its_teacher():
    claim = linear(loss=2e-3)["P1"]
    assert claim.holds is None and claim.would_decide.startswith("training until the loss")
    assert linear(recovered=(0.0, 1.0), diverged={2})["P1"].n == 1


# Claim P2


def test_p2_compares_the_losses_of_students_pruned_by_either_rule():
    """One node of each hidden layer is removed: one of weak fan-out, or of short weights."""
    study = Deep(seeds=3, multiple=(10.0,), **(SMALL | {"teacher_layers": (4, 6)}))
    teacher = study.teacher(study.source(1, fresh=True))
    low, middle, top = us.students.like_linear(teacher, multiple=1).layers
    short, strong = low.weight.clone(), middle.weight.clone()
    short[:, 0], strong[:, :, 0], strong[:, :, 1] = 0.5 * low.weight[:, 0], 5 * middle.weight[:, :, 0], 0.0
    layers = (us.nets.Layer(short, low.bias), us.nets.Layer(strong, middle.bias), top)
    students = dataclasses.replace(us.students.like_linear(teacher, multiple=1), layers=layers)
    expected = []
    for n in range(3):
        x = study.source(1, fresh=True).evaluating(n + 1)
        strengths = modulated_fan_out(students[n], x[:256]), [layer.weight.norm(dim=2) for layer in layers[:-1]]
        losses = []
        for by in ([each[0] for each in strengths[0]], [each[n] for each in strengths[1]]):
            left = [(each > each.min()).nonzero().T for each in by]
            losses.append(float(unexplained(teacher[n], us.nets.with_nodes(students[n], left), x)))
        expected.append(np.log10(losses[1] / losses[0]))
    rows = [{"multiple": 10.0, "seed": s} for s in (1, 2, 3)]
    weights = {"teacher": [teacher], "epoch.100": [students]}
    run = made_run(rows, (0, 100), {"eval_loss": np.ones((3, 2))}, weights=weights)
    claim = modulation_prunes_better(study, run)
    assert claim.values == pytest.approx(expected) and claim.n == 3
    assert claim.holds == (np.mean(expected) > 2 * np.std(expected, ddof=1) / np.sqrt(3))


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


def test_teacher_weights_take_nine_values():
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
def test_inputs_have_the_stated_width(inputs, std, largest):
    x = Deep(inputs=inputs).source(1_000, fresh=True).training(1)
    assert x.std().item() == pytest.approx(std, rel=0.02)
    assert largest[0] < x.abs().max().item() <= largest[1]


def test_the_rate_is_that_of_the_error_averaged_over_outputs():
    study = Deep(outputs=8, lr=0.2)
    output, target = torch.randn(8, dtype=torch.float64, requires_grad=True), torch.randn(8, dtype=torch.float64)
    (wanted,) = torch.autograd.grad((output - target).square().mean(), output)
    ours = SquaredError().residual(output.detach(), target)
    torch.testing.assert_close(study.rate * ours, study.lr * wanted)


def test_the_experiment():
    study = Deep(seeds=2, multiple=(1.0, 10.0), **SMALL)
    made = study.experiment()
    assert [g.students.sizes for g in made.groups] == [(8, 4, 6, 5), (8, 40, 60, 5)]
    assert all(g.data.fresh and g.data.train == 100_000 for g in made.groups)
    assert made.parameters == tuple({"multiple": k, "seed": s} for k in (1.0, 10.0) for s in (1, 2))
    assert (made.epochs, made.steps, made.optimiser.batch) == (100, 1_562, 64)
    assert made.optimiser.lr == pytest.approx((0.08,) * 4)
    assert made.optimiser.schedule == ((21, 0.5),)
    assert made.ranks == set(ranked(100)) and len(made.ranks) == 15  # ranks are costly
    weight = made.groups[1].students.layers[1].weight
    assert weight.abs().max().item() <= 1 / np.sqrt(40)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"teacher_layers": (10, 0)}, "--teacher-layers must be at least 1, got 0"),
        ({"teacher_layers": ()}, "--teacher-layers needs at least one value"),
        ({"multiple": (1.5,)}, "--multiple 1.5 × 75 teacher nodes = 112.5 student nodes; choose a multiple"),
        ({"multiple": (2.0, 2.0)}, "--multiple takes each value once, got 2 2"),
        ({"half_width": 0.0}, "--half-width must be above 0, got 0"),
        ({"input_std": float("inf")}, "--input-std must be above 0, got inf"),
        ({"halve_after": 0}, "--halve-after must be at least 1, got 0"),
        ({"lr": -0.1}, "--lr must be above 0, got -0.1"),
        ({"train": 10}, "--batch must be at most the number of training samples (10), got 64"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        Deep(**options)
    assert str(error.value).startswith(words)


def test_networks_that_do_not_fit_in_memory_are_refused_before_they_are_built():
    with pytest.raises(UserError, match=r"networks need .* GB"):
        Deep(multiple=(1e5,)).experiment()


# From training to report


TINY = Deep(seeds=2, multiple=(1.0, 3.0), epochs=3, steps=20, train=100, **(SMALL | {"teacher_layers": (4, 5, 6)}))
FIGURES = {
    *("layer-curves", "layer-epochs", "layer-specialization", "mean-rank"),
    *("modulation", "canonical", "layer-distance", "losses"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return execute(TINY, tmp_path_factory.mktemp("deep"), Said())


@pytest.fixture
def read_again(trained):
    """The run read anew, so that a test may change its tables."""
    return Run(trained.folder)


def drawn(study, run):
    return {figure.name: figure for figure in study.story(run).figures}


def test_from_training_to_report(trained):
    story = TINY.story(trained)
    assert story.headline.endswith(".")
    assert "nan" not in story.headline + "".join(n.value for n in story.numbers)
    assert 3 <= len(story.numbers) <= 4
    assert trained.claims == []
    assert {path.stem for path in (trained.folder / "figures").glob("*.pdf")} == FIGURES
    assert (trained.folder / "report.html").stat().st_size > 10_000
    assert trained.column("network").tolist() == list(range(4))
    curves = next(figure.kind for figure in story.figures if figure.name == "layer-curves")
    np.testing.assert_allclose(curves.panels[0].series[0].network_y[1], trained.series("rho_mean", 0)[1])


def test_a_run_in_which_every_network_diverged(tmp_path):
    study = dataclasses.replace(TINY, lr=1e8)
    run = execute(study, tmp_path, Said())
    assert all(at is not None for at in run.networks["diverged_at"].to_pylist())
    assert study.story(run).headline.startswith("All 4 networks diverged, the first at step ")
    assert study.story(run).figures == ()


def test_mean_ranks_are_drawn_at_the_epochs_at_which_they_were_recorded(trained):
    kind = drawn(TINY, trained)["mean-rank"].kind
    assert (titles(kind), labels(kind), kind.note) == (("1×", "3×"), ("layer 1", "layer 2", "layer 3"), "n = 2 seeds")
    for panel, networks in enumerate(([0, 1], [2, 3])):
        for layer in range(3):
            each = trained.series("mean_rank", layer)[networks]
            series = kind.panels[panel].series[layer]
            np.testing.assert_array_equal(series.x, ranked(TINY.epochs))
            np.testing.assert_allclose(series.network_y, each)
            np.testing.assert_allclose(series.y, np.median(each, axis=0))
            np.testing.assert_allclose([series.low, series.high], np.percentile(each, (25, 75), axis=0))
    medians = stacked(kind, "y")
    assert (medians[..., -1] == 0).all() and (medians[..., 0] > 0).any()


def test_matrices_are_of_the_first_network_of_the_shown_multiple_that_did_not_diverge(read_again):
    assert drawn(TINY, read_again)["modulation"].kind.network == 2  # 3× is the widest, as the run has no 10×
    run = Run(read_again.folder)
    run.__dict__["networks"] = run.networks.set_column(
        run.networks.column_names.index("diverged_at"), "diverged_at", pa.array([None, None, 5, None], pa.int64())
    )
    figure = drawn(TINY, run)["modulation"]
    assert figure.kind.network == 3 and "network 3 (3×), over 256 evaluation samples" in figure.caption
    wanted = measure_modulation(run, [3], lambda: TINY.source(TINY.train, fresh=True))
    for ours, theirs in zip(figure.kind.cells, wanted.shown, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one.values, other.values)


def test_a_run_without_ranks_has_no_figure_of_them(read_again):
    named = read_again.metrics["metric"].cast(pa.string()).to_numpy(zero_copy_only=False)
    read_again.__dict__["metrics"] = read_again.metrics.filter(pa.array(named != "mean_rank"))
    assert set(drawn(TINY, read_again)) == FIGURES - {"mean-rank"}
    assert set(drawn(TINY, Run(read_again.folder))) == FIGURES


def test_students_with_fewer_nodes_than_the_teacher_have_no_matrices(tmp_path):
    study = dataclasses.replace(TINY, seeds=1, multiple=(0.5,), epochs=1, steps=2, teacher_layers=(4, 6))
    assert set(drawn(study, execute(study, tmp_path, Said()))) == FIGURES - {"modulation"}


def test_linear_students_contain_the_teacher_up_to_a_linear_map_only(tmp_path):
    study = dataclasses.replace(Deep.quick(), leaky=1.0, seeds=1, epochs=3, multiple=(1.0,))
    run = execute(study, tmp_path, Said())
    assert [net.slope for who in ("teacher", "epoch.3") for net in run.weights(who)] == [1.0, 1.0]
    kind = drawn(study, run)["canonical"].kind
    assert (kind.values[0] < 0.82).all() and (kind.values[1] > 0.88).all()
    np.testing.assert_allclose(kind.values[0, 1], run.series("rho_mean", 1)[:, -1])


def test_too_few_samples_for_canonical_correlations_leave_the_figure_out(tmp_path):
    study = dataclasses.replace(TINY, seeds=1, epochs=1, steps=2, evaluation=20)
    assert set(drawn(study, execute(study, tmp_path, Said()))) == FIGURES - {"canonical"}


def headline(*networks, multiple=10.0):
    study = dataclasses.replace(FULL, seeds=len(networks))
    run = deep_run(*networks, multiples=(multiple,))
    rho = run.array("rho_mean", "seed layer epoch")
    return _headline(study, run, multiple, first_passed(rho), rho)


def test_the_headline_states_when_each_layer_passed():
    assert headline(passing(3, 10, 25, 40)) == (
        "With 10 times the teacher's nodes the mean best correlation passed 0.95 at epochs 3, 10, 25 and 40 in layers "
        "1, 2, 3 and 4; after 100 epochs it is 0.999, 0.999, 0.999 and 0.999, from the lowest layer up (median of 1 "
        "seed)."
    )


def test_the_headline_states_which_layers_never_passed():
    assert " passed 0.95 at epoch 3 in layer 1, and never in layers 2, 3 and 4; " in headline(
        passing(3, np.inf, np.inf, np.inf)
    )
    assert "With as many nodes as the teacher the mean best correlation passed 0.95 never in layers" in headline(
        passing(*[np.inf] * 4), multiple=1.0
    )


def test_the_study_is_registered():
    assert studies()["deep"] is Deep
