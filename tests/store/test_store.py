"""Run folders: atomic files, folders named after configurations, growing tables, runs read back, full disks."""

import dataclasses
import errno
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from understudy._atomic import atomic_path, disk_errors, write_json, write_text
from understudy._errors import UserError
from understudy.nets import Layer, Population
from understudy.store import Claim, Run, tables
from understudy.store.claims import Variant
from understudy.store.config import from_toml, name, to_toml
from understudy.store.environment import environment
from understudy.store.folder import RunFolder
from understudy.store.tables import write_table
from understudy.store.weights import read_weights, write_weights
from understudy.store.writer import BackgroundWriter

CONFIG = {"study": "two-layer", "format": 1, "options": {"seeds": 2, "lr": 0.01}}


# Files


def test_a_file_is_replaced_atomically(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("ne")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_equal_rows_are_written_as_equal_bytes(tmp_path):
    rows = {"network": pa.array([0, 1], pa.int32()), "value": [0.1, float("nan")]}
    for file in ("a", "b"):
        write_table(tmp_path / file, pa.table(rows))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert pq.read_table(tmp_path / "a").column_names == ["network", "value"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError('Error while serializing: I/O error: Os { code: 28, kind: StorageFull, message: "No space" }'),
    ],
    ids=["full", "quota", "safetensors"],
)
def test_a_full_disk_is_reported(tmp_path, error):
    message = "the disk is full; free some space, and the same command goes on where it stopped"
    with pytest.raises(UserError, match=message), disk_errors(tmp_path):
        raise error


def test_other_disk_errors_are_reported_with_what_to_do(tmp_path):
    message = r"cannot be written \(Permission denied\); choose another folder with --out$"
    with pytest.raises(UserError, match=message), disk_errors(tmp_path):
        raise OSError(errno.EACCES, "Permission denied")
    with pytest.raises(UserError, match=r"; try another day$"), disk_errors(tmp_path, "try another day"):
        raise OSError(errno.EROFS, "Read-only file system")


# Configurations

plain = st.one_of(st.integers(-(2**62), 2**62), st.floats(), st.text(st.characters(codec="utf-8")))
options = st.dictionaries(
    st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.one_of(plain, st.lists(st.floats(), max_size=4).map(tuple))
)


@given(options)
def test_a_configuration_is_written_to_toml_and_read_back(tmp_path_factory, options):
    path = tmp_path_factory.getbasetemp() / "config.toml"
    config = {"study": "two-layer", "format": 1, "options": options}
    path.write_text(to_toml(config), encoding="utf-8", newline="")
    back = from_toml(path)
    assert to_toml(back) == to_toml(config)
    assert list(back["options"]) == list(options)


def test_the_configuration_determines_the_folder():
    other = {**CONFIG, "options": {"seeds": 3, "lr": 0.01}}
    assert name(CONFIG) == name(dict(CONFIG))
    assert name(CONFIG) != name(other)
    assert len(name(CONFIG)) == 12
    assert name(CONFIG) != name({**CONFIG, "format": 2})


def test_the_order_of_options_changes_neither_folder_nor_run(tmp_path):
    one = {"study": "s", "format": 1, "options": {"a": (1.0, 2.0), "b": "x"}}
    other = {"options": {"b": "x", "a": (1.0, 2.0)}, "format": 1, "study": "s"}
    assert name(one) == name(other)
    with RunFolder.open(tmp_path, one, lambda: 0) as first:
        pass
    with RunFolder.open(tmp_path, other, lambda: 0) as second:
        assert second.path == first.path


def test_values_that_toml_cannot_hold_are_refused():
    with pytest.raises(TypeError):
        to_toml({"study": object()})


# Folders


def rows(epoch: int) -> dict[str, pa.Table]:
    return {"metrics": pa.table({"epoch": [epoch], "value": [float(epoch)]})}


def test_a_folder_resumes_after_its_last_complete_epoch(tmp_path):
    with RunFolder.open(tmp_path, CONFIG, lambda: 0) as folder:
        assert folder.path == tmp_path / "two-layer" / name(CONFIG)
        assert folder.resume() is None
        for epoch in range(3):
            folder.save(epoch, rows(epoch), {"epoch": torch.tensor(epoch)}, 1.5 * epoch)
        write_table(folder.progress / "metrics-000004.parquet", rows(9)["metrics"])  # of an interrupted save
    with RunFolder.open(tmp_path, CONFIG, lambda: 0) as folder:
        saved = folder.resume()
        assert (int(saved.state["epoch"]), saved.epoch, saved.seconds, saved.problems) == (2, 2, 3.0, ())
        with BackgroundWriter(folder, ["metrics"], resumes=True) as writer:
            writer.add(lambda: rows(3))
            writer.save(3, {"epoch": torch.tensor(3)}, 4.0, lambda: None)
            writer.finish()
        assert pq.read_table(folder.path / "metrics.parquet")["epoch"].to_pylist() == [0, 1, 2, 3]
        assert not folder.finished
        write_text(folder.path / "report.html", "the page")
        folder.finish()
        assert folder.finished
    assert {path.name for path in folder.path.iterdir()} == {"config.toml", "metrics.parquet", "report.html"}


