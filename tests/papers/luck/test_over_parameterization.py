"""The study `over-parameterization`: its teachers, what it trains, claim D9, and its figures."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

import understudy as us
from support.curve_figures import titles
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.papers.luck.over_parameterization.claims import claims, correlations, gained, pseudo_spreads
from understudy.papers.luck.over_parameterization.story import story
from understudy.papers.luck.over_parameterization.study import NAMES, OverParameterization
from understudy.report.figures import Curves
from understudy.report.terminal.tables import LiveDisplay

WIDTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
SMALL = {"networks": ("fc", "cnn"), "seeds": 2, "teacher_layers": (3, 4), "multiple": (1.0, 2.0), "dim": 5, "image": 6}
SMALL |= {"outputs": 4, "epochs": 2, "steps": 5, "batch": 8, "train": 40, "evaluation": 30, "device": "cpu"}


@pytest.mark.parametrize("kind", ["fc", "cnn"])
def test_every_row_of_a_teacher_has_length_one_and_few_values(kind):
    study = OverParameterization(**SMALL, dtype="float64")
    teacher = study.teacher(kind)
    assert teacher.norms == ()
    assert teacher.image == (None if kind == "fc" else (6, 6))
    assert teacher.sizes == (5 if kind == "fc" else 1, 3, 4, 4)
    for i, (weight, bias) in enumerate(teacher.layers):
        rows = weight.flatten(2)
        assert torch.allclose(rows.norm(dim=2), torch.ones(()).double())
        assert (bias.abs() <= 0.5).all()
        assert bias.unique().numel() == bias.numel()
        for row in rows.flatten(0, 1):
            # Multiples of a quarter up to a half, all scaled by the same factor.
            sizes = row.abs().unique()
            sizes = sizes[sizes > 1e-9]
            assert len(sizes) <= 2, i
            assert len(sizes) < 2 or sizes[1] / sizes[0] == pytest.approx(2)


def test_batchnorm_with_initial_statistics_is_the_identity():
    """This is why convolutional teachers have none: running statistics start at mean 0 and variance 1."""
    study = OverParameterization(**SMALL)
    teacher = study.teacher("cnn").to(dtype=torch.float64)
    like = teacher.layers[0].weight
    norms = tuple(us.nets.fresh_norm(len(teacher), nodes, True, like) for nodes in teacher.sizes[1:-1])
    x = study.source("cnn").evaluating(1, dtype=torch.float64)
    plain, normed = (each.activations(x) for each in (teacher, replace(teacher, norms=norms)))
    for ours, theirs in zip(plain.hidden, normed.hidden, strict=True):
        assert torch.allclose(ours, theirs, rtol=2e-5, atol=1e-3)
        rho = us.measures.correlation(ours, theirs).diagonal(dim1=1, dim2=2)
        assert torch.allclose(rho[rho != 0], torch.ones(()).double())


def test_each_kind_of_network_is_trained_at_every_width_with_its_own_rate():
    study = OverParameterization(**SMALL, lr=0.1, cnn_lr=0.02)
    made = study.experiment()
    assert [group.students.sizes[1:-1] for group in made.groups] == [(3, 4), (6, 8)] * 2
    assert [group.students.shape.norm for group in made.groups] == [None, None, "after", "after"]
    assert [group.data.dim for group in made.groups] == [5, 5, 36, 36]
    assert all(group.data.fresh for group in made.groups)
    assert made.optimiser.lr == pytest.approx((0.1 * 2 / 4,) * 4 + (0.02 * 2 / 4,) * 4)
    assert [(row["networks"], row["multiple"], row["seed"]) for row in made.parameters] == [
        (kind, multiple, seed) for kind in ("fc", "cnn") for multiple in (1, 2) for seed in (1, 2)
    ]


def test_the_rate_is_that_of_the_error_averaged_over_outputs():
    """A step on ½‖f*−f‖² with the optimiser's rate equals one on the mean squared error with the given rate."""
    study = OverParameterization(**SMALL | {"networks": ("fc",), "multiple": (1.0,), "dtype": "float64"})
    experiment = study.experiment()
    (group,) = experiment.groups
    x = group.data.evaluating(1, dtype=torch.float64)
    weight = group.students.layers[-1].weight.clone().requires_grad_()
    mine = replace(
        group.students, layers=(*group.students.layers[:-1], group.students.layers[-1]._replace(weight=weight))
    )
    error = (mine.activations(x).output - group.teacher.activations(x).output).square()
    (averaged,) = torch.autograd.grad(error.mean(dim=(1, 2)).sum(), weight, retain_graph=True)
    (halved,) = torch.autograd.grad(error.sum(dim=2).mean(dim=1).sum() / 2, weight)
    assert torch.allclose(study.lr * averaged, experiment.optimiser.lr[0] * halved)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(OverParameterization(**SMALL), tmp_path_factory.mktemp("runs"), LiveDisplay("wide"))


