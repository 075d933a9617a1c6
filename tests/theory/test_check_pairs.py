"""`check` on all pairs of valid networks: biases in any layer or none, of any depths, widths and activations."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.pairs import network
from understudy._errors import UserError
from understudy.theory.check import check

pytestmark = pytest.mark.usefixtures("one_thread")


@st.composite
def networks(draw, dim, outputs, slope):
    """One network with random weights, whose layers have biases or not."""
    sizes = (dim, *draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)), outputs)
    numbers = np.random.default_rng(draw(st.integers(0, 10**6)))
    layers = [
        (numbers.normal(size=(n, d)).tolist(), numbers.normal(size=n).tolist() if draw(st.booleans()) else None)
        for d, n in pairwise(sizes)
    ]
    return network(*layers, slope=slope)


@st.composite
def pairs(draw):
    """A teacher, a student with as many inputs and outputs, and samples."""
    dim, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    slopes = st.sampled_from([0.0, 0.1, 1.0, -1.0])
    teacher, student = (draw(networks(dim, outputs, draw(slopes))) for _ in range(2))
    x = torch.randn(draw(st.integers(1, 40)), dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return teacher, student, x


def with_zeros(one):
    """The network with a bias of 0 in the lowest layer, if it has none there."""
    lowest, *above = one.layers
    if lowest.bias is not None:
        return one
    return replace(one, layers=(lowest._replace(bias=torch.zeros_like(lowest.weight[..., 0])), *above))


def found(*pair):
    """What `check` says, or the error that a user reads."""
    try:
        return check(*pair).as_dict()
    except UserError as error:
        return str(error)


@given(pairs())
def test_no_valid_pair_crashes(pair):
    assert found(*pair)


@given(pairs())
def test_a_missing_bias_is_zero(pair):
    teacher, student, x = pair
    lowest = [each.layers[0].bias is None for each in (teacher, student)]
    if any(lowest) and not all(lowest):
        assert found(teacher, student, x) == found(with_zeros(teacher), with_zeros(student), x)


@pytest.mark.parametrize("biased", ["teacher", "student"])
def test_a_bias_in_one_lowest_layer_only(biased):
    def one(has, rows):
        return network((rows, [0.3] * len(rows) if has else None), ([[1.0] * len(rows)], None))

    teacher = one(biased == "teacher", [[1.0, 0.0], [0.0, 1.0]])
    student = one(biased == "student", [[1.0, 0.1], [0.1, 1.0], [0.5, -0.5]])
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    checked = check(teacher, student, x)
    assert checked.as_dict() == check(with_zeros(teacher), with_zeros(student), x).as_dict()
    assert {"S2 theorem 4", "S2 theorem 5"} & {finding.result for finding in checked.dynamics}
