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
from understudy.nets import Layer
from understudy.theory.check import check
from understudy.theory.result import NOTHING_KNOWN, Known

pytestmark = pytest.mark.usefixtures("one_thread")


@st.composite
def layers(draw, into, out):
    """Random weights of a layer, with biases or not; some nodes may have weights of 0, or be equal."""
    numbers = np.random.default_rng(draw(st.integers(0, 10**6)))
    weight = numbers.normal(size=(out, into))
    match draw(st.sampled_from(["all", "all", "pruned", "equal", "none"])):
        case "pruned":
            weight[draw(st.integers(0, out - 1))] = 0
        case "equal":
            weight[:] = weight[0].copy()
        case "none":
            weight[:] = 0
    return weight.tolist(), numbers.normal(size=out).tolist() if draw(st.booleans()) else None


@st.composite
def networks(draw, dim, outputs, slope, fewest=1):
    """One network with random weights, whose layers have biases or not."""
    sizes = (dim, *draw(st.lists(st.integers(1, 5), min_size=fewest, max_size=3)), outputs)
    return network(*(draw(layers(d, n)) for d, n in pairwise(sizes)), slope=slope)


@st.composite
def pairs(draw, fewest=1):
    """A teacher, a student with as many inputs and outputs, and samples."""
    dim, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    slopes = st.sampled_from([0.0, 0.0, 0.1, 1.0, -1.0])
    teacher, student = (draw(networks(dim, outputs, draw(slopes), fewest)) for _ in range(2))
    x = torch.randn(draw(st.integers(1, 40)), dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return teacher, student, x


@st.composite
def knowledge(draw, student, samples):
    """Labels of two classes or none, and a student before training or none."""
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 100)))
    labels = torch.randint(0, 2, (samples,), generator=seeded) if draw(st.booleans()) else None
    start = None
    if draw(st.booleans()):
        start = replace(student, layers=tuple(Layer(*map(_redrawn, layer)) for layer in student.layers))
    return Known(labels, start)


def _redrawn(part):
    return None if part is None else torch.randn(part.shape, generator=torch.Generator().manual_seed(2)).double()


def with_zeros(one):
    """The network with a bias of 0 in the lowest layer, if it has none there."""
    lowest, *above = one.layers
    if lowest.bias is not None:
        return one
    return replace(one, layers=(lowest._replace(bias=torch.zeros_like(lowest.weight[..., 0])), *above))


def found(*pair, given=NOTHING_KNOWN):
    """What `check` says, or the error that a user reads; no theorem is contradicted."""
    try:
        checked = check(*pair, given=given)
    except UserError as error:
        return str(error)
    assert not checked.contradicted
    return checked.as_dict()


@given(pairs(fewest=0), st.data())
def test_no_valid_pair_crashes(pair, data):
    teacher, student, x = pair
    known = data.draw(knowledge(student, len(x)))
    assert found(teacher, student, x, given=known)
    assert found(None, student, x, given=known)


@pytest.mark.parametrize("pruned", ["teacher", "student"])
def test_a_node_whose_weights_are_all_0(pruned):
    """Such a node has no direction, and an angle with it was not a number."""
    rows = {"teacher": [[1.0, 0.0], [0.0, 1.0]], "student": [[1.0, 0.1], [0.1, 1.0], [0.5, -0.5]]}
    rows[pruned][0] = [0.0, 0.0]
    teacher, student = (network((each, None), ([[1.0] * len(each)], None)) for each in rows.values())
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    checked = check(teacher, student, x)
    assert {"S2 theorem 4", "S2 theorem 5"} <= {finding.result for finding in checked.dynamics}
    assert not checked.contradicted


@pytest.mark.parametrize("largest", [1e-160, 1e100])
def test_data_whose_products_overflow_or_vanish_is_refused(largest):
    student = network(([[1.0, 2.0], [-2.0, 1.0]], None), ([[1.0, -1.0]], None))
    x = torch.tensor([[largest, largest], [-largest, largest / 2]], dtype=torch.float64)
    with pytest.raises(
        UserError, match=r"the largest number of the data is 1.*between 10⁻⁶⁰ and 10⁶⁰.*: scale the data"
    ):
        check(None, student, x, given=Known(torch.tensor([1, -1])))


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
