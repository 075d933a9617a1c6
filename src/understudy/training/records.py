"""Tables that every run shares (`metrics`, `nodes`, and `ranks` where asked for), made from readings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._recorded import EIGENVALUES
from understudy.measures import Match, ranks, students_per_teacher
from understudy.training.probes.reading import Matched, Reading

_ROW = {"network": pa.int32(), "epoch": pa.int32(), "layer": pa.int16()}
_WORD = pa.dictionary(pa.int8(), pa.string())
_VALUES = dict.fromkeys(("correlation", "sin_angle", "bias_gap", "fanout"), pa.float32())
METRICS = pa.schema(_ROW | {"metric": _WORD, "value": pa.float64()})
NODES = pa.schema(_ROW | {"role": _WORD, "teacher": pa.int32(), "student": pa.int32()} | _VALUES)
RANKS = pa.schema(_ROW | {"teacher": pa.int32(), "ranks": pa.list_(pa.uint16())})
"""One row per teacher node: the rank of every student by correlation with it, from 0."""
_NAMES = (
    *("train_loss", "eval_loss", "rho_mean", "recovered", "accuracy", "teacher_accuracy"),
    *("gradient_norm", "students_per_teacher", *EIGENVALUES),
)
ROLES = ("teacher", "student", "pair")
"""Kinds of rows: a teacher node with its best student, a student node with its best teacher, or any pair of both."""


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _table(schema: pa.Schema, networks: Tensor, each: int, epoch: int, layer: int, *columns: Any) -> pa.Table:
    """Make `each` rows per network, all of one layer."""
    network = np.repeat(_numpy(networks), each).astype(np.int32)
    where = [network, np.full(len(network), epoch, np.int32), np.full(len(network), layer, np.int16)]
    return pa.Table.from_arrays([*where, *columns], schema=schema)


def _words(code: int, count: int, words: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.full(count, code, np.int8), list(words))


def metric_rows(
    networks: Int[Tensor, "net"], epoch: int, train_loss: Tensor, reading: Reading, record: Collection[str] = ()
) -> pa.Table:
    """Make one row per network, layer and metric; layer −1 is the whole network."""
    values = [("train_loss", -1, train_loss), ("eval_loss", -1, reading.eval_loss)]
    for i, layer in enumerate(reading.layers):
        values += [("rho_mean", i, layer.rho_mean), ("recovered", i, layer.recovered)]
        if "students_per_teacher" in record:
            best = Match(layer.students.partner, layer.students.correlation)
            counts = students_per_teacher(best, layer.correlation.shape[1])
            values.append(("students_per_teacher", i, counts.double().mean(1)))
    if reading.accuracy is not None and reading.teacher_accuracy is not None:
        values += [("accuracy", -1, reading.accuracy), ("teacher_accuracy", -1, reading.teacher_accuracy)]
    if reading.curvature is not None:
        norm, eigenvalues = reading.curvature
        values += [] if norm is None else [("gradient_norm", -1, norm)]
        values += [] if eigenvalues is None else [(n, -1, v) for n, v in zip(EIGENVALUES, eigenvalues.T, strict=True)]
    numbers = _numpy(torch.stack([value.double().to(reading.eval_loss.device) for _, _, value in values]))
    return pa.concat_tables(
        _table(METRICS, networks, 1, epoch, layer, _words(_NAMES.index(name), len(networks), _NAMES), row)
        for (name, layer, _), row in zip(values, numbers, strict=True)
    ).combine_chunks()


def node_rows(networks: Int[Tensor, "net"], epoch: int, reading: Reading, pairs: bool) -> pa.Table:
    """Make one row per node with its best partner; with `pairs`, also one per teacher and student node."""
    tables = []
    for i, layer in enumerate(reading.layers):
        nets, m, n = layer.correlation.shape
        teachers, students = torch.arange(m), torch.arange(n)
        rows = [
            (teachers.expand(nets, m), layer.teachers.partner.cpu(), layer.teachers),
            (layer.students.partner.cpu(), students.expand(nets, n), layer.students),
        ]
        if pairs:
            grid = (teachers.repeat_interleave(n).expand(nets, m * n), students.repeat(m).expand(nets, m * n))
            flat = layer.correlation.flatten(1)
            nothing = torch.full_like(flat, torch.nan)
            rows.append((*grid, Matched(flat, flat, nothing, nothing, nothing)))
        for role, (teacher, student, matched) in enumerate(rows):
            # Cast by torch, which rounds too large values to infinity without a warning, unlike numpy.
            values = torch.stack([value.float() for value in matched[1:]])
            places = (_numpy(place).ravel().astype(np.int32) for place in (teacher, student))
            columns = (_words(role, teacher.numel(), ROLES), *places, *_numpy(values.flatten(1)))
            tables.append(_table(NODES, networks, teacher.shape[1], epoch, i, *columns))
    return pa.concat_tables(tables)


def rank_rows(networks: Int[Tensor, "net"], epoch: int, reading: Reading) -> pa.Table:
    """Make one row per teacher node with the ranks of all students."""
    tables = []
    for i, layer in enumerate(reading.layers):
        nets, m, n = layer.correlation.shape
        places = _numpy(ranks(layer.correlation)).astype(np.uint16)
        lists = pa.ListArray.from_arrays(np.arange(0, nets * m * n + 1, n, dtype=np.int32), places.ravel())
        tables.append(_table(RANKS, networks, m, epoch, i, np.tile(np.arange(m, dtype=np.int32), nets), lists))
    return pa.concat_tables(tables)


def concatenate(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate tables of one schema, ordered by network; without any, return an empty one.

    Rows of one network keep their order, so that the result does not depend on which networks were probed together.
    """
    if not tables:
        return schema.empty_table()
    rows = pa.concat_tables(tables).combine_chunks()
    network = rows["network"].to_numpy()
    if (network[1:] < network[:-1]).any():
        rows = rows.take(pa.array(np.argsort(network, kind="stable")))
    return rows


def make_rows(
    networks: Int[Tensor, "some"],
    epoch: int,
    fetch_training: Callable[[], tuple[Bool[Tensor, "some"], Float[Tensor, "some"]]],
    fetch_reading: Callable[[], Reading],
    pairs: bool,
    ranked: bool,
    record: Collection[str] = (),
) -> dict[str, pa.Table]:
    """Make the rows of the networks that are alive, waiting for liveness, training losses and the reading."""
    alive, train_loss = fetch_training()
    which = torch.nonzero(alive).flatten()
    reading, networks = fetch_reading().pick(which), networks[which]
    tables = {
        "metrics": metric_rows(networks, epoch, train_loss[which], reading, record),
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
