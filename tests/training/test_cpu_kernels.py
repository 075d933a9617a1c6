"""CPU kernels: matrix products, transposes, random rows, and when they are compiled."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.problems import gaussians
from understudy.training.kernels.cpu import PAD, ROWS, draw, product, transpose
from understudy.training.problem import batch_indices

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
counts = st.sampled_from((1, 2, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS, 50, 101)) | st.integers(1, 40)


def surround(matrix):
    """Copy a matrix into the middle of a larger one of NaN, which spreads to any sum that includes it."""
    outer = np.full((matrix.shape[0] + 2, matrix.shape[1] + 2 * PAD), np.nan, matrix.dtype)
    inner = outer[1:-1, PAD:-PAD]
    inner[:] = matrix
    return inner, outer


@dtypes
@given(rows=counts, depth=counts, blocks=st.integers(1, 9), turned=st.booleans())
def test_products_agree_with_torch(dtype, rows, depth, blocks, turned):
    a, b = gaussians(1, rows, depth, dtype=dtype), gaussians(2, depth, blocks * PAD, dtype=dtype)
    c = gaussians(3, rows, blocks * PAD, dtype=dtype)
    left = surround(a.T.numpy())[0].T if turned else surround(a.numpy())[0]
    right = surround(b.numpy())[0]
    exact = a.double() @ b.double()
    for add, expected in ((False, exact), (True, c.double() + exact)):
        into, outer = surround(c.numpy())
        product(into, left, right, rows, depth, add)
        bound = (depth + 1) * torch.finfo(dtype).eps * (a.double().abs() @ b.double().abs() + c.double().abs())
        assert (torch.from_numpy(into).double() - expected).abs().le(bound).all()
        assert np.isnan(outer).sum() == outer.size - into.size


@dtypes
def test_small_terms_are_summed_before_they_are_added_to_a_large_number(dtype):
    # Sixteen times a quarter of the last bit of 1: added one by one, each would be rounded away. So would small steps
    # at the end of training, and the loss could not fall as far as with other engines.
    small = torch.finfo(dtype).eps / 4
    into = np.ones((1, PAD), torch.zeros(0, dtype=dtype).numpy().dtype)
    product(into, np.full((1, 16), small, into.dtype), np.ones((16, PAD), into.dtype), 1, 16, True)
    assert (into == 1 + 16 * small).all()


@dtypes
@pytest.mark.parametrize("rows", [PAD, 3 * PAD])
@pytest.mark.parametrize("columns", [PAD, 2 * PAD])
def test_transpose(dtype, rows, columns):
    source, _ = surround(gaussians(1, rows, columns, dtype=dtype).numpy())
    to, outer = surround(np.zeros((columns, rows), source.dtype))
    transpose(to, source)
    assert np.array_equal(to, source.T) and np.isnan(outer).sum() == outer.size - to.size


@given(
    seed=st.integers(-(2**63), 2**63 - 1),
    step=st.integers(0, 100) | st.integers(2**32 - 2, 2**40),
    batch=st.integers(1, 40),
    samples=st.sampled_from((1, 7, 10_000, 2**31 - 1)),
)
def test_drawn_rows_equal_batch_indices(seed, step, batch, samples):
    rows = np.full(batch, -1)
    draw(rows, seed, step, samples)
    assert rows.tolist() == batch_indices(torch.tensor([seed]), step, 1, batch, samples)[0, 0].tolist()


def python(code, **environment):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], env=os.environ | environment, stdout=subprocess.PIPE, text=True
    )


def test_numba_is_not_imported_before_it_is_needed():
    with python("import sys, understudy, understudy.cli; print('numba' in sys.modules)") as done:
        assert done.communicate()[0].strip() == "False"


TRAIN = """
import sys
sys.path.insert(0, "tests")
import torch
from support.problems import OBJECTIVES, optimisers, population, problem, start
from understudy.training.engines import ENGINES
students = population((5, 9, 3), 2, dtype=torch.float32)
posed = problem(students, optimisers(4, 0.1)["sgd"], OBJECTIVES["squared"])
print(ENGINES["compiled"].run(posed, start(posed, students), 0, 20).sum().item())
"""


@pytest.mark.deep
def test_processes_that_compile_at_the_same_time_agree(tmp_path):
    processes = [python(TRAIN, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    printed = [process.communicate()[0] for process in processes]
    assert len(set(printed)) == 1 and printed[0].strip()
    assert list(tmp_path.rglob("*.nbc"))


@pytest.mark.deep
def test_code_is_compiled_again_where_it_cannot_be_cached():
    with python(TRAIN) as cached, python(TRAIN, NUMBA_CACHE_DIR="/dev/null/nowhere") as compiled:
        assert compiled.communicate()[0].strip() and compiled.returncode == cached.wait() == 0
