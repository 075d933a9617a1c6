"""Ctrl-C lets an epoch of a moment come to its end, and no other."""

import signal

import pytest

from understudy.studies.ctrl_c import CtrlC


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
