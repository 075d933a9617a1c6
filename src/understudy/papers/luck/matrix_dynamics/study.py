"""Dynamics as products of matrices, simulated beside SGD from the same start on the same batches: S2 theorem 2."""

from __future__ import annotations

from collections.abc import Iterator
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
    from understudy.papers.luck.theory.matrix_dynamics import DescentReading
    from understudy.store import Run

PATHS = ("eqn 6", "SGD")
"""What a network follows: the matrix dynamics, or the gradient."""
_TOGETHER = 2
"""Seeds in a piece of work."""
_BLOCK = 100
"""Batches that are drawn at a time."""
_FEW = 256
"""Evaluation inputs on which Assumption 1 is checked."""


@dataclass(frozen=True)
class MatrixDynamics(ExactStudy):
    """How far the gradient is from what it would be if expectations separated, and where the two ways lead.

    Euler steps of Ẇ = L*W*H* − LWH, all expectations taken over the batch, beside plain SGD; along both ways the two
    velocities are compared on evaluation inputs.
    """

    name: ClassVar[str] = "matrix-dynamics"
    summary: ClassVar[str] = "the dynamics under separated expectations beside SGD, and how far apart they are"
    figures: ClassVar[str] = "S2 theorem 2"
    decides: ClassVar[str] = "Y8"

    seeds: int = 8
    """How many seeds, counted from 1: each is a teacher, its data and its student's first weights."""
    hidden: tuple[str, ...] = ("20", "15-20", "10-15-20")
    """Teachers: nodes of their hidden layers, the lowest first."""
    dim: int = 10
    """Inputs, N(0, 1) each."""
    outputs: int = 30
    """Outputs."""
    multiple: float = 2.0
    """How many times as many hidden nodes the student has."""
    lr: float = 0.05
    """Learning rate on ½‖f*−f‖²."""
    batch: int = 64
    """Samples in a batch; every step has a fresh one."""
    steps: int = 5_000
    """Steps of either way."""
    looks: int = 20
    """How often they are looked at, beside the start."""
    evaluation: int = 2_000
    """Evaluation inputs, over which velocities, losses and correlations are taken."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, hidden=("20", "15-20"), steps=1_000, looks=10, evaluation=500)

    def validate(self) -> None:
        for field in ("dim", "outputs", "batch", "steps", "looks"):
            check(self, field, least=1)
        check(self, "evaluation", least=2)
        check(self, "lr", above=0)
        check(self, "multiple", above=0)
        if self.steps % self.looks:
            raise UserError(
                f"--looks: {self.looks} was given; allowed is a number that divides the {self.steps:,} steps"
            )
        if not self.hidden or len(set(self.hidden)) < len(self.hidden):
            raise UserError("--hidden: name one teacher or more, each once, such as 20 15-20")
        for sizes in self.hidden:
            if not all(part.isdecimal() and int(part) for part in sizes.split("-")):
                raise UserError(
                    f"--hidden: {sizes} was given; allowed are numbers of nodes with - between, as in 15-20"
                )
            us.students.hidden_sizes((self.dim, *layers(sizes), self.outputs), self.multiple)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for hidden in self.hidden:
            for seeds in blocks(self.seed_names, _TOGETHER):
                for way in PATHS:
                    name = f"{hidden}, {way}, seeds {seeds[0]} to {seeds[-1]}"
                    yield Piece(name, len(seeds), partial(self._piece, hidden, way, list(seeds)))

    def _piece(self, hidden: str, way: str, seeds: list[int], first: int) -> Tables:
        looks = list(self._looks(hidden, way, seeds))
        return _tables(looks, hidden, way, seeds, np.arange(first, first + len(seeds), dtype=np.int32))

    def _looks(self, hidden: str, way: str, seeds: list[int]) -> Iterator[DescentReading]:
        import torch

        from understudy.papers.luck.theory import matrix_dynamics
        from understudy.theory import gradient_flow

        sizes = (self.dim, *layers(hidden), self.outputs)
        teacher = us.teachers.separated(sizes, seeds=seeds, bias_spread=0.5, dtype=torch.float64).to(self.device)
        student = us.students.like_linear(teacher, multiple=self.multiple)
        source = us.data.Gaussian(self.dim, 1.0, train=_BLOCK * self.batch, evaluation=self.evaluation, fresh=True)
        x = torch.stack([source.evaluating(seed, dtype=torch.float64) for seed in seeds]).to(self.device)
        along = matrix_dynamics.matrix_gradient if way == PATHS[0] else gradient_flow.velocity
        batches = gradient_flow.batches(source, seeds, self.batch, self.steps, self.device)
        every = self.steps // self.looks
        return matrix_dynamics.probe_descent(teacher, student, batches, self.lr, along, x, every=every, few=_FEW)


def layers(hidden: str) -> tuple[int, ...]:
    """`15-20` as (15, 20)."""
    return tuple(int(part) for part in hidden.split("-"))


def _tables(looks: list[DescentReading], hidden: str, way: str, seeds: list[int], numbers: np.ndarray) -> Tables:
    """Every look among the metrics, up to where a network diverged; among the nodes, each teacher node's best."""
    alive = np.stack([np.isfinite(look.loss.cpu().numpy()) for look in looks])
    metrics = [row for look, there in zip(looks, alive, strict=True) for row in _rows(look, numbers, there)]
    diverged = [None if column.all() else looks[int(np.argmin(column))].step for column in alive.T]
    return {
        "networks": pa.table(
            {
                "network": numbers,
                "seed": seeds,
                "hidden": [hidden] * len(seeds),
                "path": [way] * len(seeds),
                "diverged_at": pa.array(diverged, pa.int64()),
            }
        ),
        "metrics": pa.concat_tables(map(pa.table, metrics)),
        "nodes": pa.concat_tables(pa.table(rows) for look in looks for rows in _matches(look, numbers)),
    }


def _rows(look: DescentReading, numbers: np.ndarray, there: np.ndarray) -> Iterator[dict[str, Any]]:
    values: list[tuple[int, str, Any]] = [(-1, "eval_loss", look.loss)]
    for layer, rho in enumerate(look.rho):
        values += [
            (layer, "rho_mean", us.measures.mean_best_correlation(rho)),
            (layer, "recovered", us.measures.recovered_share(rho)),
            (layer, "eqn_4", look.gaps[layer].star),
            (layer, "eqn_5", look.gaps[layer].plain),
        ]
    for layer, found in enumerate(look.velocities):
        values += [(layer, "cosine", found.cosine), (layer, "distance", found.distance)]
    count = int(there.sum())
    for layer, metric, value in values:
        yield {
            "network": numbers[there],
            "epoch": np.full(count, look.step, np.int32),
            "layer": np.full(count, layer, np.int16),
            "metric": pa.array([metric] * count, pa.string()),
            "value": value.cpu().numpy()[there],
        }


def _matches(look: DescentReading, numbers: np.ndarray) -> Iterator[dict[str, Any]]:
    for layer, rho in enumerate(look.rho):
        best = us.measures.best_students(rho)
        nets, nodes = best.partner.shape
        yield {
            "network": np.repeat(numbers, nodes),
            "epoch": np.full(nets * nodes, look.step, np.int32),
            "layer": np.full(nets * nodes, layer, np.int16),
            "role": ["teacher"] * (nets * nodes),
            "teacher": np.tile(np.arange(nodes, dtype=np.int32), nets),
            "student": best.partner.cpu().numpy().ravel().astype(np.int32),
            "correlation": best.correlation.cpu().numpy().ravel(),
        }
