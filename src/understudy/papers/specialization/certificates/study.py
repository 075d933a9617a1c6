"""The study `certificates`: theorems that certify a student for a teacher node (Tian 2020, theorems 1, 3, 4, 5).

They are tested on triples of a teacher, a student and data that are designed to make a certificate wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt, Le, Lt

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Counts, Distinct, NonNegative, NonNegatives, Positive, Steps
from understudy.lab.pieces import blocks, network_rows, table_rows
from understudy.lab.study import ExactStudy, Piece, Tables

if TYPE_CHECKING:
    from understudy.papers.specialization.certificates.verdicts import NodeVerdict

AUGMENTED = {"S0 theorem 3": "augmented along the axes", "S0 theorem 4": "augmented along the teacher's weights"}
"""The theorems whose certificates become more with samples and with training."""
WIDTHS = (8, 6, 7, 5, 6)
"""Teacher nodes of the hidden layers of deep networks, from the lowest."""
_TRIPLES, _TOGETHER = 100, 4
"""Triples, and seeds, per piece."""
_FIRST_PROBES = (0, 1, 2, 3, 5)
_INPUTS, _COMPARED = 6, 300
"""Inputs and samples of the networks whose gradients are compared with backpropagation."""


@dataclass(frozen=True)
class Certificates(ExactStudy):
    """Whether the theorems, with their constants, ever certify a node wrongly, and what a certificate requires.

    Four parts: triples of a teacher, a student and data that are random or adversarial; one small setting with more
    and more samples; students during training; and the two identities that the theorems rest on, for networks of 2 to
    6 layers.
    """

    name: ClassVar[str] = "certificates"
    summary: ClassVar[str] = "whether certificates of alignment are ever wrong, and how many samples they require"
    figures: ClassVar[str] = "S0 theorems 1, 3, 4, 5, lemma 1, corollary 2"
    decides: ClassVar[str] = "Y1 Y2 Y3"
    arrays: ClassVar[tuple[str, ...]] = (
        "certify outputs",
        "samples outputs",
        "more outputs",
        "train outputs",
        "outputs multiple",
    )

    seeds: Count = 32
    """Number of seeds, counted from 1, of the setting that is certified and of the networks of every depth."""
    triples: Count = 1_200
    """Triples of a teacher, a student and data, numbered from 0; the kinds alternate."""
    samples: Counts = (1_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 40_000, 50_000, 100_000)
    """Samples N(0, I) in the plane with which the setting is certified: two teacher nodes, students of `multiple`."""
    multiple: Positive = 2.0
    """Student nodes per teacher node, in the setting and in training."""
    angle: Annotated[float, Gt(0), Lt(180)] = 90.0
    """Angle between the two teacher nodes, in degrees."""
    outputs: Count = 2
    """Outputs in the setting and in training."""
    distance: NonNegative = 1e-6
    """Distance of the weights of the setting's student from the teacher's, relative to their length."""
    students: Count = 16
    """Seeds of students that are trained, each from every start."""
    near: NonNegatives = (0.0, 3.0)
    """How near to the teacher students start: 0 is random, 10 very near (Tian et al. 2019, sec. 4.2)."""
    lr: Positive = 0.5
    """Learning rate of full-batch gradient descent on ½‖f*−f‖²."""
    epochs: Steps = 100
    """Epochs of training."""
    steps: Steps = 100
    """Steps per epoch."""
    train: Count = 1_000
    """Training samples."""
    certify: Count = 50_000
    """Samples with which students are certified during training."""
    more: Counts = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    """Samples with which they are certified after the last epoch."""
    depths: Annotated[tuple[int, ...], Ge(2), Le(len(WIDTHS) + 1), Distinct()] = (2, 3, 4, 5, 6)
    """Layers of the networks whose gradients are compared, at most 6."""
    leaky: Annotated[tuple[float, ...], Ge(0), Lt(1), Distinct()] = (0.0, 0.2)
    """Slopes of these networks below zero; 0 is ReLU."""

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
        if us.students.hidden_sizes((2, 2, self.outputs), self.multiple)[0] < 2:
            raise UserError(
                f"--multiple must give students at least the teacher's 2 nodes: choose 1 or more, got {self.multiple:g}"
            )

    def probed_epochs(self) -> list[int]:
        """Epochs at which students in training are certified: close together at first."""
        later = np.geomspace(_FIRST_PROBES[-1], self.epochs, 8).round().astype(int).tolist()
        return sorted({epoch for epoch in (*_FIRST_PROBES, *later) if epoch <= self.epochs} | {self.epochs})

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        for some in blocks(range(self.triples), _TRIPLES):
            yield Piece(f"triples {some[0]} to {some[-1]}", 0, partial(self._some_triples, some))
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

        triples, rows = [], []
        for number in numbers:
            made = triple(number)
            found = verdicts(made.teacher, made.student, made.x)
            row = {
                "seed": number,
                "kind": made.kind,
                "dim": made.teacher.inputs,
                "layers": len(made.teacher.layers),
                "slope": made.teacher.slope,
                "samples": len(made.x),
                "certified": sum(verdict.certified for verdict in found),
                "contradicted": sum(verdict.contradicted for verdict in found),
            }
            triples.append(row)
            rows += _verdict_rows("triples", number, 0, len(made.x), found, kind=made.kind)
        return {"triples": pa.Table.from_pylist(triples), "verdicts": _verdict_table(rows)}

    def _teachers(self, seeds: range) -> us.Population:
        import torch

        return us.teachers.crossing(seeds, outputs=self.outputs, angle=self.angle, dtype=torch.float64)

    def _setting(self, seeds: range, first: int) -> Tables:
        from understudy.papers.specialization.certificates.triples import perturbed_copy

        teachers = self._teachers(seeds)
        idle = us.students.hidden_sizes(teachers.sizes, self.multiple)[0] - teachers.sizes[1]
        rows = []
        for i, seed in enumerate(seeds):
            student = perturbed_copy(teachers[i], idle, self.distance, seed)
            for count in self.samples:
                rows += _verdict_rows("setting", seed, 0, count, _certify(teachers[i], student, seed, count))
        return {"networks": network_rows(first, seeds, part="setting"), "verdicts": _verdict_table(rows)}

    def _training(self, near: float, seeds: range, first: int) -> Tables:
        from understudy.training import GD, Group, Training

        teachers = self._teachers(seeds)
        students = us.students.near(teachers, multiple=self.multiple, weights=near, fan_out=near)
        data = us.data.Gaussian(2, 1.0, train=self.train, evaluation=1)
        training = Training([Group(students, teachers, data)], GD(lr=self.lr), steps=self.steps, device="cpu")
        rows = []
        for epoch in range(self.epochs + 1):
            if epoch:
                training.advance()
            if epoch not in self.probed_epochs():
                continue
            (now,), alive = training.populations(), training.alive.tolist()
            counts = sorted({self.certify} | (set(self.more) if epoch == self.epochs else set()))
            for i, seed in enumerate(seeds):
                for count in counts if alive[i] else ():
                    found = _certify(teachers[i], now[i], seed, count)
                    rows += _verdict_rows("training", seed, epoch, count, found, near=near)
        diverged = [None if at < 0 else at for at in training.diverged_at.tolist()]
        networks = network_rows(first, seeds, diverged, part="training", near=near)
        return {"networks": networks, "verdicts": _verdict_table(rows)}

    def _identities(self, depth: int, slope: float, first: int) -> Tables:
        import torch

        from understudy.papers.specialization.certificates.verdicts import region_variation, rule_errors

        seeds = self.seed_names
        sizes = (_INPUTS, *WIDTHS[: depth - 1], 4)
        teachers = us.teachers.distinct_rows(sizes, seeds=seeds, slope=slope, bias_spread=0.5, dtype=torch.float64)
        students = us.students.like_linear(teachers, multiple=2)
        data = us.data.Gaussian(_INPUTS, 1.5, train=_COMPARED, evaluation=1)
        metrics = []
        for i, seed in enumerate(seeds):
            three = teachers[i], students[i], data.training(seed, dtype=torch.float64)
            for name, values in {"rule": rule_errors(*three), "varies": region_variation(*three)}.items():
                metrics.append(table_rows(first + i, 0, range(len(values)), metric=name, value=values))
        networks = network_rows(first, seeds, part="identities", layers=depth, slope=slope)
        return {"networks": networks, "metrics": pa.concat_tables(metrics)}


def _certify(teacher: us.Population, student: us.Population, seed: int, samples: int) -> list[NodeVerdict]:
    import torch

    from understudy.papers.specialization.certificates.verdicts import verdicts

    x = us.data.Gaussian(teacher.inputs, 1.0, train=1, evaluation=samples).evaluating(seed, dtype=torch.float64)
    return verdicts(teacher, student, x, AUGMENTED)


def _verdict_rows(
    part: str, seed: int, epoch: int, samples: int, found: Sequence[NodeVerdict], **parameters: Any
) -> list[dict[str, Any]]:
    """One row per theorem and teacher node of a network or triple."""
    here = {"part": part, "seed": seed, "epoch": epoch, "samples": samples, **parameters}
    return [here | verdict._asdict() for verdict in found]


def _verdict_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    kinds = {
        "part": pa.string(),
        "kind": pa.string(),
        "seed": pa.int64(),
        "near": pa.float64(),
        "epoch": pa.int32(),
        "samples": pa.int64(),
        "result": pa.string(),
        "teacher": pa.int32(),
        "certified": pa.bool_(),
        "contradicted": pa.bool_(),
        "eps": pa.float64(),
        "nearest": pa.float64(),
    }
    return pa.Table.from_pylist(list(rows), pa.schema(kinds))
