"""The study `cifar-teacher`: what it trains, whole and pruned, what it reports, and what it refuses."""

import dataclasses
import shlex

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import Said
from understudy._errors import UserError
from understudy.cli.run import parse_run
from understudy.lab.cifar import kept_sizes
from understudy.lab.execute import execute
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, trained_networks

TEACHER = CifarTeacher(
    seeds=2,
    train=200,
    evaluation=100,
    images="plain",
    batch=20,
    device="cpu",
    layers=(4, 4),
    epochs=4,
    lr=0.002,
    tune_epochs=1,
    tune_lr=0.001,
)


def at(study, folder):
    return dataclasses.replace(study, data=str(folder))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def whole(cifar, out):
    return execute(at(TEACHER, cifar), out, Said())


def same(one, other):
    parts = zip((*one.layers, *one.norms), (*other.layers, *other.norms), strict=True)
    return all(torch.equal(a, b) for left, right in parts for a, b in zip(left, right, strict=True))


def test_teachers_are_trained_with_the_given_weight_decay(cifar, whole):
    study = dataclasses.replace(at(TEACHER, cifar), decay=0.4)
    assert study.experiment().optimiser.decay == 0.4
    assert dataclasses.replace(study, keep=(0.5,)).experiment(whole).optimiser.decay == 0.4


def test_runs_from_before_weight_decay_was_an_option_had_none():
    study = CifarTeacher()
    config = study.config()
    assert CifarTeacher.from_config(config) == study
    options = {name: value for name, value in config["options"].items() if name != "decay"}
    old = CifarTeacher.from_config(config | {"format": 2, "options": options})
    assert old == dataclasses.replace(study, decay=0.0)


def test_options_of_further_training_do_not_change_the_unpruned_network():
    one, other = (CifarTeacher(keep=(0.5,), tune_epochs=n, tune_lr=n / 100).depends_on() for n in (3, 7))
    assert one == other == (CifarTeacher(),)


@pytest.mark.parametrize("network", ["cnn", "fc"])
@pytest.mark.parametrize("norm", ["after", "before", "none"])
def test_initial_weights_are_distributed_as_in_torch_and_differ_from_those_of_students(cifar, network, norm):
    study = dataclasses.replace(at(TEACHER, cifar), network=network, layers=(5, 7), norm=norm)
    (group,) = study.experiment().groups
    initial = group.students
    assert initial.seeds.tolist() == [1, 2]
    assert initial.inputs == 3072
    assert initial.sizes == (3 if network == "cnn" else 3072, 5, 7, 10)
    assert initial.shape.norm == (None if norm == "none" else norm)
    for weight, bias in initial.layers:
        bound = weight[0, 0].numel() ** -0.5
        for part in (weight, bias):
            assert 0.7 * bound < part.abs().max() <= bound
    assert group.labelled and group.objective == us.CrossEntropy()
    student = us.students.like_linear(initial)
    rows, others = (net.layers[0].weight[0].flatten(1).numpy() for net in (initial, student))
    assert np.abs(np.corrcoef(rows, others)[:5, 5:]).max() < 0.9


def test_a_pruned_teacher_starts_from_the_pruned_network(whole, cifar, out):
    pruned = execute(at(dataclasses.replace(TEACHER, keep=(0.5,)), cifar), out, Said())
    (initial,) = pruned.weights("epoch.0")
    assert initial.sizes == (3, 2, 2, 10)
    assert same(initial, us.teachers.pruned(trained_networks(whole), 0.5).network)
    headline = (pruned.folder / "headline.txt").read_text()
    before = pruned.series("accuracy")[:, 0].mean()
    assert f"after pruning to 4 of 8 nodes, which left {before:.1%}, and 1 epoch of further training." in headline


def test_one_share_per_layer(cifar, out, whole):
    pruned = dataclasses.replace(at(TEACHER, cifar), keep=(0.25, 1.0))
    assert kept_sizes(pruned.keep, pruned.layers) == (1, 4)
    (initial,) = execute(pruned, out, Said()).weights("epoch.0")
    assert initial.sizes == (3, 1, 4, 10)


def test_teachers_learn_the_labels(whole):
    accuracy, loss = whole.series("accuracy"), whole.series("train_loss")
    assert (accuracy[:, -1] > 0.5).all(), accuracy
    assert (loss[:, -1] < loss[:, 0]).all()
    headline = (whole.folder / "headline.txt").read_text()
    assert headline.startswith("Convolutional networks 4-4 with BatchNorm after each ReLU classify")
    assert f"{accuracy[:, -1].mean():.1%} of 100 evaluation images correctly, mean of 2 networks" in headline
    assert {path.stem for path in (whole.folder / "figures").iterdir()} == {"accuracy", "losses", "shifts"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
        ({"batch": 0}, "--batch must be at least 1, got 0"),
        ({"batch": 1}, "--batch must be at least 2 for networks with BatchNorm, got 1"),
        ({"batch": 64, "train": 32}, "--batch must be at most the number of training samples (32), got 64"),
        ({"train": 50_001}, "--train must be at least 1 and at most 50,000, got 50001"),
        ({"evaluation": 10_001}, "--evaluation must be at least 1 and at most 10,000, got 10001"),
        ({"lr": 0.0}, "--lr must be above 0, got 0"),
        ({"layers": ()}, "--layers needs at least one value"),
        ({"layers": (8,) * 16}, "--layers must have at most 15 layers, got 16: each convolution removes two pixels"),
        ({"keep": (0.5, 0.5)}, "--keep must be one share, or one for each of the 4 layers, got 0.5 0.5"),
        ({"keep": ()}, "--keep needs at least one value"),
        ({"keep": (1.5,)}, "--keep must be above 0 and at most 1, got 1.5"),
        ({"keep": (0.0,)}, "--keep must be above 0 and at most 1, got 0"),
        ({"keep": (float("nan"),)}, "--keep must be above 0 and at most 1, got nan"),
        (
            {"keep": (0.001,)},
            "--keep must leave at least one node in every layer, got 0.001 of the 64 nodes of layer 1",
        ),
        ({"tune_epochs": 0}, "--tune-epochs must be at least 1, got 0"),
        ({"tune_lr": -1.0}, "--tune-lr must be above 0, got -1"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        CifarTeacher(**options)
    assert str(error.value).startswith(words)


def test_a_batch_of_one_is_allowed_without_batchnorm():
    assert CifarTeacher(norm="none", batch=1).steps == 50_000


def test_a_fully_connected_network_may_have_more_layers_than_an_image_has_pixels_for():
    assert CifarTeacher(network="fc", layers=(8,) * 16).layers == (8,) * 16


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.unlink(), "the file data_batch_3.bin of CIFAR-10 is missing"),
        (lambda file: (file.unlink(), file.write_bytes(b"cut short")), "must have 30,730,000 bytes"),
    ],
)
def test_incomplete_files_are_refused_with_the_name_of_the_option(cifar, tmp_path, damage, words):
    inside = tmp_path / "data" / "cifar-10-batches-bin"
    inside.mkdir(parents=True)
    for file in (cifar / "cifar-10-batches-bin").iterdir():
        (inside / file.name).symlink_to(file)
    damage(inside / "data_batch_3.bin")
    with pytest.raises(UserError) as caught:
        execute(at(TEACHER, tmp_path / "data"), tmp_path / "runs", Said())
    assert str(caught.value).startswith("--data: ")
    assert words in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_folder_with_a_space_survives_the_command():
    made = CifarTeacher(data="my images/of 'cifar'")
    assert parse_run(CifarTeacher, shlex.split(made.command())[3:], "x").study == made