def test_the_story_of_a_run_of_both_kinds(run):
    found = story(OverParameterization(**SMALL), run)
    names = ["width-curves-fc", "width-curves-cnn", "width-ends", "losses"]
    of_layers = [f"{name}-{kind}" for kind in ("fc", "cnn") for name in ("layer-specialization", "modulation")]
    assert [figure.name for figure in found.figures] == [*names, *of_layers, "mean-rank"]
    assert found.headline.startswith(
        "Fully connected: from 1× to 2× the mean best correlation after 2 epochs goes from "
    )
    assert "Convolutional, BatchNorm: from 1× to 2×" in found.headline
    for figure in found.figures[: len(names)]:
        assert isinstance(figure.kind, Curves)
        words = json.dumps(figure.kind.page(), ensure_ascii=False)
        assert "mean ± 1 standard deviation" in words
        assert "median" not in words and "quartiles" not in words and "samples" not in words
        (key,) = figure.kind.paper().legends
        entries = [text.get_text() for text in key.get_texts()]
        assert {"mean", "± 1 standard deviation"} <= set(entries) and "median" not in entries


def test_students_of_every_width_and_matrices_of_the_widest_are_shown(run):
    study = OverParameterization(**SMALL)
    found = {figure.name: figure for figure in story(study, run).figures}
    for kind, first, words in (("fc", 2, NAMES["fc"]), ("cnn", 6, NAMES["cnn"])):
        students = found[f"layer-specialization-{kind}"].kind
        assert students.groups == ("1×", "2×")
        assert set(students.cells[1][0].network) == {first, first + 1}
        matrices = found[f"modulation-{kind}"]
        assert matrices.kind.network == first and f"network {first} ({words}, 2×)" in matrices.caption
    ranks = found["mean-rank"].kind
    assert titles(ranks) == tuple(f"{NAMES[kind]}, {k}×" for kind in ("fc", "cnn") for k in (1, 2))
    assert ranks.panels[3].series[1].network_y[1] == pytest.approx(run.series("mean_rank", 1)[7])


def test_curves_are_means_and_deviations_over_seeds(run):
    study = OverParameterization(**SMALL)
    curves = story(study, run).figures[1].kind  # convolutional
    series = run.series("rho_mean", 1)[4:]  # the upper layer
    for i in range(2):
        each = series[2 * i : 2 * i + 2]
        assert curves.panels[1].series[i].y == pytest.approx(each.mean(axis=0))
        assert curves.panels[1].series[i].low == pytest.approx(each.mean(axis=0) - each.std(axis=0))
    assert claims(study, run) == []


# D9


def fake_run(rho, kind="fc", diverged=()):
    """A run with given mean best correlations [multiple, seed, layer, epoch] of one kind of network."""
    wide, seeds, layers, epochs = rho.shape
    networks = [{"networks": kind, "multiple": k, "seed": seed} for k in WIDTHS[:wide] for seed in range(1, seeds + 1)]
    for network in diverged:
        networks[network]["diverged_at"] = 5
    flat = rho.reshape(wide * seeds, layers, epochs)
    return made_run(networks, range(epochs), {("rho_mean", layer): flat[:, layer] for layer in range(layers)})


def as_in_the_paper(end=(0.6, 0.7, 0.8, 0.95, 0.9, 0.9), spread=(0.1, 0.05, 0.02, 0.01, 0.01, 0.01), late=(0.8, 0.75)):
    """Three seeds, below, at and above the mean of each width; at epoch 3 of 4 the widest are behind."""
    middle = np.array([0.5, 0.6, 0.65, 0.9, *late])
    curve = np.stack([np.full(6, 0.3), np.full(6, 0.45), np.full(6, 0.65), middle, np.array(end)], axis=1)
    apart = np.array([-1, 0, 1])[None, :, None] * np.array(spread)[:, None, None]
    return np.repeat((curve[:, None] + apart)[:, :, None], 4, axis=2)


STUDY = OverParameterization(seeds=3)


