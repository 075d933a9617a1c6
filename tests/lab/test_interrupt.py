"""Ctrl-C lets an epoch of a moment come to its end, and no other."""

import signal

import pytest

from understudy.lab.execute import execute
from understudy.lab.interrupt import CtrlC
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.report.terminal.tables import Watch
from understudy.store.writer import BackgroundWriter


@pytest.fixture(autouse=True)
def heard():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_one_that_waits_is_noted_and_the_next_interrupts():
    with CtrlC() as ctrl_c:
        ctrl_c.waits = True
        signal.raise_signal(signal.SIGINT)
        assert ctrl_c.came
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_does_not_wait_interrupts_at_once():
    with CtrlC() as ctrl_c:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not ctrl_c.came


def test_where_it_is_not_heard_it_stays_unheard():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with CtrlC() as ctrl_c:
        ctrl_c.waits = True
        signal.raise_signal(signal.SIGINT)
        assert not ctrl_c.came
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_one_that_comes_while_the_last_tables_are_written_is_heard(tmp_path, monkeypatch):
    def finish(keeper):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it was not heard")

    small = {"seeds": 1, "teacher_nodes": (2,), "polarity": (1.0,), "multiple": (1.0,), "dim": 3, "outputs": 2}
    study = TwoLayer(**small, epochs=1, steps=2, train=20, evaluation=20)
    with monkeypatch.context() as patch:
        patch.setattr(BackgroundWriter, "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            execute(study, tmp_path, Watch("study"))
    assert (execute(study, tmp_path, Watch("study")).folder / "report.html").exists()
