"""Boxes of inputs."""

import numpy as np
import pytest

import understudy as us
from support.boxes import contains
from understudy.papers.equivalence.theory.domain import as_box


def test_ends_are_one_number_or_one_for_each_input():
    box = as_box((-1, [1, 2, 3]), 3)
    assert box.lower.tolist() == [-1, -1, -1] and box.upper.tolist() == [1, 2, 3]
    assert as_box(box, 3) is box and str(as_box(None, 2)) == "[−2, 2]²" and "3 inputs" in str(box)
    x = box.draw(np.random.default_rng(0), 1_000)
    assert contains(box, x).all() and not contains(box, np.array([[0.0, 2.1, 0.0]])).any()
    assert contains(box, np.array([[0.0, 2.1, 0.0]]), slack=0.1).all()
    assert np.allclose(x.mean(0), box.centre, atol=0.15) and np.allclose(box.centre + box.half, box.upper)


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ((0, np.inf), "domain must be bounded"),
        ((1, 1), "its lower ends below its upper ends, got 1 and 1 for input 1"),
        ((0, [1, 1, -2]), "got 0 and −2 for input 3"),
        ((0, [1, 1]), "one for each of the 3 inputs"),
        pytest.param((0, 1, 2), "lower and upper end", marks=pytest.mark.wrong_shapes),
        pytest.param("wide", "lower and upper end", marks=pytest.mark.wrong_shapes),
        (as_box(None, 2), "each of the 3 inputs, got 2"),
    ],
)
def test_what_is_no_bounded_box_is_refused(domain, words):
    with pytest.raises(us.UserError, match=words):
        as_box(domain, 3)
