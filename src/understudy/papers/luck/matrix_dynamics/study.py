"""The study `matrix-dynamics`: products of matrices as dynamics, next to SGD (Tian et al. 2019, theorem 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Distinct, Steps
from understudy.lab.pieces import blocks, network_rows, table_rows
from understudy.lab.study import Piece
from understudy.papers.luck.shared import ExactDescent, diverged_steps

if TYPE_CHECKING:
    from understudy.papers.luck.theory.matrix_dynamics import DescentReading

PATHS = ("eqn 6", "SGD")
"""What a network follows: the matrix dynamics, or the gradient. The values of the column `path`."""
PATH_NAMES = dict(zip(PATHS, ("eq. 6", "SGD"), strict=True))
"""The paths as they are shown to people."""
_SEEDS_PER_PIECE = 2
_FEW = 256
"""Evaluation inputs on which assumption 1 is measured."""


@dataclass(frozen=True)
class MatrixDynamics(ExactDescent):
    """How far the gradient is from what it would be if expectations factorised, and where the two trajectories lead.

    Euler steps of Ẇ = L*W*H* − LWH, with all expectations over the batch, next to plain SGD from the same initial
    weights on the same batches. Along both trajectories the two velocities are compared on evaluation inputs.
    """

    name: ClassVar[str] = "matrix-dynamics"
    summary: ClassVar[str] = "the dynamics under factorised expectations next to SGD, and how far apart they are"
    figures: ClassVar[str] = "S2 theorem 2"
    decides: ClassVar[str] = "Y8"
    arrays: ClassVar[tuple[str, ...]] = (
        "batch dim",
        "dim multiple",
        "outputs multiple",
        "evaluation dim",
        "evaluation outputs",
    )

    hidden: Annotated[tuple[str, ...], Distinct()] = ("20", "15-20", "10-15-20")
    """Teachers: the nodes of their hidden layers, from the lowest."""
    lr: Annotated[tuple[float, ...], Gt(0)] = (0.05, 0.05, 0.01)
    """Learning rates on ½‖f*−f‖² of teachers with one, two, … hidden layers; the last is that of all deeper ones."""
    steps: Steps = 5_000
    """Number of steps."""
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

    def rate(self, hidden: str) -> float:
        """Learning rate for teachers with these hidden layers."""
        return self.lr[min(len(layers(hidden)), len(self.lr)) - 1]

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        for hidden, seeds, path in product(self.hidden, blocks(self.seed_names, _SEEDS_PER_PIECE), PATHS):
            name = f"{hidden}, {path}, seeds {seeds[0]} to {seeds[-1]}"
            yield Piece(name, len(seeds), partial(self._piece, hidden, path, seeds))

    def _piece(self, hidden: str, path: str, seeds: range, first: int) -> dict[str, Any]:
        """Metrics up to the step at which a network diverged, and the best student of each teacher node."""
        import torch

        from understudy.papers.luck.theory.matrix_dynamics import matrix_gradient, probe_descent
        from understudy.theory.gradient_flow import batches, velocity

        teacher, student, source = self.initial(layers(hidden), seeds, evaluation=self.evaluation)
        x = torch.stack([source.evaluating(seed, dtype=torch.float64) for seed in seeds]).to(self.device)
        inputs = batches(source, seeds, self.batch, self.steps, self.device)
        along, every = matrix_gradient if path == PATHS[0] else velocity, self.steps // self.probes
        readings = list(probe_descent(teacher, student, inputs, self.rate(hidden), along, x, every=every, few=_FEW))
        numbers = np.arange(first, first + len(seeds), dtype=np.int32)
        alive = np.stack([np.isfinite(reading.loss.cpu().numpy()) for reading in readings])
        steps = [reading.step for reading in readings]
        return {
            "networks": network_rows(first, seeds, diverged_steps(alive, steps), hidden=hidden, path=path),
            "metrics": pa.concat_tables(
                row for reading, some in zip(readings, alive, strict=True) for row in _metrics(reading, numbers, some)
            ),
            "nodes": pa.concat_tables(row for reading in readings for row in _matches(reading, numbers)),
        }


def layers(hidden: str) -> tuple[int, ...]:
    """Nodes of the hidden layers: `15-20` is (15, 20)."""
    return tuple(int(part) for part in hidden.split("-"))


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
