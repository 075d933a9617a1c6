"""On a GPU: fused probes agree with plain ones, and whole trainings with those on the CPU."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from support.problems import gaussians, population
from understudy import students as starts
from understudy import teachers
from understudy.data import Gaussian
from understudy.lab.train import train
from understudy.training import SGD, Adam, Group, SquaredError, Training
from understudy.training.kernels.cuda import shared_memory
from understudy.training.probes import fused_cuda
from understudy.training.probes.reading import probe, probe_fused
from understudy.training.probes.teacher_outputs import teacher_outputs

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def test_cuda_kernels_do_not_run_on_the_cpu():
    assert shared_memory(torch.zeros(1)) == 0
    assert not fused_cuda.supports(population((3, 4, 2), 1), 2, SquaredError())


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("blocks", [3, 2_000])
@pytest.mark.parametrize(
    ("sizes", "nodes"),
    [((5, 8, 3), 4), ((100, 20, 50), 20), ((7, 33, 10), 5), ((1, 1, 1), 1), ((100, 100, 50), 10), ((100, 200, 50), 20)],
)
def test_a_fused_probe_agrees_with_a_plain_one(sizes, nodes, bias, dtype, blocks, monkeypatch):
    monkeypatch.setattr(fused_cuda, "_BLOCKS", blocks)
    student = population(sizes, 3, slope=0.1, bias=bias, dtype=dtype).to("cuda")
    teacher = population((sizes[0], nodes, sizes[2]), 3, slope=0.1, bias=bias, first_seed=50, dtype=dtype).to("cuda")
    # A node with a large mean and one that is never active: neither may turn rounding error into correlation.
    if bias:
        student.layers[0].bias[0, 0] = 1e3
        student.layers[0].bias[1, 0] = -1e4
        student.layers[0].weight[2, 0] = 0.0
    x, sets = gaussians(7, 2, 777, sizes[0], dtype=dtype).cuda(), torch.tensor([0, 1, 0], device="cuda")
    if not fused_cuda.supports(student, nodes, SquaredError()):
        assert dtype == torch.float64 and sizes[1] >= 100
        pytest.skip("does not fit in shared memory")
    outputs = teacher_outputs(teacher, x[sets], SquaredError())
    fused = probe_fused(student, teacher, x, sets, outputs, torch.arange(3, device="cuda"))
    plain = probe(student, teacher, x[sets], SquaredError())
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(fused.eval_loss, plain.eval_loss, **near)
    torch.testing.assert_close(fused.layers[0].correlation, plain.layers[0].correlation, **near)


@needs_gpu
def test_training_on_a_gpu_agrees_with_the_cpu():
    teacher = teachers.distinct_rows((20, 5, 10), polarity=1.0, seeds=range(1, 17))
    shapes = [starts.gaussian(teacher, multiple=m, scale=0.05) for m in (1, 2, 20)]
    data = Gaussian(dim=20, train=1_000, evaluation=1_000)
    here, there = (
        train(shapes, teacher, data, SGD(0.02), epochs=10, steps=200, device=device) for device in ("cpu", "cuda")
    )
    for name in ("eval_loss", "train_loss"):
        one, other = (
            t.metrics.filter(pc.equal(t.metrics["metric"].cast(pa.string()), name)).sort_by(
                [("epoch", "ascending"), ("network", "ascending")]
            )
            for t in (here, there)
        )
        np.testing.assert_allclose(one["value"].to_numpy(), other["value"].to_numpy(), rtol=0.01)
    assert np.mean(recovered(here) == recovered(there)) > 0.95


@needs_gpu
def test_networks_that_diverge_on_a_gpu_are_marked_and_not_in_the_tables():
    teacher = teachers.distinct_rows((20, 5, 10), polarity=1.0, seeds=range(1, 7))
    shapes = [starts.gaussian(teacher, multiple=m, scale=0.05) for m in (1, 4)]
    rate = [0.02, 1e3, 0.02, 0.02, 0.02, 0.02] * 2
    data = Gaussian(dim=20, train=500, evaluation=500)
    here, there = (
        train(shapes, teacher, data, SGD(rate), epochs=5, steps=50, device=device, stops=[5] * 11 + [2])
        for device in ("cpu", "cuda")
    )
    assert here.networks["diverged_at"].equals(there.networks["diverged_at"])
    assert there.networks["diverged_at"].is_valid().to_pylist() == [False, True, False, False, False, False] * 2
    keys = [
        list(zip(t.metrics["network"].to_pylist(), t.metrics["epoch"].to_pylist(), strict=True)) for t in (here, there)
    ]
    assert sorted(keys[0]) == sorted(keys[1])
    for one, other in zip(here.students, there.students, strict=True):
        for mine, its in zip(one.layers, other.layers, strict=True):
            torch.testing.assert_close(its.weight.cpu(), mine.weight, rtol=1e-3, atol=1e-4)


@needs_gpu
def test_graphs_of_many_groups_are_captured_while_another_thread_reads_results():
    # torch reuses streams from a small pool: after some epochs a capture could use a stream on which a group trains.
    teacher = teachers.regular((8, 6, 5, 4), seeds=range(1, 4))
    data = Gaussian(dim=8, train=200, evaluation=300)
    groups = [Group(starts.like_linear(teacher, multiple=1 + k), teacher, data) for k in range(12)]
    training = Training(groups, SGD(0.02, batch=8), steps=60, device="cuda")
    with ThreadPoolExecutor(1) as reader:
        rows = [reader.submit(training.probe().tables)]
        for _ in range(40):
            training.advance()
            rows.append(reader.submit(training.probe().tables))
        tables = [each.result()["metrics"] for each in rows]
    assert {table.num_rows for table in tables} == {36 * 6} and training.alive.all()


@needs_gpu
def test_a_resumed_run_on_a_gpu_has_the_same_bits():
    teacher = teachers.distinct_rows((20, 5, 10), polarity=1.0, seeds=range(1, 17))
    groups = [
        Group(starts.gaussian(teacher, multiple=m, scale=0.05), teacher, Gaussian(dim=20, train=500, evaluation=500))
        for m in (1, 2, 20)
    ]
    whole, first_half, rest = (Training(groups, SGD(0.02), steps=100, device="cuda") for _ in range(3))
    for training, epochs in ((whole, 6), (first_half, 3)):
        training.probe()
        for _ in range(epochs):
            training.advance()
            training.probe()
    rest.load_state_dict({name: tensor.cpu() for name, tensor in first_half.state_dict().items()})
    for _ in range(3):
        rest.advance()
        last = rest.probe().tables()
    assert last["metrics"].num_rows
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, rest.state_dict()[name]), name


def recovered(trained):
    """Whether each network has recovered each teacher node at the end."""
    role = pc.equal(trained.nodes["role"].cast(pa.string()), "teacher")
    last = trained.nodes.filter(pc.and_(role, pc.equal(trained.nodes["epoch"], 10)))
    last = last.sort_by([("network", "ascending"), ("teacher", "ascending")])
    return last["correlation"].to_numpy() > 0.95


@needs_gpu
def test_wide_and_deep_networks_and_other_optimisers_train_on_a_gpu_too():
    data = Gaussian(dim=6, train=300, evaluation=200)
    deep = teachers.regular((6, 4, 5, 3), seeds=range(1, 4))
    flat = teachers.distinct_rows((6, 4, 3), seeds=range(1, 4))
    for teacher, students, optimiser in (
        (deep, starts.like_linear(deep, multiple=2), SGD(0.05, batch=8)),
        (flat, starts.gaussian(flat, multiple=2, scale=0.3), Adam(0.01, batch=8)),
        (flat, starts.gaussian(flat, multiple=2_000, scale=0.001), SGD(0.01, batch=8)),
    ):
        groups = [Group(students, teacher, data)]
        both = [Training(groups, optimiser, steps=40, device=device) for device in ("cpu", "cuda")]
        assert both[1].groups[0].engine == "batched"
        for training in both:
            training.probe()
            training.advance()
            training.probe()
        for one, other in zip(both[0].populations()[0].layers, both[1].populations()[0].layers, strict=True):
            torch.testing.assert_close(one.weight, other.weight.cpu(), rtol=1e-3, atol=1e-4)


def test_precision_is_reported():
    teacher = teachers.distinct_rows((6, 4, 3), seeds=[1])
    groups = [Group(starts.gaussian(teacher, multiple=2), teacher, Gaussian(dim=6, train=50, evaluation=50))]
    assert Training(groups, SGD(batch=8), steps=1).precision == "float32"
    if torch.cuda.is_available():
        precision = Training(groups, SGD(batch=8), steps=1, device="cuda").precision
        assert precision == "float32, probed in 3xTF32 (about 21 bits)"


@needs_gpu
def test_waves_on_a_gpu_do_not_change_numbers():
    teacher = teachers.distinct_rows((6, 4, 3), seeds=range(1, 9))
    groups = [Group(starts.gaussian(teacher, multiple=2, scale=0.3), teacher, Gaussian(dim=6, train=500))]
    whole = Training(groups, SGD(0.05, batch=8), steps=20, device="cuda")
    need = sum(whole.plan.memory.values())
    waves = Training(groups, SGD(0.05, batch=8), steps=20, device="cuda", memory=need - 2_000_000)
    assert len(waves.plan.waves) > 1
    for training in (whole, waves):
        training.advance()
    for one, other in zip(whole.populations()[0].layers, waves.populations()[0].layers, strict=True):
        assert torch.equal(one.weight, other.weight)
