"""On the CPU: fused probes agree with plain ones, for any shape and batch composition, without cancellation."""

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
from understudy.training.probes.reading import probe, probe_fused
from understudy.training.probes.teacher_outputs import teacher_outputs

pytestmark = pytest.mark.usefixtures("one_thread")

NEAR = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-10, "atol": 1e-10}}
dtypes = pytest.mark.parametrize("dtype", NEAR)


def both(student, teacher, x, sets):
    """Compute losses and correlations by a fused probe, and by a plain one."""
    assert supports(student, SquaredError())
    outputs, every = teacher_outputs(teacher, x[sets], SquaredError()), torch.arange(len(student))
    found, correlation = moments(student, x, sets, outputs, every), Correlation()
    theirs = Side(outputs.mean[0], outputs.square[0])
    correlation.add(x.shape[1], theirs, Side(found.mean, found.square), found.cross, student.dtype)
    plain = probe(student, teacher, x[sets], SquaredError())
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
def test_a_fused_probe_agrees_with_a_plain_one(dtype, sizes, nodes, slope, bias, samples):
    student = population(sizes, 3, slope=slope, bias=bias, dtype=dtype)
    teacher = population((sizes[0], nodes, sizes[2]), 3, slope=slope, bias=bias, first_seed=50, dtype=dtype)
    x = gaussians(7, 2, samples, sizes[0], dtype=dtype)
    fused, plain = both(student, teacher, x, torch.tensor([0, 1, 0]))
    torch.testing.assert_close(fused, plain, **NEAR[dtype])


@dtypes
def test_moments_do_not_depend_on_the_batch_composition(dtype):
    student, teacher = population((9, 21, 5), 6, dtype=dtype), population((9, 7, 5), 6, first_seed=50, dtype=dtype)
    x, sets = gaussians(7, 2, 700, 9, dtype=dtype), torch.arange(6) % 2
    outputs, every = teacher_outputs(teacher, x[sets], SquaredError()), torch.arange(6)
    # A network that is not finite does not affect the others.
    student.layers[0].weight[3], student.layers[1].weight[1] = torch.inf, torch.nan
    together = moments(student, x, sets, outputs, every)
    for piece in ([0], [1], [4, 2], [5, 3, 0]):
        some = torch.tensor(piece)
        apart = moments(student[some], x, sets[some], outputs, every[some])
        for whole, own in zip(together, apart, strict=True):
            assert torch.equal(whole[some].nan_to_num(nan=12345.0), own.nan_to_num(nan=12345.0))
    assert together.loss.isfinite().tolist() == [True, False, True, False, True, True]


@dtypes
@given(sizes=st.tuples(counts, counts, counts), nodes=counts, nets=st.integers(2, 20))
def test_readings_do_not_depend_on_the_batch_composition(dtype, sizes, nodes, nets):
    student = population(sizes, nets, dtype=dtype)
    teacher = population((sizes[0], nodes, sizes[2]), nets, first_seed=50, dtype=dtype)
    x, every = gaussians(7, nets, 30, sizes[0], dtype=dtype), torch.arange(nets)
    outputs = teacher_outputs(teacher, x, SquaredError())
    together = tensors_of(probe_fused(student, teacher, x, every, outputs, every))
    for i in range(nets):
        one = every[i : i + 1]
        alone = tensors_of(probe_fused(student[one], teacher[one], x, one, outputs, one))
        for whole, own in zip(together, alone, strict=True):
            assert torch.equal(whole[one].nan_to_num(nan=12345.0), own.nan_to_num(nan=12345.0))


def tensors_of(reading):
    (layer,) = reading.layers
    return [reading.eval_loss, layer.rho_mean, layer.recovered, layer.correlation, *layer.teachers, *layer.students]


def one_input(weight, bias, dtype):
    """Build a network of one input whose hidden nodes are σ(w x + b)."""
    w, b = (torch.tensor([values], dtype=dtype) for values in (weight, bias))
    layers = (
        Layer(w.unsqueeze(2), b),
        Layer(torch.ones(1, 1, len(weight), dtype=dtype), torch.zeros(1, 1, dtype=dtype)),
    )
    return Population(layers, torch.tensor([1]))


@dtypes
def test_dead_nodes_have_correlation_zero_and_large_means_do_not_cancel(dtype):
    # Never active; constant; with a large mean; equal to the teacher's; with the opposite sign.
    student = one_input([1.0, 0.0, 1.0, 2.0, -1.0], [-1e4, 1 / 3, 1e3, 2e1, 1e1], dtype)
    teacher = one_input([1.0, 0.0], [1e1, 1e3], dtype)
    x = torch.linspace(-1, 1, 10_000, dtype=dtype).view(1, -1, 1)
    rho = both(student, teacher, x, torch.zeros(1, dtype=torch.int64))[0][1][0]
    assert rho[0, :2].tolist() == [0, 0] and rho[1].tolist() == [0] * 5
    torch.testing.assert_close(rho[0, 2:], torch.tensor([1, 1, -1], dtype=dtype), rtol=0, atol=1e-5)


@dtypes
def test_the_order_of_samples_does_not_cost_precision(dtype):
    # The first samples, whose means are the pivots, are far from all others.
    x = gaussians(3, 1, 10_000, 1, dtype=dtype)
    x[0, :PIVOTS] += 1e3
    fused, plain = both(*(one_input(w, [2e3] * len(w), dtype) for w in ([1.0, 0.5], [1.0])), x, torch.tensor([0]))
    torch.testing.assert_close(fused, plain, **NEAR[dtype])
    assert (fused[1] > 0.9999).all()


def test_other_networks_are_not_supported():
    assert not supports(population((3, 4, 4, 2), 1), SquaredError())
    assert not supports(population((3, 4, 2), 1), CrossEntropy())
    assert not supports(population((3, 4, 2), 1, dtype=torch.bfloat16), SquaredError())
