"""Figures drawn by worker processes equal those drawn here, and whatever fails there is drawn here."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import psutil
import pytest
from matplotlib.figure import Figure

from understudy.report import pool as pools
from understudy.report.figures import Curves, Dots, Panel, Series
from understudy.report.pool import FigurePool, draw, endings

X = np.arange(3.0)
KINDS = [
    Curves((Panel("", "epoch", "loss", (Series("a", X, X, X - 1, X + 1),)),)),
    Dots(("2×", "5×"), np.ones((2, 3)), np.arange(6).reshape(2, 3), "students"),
]


@dataclass(frozen=True)
class Local:
    """An animated figure of a module that a worker cannot import."""

    def paper(self):
        return Figure()

    def page(self):
        return {}

    def film(self, path):
        path.write(b"moving")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_files_do_not_depend_on_who_draws_them(count):
    with FigurePool(count) as pool:
        pool.begin(KINDS * 2)
        made = pool.finish()
    assert [list(each) for each in made] == [list(endings(kind)) for kind in KINDS * 2]
    assert made == [draw(kind) for kind in KINDS * 2]


def test_workers_draw():
    with FigurePool(1) as pool:
        pool.begin(KINDS * 2)
        made = [future.result(timeout=60) for _, future in pool._begun if future]
    assert made == [draw(kind) for kind in (KINDS * 2)[1::2]]


def test_what_a_worker_cannot_draw_is_drawn_here():
    with FigurePool(1) as pool:
        pool.begin([Local(), Local(), *KINDS])
        first, second, *_ = pool.finish()
    assert first["gif"] == second["gif"] == b"moving"
    assert list(second) == ["pdf", "svg", "gif"] == list(endings(Local()))


def test_workers_that_do_not_start_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(pools, "_initialise", os.abort)
    with FigurePool(2) as pool:
        pool.begin(KINDS)
        assert len(pool.finish()) == len(KINDS)


def test_workers_end_with_the_block():
    with FigurePool(2) as pool:
        pool.begin([])
        assert pool.finish() == []
        there = list(pool._executor._processes.values())
    assert there
    assert all(worker.exitcode is not None for worker in there)


def test_a_figure_that_cannot_be_drawn_raises_its_error():
    @dataclass(frozen=True)
    class Wrong(Local):
        def paper(self):
            raise ValueError("no such figure")

    with FigurePool(1) as pool, pytest.raises(ValueError, match="no such figure"):
        pool.begin([Local(), Wrong()])
        pool.finish()


SCRIPT = """
import os, sys, time
from understudy.report.pool import FigurePool
print("started", flush=True)
with FigurePool(1) as pool:
    print(pool._submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


def test_a_script_without_a_guard_runs_once_and_its_workers_end_when_it_is_killed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    script = subprocess.Popen([sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True)
    assert script.stdout.readline() == "started\n"
    worker = psutil.Process(int(script.stdout.readline()))
    script.kill()
    script.wait()
    script.stdout.close()
    deadline = time.monotonic() + 30
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
