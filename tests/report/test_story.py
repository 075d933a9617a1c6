"""Headlines of at most two lines, and their details."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.report.story import split_headline

LONG = "the median loss of all students is 4.1×10⁻⁵ of the output variance at the end of training with decay"


FACTOR = "t 1× it is higher by a factor of seven. More."
REST = "9 or so after that."
BRACKETS = "and it is 0.3 (that is low, and lower than before) at 1×."


@pytest.mark.parametrize(
    ("text", "headline", "details"),
    [
        ("All 5 nodes were recovered.", "All 5 nodes were recovered.", ""),
        ("All were recovered. 3 of 6 diverged.", "All were recovered.", "3 of 6 diverged."),
        (f"At 5× {LONG}; a{FACTOR}", f"At 5× {LONG}.", f"A{FACTOR}"),
        (f"At 5× {LONG}, 3.8 without nodes (a, b), {REST}", f"At 5× {LONG}, 3.8 without nodes (a, b) …", f"… {REST}"),
        (f"At 5× {LONG} {BRACKETS}", f"At 5× {LONG} …", f"… {BRACKETS}"),
    ],
)  # fmt: skip
def test_by_hand(text, headline, details):
    assert split_headline(text) == (headline, details)


@given(st.lists(st.text("abc1,;.() ", min_size=1, max_size=30), min_size=1, max_size=20).map(" ".join))
def test_a_headline_is_short_and_no_word_is_lost(text):
    headline, details = split_headline(text)
    assert len(headline) <= 150
    words = (headline + details).replace("…", "").upper()
    kept = [letter for letter in text.upper() if letter in "ABC1"]
    assert [letter for letter in words if letter in "ABC1"] == kept
