"""Studies of exact losses on a GPU: on an emulated one, and on a real one if available."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from support.fake_gpu import FakeGpu, OnGpu
from understudy.lab.study import named_pieces
from understudy.papers.local.identifiability.study import Identifiability
from understudy.papers.local.initialisation.study import Initialisation
from understudy.papers.local.local_rate.study import LocalRate
from understudy.papers.local.regimes.study import Regimes
from understudy.papers.local.warm_up.study import WarmUp

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

SMALL = {
    "regimes": Regimes(seeds=1, students=4, steps=12, probes=4),
    "warm-up": WarmUp(angles=5, least=1e-3),
    "local-rate": LocalRate(
        seeds=1, r=(2,), d=(3,), multiple=(2,), separation=(0.5,), w_min=(1.0,), w_max=(1.0,), steps=6, batch=(4,),
        batch_multiple=2, batch_seeds=1, batch_steps=3, attempts=1,
    ),
    "flow": LocalRate(
        seeds=1, r=(2,), d=(3,), multiple=(2,), separation=(0.5,), w_min=(1.0,), w_max=(1.0,), steps=12, batch=(4,),
        batch_multiple=2, batch_seeds=1, batch_steps=6, attempts=1, by="flow",
    ),
    "initialisation": Initialisation(
        seeds=2, teacher_nodes=(2,), dim=(3,), students=(4, 6), samples=(500, 1_000), span_samples=500, descents=1,
        descent_dim=(3,), descent_students=4, steps=12,
    ),
    "identifiability": Identifiability(
        seeds=2, samples=500, digits=1, separation=(0.1, 1.0), fan=(2, 3), descents=1, teacher_nodes=(3,), dim=(3,),
        steps=12, batch=20,
    ),
}  # fmt: skip


def _found(study, device):
    return {name: make() for name, make in named_pieces(replace(study, device=device)).items()}


def _agree(one, other):
    """Assert that tables agree and that nothing in them is on a GPU."""
    assert list(one) == list(other)
    for name, tables in one.items():
        assert list(tables) == list(other[name])
        for table in set(tables) - {"weights"}:
            ours, theirs = tables[table], other[name][table]
            assert ours.column_names == theirs.column_names, (name, table)
            assert ours.num_rows == theirs.num_rows, (name, table)
        if "networks" not in tables:
            _agree_units(name, tables, other[name])
            continue
        metrics, theirs = tables["metrics"], other[name]["metrics"]
        assert metrics["metric"].to_pylist() == theirs["metric"].to_pylist()
        for metric, a, b in zip(*(t[c].to_pylist() for t, c in _columns(metrics, theirs)), strict=True):
            assert a == pytest.approx(b, rel=1e-6, abs=1e-9, nan_ok=True), (name, metric)
        for column in ("direction", "average", "gap", "x"):
            if column in tables["nodes"].column_names:
                flat = [_numbers(each[name]["nodes"][column].to_pylist()) for each in (one, other)]
                assert flat[0] == pytest.approx(flat[1], rel=1e-5, abs=1e-8), (name, column)
        for role, population in other[name]["weights"].items():
            assert population.device.type == "cpu" and not isinstance(population.layers[0].weight, OnGpu)
            assert population.layers[0].weight.numpy() == pytest.approx(
                tables["weights"][role].layers[0].weight.numpy(), rel=1e-6, abs=1e-9
            )


def _agree_units(name, one, other):
    """Assert that tables of units agree, except for columns of rounding errors, which differ between devices."""
    (table,) = one
    for column in one[table].column_names:
        ours, theirs = (tables[table][column].to_pylist() for tables in (one, other))
        if isinstance(ours[0], str):
            assert ours == theirs
        elif not column.endswith(("off", "difference")):
            assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9, nan_ok=True), (name, column)


def _columns(one, other):
    return (one, "metric"), (one, "value"), (other, "value")


def _numbers(column):
    return np.concatenate([np.zeros(0), *(np.ravel(np.asarray(part, float)) for part in column if part is not None)])


@pytest.mark.parametrize("name", SMALL)
def test_a_study_runs_on_the_given_gpu(name, monkeypatch, one_thread):
    study = SMALL[name]
    here = _found(study, "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with FakeGpu() as gpu:
        there = _found(study, "cuda")
    assert gpu.calls > 1_000
    _agree(here, there)


def test_the_emulated_gpu_rejects_what_a_gpu_rejects():
    with FakeGpu():
        there, here = torch.ones(2, device="cuda"), torch.ones(2)
        assert (there + there).is_cuda and (there + 1).device.type == "cuda" and not there.cpu().is_cuda
        assert (there * torch.tensor(2.0)).is_cuda and torch.zeros_like(there).is_cuda and here.to(there).is_cuda
        with pytest.raises(AssertionError, match="add: of tensors on the GPU"):
            there + here
        with pytest.raises(AssertionError, match="numpy of a tensor on the GPU"):
            there.numpy()


@needs_gpu
@pytest.mark.parametrize("name", SMALL)
def test_studies_agree_on_gpu_and_cpu(name):
    _agree(_found(SMALL[name], "cpu"), _found(SMALL[name], "cuda"))
