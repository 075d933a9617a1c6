"""A run folder whose files are damaged goes on from the last whole epoch, or says how to start over.

Everyday a few mutations are taken up, and in the deep profile many (UNDERSTUDY_FUZZ sets how many).
"""

import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from support.mutation import damage
from understudy._errors import UserError
from understudy._states import read_state, write_state
from understudy.store import Run
from understudy.store.folder import RunFolder
from understudy.store.pieces import PieceRecords
from understudy.store.tables import write_table
from understudy.store.writer import BackgroundWriter

CASES = int(os.environ.get("UNDERSTUDY_FUZZ", 2000 if os.environ.get("UNDERSTUDY_PROFILE") == "deep" else 60))
CONFIG = {"study": "two-layer", "format": 1, "options": {"seeds": 2}}
EPOCHS = 4


def _rows(epoch: int) -> pa.Table:
    return pa.table({"network": [0, 1], "epoch": [epoch] * 2, "value": [epoch + 0.5, float("nan")]})


def _state(epoch: int) -> dict[str, torch.Tensor]:
    weights = torch.full((2, 3), float(epoch))
    weights[1] = weights[1] if epoch < 2 else torch.nan
    return {"epoch": torch.tensor(epoch), "weights": weights, "alive": torch.tensor([True, epoch < 2])}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """An interrupted run with four saved epochs."""
    out = tmp_path_factory.mktemp("begun")
    with RunFolder.open(out, CONFIG, lambda: 0) as folder:
        assert folder.resume() is None
        for epoch in range(EPOCHS):
            folder.save(epoch, {"metrics": _rows(epoch)}, _state(epoch), float(epoch))
    return folder.path


@pytest.fixture
def copied(begun, tmp_path):
    """A copy of it, as often as it is called."""

    def copy() -> Path:
        shutil.rmtree(tmp_path / "two-layer", ignore_errors=True)
        shutil.copytree(begun, tmp_path / "two-layer" / begun.name)
        return tmp_path / "two-layer" / begun.name / "progress"

    return copy


def _take_up(progress: Path) -> tuple[int, str]:
    """The epoch from which a run goes on, or −1, with what is said; everything up to it must be as it was saved."""
    with RunFolder.open(progress.parents[2], CONFIG, lambda: 0) as folder:
        try:
            saved = folder.resume()
        except UserError as error:
            assert str(error).endswith(f"no earlier epoch is whole, so remove {progress} to start over")
            return -1, str(error)
        epoch = -1 if saved is None else saved.epoch
        if saved is not None:
            wanted = _state(epoch)
            assert saved.state.keys() == wanted.keys() and saved.seconds == epoch
            assert all(torch.allclose(saved.state[k], wanted[k], 0, 0, equal_nan=True) for k in wanted)
        with BackgroundWriter(folder, ["metrics"], resumes=saved is not None) as writer:
            for later in range(epoch + 1, EPOCHS):
                writer.add(lambda later=later: {"metrics": _rows(later)})
            writer.finish()
        found = pa.parquet.read_table(folder.path / "metrics.parquet")
        assert found["epoch"].to_pylist() == [epoch for epoch in range(EPOCHS) for _ in range(2)]
        return epoch, "" if saved is None else "; ".join(saved.problems)


def test_a_whole_run_goes_on_from_its_last_epoch(copied):
    assert _take_up(copied()) == (EPOCHS - 1, "")


def test_damaged_progress_never_gives_another_result(copied):
    draw = random.Random(1)
    for _ in range(CASES):
        progress = copied()
        for file in draw.sample(sorted(progress.iterdir()), draw.choice((1, 1, 2))):
            other = draw.choice(sorted(progress.iterdir()))
            match draw.randrange(5):
                case 0:
                    file.unlink()
                case 1:
                    file.write_bytes(other.read_bytes())
                case 2:
                    (progress / f"metrics-{draw.randrange(8):06}.parquet").write_bytes(file.read_bytes())
                case _:
                    file.write_bytes(damage(file.read_bytes(), draw))
        _take_up(progress)


