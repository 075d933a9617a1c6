"""`understudy prune`: what it writes and prints, its progress, and its errors."""

import json
import sys

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import understudy
from support.taught import teacher, trained
from understudy import cli
from understudy.papers.specialization.theory.pruning import prune_student, refit
from understudy.theory.unexplained import unexplained


@pytest.fixture(scope="module")
def taught():
    return trained(draws=1)


@pytest.fixture
def files(taught, tmp_path, monkeypatch):
    of, (student,), _ = taught
    us.save(of, tmp_path / "teacher.safetensors")
    us.save(student, tmp_path / "student.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, monkeypatch, *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["understudy", "prune", *map(str, words)])
    status = cli.main()
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_command_writes_the_result_of_the_function(files, taught, capsys, monkeypatch):
    of, (student,), _ = taught
    words = ("student.safetensors", "--teacher", "teacher.safetensors", "--samples", 2000, "--below", 0.9)
    status, out, err = said(capsys, monkeypatch, *words, "--refit", "--save", "small.safetensors", "--json")
    assert (status, err) == (0, "")
    told = json.loads(out)
    x = us.data.Gaussian(10, 1.5, train=2000).training(1, dtype=torch.float64)
    pruned = prune_student(of, student, x, 0.9)
    assert told["kept"] == [pruned.kept[0].tolist()]
    assert told["sizes"] == {"before": [10, 20, 6], "after": list(pruned.network.sizes)}
    saved = us.load(files / "small.safetensors")
    torch.testing.assert_close(saved.layers[1].weight, refit(of, pruned.network, x).layers[1].weight)
    held_out = us.data.Gaussian(10, 1.5, evaluation=2000).evaluating(1, dtype=torch.float64)
    assert told["losses"]["held_out"]["refitted"] == pytest.approx(float(unexplained(of, saved, held_out)), rel=1e-3)
    assert told["losses"]["given"]["before"] == pytest.approx(float(unexplained(of, student, x)))


def test_the_command_prints_a_table(files):
    words = ("prune", "student.safetensors", "--teacher", "teacher.safetensors", "--samples", 500, "--below", 0.95)
    shown = understudy(*words, "--save", "small.safetensors", cwd=files).stdout
    assert "10-20-6 became 10-" in shown and "nodes removed by correlation" in shown and "best correlation 0." in shown
    assert "refitted" in shown and "saved as pruned: small.safetensors" in shown
    assert us.load(files / "small.safetensors").sizes[1] < 20


def test_the_command_without_a_threshold_uses_the_theorem_and_explains_kept_nodes(files):
    shown = understudy("prune", "student.safetensors", "--teacher", "teacher.safetensors", cwd=files).stdout
    assert "nodes removed by theorem" in shown and "contribution relative to the strongest group 0.0" in shown
    assert "without a teacher node's boundary are kept" in shown


def test_progress_is_shown_in_terminals_only(files, capsys, monkeypatch):
    words = "student.safetensors", "--teacher", "teacher.safetensors"
    status, _, err = said(capsys, monkeypatch, *words)
    assert (status, err) == (0, "")
    monkeypatch.setattr("understudy._progress.can_animate", lambda console: True)
    status, _, err = said(capsys, monkeypatch, *words)
    assert status == 0 and "selecting among" in err and "fitting the weights of" in err


def test_every_fifth_sample_of_a_file_is_held_out(files, taught, capsys, monkeypatch):
    of, (student,), _ = taught
    x = np.random.default_rng(0).normal(size=(500, 10))
    np.save(files / "x.npy", x)
    _, out, _ = said(
        capsys, monkeypatch, "student.safetensors", "--teacher", "teacher.safetensors", "--data", "x.npy", "--json"
    )
    given, held_out = (json.loads(out)["losses"][name]["before"] for name in ("given", "held_out"))
    last = np.arange(500) % 5 == 4
    assert given == pytest.approx(float(unexplained(of, student, torch.from_numpy(x[~last]))))
    assert held_out == pytest.approx(float(unexplained(of, student, torch.from_numpy(x[last]))))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "--teacher is missing"),
        ("--teacher none.pt", "none.pt"),
        ("{} --below 2", "--below must be between 0 and 1, got 2.0"),
        ("{} --save x.pt", "--save must end in .safetensors, got x.pt"),
        ("{} --save no/where.safetensors", "no/where"),
        ("{} --samples 0", "--samples must be above 0, got 0"),
        ("{} --seed -1", "--seed must be between 0 and 2^63 − 1, got -1"),
        ("{} --activation leaky:nan", "--activation must be relu, leaky:SLOPE (a finite number, as in leaky:0.1)"),
        ("{} --student-network 4", "student.safetensors contains one network, so that --student-network must be 0"),
        ("{} --data few.npy", "--data must have at least 5 samples, got 3 in few.npy"),
        ("{} --data wide.npy", "--data must have 10 inputs per sample, as the networks do, got 4 in wide.npy"),
        ("--teacher other.safetensors", "same number of inputs, got 4 and 10"),
    ],
)
def test_bad_words_are_answered_by_what_is_allowed(files, capsys, monkeypatch, words, error):
    np.save(files / "few.npy", np.ones((3, 10)))
    np.save(files / "wide.npy", np.ones((9, 4)))
    us.save(teacher(), files / "other.safetensors")
    before = set(files.iterdir())
    status, out, err = said(
        capsys, monkeypatch, "student.safetensors", *words.format("--teacher teacher.safetensors").split()
    )
    assert (status, out) == (2, "")
    assert error in err
    assert set(files.iterdir()) == before