def test_only_temporary_files_of_a_killed_process_are_removed(tmp_path):
    path = tmp_path / "two-layer" / name(CONFIG)
    path.mkdir(parents=True)
    (path / ".config.toml.x1").write_text("half")
    with RunFolder.open(tmp_path, CONFIG, lambda: 0):
        assert not (path / ".config.toml.x1").exists()
        (path / ".figures.abc").mkdir()
        (path / ".figures.abc" / "a.pdf").write_text("half")
        (path / ".nodes.parquet.abc").write_text("half")
        (path / ".notes").write_text("mine")
    with RunFolder.open(tmp_path, CONFIG, lambda: 0):
        assert {entry.name for entry in path.iterdir()} == {".lock", ".notes", "config.toml", "progress"}


def test_a_finished_folder_is_only_read(tmp_path):
    with RunFolder.open(tmp_path, CONFIG, lambda: 0) as folder:
        write_text(folder.path / "report.html", "the page")
        folder.finish()
    before = folder.path.stat().st_mtime_ns
    with RunFolder.open(tmp_path, CONFIG, lambda: 10**18) as folder:
        assert folder.finished
    assert folder.path.stat().st_mtime_ns == before


def test_a_second_process_cannot_open_the_same_folder(tmp_path):
    second = RunFolder.open(tmp_path, CONFIG, lambda: 0)
    refused = pytest.raises(UserError, match="another process is working on this run")
    with RunFolder.open(tmp_path, CONFIG, lambda: 0), refused, second:
        pass


# Tables that grow, and are read in part


def epoch_tables(epochs: int, networks: int = 40, nodes: int = 30) -> list[pa.Table]:
    """One table per epoch: two teacher nodes of every network, then its students; dictionaries differ by epoch."""
    made = []
    for epoch in range(epochs):
        roles = np.tile(np.repeat([0, 1], [2, nodes]), networks).astype(np.int8)
        count = len(roles)
        columns = {
            "network": np.repeat(np.arange(networks, dtype=np.int32), 2 + nodes),
            "epoch": np.full(count, epoch, np.int32),
            "role": pa.DictionaryArray.from_arrays(roles, ["teacher", "student", "pair"][: 2 + epoch % 2]),
            "value": np.random.default_rng(epoch).random(count),
        }
        made.append(pa.table(columns))
    return made


@pytest.fixture
def small_row_groups(monkeypatch):
    monkeypatch.setattr(tables, "_ENOUGH", 1_000)


def grow(path, parts) -> Path:
    table = tables.Growing(path)
    for part in parts:
        table.add(part)
    assert not path.exists()
    table.close()
    return path


@pytest.mark.usefixtures("small_row_groups")
def test_a_table_grows_by_row_groups_of_whole_epochs_and_one_role(tmp_path):
    path = grow(tmp_path / "nodes.parquet", epoch_tables(3))
    metadata = pq.ParquetFile(path).metadata
    held = [metadata.row_group(i).to_dict()["columns"] for i in range(metadata.num_row_groups)]
    bounds = [{c["path_in_schema"]: (c["statistics"]["min"], c["statistics"]["max"]) for c in row} for row in held]
    expected = [((epoch, epoch), (role, role)) for epoch in range(3) for role in ("teacher", "student")]
    assert [(row["epoch"], row["role"]) for row in bounds] == expected
    assert pq.read_table(path).num_rows == 3 * 40 * 32


@pytest.mark.usefixtures("small_row_groups")
def test_a_resumed_table_grows_to_the_same_bytes(tmp_path):
    parts = epoch_tables(5)
    write_table(tmp_path / "part.parquet", pa.concat_tables(parts[:3]))
    again = [*tables.by_epoch(pq.read_table(tmp_path / "part.parquet")), *parts[3:]]
    assert len(again) == 5
    one, other = grow(tmp_path / "one.parquet", parts), grow(tmp_path / "other.parquet", again)
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.usefixtures("small_row_groups")
def test_a_table_that_is_dropped_leaves_nothing(tmp_path):
    table = tables.Growing(tmp_path / "nodes.parquet")
    for part in epoch_tables(3):
        table.add(part)
    assert [path.name[:15] for path in tmp_path.iterdir()] == [".nodes.parquet."]
    table.drop()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_row_groups")
