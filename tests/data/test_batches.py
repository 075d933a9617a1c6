"""Batches of any data, and the words with which other data is refused."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from understudy import UserError, data
from understudy.data.batches import Batch, batches

X = torch.arange(20.0).view(10, 2)
FRAME = pd.DataFrame(X.numpy(), columns=["a", "b"])


def joined(given, size=4):
    return torch.cat([batch.on(None, torch.float32).args[0] for batch in batches(given, size)])


@pytest.mark.parametrize(
    "given",
    [
        X,
        X.numpy(),
        X.numpy().astype(np.float64),
        FRAME,
        TensorDataset(X, torch.zeros(10)),
        DataLoader(TensorDataset(X, torch.zeros(10)), batch_size=3),
        [X[:7], X[7:]],
        [[X[:7], 1], (X[7:], None)],
        (part for part in X.numpy().astype(np.float64).reshape(5, 2, 2)),
        [FRAME[:3], FRAME[3:]],
        data.Fixed(torch.zeros_like(X), X),
    ],
    ids=lambda given: type(given).__name__,
)
def test_the_same_samples_from_every_kind_of_data(given):
    assert torch.equal(joined(given), X)


def test_dicts_are_keyword_arguments():
    given = {"input_ids": torch.arange(6).view(3, 2), "flag": True}
    for several in (given, [given], [(given, "label")]):
        (batch,) = batches(several, 4)
        assert batch.args == () and batch.kwargs["flag"] is True
        assert torch.equal(batch.on(None, torch.float32).kwargs["input_ids"], given["input_ids"])


def test_sizes_of_batches():
    assert [len(batch.args[0]) for batch in batches(X, 4)] == [4, 4, 2]


def test_whole_numbers_keep_their_type_and_arrays_that_cannot_be_written_are_copied():
    whole = np.arange(6).reshape(3, 2)
    whole.flags.writeable = False
    assert Batch((whole,), {}).on(None, torch.float32).args[0].dtype == torch.int64


NAN = X.clone()
NAN[7, 1] = torch.nan


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (NAN, "data contains NaN or infinity, first at [7, 1]"),
        (NAN.numpy(), "data contains NaN or infinity, first at [7, 1]"),
        ([X, NAN], "batch 1 of data contains NaN or infinity, first at [7, 1]"),
        ([{"x": NAN}], "batch 0 of data['x'] contains NaN or infinity, first at [7, 1]"),
        (X[0], "data must be [sample, …], with at least two axes, got shape [2]"),
        (list(X), "batch 0 of data has shape [2], without an axis for samples"),
        ((X, X), "data is of type tuple (a tuple is one batch, put it into a list)"),
        ("inputs.npy", "data is of type str (us.data.File reads files)"),
        (3, "data is of type int; give a tensor, a numpy array, a pandas frame"),
        ([], "data has no samples"),
        (X[:0], "data has no samples"),
        ([3], "batch 0 of data is of type int; give tensors"),
        ([{"flag": True}], "batch 0 of data has no tensor or array"),
        (np.array([["a", "b"]]), "data is an array of <U1, not of numbers"),
        (FRAME.assign(c="x"), "data: column 'c' is"),
    ],
)
def test_other_data_is_refused(given, words):
    with pytest.raises(UserError, match=re.escape(words)):
        list(batches(given, 4))


def test_a_batch_without_samples_is_refused():
    with pytest.raises(UserError, match="batch must be at least 1 sample, got 0"):
        batches(X, 0)


def test_a_tensor_of_another_dtype_or_device_is_refused():
    with pytest.raises(UserError, match=r"data is torch\.float32, and the module's parameters are torch\.float64"):
        Batch((X,), {}).on(torch.device("cpu"), torch.float64)
    with pytest.raises(UserError, match="data is on meta, and the module on cpu; move one of them"):
        Batch((X.to("meta"),), {}).on(torch.device("cpu"), torch.float32)
