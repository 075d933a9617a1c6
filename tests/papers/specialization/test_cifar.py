"""The study `cifar`: its teachers and students, what it decides (D4), what it reports, and what it refuses."""

import dataclasses
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
import torch

import understudy as us
from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute, plan
from understudy.lab.study import FORMAT
from understudy.measures.modulation import modulation
from understudy.papers.specialization.cifar.study import Cifar
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, trained_networks
from understudy.store import Run

STUDENTS = Cifar(
    seeds=2,
    first_seed=1,
    train=200,
    evaluation=100,
    images="plain",
    batch=20,
    device="cpu",
    teacher_layers=(4, 4),
    teacher_epochs=4,
    teacher_lr=0.002,
    tune_epochs=1,
    tune_lr=0.001,
    epochs=2,
    multiple=(1.0, 3.0),
    lr=0.001,
)


def at(study, folder):
    return dataclasses.replace(study, data=str(folder))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def students(cifar, out):
    """The run of students, and the messages during it."""
    said = Said()
    return execute(at(STUDENTS, cifar), out, said), said.words


def same(one, other):
    parts = zip((*one.layers, *one.norms), (*other.layers, *other.norms), strict=True)
    return all(torch.equal(a, b) for left, right in parts for a, b in zip(left, right, strict=True))


# Teachers and students


def test_the_rate_is_that_of_the_error_averaged_over_outputs():
    assert Cifar().rate(0.01) == 0.01  # Adam's steps do not grow with the loss
    study = Cifar(optimiser="sgd")
    assert study.rate(0.01) == pytest.approx(0.01 * 2 / 10)
    output, target = torch.randn(7, 10, dtype=torch.float64, requires_grad=True), torch.randn(7, 10).double()
    (averaged,) = torch.autograd.grad(study.lr * torch.nn.functional.mse_loss(output, target), output)
    (ours,) = torch.autograd.grad(study.rate(study.lr) * us.SquaredError().losses(output, target).mean(), output)
    assert torch.allclose(averaged, ours)


def test_the_teacher_is_the_pruned_network_of_the_teachers_study():
    (pruned,) = Cifar().depends_on()
    assert (pruned.keep, pruned.layers, pruned.norm) == ((0.5,), (64, 64, 64, 64), "after")
    (whole,) = pruned.depends_on()
    assert whole == CifarTeacher(seeds=4, first_seed=3)
    assert whole.depends_on() == ()
    assert Cifar(keep=(1.0,)).depends_on() == (whole,)
    assert Cifar(seeds=2, first_seed=1, keep=(1.0,)).depends_on() == (CifarTeacher(),)


def test_teachers_and_students_have_the_same_seeds():
    assert list(Cifar().seed_names) == [3, 4, 5, 6]  # settings were chosen on 1 and 2
    assert [need.seed_names for need in Cifar().depends_on()] == [Cifar().seed_names]


def test_teachers_have_the_given_weight_decay():
    assert [need.decay for need in Cifar().depends_on()] == [0.2]
    assert Cifar(teacher_decay=0.3).depends_on()[0].decay == 0.3


def test_runs_from_before_weight_decay_was_an_option_had_none():
    study = Cifar()
    config = study.config()
    assert Cifar.from_config(config) == study
    options = {name: value for name, value in config["options"].items() if name != "teacher_decay"}
    old = Cifar.from_config(config | {"format": 2, "options": options})
    assert old == dataclasses.replace(study, teacher_decay=0.0)


def test_students_have_the_trained_pruned_teacher(students, cifar):
    run, _ = students
    assert same(run.weights("teacher")[0], trained_networks(execute(*_needed(STUDENTS, cifar, run))))


def test_a_teacher_that_diverged_is_refused(cifar, tmp_path):
    study = dataclasses.replace(at(STUDENTS, cifar), teacher_lr=1e9, keep=(1.0,), norm="none")
    with pytest.raises(UserError, match=r"2 of 2 teachers diverged, and students cannot learn from them"):
        execute(study, tmp_path, Said())
    (teacher,) = study.depends_on()
    run = execute(teacher, tmp_path, Said())
    assert (run.folder / "headline.txt").read_text().startswith("All 2 networks diverged, the first at step")


def test_runs_that_the_study_depends_on_are_made_first_and_once(students, cifar, out):
    run, said = students
    starts = [words for words in said if "starts from" in words]
    assert [words.split()[0] for words in starts] == ["cifar", "cifar-teacher"]
    assert "--keep 0.5" in starts[0] and "--keep" not in starts[1]
    again = Said()
    assert execute(at(STUDENTS, cifar), out, again).folder == run.folder
    assert not again.words
    assert plan(at(STUDENTS, cifar), out)[0].epochs == 2