def test_rows_are_read_in_part_whatever_the_row_groups(tmp_path):
    parts = epoch_tables(3)
    grouped = tables.Stored(grow(tmp_path / "grouped.parquet", parts))
    write_table(tmp_path / "mixed.parquet", pa.concat_tables(parts))
    mixed = tables.Stored(tmp_path / "mixed.parquet")
    student = {"role": "student"}
    for wanted in ({"role": "teacher"}, {"epoch": 1}, student | {"epoch": 2}, student | {"network": 7}):
        few, every = (stored.read(("network", "value"), **wanted) for stored in (grouped, mixed))
        assert few.column_names == ["network", "value"]
        assert few.num_rows == every.num_rows > 0
        assert sorted(few["value"].to_pylist()) == sorted(every["value"].to_pylist())
    assert grouped.read(("value",), role="pair").num_rows == mixed.read(("value",), epoch=9).num_rows == 0
    assert grouped.read().num_rows == 3 * 40 * 32


# Epochs that are written while others train


@pytest.fixture
def folder(tmp_path):
    with RunFolder.open(tmp_path, CONFIG, lambda: 0) as made:
        yield made


def test_an_epoch_is_on_disk_before_it_is_reported(folder):
    reported = []
    with BackgroundWriter(folder, ["metrics"], resumes=False) as writer:
        assert writer.due()
        state = {"epoch": torch.tensor(0)}
        for epoch in range(3):
            writer.add(partial(rows, epoch))
        writer.save(2, state, 1.0, lambda: reported.append(int(folder.resume().state["epoch"])))
        state["epoch"] += 7  # training goes on
        writer.wait()
        assert reported == [0]
        assert [path.name for path in folder.progress.glob("metrics*")] == ["metrics-000002.parquet"]
        assert not (folder.path / "metrics.parquet").exists()
        writer.finish()
    assert pq.read_table(folder.path / "metrics.parquet")["epoch"].to_pylist() == [0, 1, 2]


def test_a_disk_error_is_raised_by_a_later_call_and_no_state_is_written(folder, monkeypatch):
    calls = []

    def fail_at_first(path, rows):
        calls.append(path)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_table(path, rows)

    monkeypatch.setattr("understudy.store.folder.write_table", fail_at_first)
    with pytest.raises(OSError, match="No space"), BackgroundWriter(folder, ["metrics"], resumes=False) as writer:
        for epoch in range(1_000):
            writer.add(partial(rows, epoch))
            writer.save(epoch, {"epoch": torch.tensor(epoch)}, 1.0, lambda: None)
    assert len(calls) == 1
    assert folder.resume() is None
    assert not (folder.path / "metrics.parquet").exists()
    assert not [path for path in folder.path.iterdir() if path.name.startswith(".metrics")]


def test_epochs_before_an_interrupt_are_saved(folder):
    with pytest.raises(KeyboardInterrupt), BackgroundWriter(folder, ["metrics"], resumes=False) as writer:
        writer.add(lambda: rows(0))
        writer.save(0, {"epoch": torch.tensor(0)}, 1.0, lambda: None)
        raise KeyboardInterrupt
    assert int(folder.resume().state["epoch"]) == 0


# Weights


def population(nodes: int, slope: float = 0.0, bias: bool = False) -> Population:
    draw = torch.Generator().manual_seed(nodes)
    shapes = ((nodes, 4), (2, nodes))
    layers = [
        Layer(torch.randn(3, o, i, generator=draw), torch.randn(3, o, generator=draw) if bias else None)
        for o, i in shapes
    ]
    return Population(tuple(layers), torch.tensor([5, 6, 7]), slope)


def test_weights_are_read_back_unchanged(tmp_path):
    path = tmp_path / "weights.safetensors"
    groups = [population(5, 0.2), population(8, -1.0, bias=True)]
    write_weights(path, {"teacher": groups, "epoch.0": groups[:1]})
    for old, new in zip(groups, read_weights(path, "teacher"), strict=True):
        assert new.slope == old.slope
        assert torch.equal(new.seeds, old.seeds)
        for a, b in zip(old.layers, new.layers, strict=True):
            assert torch.equal(a.weight, b.weight)
            assert (a.bias is None and b.bias is None) or torch.equal(a.bias, b.bias)
    assert len(read_weights(path, "epoch.0")) == 1


def test_equal_weights_are_written_as_equal_bytes(tmp_path):
    groups = {f"epoch.{epoch}": [population(5, 0.1 * epoch)] for epoch in range(9)}
    for file in "abc":
        write_weights(tmp_path / file, groups)
    assert len({(tmp_path / file).read_bytes() for file in "abc"}) == 1