def test_d9_holds_as_in_the_paper():
    higher, steadier, slower = claims(STUDY, fake_run(as_in_the_paper()))
    assert [claim.part for claim in (higher, steadier, slower)] == [
        f"fully connected, {part}" for part in ("higher", "steadier", "slower")
    ]
    assert higher.holds and steadier.holds and slower.holds
    assert [claim.n for claim in (higher, steadier, slower)] == [3, 3, 3]
    assert higher.values == pytest.approx([0.6, 0.7, 0.8, 0.95])
    assert steadier.values == pytest.approx([spread * (2 / 3) ** 0.5 for spread in (0.1, 0.05, 0.02, 0.01)])
    assert slower.values == pytest.approx([-0.1, -0.15])
    assert "at epoch 3 of 40, by which 10× has made 90% of its gain" in slower.statement
    half = "(at half of the gain, epoch 2, 10×: 0.6500, 20×: 0.6500, 50×: 0.6500)"
    assert slower.measured.startswith("10×: 0.9000, 20×: 0.8000, 50×: 0.7500; 10× ahead by ")
    assert slower.measured.endswith(half)
    # Rises of 0.1, 0.1 and 0.15, give or take 0.05, 0.03 and 0.01
    assert "; steps up to 10× of 3.5, 5.8, 26 standard errors (allowed: −2 and above)" in higher.measured


@pytest.mark.parametrize(
    ("changed", "which"),
    [
        ({"end": (0.6, 0.8, 0.7, 0.95, 0.9, 0.9)}, 0),
        ({"spread": (0.05, 0.06, 0.02, 0.01, 0.01, 0.01)}, 1),
        ({"late": (0.8, 0.91)}, 2),
        ({"late": (0.91, 0.8)}, 2),
    ],
)
def test_d9_fails_where_one_width_is_out_of_order(changed, which):
    found = [claim.holds for claim in claims(STUDY, fake_run(as_in_the_paper(**changed)))]
    assert found == [i != which for i in range(3)]


def test_widths_may_be_out_of_order_within_two_standard_errors():
    """From 2× to 5× the mean falls by 0.01 with a standard error of 0.03/√3."""
    higher, *_ = claims(STUDY, fake_run(as_in_the_paper(end=(0.6, 0.8, 0.79, 0.95, 0.9, 0.9))))
    assert higher.holds
    assert " of 6.9, −0.58, 28 standard errors" in higher.measured
    rho = as_in_the_paper(spread=(0.05, 0.06, 0.02, 0.01, 0.01, 0.01))
    rho[1] = rho[1, [1, 0, 2]]  # the spread is that of other seeds, so that its growth is noise
    assert claims(STUDY, fake_run(rho))[1].holds


def test_widths_above_ten_may_end_anywhere():
    end, spread = (0.6, 0.7, 0.8, 0.95, 0.5, 0.95), (0.1, 0.05, 0.02, 0.01, 0.5, 0.01)
    higher, steadier, _ = claims(STUDY, fake_run(as_in_the_paper(end, spread)))
    assert higher.holds and steadier.holds


def test_d9_is_not_decided_before_the_lowest_layer_is_learned():
    rho = as_in_the_paper()
    rho[3, :, 0, -1] = 0.89
    for claim in claims(STUDY, fake_run(rho)):
        assert claim.holds is None
        assert claim.would_decide == "training until the lowest layer at 10× is above 0.9 (now 0.890)"
    rho[3, :, 0, -1], rho[3, :, 1:, -1] = 0.91, 0.82
    assert all(claim.holds is not None for claim in claims(STUDY, fake_run(rho)))


def test_two_seeds_do_not_decide_whether_wider_is_steadier():
    found = claims(OverParameterization(seeds=2), fake_run(as_in_the_paper()[:, [0, 2]]))
    assert [claim.holds for claim in found] == [True, None, True]
    assert found[1].would_decide == "at least 3 seeds"


def test_pseudo_values_estimate_a_standard_deviation_and_its_noise():
    rng = np.random.default_rng(1)
    values = xr.DataArray(rng.normal(0, 2, (2_000, 32)), dims=("draw", "seed"), coords={"seed": range(32)})
    pseudo, spread = pseudo_spreads(values), values.std("seed")
    assert float(pseudo.mean()) == pytest.approx(2, rel=0.02)
    noise = pseudo.var("seed", ddof=1).mean("draw") / 32
    assert float(noise) == pytest.approx(float(spread.var("draw")), rel=0.1)
    by_hand = xr.DataArray([0.0, 1.0, 5.0], dims="seed", coords={"seed": [1, 2, 3]})
    assert pseudo_spreads(by_hand).to_numpy() == pytest.approx(3 * (14 / 3) ** 0.5 - 2 * np.array([2, 2.5, 0.5]))


