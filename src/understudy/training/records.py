"""Readings as rows of the two tables that every run shares (`metrics`, `nodes`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Int
from torch import Tensor

from understudy.training.probe import Matched, Reading

METRICS = pa.schema(
    [
        ("network", pa.int32()),
        ("epoch", pa.int32()),
        ("layer", pa.int16()),
        ("metric", pa.dictionary(pa.int8(), pa.string())),
        ("value", pa.float64()),
    ]
)
NODES = pa.schema(
    [
        ("network", pa.int32()),
        ("epoch", pa.int32()),
        ("layer", pa.int16()),
        ("role", pa.dictionary(pa.int8(), pa.string())),
        ("teacher", pa.int32()),
        ("student", pa.int32()),
        ("correlation", pa.float32()),
        ("sin_angle", pa.float32()),
        ("bias_gap", pa.float32()),
        ("fanout", pa.float32()),
    ]
)
_NAMES = ("train_loss", "eval_loss", "rho_mean", "recovered")
ROLES = ("teacher", "student", "pair")
"""A teacher node with its best student, a student with its best teacher, or every pair where a study asks for them."""


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def metric_rows(networks: Int[Tensor, "net"], epoch: int, train_loss: Tensor, reading: Reading) -> pa.Table:
    """One row a network, layer and metric."""
    parts = [(0, -1, train_loss), (1, -1, reading.eval_loss)]
    for i, layer in enumerate(reading.layers):
        parts += [(2, i, layer.rho_mean), (3, i, layer.recovered)]
    ids, count = _numpy(networks), len(networks)
    # One way from the card for all of them.
    values = torch.stack([value.double().to(reading.eval_loss.device) for _, _, value in parts])
    return pa.Table.from_arrays(
        [
            np.tile(ids, len(parts)).astype(np.int32),
            np.full(count * len(parts), epoch, np.int32),
            np.repeat([layer for _, layer, _ in parts], count).astype(np.int16),
            pa.DictionaryArray.from_arrays(np.repeat([m for m, _, _ in parts], count).astype(np.int8), list(_NAMES)),
            _numpy(values).ravel(),
        ],
        schema=METRICS,
    )


def node_rows(networks: Int[Tensor, "net"], epoch: int, reading: Reading, pairs: bool) -> pa.Table:
    """One row a node and its best partner; with `pairs`, one more for every teacher and student."""
    tables = []
    for i, layer in enumerate(reading.layers):
        m, n = layer.correlation.shape[1:]
        every = torch.arange(m), torch.arange(n)
        partners = [layer.teachers.partner.cpu(), layer.students.partner.cpu()]
        tables.append(_rows(networks, epoch, i, 0, every[0].expand_as(partners[0]), partners[0], layer.teachers))
        tables.append(_rows(networks, epoch, i, 1, partners[1], every[1].expand_as(partners[1]), layer.students))
        if pairs:
            tables.append(_rows(networks, epoch, i, 2, *_grid(networks, m, n), _pairs(layer.correlation)))
    return pa.concat_tables(tables)


def _grid(networks: Tensor, m: int, n: int) -> tuple[Tensor, Tensor]:
    teacher = torch.arange(m).repeat_interleave(n).expand(len(networks), -1)
    return teacher, torch.arange(n).repeat(m).expand(len(networks), -1)


def _pairs(correlation: Tensor) -> Matched:
    flat = correlation.flatten(1)
    nothing = torch.full_like(flat, torch.nan)
    return Matched(flat, flat, nothing, nothing, nothing)


def _rows(
    networks: Tensor, epoch: int, layer: int, role: int, teacher: Tensor, student: Tensor, matched: Matched
) -> pa.Table:
    count = teacher.numel()
    # Torch rounds what is too large to infinity; numpy would warn of it.
    values = torch.stack(
        [v.float() for v in (matched.correlation, matched.sin_angle, matched.bias_gap, matched.fan_out)]
    )
    return pa.Table.from_arrays(
        [
            np.repeat(_numpy(networks), teacher.shape[1]).astype(np.int32),
            np.full(count, epoch, np.int32),
            np.full(count, layer, np.int16),
            pa.DictionaryArray.from_arrays(np.full(count, role, np.int8), list(ROLES)),
            _numpy(teacher).ravel().astype(np.int32),
            _numpy(student).ravel().astype(np.int32),
            *_numpy(values.flatten(1)),
        ],
        schema=NODES,
    )


def joined(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables one below the other; none give an empty one."""
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
