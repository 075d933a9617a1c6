"""Ctrl-C during a short epoch takes effect at its end; otherwise it interrupts at once."""

import signal

import pytest

from understudy.lab.execute import execute
from understudy.lab.interrupt import CtrlC
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.report.terminal.tables import LiveDisplay
from understudy.store.writer import BackgroundWriter

pytestmark = pytest.mark.usefixtures("sigint_enabled")


def test_a_deferred_interrupt_is_recorded_and_the_next_one_interrupts():
    with CtrlC() as ctrl_c:
        ctrl_c.waits = True
        signal.raise_signal(signal.SIGINT)
        assert ctrl_c.came
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_not_deferred_takes_effect_at_once():
    with CtrlC() as ctrl_c:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not ctrl_c.came


def test_an_ignored_sigint_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with CtrlC() as ctrl_c:
        ctrl_c.waits = True
        signal.raise_signal(signal.SIGINT)
        assert not ctrl_c.came
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_interrupt_while_the_last_tables_are_written_takes_effect(tmp_path, monkeypatch):
    def finish(writer):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the interrupt had no effect")

    small = {"seeds": 1, "teacher_nodes": (2,), "polarity": (1.0,), "multiple": (1.0,), "dim": 3, "outputs": 2}
    study = TwoLayer(**small, epochs=1, steps=2, train=20, evaluation=20)
    with monkeypatch.context() as patch:
        patch.setattr(BackgroundWriter, "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            execute(study, tmp_path, LiveDisplay("study"))
    assert (execute(study, tmp_path, LiveDisplay("study")).folder / "report.html").exists()
