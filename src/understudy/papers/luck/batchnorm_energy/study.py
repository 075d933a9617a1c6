"""Weight norms under BatchNorm: what the flow conserves drifts as the square of the learning rate: S2 theorem 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import blocks
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.papers.luck.theory.batchnorm_energy import Drift
    from understudy.store import Run

NORMS = ("before", "after", "none")
"""Where BatchNorm stands, seen from the ReLU."""
_TOGETHER = 4
"""Seeds in a piece of work."""
_BLOCK = 100
"""Batches that are drawn at a time."""


@dataclass(frozen=True)
class BatchNormEnergy(ExactStudy):
    """Whether the length of a node's incoming weights stays as it is under BatchNorm, in either order with the ReLU.

    Students with BatchNorm and without, from the same first weights, follow the gradient for the same time, rate ×
    steps, in large and in small steps of plain SGD: where the flow conserves a length, a step changes it by the rate
    squared.
    """

    name: ClassVar[str] = "batchnorm-energy"
    summary: ClassVar[str] = "under BatchNorm weight norms change by the learning rate squared a step, else by the rate"
    figures: ClassVar[str] = "S2 theorem 3"
    decides: ClassVar[str] = "Y9"

    seeds: int = 8
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    teacher_layers: tuple[int, ...] = (15, 20)
    """Nodes of the teacher's hidden layers, the lowest first."""
    dim: int = 10
    """Inputs, N(0, 1) each."""
    outputs: int = 30
    """Outputs."""
    multiple: float = 2.0
    """How many times as many hidden nodes the students have."""
    rates: tuple[float, ...] = (0.0003, 0.001, 0.003, 0.01, 0.03)
    """Learning rates on ½‖f*−f‖², two or more."""
    time: float = 2.0
    """Learning rate × steps: the time for which all follow the gradient."""
    batch: int = 64
    """Samples in a batch; every step has a fresh one."""
    looks: int = 20
    """How often the lengths are looked at, beside the start; steps are rounded to a multiple."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, rates=(0.001, 0.003, 0.01, 0.03), time=0.5, looks=10)

    def validate(self) -> None:
        for field in ("teacher_layers", "dim", "outputs", "looks"):
            check(self, field, least=1)
        check(self, "batch", least=2)
        check(self, "rates", above=0, distinct=True)
        for field in ("time", "multiple"):
            check(self, field, above=0)
        if len(self.rates) < 2:
            raise UserError(f"--rates: {self.rates[0]:g} was given; a slope takes two rates or more")
        us.students.hidden_sizes(self._sizes, self.multiple)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.dim, *self.teacher_layers, self.outputs)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for norm, lr in product(NORMS, self.rates):
            for seeds in blocks(self.seed_names, _TOGETHER):
                name = f"BatchNorm {norm}, rate {lr:g}, seeds {seeds[0]} to {seeds[-1]}"
                yield Piece(name, len(seeds), partial(self._piece, norm, lr, list(seeds)))

    def _piece(self, norm: str, lr: float, seeds: list[int], first: int) -> Tables:
        import torch

        from understudy.papers.luck.theory import batchnorm_energy
        from understudy.theory import gradient_flow

        teacher = us.teachers.separated(self._sizes, seeds=seeds, bias_spread=0.5, dtype=torch.float64)
        teacher = teacher.to(self.device)
        where: Literal["before", "after"] | None = None if norm == "none" else "before" if norm == "before" else "after"
        student = us.students.like_linear(teacher, multiple=self.multiple, norm=where)
        every = max(1, round(self.time / (lr * self.looks)))
        source = us.data.Gaussian(self.dim, 1.0, train=_BLOCK * self.batch, evaluation=1, fresh=True)
        batches = gradient_flow.batches(source, seeds, self.batch, every * self.looks, self.device)
        found = list(batchnorm_energy.drifts(teacher, student, batches, lr, every))
        networks = {
            "network": np.arange(first, first + len(seeds), dtype=np.int32),
            "seed": seeds,
            "norm": [norm] * len(seeds),
            "lr": [lr] * len(seeds),
        }
        return _tables(networks, found, every, student.sizes[1:-1])


def _tables(networks: dict[str, Any], found: list[Drift], every: int, sizes: tuple[int, ...]) -> Tables:
    """Each node's mean change a step and its squared lengths among the nodes; among the metrics, median growth."""
    squared, change = (np.stack([part.cpu().numpy() for part in parts]) for parts in zip(*found, strict=True))
    numbers = networks["network"]
    alive = np.isfinite(squared).all(axis=(1, 3))  # [look, net]
    diverged = [None if there.all() else int(np.argmin(there)) * every for there in alive.T]
    layer = np.repeat(np.arange(len(sizes), dtype=np.int16), sizes)
    nets, nodes = squared.shape[2:]
    steps = every * np.arange(len(squared), dtype=np.int32)
    growth = squared[:, 0] / squared[0, 0]  # [look, net, node]
    metrics = [
        {
            "network": np.repeat(numbers, len(steps)),
            "epoch": np.tile(steps, nets),
            "layer": np.full(nets * len(steps), i, np.int16),
            "metric": ["growth"] * (nets * len(steps)),
            "value": np.median(growth[:, :, layer == i], axis=2).T.ravel(),
        }
        for i in range(len(sizes))
    ]
    with_bias, alone = change[1:].mean(axis=0)
    return {
        "networks": pa.table(networks | {"diverged_at": pa.array(diverged, pa.int64())}),
        "metrics": pa.concat_tables(map(pa.table, metrics)),
        "nodes": pa.table(
            {
                "network": np.repeat(numbers, nodes),
                "epoch": np.full(nets * nodes, steps[-1], np.int32),
                "layer": np.tile(layer, nets),
                "node": np.tile(np.concatenate([np.arange(n, dtype=np.int32) for n in sizes]), nets),
                "first": squared[0, 0].ravel(),
                "squared": squared[-1, 0].ravel(),
                "change": with_bias.ravel(),
                "change_weights": alone.ravel(),
            }
        ),
    }
