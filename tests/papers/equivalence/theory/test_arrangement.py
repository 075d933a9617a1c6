"""Numbers of cells of line arrangements, without making them: those of the subdivision, and bounds where lines meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.papers.equivalence.theory.arrangement import count_line_cells
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork
from understudy.papers.equivalence.theory.subdivision import subdivide

SQUARE = as_box((-1.0, 1.0), 2)


def cells(weight, bias):
    """Number of cells of the subdivision of the square."""
    return subdivide(ReluNetwork((weight, np.ones((1, len(weight)))), (bias, np.zeros(1))), SQUARE).cells


@given(st.integers(0, 2**31), st.integers(1, 600))
def test_lines_in_general_position_are_counted_exactly(seed, count):
    random = np.random.default_rng(seed)
    weight, bias = random.normal(size=(count, 2)), random.normal(size=count)
    first, last = (lines[:, None] for lines in (weight[:, 0], weight[:, 1]))
    determinant = first * last.T - last * first.T
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (last * bias - last.T * bias[:, None]) / determinant
        y = (first.T * bias[:, None] - first * bias) / determinant
    crossings = int(np.triu((np.abs(x) < 1) & (np.abs(y) < 1), 1).sum())
    lines = int((np.abs(bias) < np.abs(weight).sum(axis=1)).sum())
    found = count_line_cells(weight, bias, 10**9)
    assert (found.lines, found.cells) == (lines, 1 + lines + crossings)
    if count < 40:
        assert found.cells == cells(weight, bias)
    if found.cells > 2:
        # Beyond the limit the number is known too, and known to be exact.
        assert count_line_cells(weight, bias, 1) == (lines, 1 + lines + crossings, True)


@pytest.mark.parametrize("repeated", [1, 3])
def test_lines_through_one_point_are_not_refused(repeated):
    """n lines through one point make 2n cells, and repeated lines no more."""
    angle = np.repeat(np.linspace(0, np.pi, 301)[:-1] + 0.1, repeated)
    weight, bias = np.stack([np.cos(angle), np.sin(angle)], axis=1), np.zeros(len(angle))
    found = count_line_cells(weight, bias, 700)
    assert not found.exact
    assert 550 <= found.cells <= 601
    assert cells(weight, bias) == 600
    beyond = count_line_cells(weight, bias, 100)
    assert (beyond.cells > 100, beyond.exact) == (True, False)


def test_lines_that_miss_the_square_do_not_count():
    weight = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert count_line_cells(weight, np.array([1.5, 2.5, 0.0]), 10)[:2] == (1, 2)
    assert count_line_cells(weight, np.array([1.5, 2.5, 3.0]), 10)[:2] == (0, 1)
    assert count_line_cells(np.zeros((2, 2)), np.ones(2), 10)[:2] == (0, 1)