def test_the_error_for_missing_weights_names_the_saved_ones(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, {"teacher": [population(5)], "epoch.0": [population(5)]})
    with pytest.raises(UserError, match=r"has no weights of epoch\.7; it holds those of epoch\.0, teacher$"):
        read_weights(path, "epoch.7")
    with safe_open(path, "pt") as file:
        assert set(file.keys()) == {
            f"{who}.0.{part}"
            for who in ("teacher", "epoch.0")
            for part in ("seeds", "layers.0.weight", "layers.1.weight")
        }


# Runs read back


@pytest.fixture
def made(tmp_path):
    """A run of two networks with 2 and 3 students, of which the wider one diverges after epoch 0."""
    write_text(tmp_path / "config.toml", to_toml(CONFIG))
    write_json(tmp_path / "environment.json", {"seconds": 1.0})
    write_weights(tmp_path / "weights.safetensors", {"teacher": [population(2)]})
    write_table(tmp_path / "networks.parquet", pa.table({"network": [0, 1], "diverged_at": pa.array([None, 4])}))
    write_table(
        tmp_path / "metrics.parquet",
        pa.table(
            {
                "network": [0, 1, 0, 0],
                "epoch": [0, 0, 10, 10],
                "layer": pa.array([-1, -1, -1, 0], pa.int16()),
                "metric": ["eval_loss", "eval_loss", "eval_loss", "recovered"],
                "value": [1.0, 2.0, 0.5, 0.25],
            }
        ),
    )
    nodes = [(n, e, j) for n, e in ((0, 0), (1, 0), (0, 10)) for j in range(2 + n)]
    write_table(
        tmp_path / "nodes.parquet",
        pa.table(
            {
                "network": [n for n, _, _ in nodes],
                "epoch": [e for _, e, _ in nodes],
                "layer": pa.array([0] * len(nodes), pa.int16()),
                "role": ["student"] * len(nodes),
                "teacher": [0] * len(nodes),
                "student": [j for _, _, j in nodes],
                "correlation": [0.1 * (e + j) for _, e, j in nodes],
            }
        ),
    )
    return Run(tmp_path)


def test_a_series_is_nan_where_nothing_was_recorded(made):
    np.testing.assert_array_equal(made.epochs, [0, 10])
    np.testing.assert_array_equal(made.series("eval_loss"), [[1, 0.5], [2, np.nan]])
    np.testing.assert_array_equal(made.series("recovered", 0), [[np.nan, 0.25], [np.nan, np.nan]])
    assert np.isnan(made.series("no such metric")).all()


def test_values_of_nodes_have_the_same_width_at_every_epoch(made):
    every = made.matched("student", "correlation")
    np.testing.assert_allclose(every[0], [[0, 0.1, np.nan], [1.0, 1.1, np.nan]], rtol=1e-6)
    np.testing.assert_allclose(every[1], [[0, 0.1, 0.2], [np.nan] * 3], rtol=1e-6)
    np.testing.assert_array_equal(made.matched("student", "correlation", epoch=10), every[:, 1])
    assert made.matched("teacher", "correlation").shape == (2, 2, 0)


def test_arrays_that_were_read_are_cached_and_read_only(made):
    assert made.matched("student", "correlation") is made.matched("student", "correlation")
    assert made.series("eval_loss") is made.series("eval_loss")
    with pytest.raises(ValueError, match="read-only"):
        made.series("eval_loss")[0, 0] = 1


def test_a_run_without_claims_has_none(made):
    assert made.claims == []


def test_claims_are_read_back_unchanged(made):
    claim = Claim(
        id="T1",
        statement="it is",
        paper="1",
        measured="1.0",
        n=3,
        holds=True,
        part="p = 1",
        values=(1.0, 2.0),
        low=None,
        high=3.0,
    )
    other = dataclasses.replace(claim, variants=(Variant("5 nodes", "0.9", False),))
    write_json(made.folder / "claims.json", [claim.as_dict(), other.as_dict()])
    assert Run(made.folder).claims == [claim, other]
    assert str(other.variants[0]) == "5 nodes: 0.9 (does not hold)"
    kept = json.loads((made.folder / "claims.json").read_text())[0]
    assert {"id", "statement", "paper", "measured", "n", "holds"} <= set(kept)


def test_a_commit_is_recorded_only_in_a_checkout(monkeypatch, tmp_path):
    made = environment("cpu")
    assert made["device"] == "cpu"
    assert made["cores"] == os.cpu_count()
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert environment("cpu")["commit"] is None
    monkeypatch.setenv("PATH", "")
    assert environment("cpu")["commit"] is None


def test_the_error_for_missing_weights_names_those_of_watched_modules(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"start.0.weight": torch.zeros(2), "last.0.weight": torch.ones(2)}, path)
    with pytest.raises(UserError, match=r"no weights of epoch\.100; it holds tensors of modules, start\.… and last"):
        read_weights(path, "epoch.100")
