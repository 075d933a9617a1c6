"""`us.train` returns a run in memory: its networks, arrays and weights; saved, the same run in a folder."""

import json
import os
import shutil
import stat

import numpy as np
import pyarrow.compute as pc
import pytest
import torch

import understudy as us
from support.commands import understudy
from support.kinds import same
from understudy.store.tables import same_rows

TEACHER = us.teachers.distinct_rows((4, 3, 2), seeds=[1, 2])
DATA = us.data.Gaussian(dim=4, train=40, evaluation=30)
WIDE = [us.students.gaussian(TEACHER, multiple=k, scale=0.3) for k in (1, 2)]
SGD = us.SGD(lr=0.05, batch=8)


def train(students=WIDE, teacher=TEACHER, optimiser=SGD, **options):
    return us.train(students, teacher, DATA, optimiser, **{"epochs": 2, "steps": 3, **options})


@pytest.fixture(scope="module")
def run():
    return train()


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    return run.save(tmp_path_factory.mktemp("runs") / "mine" / "first")


def test_networks_differ_by_multiple_and_seed(run):
    assert run.networks.to_pydict() == {
        "network": [0, 1, 2, 3],
        "multiple": [1.0, 1.0, 2.0, 2.0],
        "seed": [1, 2, 1, 2],
        "diverged_at": [None] * 4,
    }
    assert run.swept == ["multiple", "seed"] and run.epochs.tolist() == [0, 1, 2]
    assert run.tables == ("networks", "metrics", "nodes")
    assert len(run.select(multiple=2.0)) == 2


def of(*sizes):
    return us.teachers.regular(sizes, seeds=[1, 2])


@pytest.mark.parametrize(
    ("students", "column", "values"),
    [
        ([WIDE[0]], None, None),
        (WIDE[0], None, None),
        ([WIDE[1], WIDE[1]], "population", [0, 0, 1, 1]),
        ([of(4, 5, 2), of(4, 7, 2)], "multiple", [5 / 3, 5 / 3, 7 / 3, 7 / 3]),
    ],
    ids=["list of one", "one", "of one shape", "of odd widths"],
)
def test_populations_have_a_column_where_there_are_several(students, column, values):
    networks = train(students, epochs=0).networks
    assert networks.column_names == ["network", *([column] if column else []), "seed", "diverged_at"]
    assert column is None or networks[column].to_pylist() == values


def test_deep_populations_without_one_multiple_have_their_sizes():
    students = [of(4, 3, 5, 2), of(4, 4, 5, 2)]
    assert train(students, of(4, 3, 5, 2), epochs=0).column("sizes").tolist() == ["4-3-5-2"] * 2 + ["4-4-5-2"] * 2


def test_rates_and_stops_are_columns_where_they_are_given_per_network():
    run = train(WIDE[1], optimiser=us.SGD(lr=(0.05, 1e6), batch=8), stops=[1, 2], epochs=3)
    assert run.networks.column_names == ["network", "seed", "lr", "stop", "diverged_at"]
    assert run.column("lr").tolist() == [0.05, 1e6] and run.column("stop").tolist() == [1, 2]
    (first, second) = run.networks["diverged_at"].to_pylist()
    assert first is None and second > 0
    assert np.isnan(run.array("eval_loss")[1]).all() and np.isfinite(run.array("eval_loss")[0, :2]).all()


def test_arrays_are_those_of_the_tables(run):
    array = run.array("eval_loss", "multiple seed epoch")
    for row in run.networks.to_pylist():
        rows = run.metrics.filter((pc.field("metric") == "eval_loss") & (pc.field("network") == row["network"]))
        found = array.sel(multiple=row["multiple"], seed=row["seed"])
        np.testing.assert_array_equal(found, rows.sort_by("epoch")["value"].to_numpy())
    best = run.array("correlation", "network teacher", epoch=1)
    rows = run.nodes.filter((pc.field("epoch") == 1) & (pc.field("role") == "teacher")).sort_by("network")
    np.testing.assert_array_equal(best.to_numpy().ravel(), rows["correlation"].to_numpy())


def test_weights_before_and_after_training(run):
    assert all(same(ours, given) for ours, given in zip(run.weights(0), WIDE, strict=True))
    assert all(same(ours, end) for ours, end in zip(run.weights(2), run.students, strict=True))
    assert not same(run.students[0], WIDE[0])
    assert [len(each) for each in run.weights("teacher")] == [2, 2]
    assert same(run.teacher, TEACHER) and run.data is DATA
    with pytest.raises(
        us.UserError, match=r"in memory has no weights of epoch.1; it holds those of epoch.0, epoch.2, t"
    ):
        run.weights(1)


@pytest.mark.parametrize("several", [False, True])
def test_students_have_the_form_that_was_given(several, tmp_path):
    run = train([WIDE[0]] if several else WIDE[0], epochs=1)
    for each in (run, run.save(tmp_path / "run")):
        assert isinstance(each.students, list if several else us.Population)


def test_a_run_in_memory_has_no_folder(run):
    with pytest.raises(us.UserError, match=r"a run in memory has no folder; write it to one with run.save\(FOLDER\)"):
        run.folder  # noqa: B018


