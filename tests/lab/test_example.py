"""`understudy example` writes networks that learned something, in files that all commands read."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import understudy
from understudy.lab import example as module
from understudy.lab import example_models

RELU = {"activation": "relu"}


def test_it_prints_what_each_file_is(example, example_printed):
    assert sorted(path.name for path in example.iterdir()) == sorted(json.loads(example_printed)["files"])
    assert json.loads(example_printed)["next"] == list(module.COMMANDS)
    shown = str(module.Example(example, json.loads(example_printed)["files"], ("A note.",)))
    assert re.search(r"^  teacher\.pt +state dict of the teacher, 10-6-4, ReLU$", shown, re.MULTILINE)
    assert "A note." in shown and f"cd {example}" in shown and shown.endswith(module.COMMANDS[-1])


@pytest.mark.parametrize(("name", "stated"), [("student.safetensors", RELU), ("student.pt2", {}), ("student.onnx", {})])
def test_every_kind_of_file_has_the_same_student(example, name, stated):
    wanted, found = us.load(example / "student.pt", **RELU), us.load(example / name, **stated)
    for ours, theirs in zip(found.layers, wanted.layers, strict=True):
        assert torch.equal(ours.weight, theirs.weight) and torch.equal(ours.bias, theirs.bias)


def test_the_modules_and_the_checkpoint_fit_together(example):
    assert (example / "models.py").read_text() == Path(example_models.__file__).read_text()
    saved = torch.load(example / "checkpoint.pt", weights_only=True)
    teacher = example_models.Teacher()
    teacher.load_state_dict(saved["model_state_dict"])
    torch.optim.Adam(teacher.parameters()).load_state_dict(saved["optimizer_state_dict"])
    for name, tensor in torch.load(example / "teacher.pt", weights_only=True).items():
        assert torch.equal(saved["model_state_dict"][name], tensor)
    text = np.loadtxt(example / "inputs.csv", delimiter=",", skiprows=1, dtype=np.float32)
    assert np.array_equal(text, np.load(example / "inputs.npy"))


def test_students_recovered_the_teacher_and_some_nodes_are_idle(example):
    teacher, *students = (us.load(example / f"{name}.pt", **RELU) for name in ("teacher", "student", "a", "b"))
    x = example / "inputs.npy"
    for student in students:
        (layer,) = us.measures.align(teacher, student, torch.from_numpy(np.load(x)))
        assert layer.recovered == 6
    pruned = us.prune(students[0], teacher, x)
    assert 3 <= pruned.removed <= 18 and pruned.held_out.refitted < 1e-5 < pruned.held_out.after < 1e-2
    found = us.connect(*students[1:], teacher, x)
    assert found.largest < 0.2 < found.largest_on_line


def test_a_second_time_changes_nothing(example):
    before = {path.name: path.read_bytes() for path in example.iterdir()}
    us.example(example)
    assert {path.name: path.read_bytes() for path in example.iterdir()} == before


@pytest.fixture
def made(monkeypatch):
    """Contents that take no time to make."""
    files = {name: module._ExampleFile("a file", name.encode()) for name in ("teacher.pt", "models.py")}
    monkeypatch.setattr(module, "_make", lambda seed: (files, ()))
    return files


def test_files_of_other_contents_are_kept(made, tmp_path):
    (tmp_path / "teacher.pt").write_bytes(b"mine")
    (tmp_path / "models.py").mkdir()
    with pytest.raises(us.UserError, match=r"already has teacher.pt, models.py with other contents; choose another"):
        us.example(tmp_path)
    assert (tmp_path / "teacher.pt").read_bytes() == b"mine" and len(list(tmp_path.iterdir())) == 2


def test_folders_that_cannot_be_written_are_refused(made, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(us.UserError, match=r"file must be a folder, but .*file is a file; choose another folder"):
        us.example(tmp_path / "file")
    with pytest.raises(us.UserError, match="seed must be between 0"):
        us.example(tmp_path / "new", seed=-1)
    done = understudy("example", "/proc/understudy/mine", cwd=tmp_path, status=2)
    assert "/proc/understudy/mine" in done.stderr and "cannot be written" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_nothing(made, tmp_path, monkeypatch):
    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    for folder in (tmp_path / "new", tmp_path):
        with pytest.raises(us.UserError, match="the disk is full"):
            us.example(folder)
        assert not list(tmp_path.iterdir())


def test_without_onnx_it_says_so(monkeypatch):
    real = module.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "onnx" else real(name))
    monkeypatch.setattr(module, "_EPOCHS", 1)
    files, notes = module._make(1)
    assert "student.onnx" not in files and "student.pt" in files
    assert notes == ("student.onnx is not written, because the package onnx is not installed.",)
