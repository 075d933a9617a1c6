"""`understudy connect`: what it writes, prints and draws, and its errors."""

import json
import sys

import pytest
import torch

import understudy as us
from support.taught import teacher, trained
from understudy import cli
from understudy.cli.connect import _compared
from understudy.papers.specialization.theory.connectivity import WeightPath, losses_along


@pytest.fixture(scope="module")
def taught():
    return trained()


@pytest.fixture
def run_connect(taught, tmp_path, monkeypatch, capsys):
    of, students, _ = taught
    us.save(of, tmp_path / "teacher.safetensors")
    for name, student in zip("ab", students, strict=True):
        us.save(student, tmp_path / f"{name}.safetensors")
    us.save(teacher(), tmp_path / "other.safetensors")

    def run_connect(*words: object) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["understudy", "connect", *map(str, words)])
        status = cli.main()
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run_connect


FILES = ("a.safetensors", "b.safetensors", "--teacher", "teacher.safetensors", "--samples", "1000")


def test_the_command_writes_waypoints_and_draws_the_loss(run_connect, taught, tmp_path):
    of, (a, b), _ = taught
    status, out, err = run_connect(*FILES, "--save", "path.safetensors", "--figure", "loss.svg", "--json")
    assert (status, err) == (0, "")
    printed_json = json.loads(out)
    points = us.load(tmp_path / "path.safetensors")
    assert len(points) == printed_json["way_points"] == len(printed_json["moves"]) + 1
    torch.testing.assert_close(points[0].layers[0].weight, a.layers[0].weight.double())
    torch.testing.assert_close(points[len(points) - 1].layers[1].weight, b.layers[1].weight.double())
    x = us.data.Gaussian(10, 1.5, evaluation=1000).evaluating(1, dtype=torch.float64)
    again = losses_along(WeightPath(points, tuple(printed_json["moves"])), of, x, 9)
    torch.testing.assert_close(again, torch.tensor(printed_json["losses"]).double())
    largest = printed_json["largest"]
    assert largest["path"] == max(map(max, printed_json["losses"])) and largest["line"] == max(printed_json["line"])
    assert largest["ratio"] == pytest.approx(largest["line"] / largest["path"])
    assert (tmp_path / "loss.svg").read_bytes().startswith(b"<?xml")


def test_the_command_prints_a_summary(run_connect):
    status, out, _ = run_connect(*FILES)
    assert status == 0
    assert "Largest loss on the path" in out and "times as much." in out and "weights of idle nodes" in out
    assert "The students themselves" not in out


def test_a_path_from_a_student_to_itself_is_not_called_lower(run_connect):
    status, out, _ = run_connect("a.safetensors", "a.safetensors", *FILES[2:])
    largest = json.loads(run_connect("a.safetensors", "a.safetensors", *FILES[2:], "--json")[1])["largest"]
    assert status == 0 and largest["ratio"] <= 1
    assert "lower" not in out and "times as much" not in out


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        (1e-4, 1e-2, ": 100 times as much"),
        (7.5e-3, 1e-4, ": the path is 75 times higher, and the straight line already connects the students"),
        (1e-4, 0.0, ": the path is higher, and the straight line already connects the students"),
        (1.0, 1.5, ": the path is hardly lower"),
        (1.5, 1.0, ": the path is hardly higher"),
        (1.0, 1.0, ": they are equal"),
        (0.0, 1.0, ""),
    ],
)
def test_how_path_and_line_are_compared(path, line, words):
    assert _compared(path, line) == words


def test_untrained_students_are_reported_as_such(run_connect, taught, tmp_path):
    of, _, _ = taught
    for name, seed in (("a", 1), ("b", 2)):
        us.save(us.students.gaussian(of, multiple=5, scale=0.05, seeds=[seed]), tmp_path / f"{name}.safetensors")
    status, out, _ = run_connect(*FILES, "--below", "0.3")
    assert status == 0
    assert "times as much" not in out and "the path is hardly higher" in out
    assert "The students themselves leave " in out and "no path between them has a low loss" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("a.safetensors", "b.safetensors"), "--teacher is missing"),
        ((*FILES, "--points", "1"), "--points must be at least 2, got 1"),
        ((*FILES, "--below", "3"), "--below must be between −1 and 1, got 3.0"),
        ((*FILES, "--save", "path.pt"), "--save must end in .safetensors, got path.pt"),
        ((*FILES, "--figure", "loss.gif"), "--figure must end in .pdf, .svg, .png, got loss.gif"),
        (
            (*FILES, "--b-network", "1"),
            "b.safetensors contains one network, so that --b-network must be 0, got 1; omit it",
        ),
        (("a.safetensors", "teacher.safetensors", *FILES[2:]), "cannot be connected"),
        (("a.safetensors", "b.safetensors", "--teacher", "other.safetensors"), "same number of inputs, got 4 and 10"),
        ((*FILES, "--below", "1"), "no node of the first network correlates"),
    ],
)
def test_bad_words_are_answered_by_what_is_allowed(run_connect, tmp_path, words, error):
    before = set(tmp_path.iterdir())
    status, out, err = run_connect(*words)
    assert (status, out) == (2, "")
    assert error in err
    assert set(tmp_path.iterdir()) == before
