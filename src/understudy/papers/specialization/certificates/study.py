"""Theorems that certify a student for a teacher node, tried on triples made to mislead them: S0 theorems 1, 3, 4, 5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import blocks
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.nets import Population
    from understudy.papers.specialization.certificates.verdicts import NodeVerdict
    from understudy.store import Run

AUGMENTED = {"S0 theorem 3": "augmented along the axes", "S0 theorem 4": "augmented along the teacher's weights"}
"""The theorems whose certificates grow with samples and with training."""
WIDTHS = (8, 6, 7, 5, 6)
"""Teacher nodes of the hidden layers of deep networks, from the lowest."""
_TRIPLES, _TOGETHER = 100, 4
"""Triples, and seeds, in a piece of work."""
_FIRST_LOOKS = (0, 1, 2, 3, 5)
_INPUTS, _COMPARED = 6, 300
"""Inputs and samples of the networks whose gradients are compared with backpropagation."""

_Row = tuple[int, int, "list[NodeVerdict]"]
"""Epoch, samples, and what was said."""


@dataclass(frozen=True)
class Certificates(ExactStudy):
    """Whether S0's theorems, with their constants, ever certify what is not so, and what it takes to be certified.

    Triples of a teacher, a student and data that are random or made to mislead; one small setting with more and more
    samples; students in training; and the two identities that all of it rests on, for networks of 2 to 6 layers.
    """

    name: ClassVar[str] = "certificates"
    summary: ClassVar[str] = "whether certificates of alignment are ever wrong, and how samples and training bring them"
    figures: ClassVar[str] = "S0 theorems 1, 3, 4, 5, lemma 1, corollary 2"
    decides: ClassVar[str] = "Y1 Y2 Y3"

    seeds: int = 32
    """How many seeds, counted from 1: of the setting that is certified, and of the networks of every depth."""
    triples: int = 1_200
    """Triples of a teacher, a student and data, numbered from 0; kinds come in turn."""
    samples: tuple[int, ...] = (1_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 40_000, 50_000, 100_000)
    """Samples N(0, I) in the plane with which the setting is certified: two teacher nodes, students of `multiple`."""
    multiple: float = 2.0
    """How many times as many nodes as the teacher the students have, in the setting and in training."""
    angle: float = 90.0
    """Angle of the two teacher nodes, in degrees."""
    outputs: int = 2
    """Outputs of the setting and in training."""
    distance: float = 1e-6
    """How far the weights of the setting's student are off, relative to their length."""
    students: int = 16
    """Seeds of students that are trained, each from every start."""
    near: tuple[float, ...] = (0.0, 3.0)
    """How near to the teacher students start: 0 anywhere, 10 very near (S2 sec 4.2)."""
    lr: float = 0.5
    """Learning rate of full-batch gradient descent on ½‖f*−f‖²."""
    epochs: int = 100
    """Epochs of training."""
    steps: int = 100
    """Steps an epoch."""
    train: int = 1_000
    """Training samples."""
    certify: int = 50_000
    """Samples with which students are certified along training."""
    more: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    """Samples with which they are certified after the last epoch."""
    depths: tuple[int, ...] = (2, 3, 4, 5, 6)
    """Layers of the networks whose gradients are compared, at most 6."""
    leaky: tuple[float, ...] = (0.0, 0.2)
    """Slopes below zero of these: 0 is ReLU."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=6,
            triples=90,
            samples=(3_000, 10_000, 30_000, 50_000),
            students=4,
            near=(3.0,),
            epochs=30,
            certify=50_000,
            more=(3_000, 30_000, 100_000),
        )

    def validate(self) -> None:
        for field in ("triples", "outputs", "students", "epochs", "steps", "train", "certify"):
            check(self, field, least=1)
        for field in ("samples", "more"):
            check(self, field, least=1, distinct=True)
        for field in ("multiple", "lr", "angle"):
            check(self, field, above=0)
        check(self, "distance", least=0)
        check(self, "near", least=0, distinct=True)
        check(self, "depths", least=2, distinct=True)
        check(self, "leaky", least=0, distinct=True)
        if max(self.depths) > len(WIDTHS) + 1:
            raise UserError(f"--depths: {max(self.depths)} was given; allowed are 2 to {len(WIDTHS) + 1} layers")
        if self.angle >= 180:
            raise UserError(f"--angle: {self.angle:g} was given; allowed is a number above 0 and below 180")
        if max(self.leaky) >= 1:
            raise UserError(f"--leaky: {max(self.leaky):g} was given; allowed are numbers from 0 and below 1")
        if us.students.hidden_sizes((2, 2, self.outputs), self.multiple)[0] < 2:
            raise UserError(f"--multiple: {self.multiple:g} was given; the setting's student has the teacher's nodes")

    def looks(self) -> list[int]:
        """Epochs at which students in training are certified: close together at first."""
        later = np.geomspace(_FIRST_LOOKS[-1], self.epochs, 8).round().astype(int).tolist()
        return sorted({epoch for epoch in (*_FIRST_LOOKS, *later) if epoch <= self.epochs} | {self.epochs})

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for some in blocks(range(self.triples), _TRIPLES):
            yield Piece(f"triples {some[0]} to {some[-1]}", len(some), partial(self._some_triples, some))
        for seeds in blocks(self.seed_names, _TOGETHER):
            yield Piece(f"setting, seeds {seeds[0]} to {seeds[-1]}", len(seeds), partial(self._setting, seeds))
        for near in self.near:
            for seeds in blocks(range(1, self.students + 1), _TOGETHER):
                name = f"training from {near:g}, seeds {seeds[0]} to {seeds[-1]}"
                yield Piece(name, len(seeds), partial(self._training, near, seeds))
        for depth in self.depths:
            for slope in self.leaky:
                name = f"{depth} layers, slope {slope:g}"
                yield Piece(name, self.seeds, partial(self._identities, depth, slope))

    def _some_triples(self, numbers: range, first: int) -> Tables:
        from understudy.papers.specialization.certificates.triples import triple
        from understudy.papers.specialization.certificates.verdicts import verdicts

        rows: list[list[_Row]] = []
        parameters: dict[str, list[Any]] = {"kind": [], "dim": [], "layers": [], "slope": []}
        for number in numbers:
            made = triple(number)
            rows.append([(0, len(made.x), verdicts(made.teacher, made.student, made.x))])
            shape = made.kind, made.teacher.inputs, len(made.teacher.layers), made.teacher.slope
            for column, value in zip(parameters.values(), shape, strict=True):
                column.append(value)
        return _tables(first, list(numbers), "triples", parameters, rows)

    def _teachers(self, seeds: range) -> Population:
        import torch

        return us.teachers.crossing(seeds, outputs=self.outputs, angle=self.angle, dtype=torch.float64)

    def _setting(self, seeds: range, first: int) -> Tables:
        from understudy.papers.specialization.certificates.triples import perturbed_copy

        teachers = self._teachers(seeds)
        idle = us.students.hidden_sizes(teachers.sizes, self.multiple)[0] - teachers.sizes[1]
        rows = []
        for i, seed in enumerate(seeds):
            student = perturbed_copy(teachers[i], idle, self.distance, seed)
            rows.append([(0, *_certified(teachers[i], student, seed, count)) for count in self.samples])
        return _tables(first, list(seeds), "setting", {}, rows)

    def _training(self, near: float, seeds: range, first: int) -> Tables:
        from understudy.training import GD, Group, Training

        teachers = self._teachers(seeds)
        students = us.students.near(teachers, multiple=self.multiple, weights=near, fan_out=near)
        data = us.data.Gaussian(2, 1.0, train=self.train, evaluation=1)
        training = Training([Group(students, teachers, data)], GD(lr=self.lr), steps=self.steps, device="cpu")
        rows: list[list[_Row]] = [[] for _ in seeds]
        for epoch in range(self.epochs + 1):
            if epoch:
                training.advance()
            if epoch not in self.looks():
                continue
            (now,), alive = training.populations(), training.alive.tolist()
            for i, seed in enumerate(seeds):
                counts = {self.certify} | (set(self.more) if epoch == self.epochs else set())
                for count in sorted(counts) if alive[i] else ():
                    rows[i].append((epoch, *_certified(teachers[i], now[i], seed, count)))
        diverged = [None if at < 0 else at for at in training.diverged_at.tolist()]
        return _tables(first, list(seeds), "training", {"near": [near] * len(seeds)}, rows, diverged)

    def _identities(self, depth: int, slope: float, first: int) -> Tables:
        import torch

        from understudy.papers.specialization.certificates.verdicts import region_variation, rule_errors

        seeds = range(1, self.seeds + 1)
        sizes = (_INPUTS, *WIDTHS[: depth - 1], 4)
        teachers = us.teachers.separated(sizes, seeds=seeds, slope=slope, bias_spread=0.5, dtype=torch.float64)
        students = us.students.like_linear(teachers, multiple=2)
        data = us.data.Gaussian(_INPUTS, 1.5, train=_COMPARED, evaluation=1)
        values: dict[str, list[list[float]]] = {"rule": [], "varies": []}
        for i, seed in enumerate(seeds):
            three = teachers[i], students[i], data.training(seed, dtype=torch.float64)
            values["rule"].append(rule_errors(*three))
            values["varies"].append(region_variation(*three))
        parameters: dict[str, list[Any]] = {"layers": [depth] * self.seeds, "slope": [slope] * self.seeds}
        return _tables(first, list(seeds), "identities", parameters, [[] for _ in seeds], layers=values)


def _blocks(count: int) -> list[range]:
    return [range(first, min(first + _TOGETHER, count + 1)) for first in range(1, count + 1, _TOGETHER)]


def _certified(teacher: Population, student: Population, seed: int, samples: int) -> tuple[int, list[NodeVerdict]]:
    import torch

    from understudy.papers.specialization.certificates.verdicts import verdicts

    x = us.data.Gaussian(teacher.inputs, 1.0, train=1, evaluation=samples).evaluating(seed, dtype=torch.float64)
    return samples, verdicts(teacher, student, x, AUGMENTED)


def _tables(
    first: int,
    seeds: list[int],
    part: str,
    parameters: dict[str, list[Any]],
    rows: list[list[_Row]],
    diverged: list[int | None] | None = None,
    layers: Mapping[str, list[list[float]]] | None = None,
) -> Tables:
    """Rows of a piece: verdicts among the nodes; among the metrics how many, and what was measured a layer."""
    network = np.arange(first, first + len(seeds), dtype=np.int32)
    every = [
        (net, epoch, count, *verdict)
        for net, looks in zip(network.tolist(), rows, strict=True)
        for epoch, count, said in looks
        for verdict in said
    ]
    names = ("network", "epoch", "samples", "result", "teacher", "certified", "contradicted", "eps", "nearest")
    kinds = (pa.int32(), pa.int32(), pa.int64(), pa.string(), pa.int32(), pa.bool_(), pa.bool_(), *2 * (pa.float64(),))
    columns = zip(*every, strict=True) if every else ((),) * len(names)
    nodes = {name: pa.array(list(of), kind) for name, of, kind in zip(names, columns, kinds, strict=True)}
    nodes["layer"] = pa.array([0] * len(every), pa.int16())
    metrics: list[tuple[int, int, str, float]] = [
        (net, -1, name, float(sum(getattr(verdict, name) for _, _, said in looks for verdict in said)))
        for net, looks in zip(network.tolist(), rows, strict=True)
        for name in ("certified", "contradicted")
    ]
    for name, values in (layers or {}).items():
        metrics += _by_layer(network.tolist(), name, values)
    return {
        "networks": pa.table(
            {
                "network": network,
                "seed": pa.array(seeds, pa.int64()),
                "part": [part] * len(seeds),
                **parameters,
                "diverged_at": pa.array(diverged or [None] * len(seeds), pa.int64()),
            }
        ),
        "metrics": pa.table(
            {
                "network": pa.array([row[0] for row in metrics], pa.int32()),
                "epoch": pa.array([0] * len(metrics), pa.int32()),
                "layer": pa.array([row[1] for row in metrics], pa.int16()),
                "metric": pa.array([row[2] for row in metrics], pa.string()),
                "value": pa.array([row[3] for row in metrics], pa.float64()),
            }
        ),
        "nodes": pa.table(nodes),
    }


def _by_layer(network: Iterable[int], name: str, values: list[list[float]]) -> list[tuple[int, int, str, float]]:
    return [
        (net, layer, name, value) for net, each in zip(network, values, strict=True) for layer, value in enumerate(each)
    ]