def test_students_have_the_given_widths_and_learn_outputs_without_labels(students, cifar):
    run, _ = students
    assert [group.sizes for group in run.weights("epoch.0")] == [(3, 2, 2, 10), (3, 6, 6, 10)]
    assert run.column("multiple").tolist() == [1, 1, 3, 3]
    teachers = execute(*_needed(STUDENTS, cifar, run))
    experiment = at(STUDENTS, cifar).experiment(teachers)
    assert all(not group.labelled and group.objective == us.SquaredError() for group in experiment.groups)
    assert isinstance(experiment.optimiser, us.Adam) and experiment.steps == 10
    assert experiment.optimiser.decay == 0
    by_sgd = at(dataclasses.replace(STUDENTS, optimiser="sgd"), cifar)
    assert by_sgd.experiment(teachers).optimiser.momentum == 0.9
    assert by_sgd.depends_on()[0].optimiser == by_sgd.depends_on()[0].depends_on()[0].optimiser == "sgd"


def _needed(study, cifar, run):
    (need,) = at(study, cifar).depends_on()
    return need, run.folder.parents[1], Said()


def test_a_small_run_has_a_report_and_decides_nothing(students):
    run, _ = students
    assert run.claims == []
    headline = (run.folder / "headline.txt").read_text()
    taught = run.series("teacher_accuracy")[:, -1].mean()
    assert headline.startswith(f"Students of a teacher that classifies {taught:.1%} of 100 images correctly classify")
    names = {path.stem for path in (run.folder / "figures").iterdir()}
    assert names == STUDENT_FIGURES


STUDENT_FIGURES = {
    *("layer-curves", "layer-widths", "layer-specialization", "mean-rank", "modulation", "accuracy", "losses"),
}


def figures_of(study, run):
    return {figure.name: figure for figure in study.story(run).figures}


def test_matrices_are_of_the_widest_students_on_images_at_all_positions(students, cifar):
    run, _ = students
    figure = figures_of(at(STUDENTS, cifar), run)["modulation"]
    assert figure.kind.network == 2
    assert "network 2 (3×), over 16 evaluation samples at all positions." in figure.caption
    assert [row[0].values.shape for row in figure.kind.cells] == [(6, 2), (6, 2)]
    teacher, student = (run.weights(who)[1][0] for who in ("teacher", "epoch.2"))
    x = at(STUDENTS, cifar).source().evaluating(1)[:16]
    for row, part in zip(figure.kind.cells, modulation(teacher, student, x, ("h_star", "beta_star")), strict=True):
        for image, matrix in zip(row[1::2], (part.h_star, part.beta_star), strict=True):
            np.testing.assert_allclose(image.values, matrix[0].numpy()[image.student], rtol=1e-4, atol=1e-7)


def test_a_report_needs_no_images(students, cifar, tmp_path):
    run, _ = students
    names = {name for name in figures_of(at(STUDENTS, cifar), run) if not name.startswith("modulation")}
    assert set(figures_of(at(STUDENTS, tmp_path / "nowhere"), run)) == names


def test_older_runs_without_ranks_have_no_figure_of_them(students, cifar):
    run = Run(students[0].folder)
    named = run.metrics["metric"].cast(pa.string()).to_numpy(zero_copy_only=False)
    run.__dict__["metrics"] = run.metrics.filter(pa.array(named != "mean_rank"))
    assert set(figures_of(at(STUDENTS, cifar), run)) == STUDENT_FIGURES - {"mean-rank"}


def test_older_runs_with_another_fan_out_of_channels_have_no_figure_of_it(students, tmp_path):
    run = Run(shutil.copytree(students[0].folder, tmp_path / "older"))
    names = [figure.name for figure in STUDENTS.story(run).figures]
    config = run.folder / "config.toml"
    config.write_text(config.read_text().replace(f"format = {FORMAT}", "format = 2"))
    older = [figure.name for figure in STUDENTS.story(Run(run.folder)).figures]
    assert older == [name for name in names if name != "layer-specialization"] != names


# Claim D4


def decided(study, run):
    found = study.claims(run)
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    return {claim.part: claim for claim in found}


PARTS = ("average accuracy", "maximum accuracy", "order of accuracies", "correlation")
RHO = ((0.72, 0.70, 0.66, 0.71), (0.80, 0.92, 0.94, 0.93), (0.88, 0.96, 0.95, 0.95))