def _edit(path: Path, **changed: torch.Tensor) -> None:
    """Write a state with other tensors and the same metadata."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    save_file(tensors | changed, path, metadata)


def test_an_edited_state_is_passed_over(copied):
    for changed in ({"epoch": torch.tensor(99)}, {"weights": torch.full((2, 3), torch.nan)}):
        progress = copied()
        _edit(progress / "state-000002.safetensors", epoch=torch.tensor(2))
        _edit(progress / "state-000003.safetensors", **changed)
        epoch, said = _take_up(progress)
        assert epoch == 2
        assert (
            "state-000003.safetensors: the saved state cannot be read (its contents do not match its checksum" in said
        )
        assert "written" not in said


def test_a_damaged_part_is_named(copied):
    progress = copied()
    (progress / "metrics-000003.parquet").unlink()
    assert _take_up(progress) == (2, f"{progress}/metrics-000003.parquet is missing")
    progress = copied()
    shutil.copy(progress / "metrics-000003.parquet", progress / "metrics-000001.parquet")
    epoch, said = _take_up(progress)
    assert epoch == -1 and f"{progress}/metrics-000001.parquet cannot be read" in said


def test_states_of_another_run_and_of_earlier_versions_are_refused(copied, begun):
    progress = copied()
    for file in progress.glob("state-*"):
        tensors, stated = read_state(file, "")
        write_state(file, tensors, stated | {"run": "0123456789ab"})
    assert "is the state of another run or epoch" in _take_up(progress)[1]
    progress = copied()
    for file in progress.glob("state-*"):
        file.unlink()
    save_file(_state(3), progress / "state.safetensors", {"seconds": "3.0"})
    assert "state.safetensors was written by an earlier version" in _take_up(progress)[1]


def test_a_part_that_no_state_lists_is_left_out(copied):
    progress = copied()
    write_table(progress / "metrics-000002x.parquet", _rows(7))
    write_table(progress / "metrics-000009.parquet", _rows(9))
    assert _take_up(progress) == (EPOCHS - 1, "")


def test_a_damaged_piece_is_computed_again(tmp_path):
    draw = random.Random(2)
    write_table(tmp_path / "metrics-000001.parquet", _rows(1))
    PieceRecords("run", tmp_path).write(1, "one", ["metrics"], ["metrics-000001.parquet"])
    whole = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert PieceRecords("run", tmp_path).problem(1, "one") is None
    assert PieceRecords("run", tmp_path).problem(2, "two") == ""
    for run, name in (("other", "one"), ("run", "two")):
        assert "is of another run or piece" in PieceRecords(run, tmp_path).problem(1, name)
    for _ in range(CASES):
        name = draw.choice(sorted(whole))
        content = damage(whole[name], draw)
        (tmp_path / name).write_bytes(content)
        records = PieceRecords("run", tmp_path)
        problem = records.problem(1, "one")
        if problem is None:  # spaces in JSON, which change nothing
            assert name.endswith(".json") or content == whole[name]
            assert records.known[1]["tables"] == ["metrics"]
        else:
            assert str(tmp_path / name) in problem
        (tmp_path / name).write_bytes(whole[name])
    (tmp_path / "metrics-000001.parquet").unlink()
    assert PieceRecords("run", tmp_path).problem(1, "one") == f"{tmp_path}/metrics-000001.parquet is missing"


def _same_files(folder: Path, other: Path) -> bool:
    files = sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return all((folder / file).read_bytes() == (other / file).read_bytes() for file in files)


@pytest.mark.parametrize("name", ["nodes.parquet", "metrics.parquet", "networks.parquet", "weights.safetensors"])
def test_a_report_of_a_damaged_run_writes_nothing(tiny, tmp_path, name):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    shutil.copytree(tiny[1], folder)
    content = bytearray((folder / name).read_bytes())
    content[60:70] = bytes(10)
    (folder / name).write_bytes(content)
    shutil.copytree(folder, whole)
    with pytest.raises(UserError, match=name):
        Run(folder).report()
    assert _same_files(whole, folder)
    assert not list(folder.glob(".*"))
