"""Rounds of a training on a cluster, with a cluster that computes each task at once in this process."""

import os
import signal
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.lab.cluster import engine
from understudy.lab.cluster.engine import Done

SMALL = {"quick": True, "seeds": 2, "steps": 20, "train": 100, "evaluation": 100, "polarity": 1.0, "multiple": 5}


class AtOnce:
    """A cluster with four slots whose tasks are done when they are submitted."""

    slots = 4

    def __init__(self):
        self.done, self.rounds = [], []

    def share(self, value):
        return value

    def submit(self, key, work, *values):
        self.rounds.append(values[-2:])
        self.done.append(Done(key, work(*values), None))

    def completed(self):
        while self.done:
            yield self.done.pop()


@pytest.fixture
def cluster(monkeypatch):
    """Use this cluster for `cluster="ray"`."""
    found = AtOnce()

    @contextmanager
    def connect(name, *, gpu):
        yield found

    monkeypatch.setattr(engine, "connect", connect)
    monkeypatch.setattr(engine, "require_engine", lambda name: "")
    return found


def test_the_length_of_rounds_follows_from_epochs_with_steps(cluster, tmp_path):
    us.run("two-layer", out=tmp_path, progress=False, cluster="ray", epochs=6, **SMALL)
    assert list(dict.fromkeys(cluster.rounds)) == [(0, 0), (1, 1), (2, 6)]


def test_rows_of_a_round_fit_in_memory(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("understudy.lab.cluster.training.free_memory", lambda: 1)
    us.run("two-layer", out=tmp_path, progress=False, cluster="ray", epochs=3, **SMALL)
    assert list(dict.fromkeys(cluster.rounds)) == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.usefixtures("sigint_enabled")
def test_ctrl_c_keeps_the_round_that_is_computed(cluster, tmp_path, monkeypatch):
    alone = us.run("two-layer", out=tmp_path / "alone", progress=False, epochs=6, **SMALL)
    once = cluster.completed

    def completed():
        yield from once()
        if cluster.rounds[-1] == (2, 6):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(cluster, "completed", completed)
    options = {"out": tmp_path / "there", "progress": False, "cluster": "ray", "epochs": 6, **SMALL}
    with pytest.raises(KeyboardInterrupt):
        us.run("two-layer", **options)
    (state,) = list((tmp_path / "there").glob("*/*/progress/state-*6.safetensors"))
    assert state.is_file()
    cluster.rounds.clear()
    again = us.run("two-layer", **options)
    assert not cluster.rounds
    for name in ("metrics", "nodes"):
        assert pq.read_table(again.folder / f"{name}.parquet").equals(pq.read_table(alone.folder / f"{name}.parquet"))