def d4(accuracy=(0.807, 0.824, 0.826), rho=RHO, diverged=(), **options):
    """Decide on four seeds, two and two one point apart; metrics of the first epoch are half of the last."""
    networks = [{"multiple": k, "seed": s} for k in (1.0, 2.0, 5.0) for s in (3, 4, 5, 6)]
    rows = [row | {"diverged_at": 5 if i in diverged else None} for i, row in enumerate(networks)]
    last = {("rho_mean", layer): np.repeat([row[layer] for row in rho], 4) for layer in range(len(rho[0]))}
    last |= {"accuracy": np.array([a + off for a in accuracy for off in (-0.005, 0.005) * 2])}
    last |= {"teacher_accuracy": np.full(12, 0.823)}
    run = made_run(rows, (0, 1), {key: np.stack([value / 2, value], axis=1) for key, value in last.items()})
    return decided(dataclasses.replace(Cifar(), **options), run)


def test_d4_holds_for_values_of_a_full_run():
    found = d4()
    assert {part: claim.holds for part, claim in found.items()} == dict.fromkeys(PARTS, True)
    assert found["average accuracy"].measured == "80.7%, 82.4%, 82.6%; pruned teacher 82.3%"
    assert found["maximum accuracy"].measured == "81.2%, 82.9%, 83.1%; pruned teacher 82.3%"
    assert all("seeds 1 and 2" in claim.tuned_on for claim in found.values())
    assert found["order of accuracies"].measured == "1.70 and 0.20 points above"
    assert found["correlation"].measured.startswith("1×: 0.720, 0.700, 0.660, 0.710; 2×: 0.800")
    assert all(claim.n == 4 for claim in found.values())


@pytest.mark.parametrize(
    ("accuracy", "fails"),
    [
        # Over 3 points below the paper's 79.67, and, half a point higher, below 80.15.
        ((0.765, 0.824, 0.826), {"average accuracy", "maximum accuracy"}),
        ((0.7666, 0.824, 0.826), {"average accuracy"}),
        ((0.807, 0.816, 0.826), {"order of accuracies"}),  # 2× under a point above 1×
        ((0.807, 0.824, 0.823), {"order of accuracies"}),  # 5× below 2×
        ((0.767, 0.801, 0.8686), {"average accuracy", "maximum accuracy"}),
        ((0.767, 0.801, 0.8675), {"maximum accuracy"}),
        ((0.767, 0.801, 0.8665), set()),
    ],
)
def test_d4_requires_the_papers_accuracies_and_their_order(accuracy, fails):
    found = d4(accuracy)
    assert {part for part, claim in found.items() if not claim.holds} == fails


def test_d4_requires_wider_students_to_match_better_in_every_layer():
    worse = (RHO[0], RHO[1], (0.88, 0.96, 0.95, 0.92))
    assert {part for part, claim in d4(rho=worse).items() if not claim.holds} == {"correlation"}


def test_d4_is_decided_on_networks_that_did_not_diverge():
    found = d4(diverged=(0, 2))
    assert found["average accuracy"].measured.startswith("81.2%")
    assert found["average accuracy"].n == 2
    assert not d4(diverged=(0, 1, 2, 3))


@pytest.mark.parametrize(
    "other",
    [
        {"teacher_layers": (64, 64, 64)},
        {"norm": "before"},
        {"keep": (0.25,)},
        {"epochs": 99},
        {"seeds": 3},
        {"first_seed": 2},
        {"teacher_epochs": 10},
        {"images": "plain"},
        {"train": 49_999},
        {"multiple": (1.0, 2.0)},
    ],
)
def test_nothing_is_decided_away_from_the_papers_settings(other):
    assert not d4(**other)


def test_one_share_of_a_half_is_the_same_as_four():
    assert d4(keep=(0.5,) * 4).keys() == d4().keys() == set(PARTS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"teacher_epochs": 0}, "--teacher-epochs must be at least 1, got 0"),
        ({"teacher_lr": 0.0}, "--teacher-lr must be above 0, got 0"),
        ({"keep": (0.5,) * 3}, "--keep must be one share, or one for each of the 4 layers, got 0.5 0.5 0.5"),
        ({"multiple": (1.01,)}, "--multiple 1.01 × 32 teacher nodes = 32.32 student nodes; choose a multiple"),
        ({"multiple": (2.0, 2.0)}, "--multiple takes each value once, got 2 2"),
        ({"batch": 1}, "--batch must be at least 2 for networks with BatchNorm, got 1"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        Cifar(**options)
    assert str(error.value).startswith(words)
