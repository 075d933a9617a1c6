"""`understudy start`: students for a given teacher, what is reported, descent from there, invalid options."""

import json
import math
import sys

import pytest
import torch
from torch import nn

import understudy as us
from support.commands import understudy
from understudy import cli
from understudy._numbers import number
from understudy.nets import Layer, Population
from understudy.nets.population import stack
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.descent import descend, rate_bound
from understudy.papers.local.theory.starts import place_near, student_network
from understudy.papers.local.theory.teachers import teacher_nodes

F = torch.float64
U = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, -0.5]], dtype=F)
A = torch.tensor([0.5, 3.0], dtype=F)
NODES = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, -1.5]]], dtype=F)


def _network(u=U, a=A, slope=-1.0, bias=None, dtype=F):
    layers = (
        Layer(u[None].to(dtype), bias),
        Layer(a[None, None].to(dtype), None if bias is None else torch.zeros(1, 1)),
    )
    return Population(layers, torch.tensor([1]), slope)


@pytest.fixture
def start(tmp_path, monkeypatch, capsys):
    """Run the command in a folder with a teacher; returns exit status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    us.save(_network(), "teacher.safetensors")

    def run(*words, teacher="teacher.safetensors"):
        monkeypatch.setattr(sys, "argv", ["understudy", "start", teacher, *map(str, words)])
        status = cli.main()
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_teacher_is_converted_to_the_form_of_the_paper():
    nodes = teacher_nodes(_network())
    torch.testing.assert_close(nodes, NODES)
    x = torch.randn(20, 3, dtype=F, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(_network()(x)[0, :, 0], (x @ nodes[0].T).abs().sum(1))
    assert teacher_nodes(_network(dtype=torch.float32)).dtype == F


def test_a_student_network_computes_the_function_of_the_paper():
    students = place_near(NODES, 5, 0.3, [2]).students
    network = student_network(students, [2])
    x = torch.randn(20, 3, dtype=F, generator=torch.Generator().manual_seed(1))
    wanted = ((x @ students[0].T).abs() * students[0].norm(dim=1)).sum(1)
    torch.testing.assert_close(network(x)[0, :, 0], wanted)
    assert network.slope == -1


def test_a_student_is_written_and_reported(start):
    status, out, err = start("--students", 5, "--angle", 0.3, "--seed", 2, "--out", "student.safetensors")
    assert (status, err) == (0, "")
    students = place_near(NODES, 5, 0.3, [2]).students
    assert torch.equal(us.load("student.safetensors").layers[0].weight, students)
    assert us.load("student.safetensors").slope == -1
    assert "5 students of 2 teacher neurons in 3 dimensions, 0.3 rad from these:" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["0", "1", "3", "1", "0", "0.3"] in rows
    assert ["1", "1.5", "2", "1.5", "0", "0.3"] in rows
    assert f"Loss {number(gaussian.loss(students, NODES), '.3e')}: " in out
    assert out.endswith("student: student.safetensors\n")


def test_json_is_one_object_with_the_exact_loss(start):
    status, out, err = start("--by", "scattered", "--students", 40, "--json")
    result = json.loads(out)
    assert (status, err) == (0, "")
    assert result["students"] == 40
    assert result["loss"] == pytest.approx(result["share"] * float(gaussian.kernel(NODES, NODES).sum()) / 2)
    assert [row["neuron"] for row in result["teacher_neurons"]] == [0, 1]
    assert [row["length"] for row in result["teacher_neurons"]] == [1, 1.5]
    assert sum(row["students"] for row in result["teacher_neurons"]) < 40
    assert "students length 0; their gradient is 0" in result["description"][0]
    assert result["said"] == result["description"]  # former name
    assert result["descent"] is None and result["saved"] is None and result["span_angle"] is None


def test_more_samples_estimate_the_span_better(start):
    few, many = (
        json.loads(start("--by", "subspace", "--samples", n, "--students", 9, "--json")[1]) for n in (10, 100_000)
    )
    assert many["span_angle"] < 0.1 < few["span_angle"]
    out = start("--by", "subspace", "--samples", 2000)[1]
    assert "4 students of 2 teacher neurons in 3 dimensions, in the span estimated from 2,000 samples:" in out
    assert "The span of the students is 0." in out


def test_the_mass_within_an_angle_is_summed(start):
    for within, share in ((0.1, 1), (0.09, 0)):
        result = json.loads(start("--within", within, "--json")[1])
        assert [row["mass_within"] for row in result["teacher_neurons"]] == pytest.approx([share, 1.5 * share])


@pytest.mark.parametrize(("by", "scale"), [("large", 1.0), ("small", 0.01)])
def test_students_of_one_scale(start, by, scale):
    assert f"drawn with standard deviation {scale:g}:" in start("--by", by)[1]
    start("--by", by, "--scale", 0.5, "--students", 2000, "--out", "s.safetensors")
    assert float(us.load("s.safetensors").layers[0].weight.std()) == pytest.approx(0.5, rel=0.05)


def test_the_end_of_a_descent_is_reported_and_written(start):
    words = ("--angle", 0.3, "--descend", 900, "--out", "end.safetensors")
    result = json.loads(start(*words, "--json")[1])["descent"]
    bound = float(rate_bound(NODES))
    assert result["rate"] == pytest.approx(bound) == pytest.approx(result["bound"])
    students = place_near(NODES, 4, 0.3, [1]).students
    path = descend(students, NODES, result["rate"], 900, [0, 300, 900])
    losses = gaussian.loss(path, NODES)[:, 0].tolist()
    assert torch.equal(us.load("end.safetensors").layers[0].weight, path[-1])
    assert result["loss"] == pytest.approx(losses[2], rel=1e-9)
    assert result["power"] == pytest.approx(math.log(losses[1] / losses[2]) / math.log(3), rel=1e-6)
    out = start(*words)[1]
    assert f"After 900 steps of gradient descent, rate {bound:.3g}:" in out
    before, after = (number(losses[i], ".3e") for i in (0, 2))
    power = f"over the last two thirds of the steps as t^−{result['power']:.2f}."
    assert f"The loss fell from {before} to {after}, {power}" in out
    assert out.endswith("student after descent: end.safetensors\n")


def test_as_many_students_as_neurons_end_at_zero_loss(start):
    out = start("--students", 2, "--descend", 2000)[1]
    assert ", which is zero to rounding." in out


def test_descent_on_mini_batches(start):
    result = json.loads(start("--descend", 20, "--batch", 50, "--rate", 0.05, "--seed", 3, "--json")[1])["descent"]
    students = place_near(NODES, 4, 0.1, [3]).students
    end = descend(students, NODES, 0.05, 20, [20], batch=50, seeds=[3])[0]
    assert result["loss"] == pytest.approx(float(gaussian.loss(end, NODES)))
    assert (
        "of gradient descent on mini-batches of 50, rate 0.05:"
        in start("--descend", 20, "--batch", 50, "--rate", 0.05)[1]
    )


def test_longer_students_descend_at_a_smaller_rate(start):
    result = json.loads(start("--by", "large", "--scale", 5, "--students", 10, "--descend", 100, "--json")[1])
    assert result["descent"]["rate"] < result["descent"]["bound"] / 50
    assert result["descent"]["loss"] < result["loss"]


def test_a_rate_above_the_bound_is_used_with_a_warning(start):
    bound = float(rate_bound(NODES))
    status, out, err = start("--descend", 50, "--rate", 1.2 * bound)
    assert status == 0
    assert err.startswith("warning: --rate ") and f"is above {bound:.2g}" in err
    assert "The loss fell" in out
    status, out, err = start("--descend", 300, "--rate", 2.05 * bound)
    assert status == 0
    assert "The loss rose from" in out and f"choose a smaller --rate, such as {bound:.2g}." in out


def test_weights_that_overflow_are_reported_and_nothing_is_written(start, tmp_path):
    status, out, err = start("--descend", 300, "--rate", 50, "--out", "s.safetensors")
    assert (status, out) == (2, "")
    assert "--rate 50 is too large: the weights overflowed between steps " in err
    assert "and nothing was written; choose a smaller one, such as " in err
    assert [path.name for path in tmp_path.iterdir()] == ["teacher.safetensors"]


def test_the_suggested_rate_works_for_long_students(start):
    words = ("--by", "large", "--scale", 100, "--descend", 300)
    status, _, err = start(*words, "--rate", 0.05)
    assert status == 2
    rate = err.strip().rsplit("such as ", 1)[1]
    status, out, err = start(*words, "--rate", rate)
    assert (status, err) == (0, "")
    assert "The loss fell from" in out


def test_with_one_input_all_neurons_are_parallel(start):
    us.save(_network(U[:1, :1], A[:1]), "line.safetensors")
    status, out, _ = start(teacher="line.safetensors")
    assert status == 0
    assert "2 students of 1 teacher neuron in 1 dimension, 0 rad from these:" in out
    assert "which is zero to rounding." in out


def test_a_file_without_a_slope(start):
    model = nn.Sequential(nn.Linear(4, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    model[2].weight.data.abs_()
    torch.save(model.state_dict(), "model.pt")
    status, _, err = start(teacher="model.pt")
    assert status == 2
    assert "must be |·|, with slope −1 below zero, got slope 0" in err
    assert "for a file that does not record the activation, add --activation abs" in err
    status, out, err = start("--activation", "abs", teacher="model.pt")
    assert (status, err) == (0, "") and out.startswith("model.pt read as 4 → 2 → 1\n")
    status, former, err = start("--leaky", -1, teacher="model.pt")
    assert (status, former, err) == (0, out, "understudy: --leaky -1 is now --activation leaky:-1\n")


def _write(name, **changes):
    us.save(_network(**changes), f"{name}.safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": torch.tensor([1.0, -2.0])}, "the teacher's output weights must be positive, got −2 for neuron 1"),
        ({"a": torch.tensor([0.0, 2.0])}, "teacher neuron 0 is zero: remove it"),
        ({"u": torch.tensor([[1.0, 1.0], [-2.0, -2.0]])}, "teacher neurons 0 and 1 are parallel up to sign"),
        ({"bias": torch.ones(1, 2)}, "the teacher must have no biases"),
        ({"slope": 0.5}, "other.safetensors: the activation must be |·|, with slope −1 below zero, got slope 0.5"),
    ],
)
def test_teachers_of_another_form_are_refused(start, changes, message):
    _write("other", **changes)
    status, out, err = start(teacher="other.safetensors")
    assert (status, out) == (2, "")
    assert err.startswith("understudy: ")
    assert message in err


@pytest.mark.parametrize("sizes", [(3, 4, 2), (3, 4, 4, 1)])
def test_other_shapes_are_refused(start, sizes):
    us.save(us.teachers.regular(sizes, seeds=[1], slope=-1.0), "other.safetensors")
    status, _, err = start(teacher="other.safetensors")
    assert status == 2
    assert "the teacher must have two fully connected layers, one output and no BatchNorm, got" in err
    assert "-".join(map(str, sizes)) in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--students", 1), "--students must be at least the number of teacher neurons (2), got 1"),
        (("--students", 10**9), "--students must be at most "),
        (("--by", "subspace"), "--by subspace estimates the span from samples; add their number, such as --samples "),
        (("--by", "subspace", "--samples", 0), "--samples must be at least 1, got 0"),
        (("--by", "scattered", "--angle", 0.1), "--angle only applies with --by near, not with --by scattered"),
        (("--scale", 0.1), "--scale only applies with --by large or small, not with --by near"),
        (("--samples", 10), "--samples only applies with --by subspace, not with --by near"),
        (("--angle", 1.6), "--angle must be between 0 and π/2 = 1.5708 rad, got 1.6"),
        (("--within", "nan"), "--within must be between 0 and π/2 = 1.5708 rad, got nan"),
        (("--by", "small", "--scale", 0), "--scale must be above 0, got 0"),
        (("--rate", 0.1), "--rate only applies to descent; add the number of steps with --descend"),
        (("--batch", 10), "--batch only applies to descent"),
        (("--descend", 0), "--descend must be at least 1, got 0"),
        (("--descend", 5, "--rate", "inf"), "--rate must be above 0, got inf"),
        (("--descend", 5, "--batch", -1), "--batch must be at least 1, got -1"),
        (("--seed", -1), "--seed must be between 0 and 2^63 − 1, got -1"),
        (("--out", "student.pt"), "--out must end in .safetensors, got student.pt"),
        (("--out", "teacher.safetensors"), "--out must not be the teacher's own file, got teacher.safetensors"),
        (("--out", "no/student.safetensors"), "no/student.safetensors: the directory no does not exist"),
        (
            ("--teacher-network", 1),
            "teacher.safetensors contains one network, so that --teacher-network must be 0, got 1; omit it",
        ),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(start, tmp_path, words, message):
    status, out, err = start(*words)
    assert (status, out) == (2, "")
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["teacher.safetensors"]


def test_one_of_several_teachers(start):
    us.save(stack([_network(), _network(a=2 * A)]), "two.safetensors")
    result = json.loads(start("--teacher-network", 1, "--json", teacher="two.safetensors")[1])
    assert [row["length"] for row in result["teacher_neurons"]] == [2, 3]


def test_an_interrupted_descent_writes_nothing(start, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("understudy.papers.local.theory.descent.descend", interrupted)
    status, _, err = start("--descend", 5, "--out", "s.safetensors")
    assert (status, err) == (130, "\nunderstudy: interrupted; the same command starts again\n")


def test_the_console_script_makes_a_student_that_can_be_checked(tmp_path):
    us.save(_network(), tmp_path / "teacher.safetensors")
    done = understudy("start", "teacher.safetensors", "--descend", 100, "--out", "student.safetensors", cwd=tmp_path)
    assert "student after descent: student.safetensors" in done.stdout
    aligned = understudy("align", "teacher.safetensors", "student.safetensors", "--json", cwd=tmp_path)
    assert json.loads(aligned.stdout)
