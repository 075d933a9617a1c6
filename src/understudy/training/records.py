"""Tables that every run shares (`metrics`, `nodes`, and `ranks` where asked for), made from readings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.measures import ranks
from understudy.training.probes.reading import Matched, Reading

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
RANKS = pa.schema(
    [
        ("network", pa.int32()),
        ("epoch", pa.int32()),
        ("layer", pa.int16()),
        ("teacher", pa.int32()),
        ("ranks", pa.list_(pa.uint16())),
    ]
)
"""One row per teacher node: the rank of every student by correlation with it, from 0."""
_NAMES = ("train_loss", "eval_loss", "rho_mean", "recovered", "accuracy", "teacher_accuracy")
ROLES = ("teacher", "student", "pair")
"""Kinds of rows: a teacher node with its best student, a student node with its best teacher, or any pair of both."""


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def metric_rows(networks: Int[Tensor, "net"], epoch: int, train_loss: Tensor, reading: Reading) -> pa.Table:
    """Make one row per network, layer and metric; layer −1 is the whole network."""
    values = [(0, -1, train_loss), (1, -1, reading.eval_loss)]
    for i, layer in enumerate(reading.layers):
        values += [(2, i, layer.rho_mean), (3, i, layer.recovered)]
    if reading.accuracy is not None and reading.teacher_accuracy is not None:
        values += [(4, -1, reading.accuracy), (5, -1, reading.teacher_accuracy)]
    ids, count = _numpy(networks), len(networks)
    numbers = torch.stack([value.double().to(reading.eval_loss.device) for _, _, value in values])
    return pa.Table.from_arrays(
        [
            np.tile(ids, len(values)).astype(np.int32),
            np.full(count * len(values), epoch, np.int32),
            np.repeat([layer for _, layer, _ in values], count).astype(np.int16),
            pa.DictionaryArray.from_arrays(np.repeat([m for m, _, _ in values], count).astype(np.int8), list(_NAMES)),
            _numpy(numbers).ravel(),
        ],
        schema=METRICS,
    )


def node_rows(networks: Int[Tensor, "net"], epoch: int, reading: Reading, pairs: bool) -> pa.Table:
    """Make one row per node with its best partner; with `pairs`, also one per teacher and student node."""
    tables = []
    for i, layer in enumerate(reading.layers):
        m, n = layer.correlation.shape[1:]
        teachers, students = torch.arange(m), torch.arange(n)
        partners = [layer.teachers.partner.cpu(), layer.students.partner.cpu()]
        tables.append(_rows(networks, epoch, i, 0, teachers.expand_as(partners[0]), partners[0], layer.teachers))
        tables.append(_rows(networks, epoch, i, 1, partners[1], students.expand_as(partners[1]), layer.students))
        if pairs:
            tables.append(_rows(networks, epoch, i, 2, *_grid(networks, m, n), _pairs(layer.correlation)))
    return pa.concat_tables(tables)


def rank_rows(networks: Int[Tensor, "net"], epoch: int, reading: Reading) -> pa.Table:
    """Make one row per teacher node with the ranks of all students."""
    tables = []
    for i, layer in enumerate(reading.layers):
        nets, m, n = layer.correlation.shape
        places = _numpy(ranks(layer.correlation)).astype(np.uint16)
        tables.append(
            pa.Table.from_arrays(
                [
                    np.repeat(_numpy(networks), m).astype(np.int32),
                    np.full(nets * m, epoch, np.int32),
                    np.full(nets * m, i, np.int16),
                    np.tile(np.arange(m, dtype=np.int32), nets),
                    pa.ListArray.from_arrays(np.arange(0, nets * m * n + 1, n, dtype=np.int32), places.ravel()),
                ],
                schema=RANKS,
            )
        )
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
    # Cast by torch, which rounds too large values to infinity without a warning, unlike numpy.
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


def concatenate(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate tables of one schema; without any, return an empty one."""
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


def make_rows(
    networks: Int[Tensor, "some"],
    epoch: int,
    fetch_training: Callable[[], tuple[Bool[Tensor, "some"], Float[Tensor, "some"]]],
    fetch_reading: Callable[[], Reading],
    pairs: bool,
    ranked: bool,
) -> dict[str, pa.Table]:
    """Make the rows of the networks that are alive, waiting for liveness, training losses and the reading."""
    alive, train_loss = fetch_training()
    which = torch.nonzero(alive).flatten()
    reading, networks = fetch_reading().pick(which), networks[which]
    tables = {
        "metrics": metric_rows(networks, epoch, train_loss[which], reading),
        "nodes": node_rows(networks, epoch, reading, pairs),
    }
    return tables | ({"ranks": rank_rows(networks, epoch, reading)} if ranked else {})


class Records:
    """Rows that one probe of all networks adds to the tables, made on first access.

    Access them from another thread than the one that trains, which can then continue meanwhile.
    """

    def __init__(
        self, rows: Sequence[Callable[[], dict[str, pa.Table]]], alive: Callable[[], Bool[Tensor, "all"]]
    ) -> None:
        self._rows, self._alive = tuple(rows), alive

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows of all tables, by table name.

        Returns:
            `metrics`, `nodes`, and `ranks` at epochs at which ranks are recorded.
        """
        return self._tables

    @property
    def metrics(self) -> pa.Table:
        """Rows of the table `metrics`."""
        return self._tables["metrics"]

    @property
    def nodes(self) -> pa.Table:
        """Rows of the table `nodes`."""
        return self._tables["nodes"]

    @property
    def alive(self) -> Bool[Tensor, "all"]:
        """Whether each network had not diverged."""
        return self._alive()

    @cached_property
    def _tables(self) -> dict[str, pa.Table]:
        made = [rows() for rows in self._rows]
        self._rows = ()  # frees the readings
        tables = {"metrics": concatenate([each["metrics"] for each in made], METRICS)}
        tables["nodes"] = concatenate([each["nodes"] for each in made], NODES)
        ranks = [each["ranks"] for each in made if "ranks" in each]
        return tables | ({"ranks": concatenate(ranks, RANKS)} if ranks else {})
