"""Rows of probes: ordered by network, whatever was probed together."""

import numpy as np
import pyarrow as pa

from understudy.training.records import METRICS, concatenate


def rows(networks, values):
    count = len(networks)
    words = pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), ["eval_loss"])
    columns = [networks, np.zeros(count), np.full(count, -1)]
    kinds = (pa.int32(), pa.int32(), pa.int16())
    typed = [pa.array(np.asarray(c), k) for c, k in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays([*typed, words, pa.array(values, pa.float64())], schema=METRICS)


def test_rows_of_a_network_keep_their_order():
    one = rows([2, 0, 2, 0], [1.0, 2.0, 3.0, 4.0])
    other = rows([1, 1], [5.0, 6.0])
    found = concatenate([one, other], METRICS)
    assert found["network"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert found["value"].to_pylist() == [2.0, 4.0, 5.0, 6.0, 1.0, 3.0]


def test_which_networks_are_probed_together_does_not_matter():
    rng = np.random.default_rng(0)
    networks, values = rng.integers(0, 9, 60), rng.normal(size=60)
    whole = concatenate([rows(networks, values)], METRICS)
    parts = [rows(networks[networks % 3 == k], values[networks % 3 == k]) for k in (2, 0, 1)]
    assert concatenate(parts, METRICS).equals(whole)


def test_without_rows_the_table_is_empty():
    assert concatenate([], METRICS).num_rows == 0 and concatenate([], METRICS).schema == METRICS
