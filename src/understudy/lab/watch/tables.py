"""Tables of a watched training, made from its probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from understudy.lab.watch.probes import Nodes, Probe, WatchReading
from understudy.measures.matching import THRESHOLD
from understudy.report.style import evenly

TABLES = ("networks", "metrics", "nodes", "layers")
MEASURED = ("rho_mean", "recovered", "cka", "mean_rank", "settled", "seconds")
"""Names of metrics that are not losses."""
MOST_LAYERS, MOST_NODES = 12, 96
"""Teacher layers, and nodes of each, whose correlation with every student node is kept."""
_WORD = pa.dictionary(pa.int8(), pa.string())
_NAME = pa.dictionary(pa.int32(), pa.string())
_ROW = {"network": pa.int32(), "epoch": pa.int32(), "step": pa.int64()}
METRICS = pa.schema(_ROW | {"layer": pa.int16(), "metric": _WORD, "value": pa.float64()})
NODES = pa.schema(
    _ROW
    | {"layer": pa.int16(), "teacher_layer": _NAME, "student_layer": _NAME, "role": _WORD}
    | {"teacher": pa.int32(), "student": pa.int32()}
    | dict.fromkeys(("correlation", "fanout", "rank"), pa.float32())
)
_LAYERS = {
    "recovered": pa.int32(),
    "teacher_nodes": pa.int32(),
    "student_nodes": pa.int32(),
    "at_positions": pa.bool_(),
}
LAYERS = pa.schema(
    _ROW
    | {"teacher_layer": _NAME, "student_layer": _NAME, "mean_best_correlation": pa.float64(), "cka": pa.float64()}
    | _LAYERS
)
_ROLES = ("teacher", "student", "pair")


def make_tables(teacher: Nodes, student: Nodes, probes: Sequence[Probe]) -> dict[str, pa.Table]:
    """Make `metrics`, `nodes` and `layers` from all probes so far.

    Rows of nodes and metrics are of each teacher layer with the student layer that `followed` chooses; `layers` has all
    pairs of layers.
    """
    read = [(epoch, probe.step, probe.reading) for epoch, probe in enumerate(probes) if probe.reading is not None]
    pairs = _Followed(teacher, student, followed(read[-1][2]), read[-1][2])
    metrics, nodes, layers = [], [], []
    for epoch, probe in enumerate(probes):
        for name, value in (probe.losses | {"seconds": probe.seconds}).items():
            metrics.append((epoch, probe.step, -1, name, value))
    for epoch, step, reading in read:
        found = pairs.at(reading)
        for name, values in found.metrics().items():
            metrics += [(epoch, step, layer, name, float(value)) for layer, value in enumerate(values)]
        nodes += [pairs.rows(epoch, step, *columns) for columns in found.roles()]
        layers.append(_layer_rows(epoch, step, teacher, student, reading))
    if read[-1][2].every is not None:
        nodes.append(pairs.every(*read[-1]))
    metrics.sort(key=lambda row: row[0])
    names = pa.array([row[3] for row in metrics]).dictionary_encode()
    numbers = [np.array([row[i] for row in metrics]) for i in (0, 1, 2, 4)]
    columns = [np.zeros(len(metrics)), *numbers[:3], names, numbers[3]]
    return {
        "metrics": _table(METRICS, columns),
        "nodes": pa.concat_tables(nodes),
        "layers": pa.concat_tables(layers),
    }


def followed(last: WatchReading) -> Int[np.ndarray, "teacher_layer"]:
    """The student layer in which each teacher layer is followed: the one that matches it best at the last probe.

    Where some student layers have the same positions as the teacher layer, it is one of these: correlations of averages
    over positions, which all others have, are not comparable with correlations at every position.
    """
    comparable = last.at_positions | ~last.at_positions.any(axis=1, keepdims=True)
    best: np.ndarray = np.where(comparable, last.mean_best_correlation, -np.inf).argmax(axis=1)
    return best


class _Followed:
    """Teacher layers, each with the student layer in which it is followed."""

    def __init__(
        self, teacher: Nodes, student: Nodes, layers: Int[np.ndarray, "teacher_layer"], last: WatchReading
    ) -> None:
        self.teacher, self.student, self.layers = teacher, student, layers
        self.column = layers[teacher.layer]
        """Student layer of each teacher node."""
        self.number = np.arange(len(teacher.layer)) - teacher.starts[teacher.layer]
        """Number of each teacher node in its layer."""
        self.winner = last.student[np.arange(len(self.column)), self.column]
        """Student node that matches each teacher node best at the last probe."""
        self.width = np.array(student.widths)[self.column]
        parts = [np.arange(student.widths[s]) + student.starts[s] for s in layers]
        self.students = np.concatenate(parts)
        """Student nodes of the followed layers, one teacher layer after the other."""
        self.layer_of_student = np.repeat(np.arange(len(layers)), [len(part) for part in parts])

    def at(self, reading: WatchReading) -> _At:
        return _At(self, reading)

    def rows(self, epoch: int, step: int, role: int, layer: Int[np.ndarray, "row"], *columns: np.ndarray) -> pa.Table:
        """Rows of nodes of one role: their layer, teacher, student, correlation, fan-out and rank."""
        count = len(layer)
        names = [
            pa.DictionaryArray.from_arrays(codes.astype(np.int32), list(nodes.names))
            for codes, nodes in ((layer, self.teacher), (self.layers[layer], self.student))
        ]
        words = pa.DictionaryArray.from_arrays(np.full(count, role, np.int8), list(_ROLES))
        where = [np.zeros(count), np.full(count, epoch), np.full(count, step), layer]
        partners = [pa.array(column, mask=column < 0) for column in columns[:2]]  # constant nodes have none
        return _table(NODES, [*where, *names, words, *partners, *columns[2:]])

    def every(self, epoch: int, step: int, reading: WatchReading) -> pa.Table:
        """Correlation of pairs of nodes, of some layers and nodes where there are many."""
        tables = []
        assert reading.every is not None
        for layer in evenly(len(self.layers), min(len(self.layers), MOST_LAYERS)):
            s = int(self.layers[layer])
            width = self.teacher.widths[layer]
            teachers = np.asarray(evenly(width, min(width, MOST_NODES)))
            mine = self.teacher.starts[layer] + teachers
            all_ = np.arange(self.student.widths[s])
            students = all_ if len(all_) <= 2 * MOST_NODES else np.unique(self.winner[mine].clip(0))
            values = reading.every[np.ix_(mine, self.student.starts[s] + students)].ravel()
            grid = np.repeat(teachers, len(students)), np.tile(students, len(teachers))
            nothing = np.full(len(values), np.nan)
            tables.append(self.rows(epoch, step, 2, np.full(len(values), layer), *grid, values, nothing, nothing))
        return pa.concat_tables(tables)


class _At:
    """A reading of the followed layers."""

    def __init__(self, of: _Followed, reading: WatchReading) -> None:
        self._of, self._reading = of, reading
        every = np.arange(len(of.column))
        self.student = reading.student[every, of.column]
        self.correlation = reading.correlation[every, of.column]
        self.rank = np.full(len(every), np.nan)
        if reading.ranks is not None:
            places = reading.ranks[every, of.student.starts[of.column] + of.winner.clip(0)]
            self.rank = np.where(of.winner < 0, np.nan, places / np.maximum(of.width - 1, 1))

    def metrics(self) -> dict[str, Float[np.ndarray, "layer"]]:
        of, layers = self._of, np.arange(len(self._of.layers))
        found = {
            "rho_mean": self._reading.mean_best_correlation[layers, of.layers],
            "cka": self._reading.cka[layers, of.layers],
            "recovered": self._means(self.correlation > THRESHOLD),
            "settled": self._means(self.student == of.winner),
        }
        return found | ({} if self._reading.ranks is None else {"mean_rank": self._means(self.rank)})

    def _means(self, values: np.ndarray) -> Float[np.ndarray, "layer"]:
        """Mean over the teacher nodes of each layer that have a value; 0 where none has."""
        known = ~np.isnan(values.astype(float))
        sums = np.bincount(self._of.teacher.layer, np.where(known, values, 0.0))
        return sums / np.maximum(np.bincount(self._of.teacher.layer, known), 1)

    def roles(self) -> list[tuple[Any, ...]]:
        """Role, layer, teacher, student, correlation, fan-out and rank of teacher nodes, and of student nodes."""
        of, reading = self._of, self._reading
        fans = np.where(self.student < 0, np.nan, reading.fan_out[of.student.starts[of.column] + self.student.clip(0)])
        students, layer = of.students, of.layer_of_student
        own = students - of.student.starts[of.layers[layer]]
        whom, best = reading.teacher[students, layer], reading.teacher_correlation[students, layer]
        nothing = np.full(len(students), np.nan)
        return [
            (0, of.teacher.layer, of.number, self.student, self.correlation, fans, self.rank),
            (1, layer, whom, own, best, reading.fan_out[students], nothing),
        ]


def _layer_rows(epoch: int, step: int, teacher: Nodes, student: Nodes, reading: WatchReading) -> pa.Table:
    t, s = (grid.ravel() for grid in np.indices(reading.cka.shape))
    names = [
        pa.DictionaryArray.from_arrays(codes.astype(np.int32), list(nodes.names))
        for codes, nodes in ((t, teacher), (s, student))
    ]
    recovered = np.add.reduceat(reading.correlation > THRESHOLD, teacher.starts, axis=0, dtype=np.int32)
    widths = np.array(teacher.widths)[t], np.array(student.widths)[s]
    similar = reading.mean_best_correlation.ravel(), reading.cka.ravel()
    where = [np.zeros(len(t)), np.full(len(t), epoch), np.full(len(t), step)]
    return _table(LAYERS, [*where, *names, *similar, recovered.ravel(), *widths, reading.at_positions.ravel()])


def _table(schema: pa.Schema, columns: Sequence[Any]) -> pa.Table:
    arrays = [
        (column if isinstance(column, pa.Array) else pa.array(column)).cast(field.type)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
