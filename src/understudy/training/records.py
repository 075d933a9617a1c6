"""Readings as rows of the two tables that every run shares (`metrics`, `nodes`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.measures import ranks
from understudy.training.probes.reading import Look, Matched, Reading

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
"""Of a teacher node: the place of every student by correlation with it, from 0."""
_NAMES = ("train_loss", "eval_loss", "rho_mean", "recovered", "accuracy", "teacher_accuracy")
ROLES = ("teacher", "student", "pair")
"""A teacher node with its best student, a student with its best teacher, or every pair where a study asks for them."""


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def metric_rows(networks: Int[Tensor, "net"], epoch: int, train_loss: Tensor, reading: Reading) -> pa.Table:
    """One row a network, layer and metric."""
    parts = [(0, -1, train_loss), (1, -1, reading.eval_loss)]
    for i, layer in enumerate(reading.layers):
        parts += [(2, i, layer.rho_mean), (3, i, layer.recovered)]
    if reading.accuracy is not None and reading.teacher_accuracy is not None:
        parts += [(4, -1, reading.accuracy), (5, -1, reading.teacher_accuracy)]
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


def rank_rows(networks: Int[Tensor, "net"], epoch: int, reading: Reading) -> pa.Table:
    """One row a teacher node."""
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


def made_rows(
    networks: Int[Tensor, "some"],
    epoch: int,
    known: Callable[[], tuple[Bool[Tensor, "some"], Float[Tensor, "some"]]],
    look: Look,
    pairs: bool,
    ranked: bool,
) -> dict[str, pa.Table]:
    """Of the networks that are alive."""
    alive, train_loss = known()
    which = torch.nonzero(alive).flatten()
    reading, networks = look.reading().pick(which), networks[which]
    tables = {
        "metrics": metric_rows(networks, epoch, train_loss[which], reading),
        "nodes": node_rows(networks, epoch, reading, pairs),
    }
    return tables | ({"ranks": rank_rows(networks, epoch, reading)} if ranked else {})


class Records:
    """The rows that one look at all networks adds to the tables: made when they are first asked for.

    That is best done by another thread than the one that trains, which can go on meanwhile.
    """

    def __init__(
        self, rows: Sequence[Callable[[], dict[str, pa.Table]]], alive: Callable[[], Bool[Tensor, "all"]]
    ) -> None:
        self._rows, self._alive = tuple(rows), alive

    def tables(self) -> dict[str, pa.Table]:
        return self._made

    @property
    def metrics(self) -> pa.Table:
        return self._made["metrics"]

    @property
    def nodes(self) -> pa.Table:
        return self._made["nodes"]

    @property
    def alive(self) -> Bool[Tensor, "all"]:
        """Which networks had not diverged."""
        return self._alive()

    @cached_property
    def _made(self) -> dict[str, pa.Table]:
        made = [rows() for rows in self._rows]
        self._rows = ()  # and what they were made of
        tables = {"metrics": joined([each["metrics"] for each in made], METRICS)}
        tables["nodes"] = joined([each["nodes"] for each in made], NODES)
        ranks = [each["ranks"] for each in made if "ranks" in each]
        return tables | ({"ranks": joined(ranks, RANKS)} if ranks else {})
