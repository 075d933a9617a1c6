"""The study `matrix-dynamics`: products of matrices as dynamics, next to SGD (Tian et al. 2019, theorem 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, Positive
from understudy.lab.pieces import blocks, table_rows
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.papers.luck.theory.matrix_dynamics import DescentReading
    from understudy.store import Run

PATHS = ("eqn 6", "SGD")
"""What a network follows: the matrix dynamics, or the gradient."""
_SEEDS_PER_PIECE = 2
_BLOCK = 100
"""Batches that are drawn at a time."""
_FEW = 256
"""Evaluation inputs on which assumption 1 is measured."""


@dataclass(frozen=True)
class MatrixDynamics(ExactStudy):
    """How far the gradient is from what it would be if expectations factorised, and where the two trajectories lead.

    Euler steps of Ẇ = L*W*H* − LWH, with all expectations over the batch, next to plain SGD from the same initial
    weights on the same batches. Along both trajectories the two velocities are compared on evaluation inputs.
    """

    name: ClassVar[str] = "matrix-dynamics"
    summary: ClassVar[str] = "the dynamics under factorised expectations next to SGD, and how far apart they are"
    figures: ClassVar[str] = "S2 theorem 2"
    decides: ClassVar[str] = "Y8"
    renamed: ClassVar[dict[str, str]] = {"looks": "probes"}

    seeds: Count = 8
    """Number of seeds, counted from 1: each is a teacher, its data and its student's initial weights."""
    hidden: Annotated[tuple[str, ...], Distinct()] = ("20", "15-20", "10-15-20")
    """Teachers: the nodes of their hidden layers, from the lowest."""
    dim: Count = 10
    """Number of inputs, N(0, 1) each."""
    outputs: Count = 30
    """Number of outputs."""
    multiple: Positive = 2.0
    """Over-parameterization: student nodes per teacher node in every hidden layer."""
    lr: Positive = 0.05
    """Learning rate on ½‖f*−f‖²."""
    batch: Count = 64
    """Samples per step; every step draws new ones."""
    steps: Count = 5_000
    """Number of steps."""
    probes: Count = 20
    """Number of probes, besides the one at the start."""
    evaluation: Annotated[int, Ge(2)] = 2_000
    """Evaluation inputs, on which velocities, losses and correlations are measured."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, hidden=("20", "15-20"), steps=1_000, probes=10, evaluation=500)

    def validate(self) -> None:
        if self.steps % self.probes:
            raise UserError(f"--probes must divide the number of steps ({self.steps:,}), got {self.probes}")
        for hidden in self.hidden:
            if not all(part.isdecimal() and int(part) for part in hidden.split("-")):
                raise UserError(f"--hidden must be numbers of nodes joined by -, such as 15-20, got {hidden}")
            us.students.hidden_sizes((self.dim, *layers(hidden), self.outputs), self.multiple)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for hidden in self.hidden:
            for seeds in blocks(self.seed_names, _SEEDS_PER_PIECE):
                for path in PATHS:
                    name = f"{hidden}, {path}, seeds {seeds[0]} to {seeds[-1]}"
                    yield Piece(name, len(seeds), partial(self._piece, hidden, path, list(seeds)))

    def _piece(self, hidden: str, path: str, seeds: list[int], first: int) -> Tables:
        numbers = np.arange(first, first + len(seeds), dtype=np.int32)
        parameters = {"network": numbers, "seed": seeds, "hidden": [hidden] * len(seeds), "path": [path] * len(seeds)}
        return _tables(list(self._readings(hidden, path, seeds)), numbers, parameters)

    def _readings(self, hidden: str, path: str, seeds: list[int]) -> Iterator[DescentReading]:
        import torch

        from understudy.papers.luck.theory import matrix_dynamics
        from understudy.theory import gradient_flow

        sizes = (self.dim, *layers(hidden), self.outputs)
        teacher = us.teachers.separated(sizes, seeds=seeds, bias_spread=0.5, dtype=torch.float64).to(self.device)
        student = us.students.like_linear(teacher, multiple=self.multiple)
        source = us.data.Gaussian(self.dim, 1.0, train=_BLOCK * self.batch, evaluation=self.evaluation, fresh=True)
        x = torch.stack([source.evaluating(seed, dtype=torch.float64) for seed in seeds]).to(self.device)
        along = matrix_dynamics.matrix_gradient if path == PATHS[0] else gradient_flow.velocity
        batches = gradient_flow.batches(source, seeds, self.batch, self.steps, self.device)
        every = self.steps // self.probes
        return matrix_dynamics.probe_descent(teacher, student, batches, self.lr, along, x, every=every, few=_FEW)


def layers(hidden: str) -> tuple[int, ...]:
    """Nodes of the hidden layers: `15-20` is (15, 20)."""
    return tuple(int(part) for part in hidden.split("-"))


def _tables(readings: list[DescentReading], numbers: np.ndarray, parameters: dict[str, object]) -> Tables:
    """Metrics up to the step at which a network diverged, and the best student of each teacher node."""
    alive = np.stack([np.isfinite(reading.loss.cpu().numpy()) for reading in readings])
    diverged = [None if column.all() else readings[int(np.argmin(column))].step for column in alive.T]
    return {
        "networks": pa.table(parameters | {"diverged_at": pa.array(diverged, pa.int64())}),
        "metrics": pa.concat_tables(
            row for reading, some in zip(readings, alive, strict=True) for row in _metrics(reading, numbers, some)
        ),
        "nodes": pa.concat_tables(row for reading in readings for row in _matches(reading, numbers)),
    }


def _metrics(reading: DescentReading, numbers: np.ndarray, some: np.ndarray) -> Iterator[pa.Table]:
    values = [(-1, "eval_loss", reading.loss)]
    for layer, rho in enumerate(reading.rho):
        values += [
            (layer, "rho_mean", us.measures.mean_best_correlation(rho)),
            (layer, "recovered", us.measures.recovered_share(rho)),
            (layer, "eqn_4", reading.gaps[layer].star),
            (layer, "eqn_5", reading.gaps[layer].plain),
        ]
    for layer, found in enumerate(reading.velocities):
        values += [(layer, "cosine", found.cosine), (layer, "distance", found.distance)]
    for layer, metric, value in values:
        yield table_rows(numbers[some], reading.step, layer, metric=metric, value=value.cpu().numpy()[some])


def _matches(reading: DescentReading, numbers: np.ndarray) -> Iterator[pa.Table]:
    for layer, rho in enumerate(reading.rho):
        best = us.measures.best_students(rho)
        nets, nodes = best.partner.shape
        yield table_rows(
            np.repeat(numbers, nodes),
            reading.step,
            layer,
            role="teacher",
            teacher=np.tile(np.arange(nodes, dtype=np.int32), nets),
            student=best.partner.cpu().numpy().ravel().astype(np.int32),
            correlation=best.correlation.cpu().numpy().ravel(),
        )
