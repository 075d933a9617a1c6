"""Runs as data frames, arrays and short words; devices and progress bars."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

import understudy as us
from understudy._devices import resolve_device
from understudy._progress import can_animate, track


@pytest.fixture(scope="module")
def run(tiny):
    return us.Run(tiny[1])


@pytest.fixture(scope="module")
def trained():
    teacher = us.teachers.distinct_rows((4, 3, 2), seeds=[1])
    students = us.students.gaussian(teacher, multiple=2, seeds=range(3))
    data = us.data.Gaussian(dim=4, train=40, evaluation=30)
    return us.train(students, teacher, data, us.SGD(lr=0.1, batch=8), epochs=2, steps=3, device="auto")


@pytest.mark.parametrize("table", ["nodes", "metrics", "networks"])
def test_a_frame_has_the_rows_of_the_table_and_the_parameters_of_its_networks(run, table):
    frame, rows = run.to_pandas(table), run.table(table)
    assert len(frame) == rows.num_rows
    for name in rows.column_names:
        np.testing.assert_array_equal(frame[name].to_numpy(), rows.to_pandas()[name].to_numpy())
    for name in ("seed", "multiple", "polarity"):
        np.testing.assert_array_equal(frame[name], run.column(name)[frame["network"]])


def test_a_frame_agrees_with_the_labelled_array(run):
    frame = run.to_pandas("metrics").query("metric == 'eval_loss'")
    pivot = frame.pivot_table(index=["multiple", "seed"], columns="epoch", values="value", observed=True)
    array = run.array("eval_loss", "multiple seed epoch").to_numpy()
    np.testing.assert_array_equal(pivot.to_numpy(), array.reshape(-1, array.shape[-1]))


def test_unknown_tables_are_named(run, trained):
    with pytest.raises(us.UserError, match="has no table node; it has networks, metrics, nodes"):
        run.to_pandas("node")
    with pytest.raises(us.UserError, match="the run in memory has no table node; it has networks, metrics, nodes"):
        trained.to_pandas("node")


def test_trained_networks_as_frames(trained):
    frame = trained.to_pandas("metrics")
    assert isinstance(frame, pd.DataFrame) and frame["seed"].tolist() == frame["network"].tolist()
    assert frame.drop(columns=["seed"]).equals(trained.metrics.to_pandas())


def test_words_are_short(run, trained):
    assert repr(run) == f"Run(two-layer: 4 networks (2 multiple, 2 seed), {run.folder})"
    assert repr(trained) == "Run(train: 3 networks (3 seed), in memory)"
    found = us.check(trained, networks=0, samples=20)
    assert repr(found) == f"Checks(1 of 3 networks: {found.headline})"
    for shown in (run, trained, found):
        page = shown._repr_html_()
        assert "<" in page and len(page) < 20_000
    assert "<td>" in run._repr_html_() and (run.folder / "headline.txt").read_text()[:20] in run._repr_html_()


def test_nodes_have_a_type_for_mypy(tmp_path):
    train = "us.train(us.load('x'), us.load('x'), us.data.Gaussian(2), us.SGD(), epochs=1, steps=1)"
    (tmp_path / "code.py").write_text(f"import understudy as us\nx: int = us.Run('x').nodes\ny: int = {train}.nodes\n")
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy", tmp_path / "code.py"]  # in the project's folder, whose cache lint has filled
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    error = 'expression has type "Table", variable has type "int"'
    assert done.stdout.count(error) == 2, done.stdout + done.stderr


def test_auto_is_a_device_that_is_here(monkeypatch):
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(us.UserError, match="device cuda:1 needs a CUDA GPU, but torch sees none here; use auto or cpu"):
        resolve_device("cuda:1")
    with pytest.raises(us.UserError, match="device must be auto, cpu or cuda, got 'tpu9'"):
        resolve_device("tpu9")


def test_bars_are_shown_in_terminals_only_unless_asked_for(capsys):
    assert list(track(range(3), 3, "epochs")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    assert list(track(range(3), 3, "epochs", show=True)) == [0, 1, 2]
    printed = capsys.readouterr()
    assert printed.out == "" and "epochs" in printed.err
    assert can_animate(Console(file=io.StringIO(), force_terminal=True))
    assert not can_animate(Console(file=io.StringIO(), force_terminal=False))
