"""`understudy start`: a student for a teacher of one's own, what is told, descent from there, what is refused."""

import json
import math
import sys

import pytest
import torch
from torch import nn

import understudy as us
from support.commands import understudy
from understudy import cli
from understudy.nets import Layer, Population
from understudy.nets.population import stack
from understudy.papers.local.theory.descent import descend, rate_bound
from understudy.papers.local.theory.gaussian import closed_forms as gaussian
from understudy.papers.local.theory.starts import near, student_network, teacher_nodes

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
    """The command in a folder with a teacher: exit status, what it printed, and what it said on standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    us.save(_network(), "teacher.safetensors")

    def run(*words, teacher="teacher.safetensors"):
        monkeypatch.setattr(sys, "argv", ["understudy", "start", teacher, *map(str, words)])
        status = cli.main()
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_a_teacher_is_brought_into_the_papers_form():
    nodes = teacher_nodes(_network())
    torch.testing.assert_close(nodes, NODES)
    x = torch.randn(20, 3, dtype=F, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(_network()(x)[0, :, 0], (x @ nodes[0].T).abs().sum(1))
    assert teacher_nodes(_network(dtype=torch.float32)).dtype == F


def test_a_student_as_a_network_gives_what_the_paper_says():
    students = near(NODES, 5, 0.3, [2]).students
    network = student_network(students, [2])
    x = torch.randn(20, 3, dtype=F, generator=torch.Generator().manual_seed(1))
    wanted = ((x @ students[0].T).abs() * students[0].norm(dim=1)).sum(1)
    torch.testing.assert_close(network(x)[0, :, 0], wanted)
    assert network.slope == -1


def test_a_student_is_written_and_told_of(start):
    status, out, err = start("--students", 5, "--angle", 0.3, "--seed", 2, "--out", "student.safetensors")
    assert (status, err) == (0, "")
    students = near(NODES, 5, 0.3, [2]).students
    assert torch.equal(us.load("student.safetensors").layers[0].weight, students)
    assert us.load("student.safetensors").slope == -1
    assert "5 students of 2 teacher neurons in 3 dimensions, 0.3 rad from these:" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["0", "1", "3", "1", "0", "0.3"] in rows
    assert ["1", "1.5", "2", "1.5", "0", "0.3"] in rows
    assert f"Loss {float(gaussian.loss(students, NODES)):.3e}: " in out
    assert out.endswith("student: student.safetensors\n")


def test_json_is_one_object_with_the_exact_loss(start):
    status, out, err = start("--by", "scattered", "--students", 40, "--json")
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert told["students"] == 40
    assert told["loss"] == pytest.approx(told["share"] * float(gaussian.kernel(NODES, NODES).sum()) / 2)
    assert [row["neuron"] for row in told["teacher_neurons"]] == [0, 1]
    assert [row["length"] for row in told["teacher_neurons"]] == [1, 1.5]
    assert sum(row["students"] for row in told["teacher_neurons"]) < 40
    assert "length 0; their gradient is 0 too" in told["said"][0]
    assert told["descent"] is None and told["saved"] is None and told["span_angle"] is None


def test_more_samples_find_the_span(start):
    few, many = (
        json.loads(start("--by", "subspace", "--samples", n, "--students", 9, "--json")[1]) for n in (10, 100_000)
    )
    assert many["span_angle"] < 0.1 < few["span_angle"]
    out = start("--by", "subspace", "--samples", 2000)[1]
    assert "4 students of 2 teacher neurons in 3 dimensions, in the span that 2,000 samples show:" in out
    assert "The span of the students is 0." in out


def test_the_mass_within_an_angle_is_counted(start):
    for within, share in ((0.1, 1), (0.09, 0)):
        told = json.loads(start("--within", within, "--json")[1])
        assert [row["mass_within"] for row in told["teacher_neurons"]] == pytest.approx([share, 1.5 * share])


@pytest.mark.parametrize(("way", "scale"), [("large", 1.0), ("small", 0.01)])
def test_students_of_a_scale(start, way, scale):
    assert f"drawn with standard deviation {scale:g}:" in start("--by", way)[1]
    start("--by", way, "--scale", 0.5, "--students", 2000, "--out", "s.safetensors")
    assert float(us.load("s.safetensors").layers[0].weight.std()) == pytest.approx(0.5, rel=0.05)


def test_descent_goes_on_and_its_end_is_written(start):
    words = ("--angle", 0.3, "--descend", 900, "--out", "end.safetensors")
    told = json.loads(start(*words, "--json")[1])["descent"]
    bound = float(rate_bound(NODES))
    assert told["rate"] == pytest.approx(bound) == pytest.approx(told["bound"])
    students = near(NODES, 4, 0.3, [1]).students
    path = descend(students, NODES, told["rate"], 900, [0, 300, 900])
    losses = gaussian.loss(path, NODES)[:, 0].tolist()
    assert torch.equal(us.load("end.safetensors").layers[0].weight, path[-1])
    assert told["loss"] == pytest.approx(losses[2], rel=1e-9)
    assert told["power"] == pytest.approx(math.log(losses[1] / losses[2]) / math.log(3), rel=1e-6)
    out = start(*words)[1]
    assert f"After 900 steps of gradient descent, rate {bound:.3g}:" in out
    assert (
        f"The loss fell from {losses[0]:.3e} to {losses[2]:.3e}, over the last two thirds of the steps as "
        f"t^−{told['power']:.2f}." in out
    )
    assert out.endswith("student after descent: end.safetensors\n")


def test_as_many_students_as_neurons_end_at_zero(start):
    out = start("--students", 2, "--descend", 2000)[1]
    assert ", which is zero to rounding." in out


def test_descent_on_mini_batches(start):
    told = json.loads(start("--descend", 20, "--batch", 50, "--rate", 0.05, "--seed", 3, "--json")[1])["descent"]
    students = near(NODES, 4, 0.1, [3]).students
    end = descend(students, NODES, 0.05, 20, [20], batch=50, seeds=[3])[0]
    assert told["loss"] == pytest.approx(float(gaussian.loss(end, NODES)))
    assert (
        "of gradient descent on mini-batches of 50, rate 0.05:"
        in start("--descend", 20, "--batch", 50, "--rate", 0.05)[1]
    )


def test_longer_students_descend_at_a_smaller_rate(start):
    told = json.loads(start("--by", "large", "--scale", 5, "--students", 10, "--descend", 100, "--json")[1])
    assert told["descent"]["rate"] < told["descent"]["bound"] / 50
    assert told["descent"]["loss"] < told["loss"]


def test_a_rate_above_the_bound_is_warned_of_and_taken(start):
    bound = float(rate_bound(NODES))
    status, out, err = start("--descend", 50, "--rate", 1.2 * bound)
    assert status == 0
    assert err.startswith("warning: --rate: ") and f"is above {bound:.2g}" in err
    assert "The loss fell" in out
    status, out, err = start("--descend", 300, "--rate", 2.05 * bound)
    assert status == 0
    assert "The loss rose from" in out and f"choose a smaller --rate, such as {bound:.2g}." in out


def test_weights_that_grow_beyond_numbers_are_told_and_nothing_is_written(start, tmp_path):
    status, out, err = start("--descend", 300, "--rate", 50, "--out", "s.safetensors")
    assert (status, out) == (2, "")
    assert "--rate: at 50 the weights grew beyond all numbers between steps " in err
    assert "and nothing was written; choose a smaller one, such as " in err
    assert [path.name for path in tmp_path.iterdir()] == ["teacher.safetensors"]


def test_long_students_are_given_a_rate_that_works(start):
    words = ("--by", "large", "--scale", 100, "--descend", 300)
    status, _, err = start(*words, "--rate", 0.05)
    assert status == 2
    rate = err.strip().rsplit("such as ", 1)[1]
    status, out, err = start(*words, "--rate", rate)
    assert (status, err) == (0, "")
    assert "The loss fell from" in out


def test_one_input_is_one_line(start):
    us.save(_network(U[:1, :1], A[:1]), "line.safetensors")
    status, out, _ = start(teacher="line.safetensors")
    assert status == 0
    assert "2 students of 1 teacher neuron in 1 dimension, 0 rad from these:" in out
    assert "which is zero to rounding." in out


def test_the_file_of_another_program(start):
    model = nn.Sequential(nn.Linear(4, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    model[2].weight.data.abs_()
    torch.save(model.state_dict(), "model.pt")
    status, _, err = start(teacher="model.pt")
    assert status == 2
    assert "slope 0 below zero; allowed is −1, which is |·|; for a file that does not say so, add --leaky -1" in err
    assert start("--leaky", -1, teacher="model.pt")[0] == 0


def _write(name, **changes):
    us.save(_network(**changes), f"{name}.safetensors")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"a": torch.tensor([1.0, -2.0])}, "output weight of teacher neuron 1 is -2; allowed are numbers above 0"),
        ({"a": torch.tensor([0.0, 2.0])}, "teacher neuron 0 is zero: leave it out"),
        ({"u": torch.tensor([[1.0, 1.0], [-2.0, -2.0]])}, "teacher neurons 0 and 1 are parallel, up to sign"),
        ({"bias": torch.ones(1, 2)}, "the teacher has biases; allowed is one without"),
        ({"slope": 0.5}, "the activation has slope 0.5 below zero; allowed is −1"),
    ],
)
def test_teachers_of_another_kind_are_refused(start, changes, said):
    _write("other", **changes)
    status, out, err = start(teacher="other.safetensors")
    assert (status, out) == (2, "")
    assert err.startswith("understudy: other.safetensors: ")
    assert said in err


@pytest.mark.parametrize("sizes", [(3, 4, 2), (3, 4, 4, 1)])
def test_other_shapes_are_refused(start, sizes):
    us.save(us.teachers.regular(sizes, seeds=[1], slope=-1.0), "other.safetensors")
    status, _, err = start(teacher="other.safetensors")
    assert status == 2
    assert f"the teacher is {'-'.join(map(str, sizes))}; allowed are two fully connected layers, one output" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--students", 1), "--students: 1 was given; the teacher has 2 neurons, so allowed is 2 or more"),
        (("--by", "subspace"), "--samples: nothing was given; subspace finds the span by samples"),
        (("--by", "subspace", "--samples", 0), "--samples: 0 was given; allowed is a whole number from 1"),
        (("--by", "scattered", "--angle", 0.1), "--angle: 0.1 was given; it belongs to --by near, not scattered"),
        (("--scale", 0.1), "--scale: 0.1 was given; it belongs to --by large or small, not near"),
        (("--samples", 10), "--samples: 10 was given; it belongs to --by subspace, not near"),
        (("--angle", 1.6), "--angle: 1.6 was given; allowed is a number from 0 to π/2 = 1.5708, in rad"),
        (("--within", "nan"), "--within: nan was given; allowed is a number from 0 to π/2"),
        (("--by", "small", "--scale", 0), "--scale: 0.0 was given; allowed is a finite number above 0"),
        (("--rate", 0.1), "--rate: 0.1 was given; it is of descent, so say how many steps with --descend"),
        (("--batch", 10), "--batch: 10 was given; it is of descent"),
        (("--descend", 0), "--descend: 0 was given; allowed is a whole number from 1"),
        (("--descend", 5, "--rate", "inf"), "--rate: inf was given; allowed is a finite number above 0"),
        (("--descend", 5, "--batch", -1), "--batch: -1 was given; allowed is a whole number from 1"),
        (("--seed", -1), "--seed: -1 was given; allowed is a whole number from 0"),
        (("--out", "student.pt"), "--out: student.pt was given; allowed endings are .safetensors"),
        (("--out", "teacher.safetensors"), "--out: teacher.safetensors is the teacher's own file; choose another"),
        (("--out", "no/student.safetensors"), "no/student.safetensors: the directory no does not exist"),
        (("--teacher-network", 1), "--teacher-network: 1 was given; teacher.safetensors holds networks 0 to 0"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(start, tmp_path, words, said):
    status, out, err = start(*words)
    assert (status, out) == (2, "")
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["teacher.safetensors"]


def test_one_of_several_teachers(start):
    us.save(stack([_network(), _network(a=2 * A)]), "two.safetensors")
    told = json.loads(start("--teacher-network", 1, "--json", teacher="two.safetensors")[1])
    assert [row["length"] for row in told["teacher_neurons"]] == [2, 3]


def test_an_interrupted_descent_says_that_nothing_was_written(start, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("understudy.papers.local.theory.descent.descend", interrupted)
    status, _, err = start("--descend", 5, "--out", "s.safetensors")
    assert (status, err) == (130, "\nunderstudy: interrupted; nothing was written\n")


def test_the_console_script_makes_a_student_that_can_be_checked(tmp_path):
    us.save(_network(), tmp_path / "teacher.safetensors")
    done = understudy("start", "teacher.safetensors", "--descend", 100, "--out", "student.safetensors", cwd=tmp_path)
    assert "student after descent: student.safetensors" in done.stdout
    aligned = understudy("align", "teacher.safetensors", "student.safetensors", "--json", cwd=tmp_path)
    assert json.loads(aligned.stdout)
