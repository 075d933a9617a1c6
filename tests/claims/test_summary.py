"""Which claims hold, do not hold and are not decided, from their measurements and the runs that made them."""

from dataclasses import replace

import pytest

from understudy.claims.catalogue import Paper, Row
from understudy.claims.summary import not_run, outcome, summary_words
from understudy.store import Claim

PAPER = Paper("luck", "Luck matters", ("Tian et al. 2019",))
ROW = Row(PAPER, "D6", "it rises", "a > b", "gaus | --norm after --momentum 0.9 | deep --leaky 1")
FOUND = Claim(id="D6", part="FC", statement="it rises", paper="a > b", measured="2 > 1", n=3, holds=True)
COMMANDS = [
    "understudy run gaus --device cuda",
    "understudy run gaus --momentum 0.9 --device cuda --norm after --dtype tf32",
    "deep --leaky 1",
]


def test_runs_of_a_claim_are_recognised_on_any_device_and_in_any_order_of_options():
    assert ROW.runs == ("gaus", "gaus --norm after --momentum 0.9", "deep --leaky 1")
    assert ROW.missing_runs(COMMANDS) == []
    assert ROW.missing_runs([]) == list(ROW.runs)


@pytest.mark.parametrize(
    "other",
    ["gaus --momentum 0.9", "gaus --norm after --momentum 0.95", "gaus --norm after none --momentum 0.9", "cifar"],
)
def test_runs_with_other_options_are_other_runs(other):
    assert ROW.missing_runs([COMMANDS[0], other, COMMANDS[2]]) == [ROW.runs[1]]


def test_a_claim_holds_only_if_every_run_that_it_needs_was_made():
    assert outcome([FOUND, *not_run(ROW, [FOUND], COMMANDS)]) is True
    parts = not_run(ROW, [FOUND], COMMANDS[1:])
    assert [(part.holds, part.would_decide) for part in parts] == [(None, "`understudy run gaus`")]
    assert outcome([FOUND, *parts]) is None
    assert summary_words([(ROW, [FOUND, *parts])]) == "1 claim: 0 hold, 0 do not hold, 1 is not decided."


@pytest.mark.parametrize("holds", [False, None])
def test_what_is_not_decided_or_does_not_hold_stays_so_without_its_other_runs(holds):
    assert not_run(ROW, [FOUND, replace(FOUND, part="CNN", holds=holds)], []) == []
    assert not_run(ROW, [], []) == []
