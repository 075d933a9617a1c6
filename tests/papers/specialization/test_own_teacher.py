"""`two-layer --teacher FILE`: the study's students of a teacher of one's own."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import understudy as us
from support.commands import understudy
from understudy.papers.specialization.two_layer.study import TwoLayer

SMALL = {"seeds": 2, "multiple": (1, 2), "epochs": 2, "steps": 20, "train": 64, "evaluation": 64}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A state dict of 6-3-4 nodes."""
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("own") / "t.pt"
    torch.save(nn.Sequential(nn.Linear(6, 3), nn.LeakyReLU(0.1), nn.Linear(3, 4)).state_dict(), file)
    return file


@pytest.fixture(scope="module")
def run(teacher, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return us.run("two-layer", teacher=teacher, leaky=0.1, out=out, progress=False, device="cpu", **SMALL)


def test_the_students_equal_those_trained_on_a_population_stacked_by_hand(teacher, run):
    by_hand = us.nets.stack([us.load(teacher, activation=0.1)] * 2)
    students = [us.students.gaussian(by_hand, multiple=k, seeds=[1, 2]) for k in (1, 2)]
    data = us.data.Gaussian(dim=6, std=1.5, train=64, evaluation=64)
    trained = us.train(students, by_hand, data, us.SGD(lr=0.01, batch=16), epochs=2, steps=20)
    for group, expected in zip(run.weights("epoch.2"), trained.students, strict=True):
        assert torch.equal(group.layers[0].weight, expected.layers[0].weight)
        assert group.slope == 0.1
    ends = trained.metrics.to_pandas().query("metric == 'eval_loss' and epoch == 2").sort_values("network")
    np.testing.assert_array_equal(run.array("eval_loss", "network", epoch=2), ends["value"])


def test_what_the_file_decides_is_stated(teacher, run):
    stated = {"teacher_nodes": [3], "dim": 6, "outputs": 4, "polarity": [0.0], "leaky": 0.1, "teacher": str(teacher)}
    assert {name: run.options[name] for name in stated} == stated
    assert run.claims == []
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "(teacher t.pt, median of 2 seeds)" in page
    assert "in the order of the file" in page and "from the strongest node" not in page


def test_what_was_assumed_is_recorded_and_shown(teacher, run, tmp_path):
    assert run.environment["assumed"] == {"teacher": []}
    words = [f"--{name} {value}" for name, value in SMALL.items() if name != "multiple"]
    options = " ".join([*words, "--multiple 1 2 --device cpu"]).split()
    done = understudy("run", "two-layer", "--teacher", teacher, *options, "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["assumed"] == {"teacher": ["ReLU", "linear outputs"]}
    read = f"{teacher} read as 6 → 3 → 4, ReLU assumed, linear outputs assumed"
    assert found["headline"].endswith(f"{read}.")
    assert read in (tmp_path / found["report"]).read_text(encoding="utf-8")
    again = understudy("report", found["run"], "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["assumed"] == found["assumed"]


def test_the_command_makes_the_same_run_again(run):
    study = TwoLayer.from_config(run.config)
    assert "--dim" not in study.command() and "--polarity" not in study.command()
    assert us.run(study, out=run.folder.parents[1], progress=False).folder == run.folder


def test_a_changed_teacher_gets_another_folder(teacher, tmp_path):
    configs = []
    for seed in (1, 2):
        us.save(us.teachers.distinct_rows((6, 3, 4), seeds=[seed]), tmp_path / "t.safetensors", which=0)
        configs.append(TwoLayer(teacher=str(tmp_path / "t.safetensors")).resolved().config())
    assert configs[0]["options"] == configs[1]["options"]
    assert configs[0]["contents"] != configs[1]["contents"]


def test_without_a_teacher_the_configuration_is_as_before():
    assert "teacher" not in TwoLayer().config()["options"]


def test_quick_defaults_give_way(teacher):
    study = TwoLayer(**vars(TwoLayer.quick()) | {"teacher": str(teacher)}).resolved()
    assert (study.teacher_nodes, study.polarity, study.seeds) == ((3,), (0.0,), TwoLayer.quick().seeds)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dim 9", "--dim is decided by --teacher {file}, got 9; omit it"),
        ("--teacher-nodes 3 4", "--teacher-nodes is decided by --teacher {file}, got 3 4; omit it"),
        ("--polarity 1", "--polarity is decided by --teacher {file}, got 1; omit it"),
        ("--multiple 1.5", "--multiple 1.5 × 3 teacher nodes = 4.5 student nodes; choose a multiple that gives"),
        ("--batch 99 --train 9", "--batch must be at most the number of training samples (9), got 99"),
    ],
)
def test_options_that_the_file_decides_are_refused(words, message, teacher, tmp_path):
    done = understudy("run", "two-layer", "--teacher", teacher, *words.split(), cwd=tmp_path, status=2)
    assert done.stderr.startswith(f"understudy: {message.format(file=teacher)}")
    assert not list(tmp_path.iterdir())


def test_other_networks_are_refused(tmp_path):
    deep, several = us.teachers.regular((4, 3, 3, 2), seeds=[1]), us.teachers.regular((4, 3, 2), seeds=[1, 2])
    for population, words in ((deep, "sizes 4-3-3-2"), (several, "2 networks")):
        us.save(population, tmp_path / "t.safetensors")
        with pytest.raises(us.UserError, match=f"one network of two fully connected layers, got Population.*{words}"):
            us.run("two-layer", teacher=tmp_path / "t.safetensors", out=tmp_path / "runs")
    with pytest.raises(us.UserError, match=r"none\.pt: there is no such file"):
        us.run("two-layer", teacher=tmp_path / "none.pt", out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_command_says_how_the_file_was_read(teacher, tmp_path):
    done = understudy("run", "two-layer", "--teacher", teacher, "--leaky", "0.1", "--plan", cwd=tmp_path)
    assert done.stderr == f"{teacher} read as 6 → 3 → 4, slope 0.1 below zero\n"
