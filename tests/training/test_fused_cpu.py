"""On a processor: looking in one pass is looking plainly, for any shape, in any company, with nothing cancelled."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.problems import SLOPES, gaussians, population
from understudy.measures import Correlation
from understudy.measures.correlation import Side
from understudy.nets import Layer, Population
from understudy.training import CrossEntropy, SquaredError
from understudy.training.kernels.cpu import PIECE, PIVOTS
from understudy.training.probes.fused_cpu import moments, supports
from understudy.training.probes.reading import quick_look, read
from understudy.training.probes.teacher_outputs import answered

pytestmark = pytest.mark.usefixtures("one_thread")

NEAR = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-10, "atol": 1e-10}}
dtypes = pytest.mark.parametrize("dtype", NEAR)


def both(student, teacher, x, sets):
    """Losses and correlations by a look in one pass, and by a plain one."""
    assert supports(student, SquaredError())
    answers, every = answered(teacher, x[sets], SquaredError()), torch.arange(len(student))
    found, correlation = moments(student, x, sets, answers, every), Correlation()
    theirs = Side(answers.mean[0], answers.square[0])
    correlation.add(x.shape[1], theirs, Side(found.mean, found.square), found.cross, student.dtype)
    plain = read(student, teacher, x[sets], SquaredError())
    return (found.loss, correlation.result()), (plain.eval_loss, plain.layers[0].correlation)


counts = st.sampled_from((1, 2, 7, 8, 9, 33, 64, 101)) | st.integers(1, 40)
samples = st.sampled_from((1, 2, 3, PIVOTS, PIVOTS + 1, PIECE, PIECE + 3, 2 * PIECE + 6))


@dtypes
@given(
    sizes=st.tuples(counts, counts, counts),
    nodes=counts,
    slope=st.sampled_from(tuple(SLOPES.values())),
    bias=st.booleans(),
    samples=samples,
)
def test_a_look_in_one_pass_is_a_plain_look(dtype, sizes, nodes, slope, bias, samples):
    student = population(sizes, 3, slope=slope, bias=bias, dtype=dtype)
    teacher = population((sizes[0], nodes, sizes[2]), 3, slope=slope, bias=bias, first_seed=50, dtype=dtype)
    x = gaussians(7, 2, samples, sizes[0], dtype=dtype)
    quick, plain = both(student, teacher, x, torch.tensor([0, 1, 0]))
    torch.testing.assert_close(quick, plain, **NEAR[dtype])


@dtypes
def test_a_network_has_the_same_bits_alone_and_in_any_company(dtype):
    student, teacher = population((9, 21, 5), 6, dtype=dtype), population((9, 7, 5), 6, first_seed=50, dtype=dtype)
    x, sets = gaussians(7, 2, 700, 9, dtype=dtype), torch.arange(6) % 2
    answers, every = answered(teacher, x[sets], SquaredError()), torch.arange(6)
    # A network that is not finite does not spoil its neighbours.
    student.layers[0].weight[3], student.layers[1].weight[1] = torch.inf, torch.nan
    together = moments(student, x, sets, answers, every)
    for piece in ([0], [1], [4, 2], [5, 3, 0]):
        some = torch.tensor(piece)
        apart = moments(student[some], x, sets[some], answers, every[some])
        for whole, part in zip(together, apart, strict=True):
            assert torch.equal(whole[some].nan_to_num(nan=12345.0), part.nan_to_num(nan=12345.0))
    assert together.loss.isfinite().tolist() == [True, False, True, False, True, True]


@dtypes
@given(sizes=st.tuples(counts, counts, counts), nodes=counts, nets=st.integers(2, 20))
def test_what_is_read_of_a_network_has_the_same_bits_in_any_company(dtype, sizes, nodes, nets):
    student = population(sizes, nets, dtype=dtype)
    teacher = population((sizes[0], nodes, sizes[2]), nets, first_seed=50, dtype=dtype)
    x, every = gaussians(7, nets, 30, sizes[0], dtype=dtype), torch.arange(nets)
    answers = answered(teacher, x, SquaredError())
    together = everything(quick_look(student, teacher, x, every, answers, every).reading())
    for i in range(nets):
        one = every[i : i + 1]
        alone = everything(quick_look(student[one], teacher[one], x, one, answers, one).reading())
        for whole, part in zip(together, alone, strict=True):
            assert torch.equal(whole[one].nan_to_num(nan=12345.0), part.nan_to_num(nan=12345.0))


def everything(reading):
    (layer,) = reading.layers
    return [reading.eval_loss, layer.rho_mean, layer.recovered, layer.correlation, *layer.teachers, *layer.students]


def solved(weight, bias, dtype):
    """Networks of one input whose hidden nodes are σ(w x + b)."""
    w, b = (torch.tensor([values], dtype=dtype) for values in (weight, bias))
    layers = (
        Layer(w.unsqueeze(2), b),
        Layer(torch.ones(1, 1, len(weight), dtype=dtype), torch.zeros(1, 1, dtype=dtype)),
    )
    return Population(layers, torch.tensor([1]))


@dtypes
def test_dead_nodes_give_exactly_zero_and_large_means_cost_nothing(dtype):
    # Never on; constant; on a large mean; as the teacher's; the other way round.
    student = solved([1.0, 0.0, 1.0, 2.0, -1.0], [-1e4, 1 / 3, 1e3, 2e1, 1e1], dtype)
    teacher = solved([1.0, 0.0], [1e1, 1e3], dtype)
    x = torch.linspace(-1, 1, 10_000, dtype=dtype).view(1, -1, 1)
    rho = both(student, teacher, x, torch.zeros(1, dtype=torch.int64))[0][1][0]
    assert rho[0, :2].tolist() == [0, 0] and rho[1].tolist() == [0] * 5
    torch.testing.assert_close(rho[0, 2:], torch.tensor([1, 1, -1], dtype=dtype), rtol=0, atol=1e-5)


@dtypes
def test_samples_in_an_unlucky_order_cost_nothing(dtype):
    # The first samples, which give the pivots, are as far from all others as they can be.
    x = gaussians(3, 1, 10_000, 1, dtype=dtype)
    x[0, :PIVOTS] += 1e3
    quick, plain = both(*(solved(w, [2e3] * len(w), dtype) for w in ([1.0, 0.5], [1.0])), x, torch.tensor([0]))
    torch.testing.assert_close(quick, plain, **NEAR[dtype])
    assert (quick[1] > 0.9999).all()


def test_other_networks_are_looked_at_plainly():
    assert not supports(population((3, 4, 4, 2), 1), SquaredError())
    assert not supports(population((3, 4, 2), 1), CrossEntropy())
    assert not supports(population((3, 4, 2), 1, dtype=torch.bfloat16), SquaredError())
