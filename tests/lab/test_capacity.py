"""Sizes are planned from the options, before anything is allocated or written."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import count
from typing import ClassVar

import pyarrow as pa
import pytest
import torch

import understudy as us
from understudy import _memory
from understudy._cores import LIMIT, cores
from understudy._errors import TooLargeError, UserError
from understudy._memory import MOST, free_memory, require_size
from understudy.lab.capacity import naming_causes, require_capacity
from understudy.lab.discovery import studies
from understudy.lab.options import Count, Positive, Steps, sizes
from understudy.lab.study import ExactStudy, Piece, named_pieces


@dataclass(frozen=True)
class Pieces(ExactStudy):
    """A study whose piece of this number fails."""

    name: ClassVar[str] = "pieces"
    arrays: ClassVar[tuple[str, ...]] = ("samples dim multiple",)

    seeds: Count = 2
    samples: Count = 10
    dim: Count = 3
    multiple: Positive = 2.0
    steps: Steps = 5
    fails: Steps = 1

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        for number in range(1, self.seeds + 1) if self.seeds < 100 else count(1):
            yield Piece(f"piece {number}", 0, lambda first, number=number: self._rows(number))

    def _rows(self, number: int) -> dict[str, pa.Table]:
        if number == self.fails:
            raise UserError("this piece cannot be computed")
        if number == self.steps:
            torch.empty(1 << 40, 1 << 10)
        return {"sets": pa.table({"seed": [number]})}


@pytest.fixture
def gigabyte(monkeypatch):
    """Let 1 GB be free."""
    monkeypatch.setattr("understudy.lab.capacity.free_memory", lambda: 10**9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": 1_000_001}, "memory: --seeds 1000001 needs at least 1 GB, but only 1 GB may be used; choose a "),
        (
            {"dim": 20_000_000},
            "memory: --dim 20000000 needs at least 2 GB, but only 1 GB may be used; choose a smaller",
        ),
        (
            {"samples": 10_000, "dim": 10_000},
            "memory: --samples 10000 × --dim 10000 × --multiple 2 needs at least 1.6 GB, but only 1 GB may be used; "
            "choose a smaller --samples",
        ),
    ],
)
def test_options_that_do_not_fit_in_memory_are_refused_by_name(gigabyte, given, message):
    with pytest.raises(TooLargeError) as error:
        require_capacity(Pieces(**given))
    assert str(error.value).startswith(message)


def test_steps_take_no_memory(gigabyte):
    require_capacity(Pieces(steps=MOST, seeds=999_999))
    assert sizes(Pieces()) == {"seeds": 2, "samples": 10, "dim": 3}


@pytest.mark.parametrize("study", studies().values(), ids=list(studies()))
def test_arrays_name_numbers_and_defaults_fit(monkeypatch, study):
    monkeypatch.setattr("understudy.lab.capacity.free_memory", lambda: 4 * 10**9)
    names = {field.name for field in fields(study)}
    assert {name for array in study.arrays for name in array.split()} <= names
    for each in (study(), study.quick()):
        require_capacity(each)


@pytest.mark.parametrize("fails", [1, 2])
def test_a_study_that_fails_leaves_a_folder_only_with_something_computed(tmp_path, fails):
    with pytest.raises(UserError, match=r"^this piece cannot be computed$"):
        us.run(Pieces(fails=fails, device="cpu"), out=tmp_path / "runs", progress=False)
    assert [path.name for path in tmp_path.rglob("piece-*.json")] == ["piece-000001.json"][: fails - 1]
    assert (tmp_path / "runs").exists() == (fails == 2)


def test_a_folder_of_other_runs_stays(tmp_path):
    other = tmp_path / "pieces" / "other"
    other.mkdir(parents=True)
    with pytest.raises(UserError):
        us.run(Pieces(device="cpu"), out=tmp_path, progress=False)
    assert list(tmp_path.rglob("*")) == [other.parent, other]


def test_memory_that_is_exhausted_names_the_options_that_are_unusual(tmp_path):
    with pytest.raises(UserError) as error:
        us.run(Pieces(fails=50, steps=1, samples=1_000, device="cpu"), out=tmp_path, progress=False)
    assert str(error.value).startswith("memory is exhausted (")
    assert str(error.value).endswith(
        "choose smaller sizes (--samples is 1000, by default 10; --fails is 50, by default 1)"
    )
    assert not list(tmp_path.iterdir())


def test_other_errors_and_errors_that_name_an_option_stay_as_they_are():
    study = Pieces(samples=1_000)
    for error in (UserError("wrong"), KeyError("x"), TooLargeError("--dim is too large")):
        with (
            pytest.raises(type(error) if not isinstance(error, UserError) else UserError) as raised,
            naming_causes(study),
        ):
            raise error
        assert str(raised.value) == str(error)


def test_pieces_are_counted_and_not_listed_without_end(monkeypatch):
    monkeypatch.setattr("understudy.lab.study._MOST_PIECES", 1_000)
    with pytest.raises(TooLargeError, match=r"^pieces would have more than 1,000 pieces; choose smaller sizes$"):
        named_pieces(Pieces(seeds=100))


def test_a_training_that_does_not_fit_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("understudy.training.loop.available", lambda device: 10**6)
    options = {"seeds": 1, "polarity": 1.0, "multiple": 1.0, "teacher_nodes": 2, "dim": 4, "outputs": 2}
    with pytest.raises(UserError) as error:
        us.run("two-layer", **options, steps=10**6, device="cpu", out=tmp_path / "runs", progress=False)
    assert str(error.value).endswith("train fewer or smaller networks (--steps is 1000000, by default 1000)")
    assert not list(tmp_path.iterdir())


def test_sizes_of_functions_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(_memory, "free_memory", lambda: 80)
    require_size("points", 10)
    with pytest.raises(TooLargeError, match=r"^points must be at most 10 here, got 11: the memory for them is"):
        require_size("points", 11)
    with pytest.raises(UserError, match=r"^points must be at most 1,000,000,000, got 1000000000000$"):
        require_size("points", 10**12)


def test_a_limit_of_the_process_is_respected(monkeypatch):
    import resource

    import psutil

    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda which: (used + 10**8, -1))
    assert 0 <= free_memory() <= 0.7 * 1.5e8
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, -1))
    assert free_memory() > 0.7 * 1.5e8


def test_a_process_plans_with_what_it_is_given(monkeypatch):
    monkeypatch.setenv(_memory.LIMIT, "1000")
    assert free_memory() == 1000
    monkeypatch.setenv(_memory.LIMIT, str(10**18))
    assert free_memory() < 10**18
    monkeypatch.setenv(_memory.LIMIT, "2 GB")
    with pytest.raises(UserError, match="UNDERSTUDY_MEMORY must be a number of bytes, got '2 GB'"):
        free_memory()


def test_a_process_uses_the_cores_it_is_given(monkeypatch):
    before = cores()
    monkeypatch.setenv(LIMIT, "1")
    assert cores() == 1
    monkeypatch.setenv(LIMIT, "1000")
    assert cores() == before
