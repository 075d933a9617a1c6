"""Verdicts decide claims by bounds and orders, and state what was measured."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.claims import (
    Claim,
    Claims,
    Variant,
    Verdict,
    every,
    median,
    number,
    ordered,
    range_words,
    share,
    within,
)

finite = st.floats(-1e6, 1e6)


def test_every_value_must_be_within_the_bounds():
    found = every([0.01, 0.03], below=0.05, say="{range}; {count}")
    assert (found.holds, found.measured, found.n) == (True, "0.01 to 0.03; 2 of 2", 2)
    assert (found.values, found.low, found.high) == ((0.01, 0.03), None, 0.05)
    assert not every([0.01, 0.05], below=0.05).holds
    assert every([0.01, 0.05], at_most=0.05).holds


def test_values_that_are_not_finite_fail_and_are_not_shown():
    found = every([0.01, math.nan, math.inf], at_least=0.0, say="{count}")
    assert (found.holds, found.measured, found.n, found.values) == (False, "1 of 3", 3, (0.01,))
    assert not every([], at_least=0.0).holds
    assert every([], at_least=0.0).measured == "no finite value"


@given(st.lists(finite, min_size=1), finite)
def test_strict_and_other_bounds_differ_only_at_the_bound(values, bound):
    array = np.array(values)
    assert (within(array, at_least=bound) == (array >= bound)).all()
    assert (within(array, above=bound) == (array > bound)).all()
    assert (within(array, at_least=bound) == ~within(array, below=bound)).all()
    assert (within(array, at_most=bound) == ~within(array, above=bound)).all()
    assert every(values, at_least=bound).holds == (min(values) >= bound)


@given(st.lists(finite, min_size=1), finite)
def test_the_median_leaves_out_networks_that_diverged(values, bound):
    found = median([*values, math.nan], at_least=bound)
    assert found.holds == (np.median(values) >= bound)
    assert found.n == len(values)
    assert not median([], at_least=bound).holds and not median([math.nan], at_least=bound).holds


def test_every_column_of_medians_must_be_within_the_bounds():
    assert median([[1.0, 2.0], [3.0, 4.0]], at_least=2.0).holds
    assert not median([[1.0, 2.0], [3.0, 4.0]], at_least=2.5).holds


def test_a_share_counts_flags():
    found = share([True, True, False, True], at_least=0.75, say="{count}, {mean:.0%}")
    assert (found.holds, found.measured, found.n) == (True, "3 of 4, 75%", 4)
    assert not share([True, False], at_least=0.75).holds


def test_groups_are_in_order_by_their_medians():
    values = [[3.0, 1.0, 2.0], [4.0, math.nan, 4.0], [5.0, 5.0, 5.0]]
    found = ordered(values, ("a", "b", "c"))
    assert (found.holds, found.measured, found.n) == (True, "a 2, b 4, c 5", 3)
    assert not ordered(values, ("a", "b", "c"), rising=False).holds
    assert not ordered([[1.0], [1.0]], ("a", "b")).holds
    assert ordered([[1.0], [1.0]], ("a", "b"), strict=False).holds
    assert not ordered([[1.0], [math.nan]], ("a", "b"), strict=False).holds


def test_verdicts_are_combined():
    yes, no = every([1.0], at_least=0.0, say="one"), every([1.0], at_least=2.0, say="two")
    both = (yes & no).also("three").with_variants({"elsewhere": no})
    assert (both.holds, both.measured, both.values, both.low) == (False, "one; two; three", (1.0,), 0.0)
    assert both.variants == (Variant("elsewhere", "two", False),)
    assert (yes & yes).holds
    assert yes.show([5.0, math.nan], low=1.0).values == (5.0,)
    assert yes.say("other").measured == "other"


def test_numbers_have_a_minus_sign():
    assert number(-1.5) == "−1.5"
    assert every([-2.0, -1.0], at_most=0, say="{least:.1f}, {most}, {median:.2f}, {mean}, {sum}, {quartiles}, {n}")
    assert every([-2.0, -1.0], at_most=0, say="{least:.1f}, {quartiles:.2f}").measured == "−2.0, −1.75 to −1.25"


@dataclass(frozen=True)
class Options:
    seeds: int = 32
    epochs: int = 100
    multiple: tuple[float, ...] = (1.0, 5.0)

    def options(self):
        return {"seeds": self.seeds, "epochs": self.epochs, "multiple": self.multiple}

    @property
    def words(self):
        return f"{self.seeds} seeds"


def decided(claims, study):
    return [(claim.id, claim.part, claim.holds) for claim in claims(study, None)]


def make_claims(**conditions):
    claims = Claims(**conditions)

    @claims.claim(
        "T1",
        "{multiple:g}×, {words}",
        statement="after {epochs} epochs",
        paper="as here",
        values_are="losses",
        cases=lambda study, run: [{"multiple": k} for k in study.multiple],
    )
    def wide(study, run, multiple):
        return every([multiple], above=2.0)

    @claims.claim("T2", statement="never", paper="none", needs={"multiple": 10.0})
    def never(study, run):
        raise AssertionError

    @claims.claim("T3", statement="nothing there", paper="none", when=lambda study: study.epochs > 1)
    def nothing(study, run):
        return None

    return claims


def test_claims_are_decided_case_by_case_with_the_fields_filled_in():
    found = make_claims()(Options(), None)
    assert [(c.id, c.part, c.holds) for c in found] == [("T1", "1×, 32 seeds", False), ("T1", "5×, 32 seeds", True)]
    assert isinstance(found[0], Claim)
    assert (found[0].statement, found[0].paper, found[0].values_are, found[0].n) == (
        "after 100 epochs",
        "as here",
        "losses",
        1,
    )


@pytest.mark.parametrize(
    ("conditions", "study", "decides"),
    [
        ({"fixed": "epochs"}, Options(seeds=2), True),
        ({"fixed": "epochs"}, Options(epochs=99), False),
        ({"free": "seeds"}, Options(seeds=2), True),
        ({"free": "seeds"}, Options(multiple=(1.0,)), False),
        ({"least": {"seeds": 10}}, Options(seeds=10), True),
        ({"least": {"seeds": 10}}, Options(seeds=9), False),
        ({"when": lambda study: study.seeds == 3}, Options(seeds=3), True),
        ({"when": lambda study: study.seeds == 3}, Options(), False),
    ],
)
def test_claims_are_decided_only_in_the_papers_settings(conditions, study, decides):
    assert bool(decided(make_claims(**conditions), study)) == decides
    assert make_claims(**conditions).applies(study) == decides


def test_a_verdict_needs_no_values():
    assert Verdict(True, "yes", 3).values == ()


def test_a_range_in_words():
    assert range_words([0.034, 0.0391], ".2g") == "0.034 to 0.039"
    assert range_words([-1.0, math.nan]) == "−1"
    assert range_words([math.nan]) == "no finite value"
