"""Computed studies run piece by piece, and an interrupted run resumes with the piece at which it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pytest
import torch

from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.lab.pieces import table_rows, unit_table
from understudy.lab.study import ComputedStudy, Piece
from understudy.papers.local.shared import endpoints
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Story

COMPUTED: list[str] = []
STOP_AT: list[str] = []


@dataclass(frozen=True)
class Counting(ComputedStudy):
    """Three pieces of one network with one metric each."""

    name: ClassVar[str] = "counting"
    summary: ClassVar[str] = "pieces"
    figures: ClassVar[str] = "none"
    decides: ClassVar[str] = ""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=1)

    def pieces(self, *runs):
        for name in ("one", "two", "three"):
            yield Piece(name, 1, partial(self._piece, name))

    def _piece(self, name, i):
        if name in STOP_AT:
            raise KeyboardInterrupt
        COMPUTED.append(name)
        row = {"network": pa.array([i], pa.int32())}
        return {
            "networks": pa.table(row | {"seed": [i + 1], "diverged_at": pa.nulls(1, pa.int64())}),
            "metrics": pa.table(row | {"epoch": [0], "layer": [-1], "metric": ["value"], "value": [10.0 * i]}),
            "nodes": pa.table(row | {"epoch": [0], "layer": [0]}),
        }

    def story(self, run):
        x = np.arange(3.0)
        panel = Panel("values", "network", "value", (Series("value", x, run.metrics["value"].to_numpy()),))
        return Story("Three were counted.", (), (Figure("values", "Values", "Three.", "", Curves((panel,))),))

    def claims(self, run):
        return []


class Messages:
    """Watcher that collects messages."""

    def __init__(self):
        self.texts = []

    def start(self, *_): ...

    def epoch(self, *_): ...

    def say(self, what):
        self.texts.append(what)


@pytest.fixture(autouse=True)
def no_pieces_yet():
    COMPUTED.clear()
    STOP_AT.clear()


def test_pieces_are_concatenated_in_order(tmp_path):
    messages = Messages()
    run = execute(Counting(), tmp_path, messages)
    assert COMPUTED == ["one", "two", "three"]
    assert run.metrics["value"].to_pylist() == [0.0, 10.0, 20.0]
    assert run.networks["seed"].to_pylist() == [1, 2, 3]
    assert [text for text in messages.texts if " of 3" in text] == ["1 of 3: one", "2 of 3: two", "3 of 3: three"]
    assert not (run.folder / "progress").exists()


def test_an_interrupted_run_resumes_with_the_piece_at_which_it_stopped(tmp_path):
    STOP_AT.append("three")
    with pytest.raises(KeyboardInterrupt):
        execute(Counting(), tmp_path, Messages())
    assert COMPUTED == ["one", "two"]
    STOP_AT.clear()
    run = execute(Counting(), tmp_path, Messages())
    assert COMPUTED == ["one", "two", "three"]
    assert run.metrics["value"].to_pylist() == [0.0, 10.0, 20.0]


def test_a_partly_written_piece_is_computed_again(tmp_path):
    STOP_AT.append("three")
    with pytest.raises(KeyboardInterrupt):
        execute(Counting(), tmp_path, Messages())
    (progress,) = tmp_path.glob("counting/*/progress")
    (progress / "piece-000002.json").unlink()  # is written last
    STOP_AT.clear()
    run = execute(Counting(), tmp_path, Messages())
    assert COMPUTED == ["one", "two", "two", "three"]
    assert run.metrics.num_rows == 3


def test_a_finished_run_is_not_computed_again(tmp_path):
    execute(Counting(), tmp_path, Messages())
    execute(Counting(), tmp_path, Messages())
    assert COMPUTED == ["one", "two", "three"]


@dataclass(frozen=True)
class SavesWeights(Counting):
    """A study whose first and last pieces save weights."""

    name: ClassVar[str] = "saves-weights"

    def _piece(self, name, i):
        found = super()._piece(name, i)
        sizes = {"one": (2, 3), "three": (4, 5)}.get(name)
        if sizes:
            teachers = torch.full((1, sizes[0], 2), 1.0 + i, dtype=torch.float64)
            path = torch.full((2, 1, sizes[1], 2), 10.0 + i, dtype=torch.float64)
            found["weights"] = endpoints(path, teachers, [i + 1])
        return found


def test_weights_of_each_piece_are_saved_as_a_group_also_after_an_interruption(tmp_path):
    STOP_AT.append("two")
    with pytest.raises(KeyboardInterrupt):
        execute(SavesWeights(seeds=1), tmp_path, Messages())
    STOP_AT.clear()
    run = execute(SavesWeights(seeds=1), tmp_path, Messages())
    teachers, students = run.weights("teacher"), run.weights("end")
    assert [len(group.layers[0].weight[0]) for group in teachers] == [2, 4]
    assert [len(group.layers[0].weight[0]) for group in students] == [3, 5]
    assert [group.seeds.tolist() for group in students] == [[1], [3]]
    assert students[1].slope == -1
    assert students[1].layers[0].weight.unique().tolist() == [12.0]
    assert students[1].layers[1].weight.numpy() == pytest.approx(12 * np.sqrt(2))
    assert teachers[1].layers[1].weight.unique().tolist() == [1.0]
    with pytest.raises(UserError, match=r"no weights of epoch\.0; it holds those of end, start, teacher"):
        run.weights("epoch.0")


def test_rows_of_a_table_share_what_is_given_once():
    rows = table_rows(np.array([3, 4]), 10, -1, metric="loss", value=np.array([0.5, 0.25]))
    assert rows.to_pylist() == [
        {"network": 3, "epoch": 10, "layer": -1, "metric": "loss", "value": 0.5},
        {"network": 4, "epoch": 10, "layer": -1, "metric": "loss", "value": 0.25},
    ]
    assert [str(kind) for kind in rows.schema.types] == ["int32", "int32", "int16", "string", "double"]
    none = table_rows(np.array([], int), 10, -1, metric="loss", value=np.array([]))
    assert none.schema == rows.schema
    assert none.num_rows == 0


def test_a_table_of_units_repeats_single_values():
    rows = unit_table(seed=range(1, 3), kind="fan", dim=2, angle=np.array([0.1, 0.2])).to_pylist()
    assert rows == [
        {"seed": 1, "kind": "fan", "dim": 2, "angle": 0.1},
        {"seed": 2, "kind": "fan", "dim": 2, "angle": 0.2},
    ]