def test_each_layer_is_shown_beside_their_mean():
    rho = as_in_the_paper()
    rho[2, :, 3, -1] = 0.5  # 5× is behind in the top layer only; its mean over layers is 0.725
    higher, *_ = claims(STUDY, fake_run(rho))
    assert higher.holds
    assert [(b.where, b.holds) for b in higher.variants] == [
        ("layer 1", True),
        ("layer 2", True),
        ("layer 3", True),
        ("layer 4", False),
    ]


def test_gains_are_measured_from_the_start_of_training():
    rho = correlations(fake_run(as_in_the_paper()), "fc")
    assert [gained(rho, share) for share in (0.0, 0.2, 0.5, 0.9, 0.95)] == [0, 1, 2, 3, 4]  # 0.885 is 90%


def test_networks_that_diverged_are_left_out():
    rho = as_in_the_paper()
    rho[5, 0] = 0.9
    found = correlations(fake_run(rho, diverged={15}), "fc")
    assert np.isnan(found[5, 0]).all()
    assert found.mean("seed")[5, 0].to_numpy() == pytest.approx(rho[5, 1:, 0].mean(axis=0))
    assert claims(STUDY, fake_run(rho, diverged={15, 16, 17})) == []
    higher, steadier, slower = claims(STUDY, fake_run(rho, diverged={0}))
    assert (higher.n, steadier.n, slower.n) == (2, 2, 3)


@pytest.mark.parametrize(
    "other",
    [{"lr": 0.02}, {"multiple": WIDTHS[1:]}, {"dim": 30}, {"train": 1_000}, {"teacher_layers": (10,)}],
)
def test_d9_is_decided_in_its_settings_only(other):
    study = OverParameterization(**{"seeds": 3, "multiple": WIDTHS} | other)
    rho = as_in_the_paper()[: len(study.multiple), :, : len(study.teacher_layers)]
    assert claims(study, fake_run(rho)) == []


@pytest.mark.parametrize("kind", ["fc", "cnn"])
def test_parts_of_the_study_decide_parts_of_d9(kind):
    """Up to 10× at full length; and 20× and 50×, which take most of the time, in a shorter run."""
    plain = {"networks": (kind,), "seeds": 3, "cnn_lr": 0.1}
    narrow = claims(OverParameterization(**plain, multiple=WIDTHS[:4]), fake_run(as_in_the_paper()[:4], kind))
    assert [claim.part.split(", ")[-1] for claim in narrow] == ["higher", "steadier"]
    short = claims(OverParameterization(**plain, epochs=20), fake_run(as_in_the_paper(), kind))
    assert [claim.part.split(", ")[-1] for claim in short] == ["slower"]
    assert all(claim.part.startswith(NAMES[kind]) and claim.holds for claim in narrow + short)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"networks": ()}, "--networks needs at least one value"),
        ({"networks": ("fc", "rnn")}, "--networks must be one of fc, cnn, got rnn"),
        ({"networks": ("fc", "fc")}, "--networks takes each value once, got fc fc"),
        ({"networks": ("cnn",), "image": 8}, "--image must be at least 9 with 4 convolutions"),
        (
            {"networks": ("fc", "cnn"), "batch": 1},
            r"--batch must be at least 2 with BatchNorm \(--networks cnn\), got 1",
        ),
        ({"multiple": (0.05,)}, "--multiple 0.05 × 10 teacher nodes = 0.5 student nodes"),
        ({"cnn_lr": 0.0}, "--cnn-lr must be above 0, got 0"),
        ({"train": 10}, r"--batch must be at most the number of training samples \(10\), got 64"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        OverParameterization(**options)


def test_batches_of_one_sample_are_allowed_without_batchnorm():
    made = OverParameterization(**SMALL | {"networks": ("fc",), "batch": 1}).experiment()
    assert made.optimiser.batch == 1 and {group.students.shape.norm for group in made.groups} == {None}


def test_a_run_in_which_all_networks_diverged_names_the_rate_to_lower():
    study = OverParameterization(seeds=2, lr=9.0)
    found = story(study, fake_run(as_in_the_paper(), diverged=range(18)))
    assert found.headline == "All 18 networks diverged, the first at step 5: choose a smaller --lr than 9."
    assert found.figures == ()