def test_a_saved_run_is_the_same(run, saved):
    assert sorted(path.name for path in saved.folder.iterdir()) == [
        "config.toml",
        "environment.json",
        "groups.json",
        "metrics.parquet",
        "networks.parquet",
        "nodes.parquet",
        "weights.safetensors",
    ]
    for name in run.tables:
        assert same_rows(run.table(name), saved.table(name)), name
    for who in (0, 2, "teacher"):
        assert all(same(ours, theirs) for ours, theirs in zip(run.weights(who), saved.weights(who), strict=True))
    assert all(same(ours, theirs) for ours, theirs in zip(run.students, saved.students, strict=True))
    assert same(run.teacher, saved.teacher) and saved.data == run.data == DATA
    assert (run.config, run.groups) == (saved.config, saved.groups)
    assert run.environment == saved.environment and saved.environment["engines"]
    assert run.array("eval_loss", "multiple seed").equals(saved.array("eval_loss", "multiple seed"))
    assert repr(run) == "Run(train: 4 networks (2 multiple, 2 seed), in memory)"
    assert repr(saved) == f"Run(train: 4 networks (2 multiple, 2 seed), {saved.folder})"
    assert us.check(saved, samples=20).as_dict() == us.check(run, samples=20).as_dict()


def test_a_folder_of_something_else_is_refused(run, saved, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in saved.folder.iterdir()}
    assert run.save(saved.folder).folder == saved.folder
    assert before == {path: path.stat().st_mtime_ns for path in saved.folder.iterdir()}
    words = "holds other files or another run; choose a folder that is empty, or a new one"
    with pytest.raises(us.UserError, match=words):
        train(epochs=1).save(saved.folder)
    with pytest.raises(us.UserError, match=words):
        train(optimiser=us.SGD(lr=0.04, batch=8)).save(saved.folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(us.UserError, match=words):
        run.save(tmp_path)
    with pytest.raises(us.UserError, match="cannot be written"):
        run.save(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert before == {path: path.stat().st_mtime_ns for path in saved.folder.iterdir()}


def test_a_run_appears_whole_or_not_at_all(run, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    assert run.save(tmp_path / "empty").networks.num_rows == 4
    assert stat.S_IMODE(os.stat(tmp_path / "empty").st_mode) == 0o755

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("understudy.store.weights.save_file", fail)
    with pytest.raises(us.UserError, match="the disk is full"):
        run.save(tmp_path / "full")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_run_of_a_study_is_saved_elsewhere_and_has_students(tiny, tmp_path):
    run = us.Run(tiny[1])
    copy = run.save(tmp_path / "copy")
    names = {path.name for path in run.folder.iterdir()}
    assert {path.name for path in copy.folder.iterdir()} == names
    assert all(same_rows(run.table(name), copy.table(name)) for name in run.tables)
    assert [each.sizes for each in run.students] == [each.sizes for each in run.weights(3)]
    assert all(same(a, b) for a, b in zip(run.students, run.weights("epoch.3"), strict=True))
    assert same(run.teacher, run.weights("teacher")[0])
    assert run.data == us.data.Gaussian(6, 1.5, train=64, evaluation=64)


def test_what_a_folder_does_not_have_is_named(saved, tmp_path):
    shutil.copytree(saved.folder, tmp_path / "run")
    groups = json.loads((tmp_path / "run" / "groups.json").read_text())
    groups[1]["data"]["std"] = 9.0
    (tmp_path / "run" / "groups.json").write_text(json.dumps(groups))
    with pytest.raises(us.UserError, match=r"have different inputs; see run.sources"):
        us.Run(tmp_path / "run").data  # noqa: B018
    (tmp_path / "run" / "groups.json").unlink()
    with pytest.raises(us.UserError, match="does not record on which inputs networks were trained"):
        us.Run(tmp_path / "run").sources  # noqa: B018


def test_one_teacher_of_all_students_stays_one(tmp_path):
    students = [us.students.gaussian(TEACHER[0], multiple=k, seeds=range(n)) for k, n in ((1, 2), (2, 3))]
    run = train(students, TEACHER[0], epochs=0)
    for each in (run, run.save(tmp_path / "run")):
        assert len(each.teacher) == 1 and same(each.teacher, TEACHER[0])


def test_inputs_that_cannot_be_described_are_in_memory_only(tmp_path):
    data = us.data.Fixed(torch.randn(30, 4), torch.randn(20, 4))
    run = us.train(WIDE[0], TEACHER, data, SGD, epochs=1, steps=2)
    assert run.data is data and len(us.check(run)) == 2
    saved = run.save(tmp_path / "run")
    assert saved.networks.num_rows == 2 and saved.options["data"] == {"kind": "Fixed"}
    with pytest.raises(us.UserError, match="does not record on which inputs networks were trained"):
        us.check(saved)


def test_a_module_as_teacher_is_converted_and_that_is_said(capsys):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    students = us.students.gaussian(us.from_module(model), multiple=2, seeds=[1, 2])
    run = train(students, model)
    assert capsys.readouterr().err == "us.train: the teacher, a Sequential, is converted by us.from_module\n"
    assert same(run.teacher, us.from_module(model))
    assert same_rows(run.metrics, train(students, us.from_module(model)).metrics)


def test_the_command_reports_and_lists_a_saved_run(saved, tmp_path):
    found = json.loads(understudy("report", saved.folder, "--json", cwd=tmp_path).stdout)
    assert found["claims"] == [] and found["report"] == str(saved.folder / "report.html")
    assert found["headline"].startswith("At the end of training the students had recovered ")
    assert "median loss" in understudy("report", saved.folder, cwd=tmp_path).stdout
    out = ("--out", saved.folder.parents[1], "--json")
    runs = json.loads(understudy("list", *out, cwd=tmp_path).stdout)["runs"]
    assert runs == [{"study": "train", "run": str(saved.folder)}]
    understudy("claims", *out, cwd=tmp_path)
