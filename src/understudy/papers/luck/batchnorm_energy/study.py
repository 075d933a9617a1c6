"""The study `batchnorm-energy`: weight norms under BatchNorm and without it (Tian et al. 2019, theorem 3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Positive, Positives, Sizes
from understudy.lab.pieces import blocks, table_rows
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.papers.luck.theory.batchnorm_energy import Drift
    from understudy.store import Run

NORMS = ("before", "after", "none")
"""Whether BatchNorm comes before or after the ReLU."""
_SEEDS_PER_PIECE = 4
_BLOCK = 100
"""Batches that are drawn at a time."""


@dataclass(frozen=True)
class BatchNormEnergy(ExactStudy):
    """Whether BatchNorm, before or after the ReLU, conserves the norm of a node's incoming weights.

    Students with and without BatchNorm, from the same initial weights, are trained by plain SGD for the same time,
    learning rate × steps, with large and with small learning rates. Where gradient flow conserves a norm, a step
    changes it in proportion to the square of the learning rate.
    """

    name: ClassVar[str] = "batchnorm-energy"
    summary: ClassVar[str] = (
        "under BatchNorm a step changes weight norms by the squared learning rate, else by the rate"
    )
    figures: ClassVar[str] = "S2 theorem 3"
    decides: ClassVar[str] = "Y9"
    renamed: ClassVar[dict[str, str]] = {"looks": "probes"}

    seeds: Count = 8
    """Number of seeds, counted from 1: each is a teacher, its data and its students' initial weights."""
    teacher_layers: Sizes = (15, 20)
    """Hidden nodes of the teacher, layer by layer from the lowest."""
    dim: Count = 10
    """Number of inputs, N(0, 1) each."""
    outputs: Count = 30
    """Number of outputs."""
    multiple: Positive = 2.0
    """Over-parameterization: student nodes per teacher node in every hidden layer."""
    rates: Positives = (0.0003, 0.001, 0.003, 0.01, 0.03)
    """Learning rates on ½‖f*−f‖², at least two."""
    time: Positive = 2.0
    """Learning rate × steps, the same for all learning rates."""
    batch: Annotated[int, Ge(2)] = 64
    """Samples per step; every step draws new ones."""
    probes: Count = 20
    """Number of probes, besides the one at the start; the number of steps is rounded to a multiple of it."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, rates=(0.001, 0.003, 0.01, 0.03), time=0.5, probes=10)

    def validate(self) -> None:
        if len(self.rates) < 2:
            raise UserError(f"--rates must be at least two learning rates, got {self.rates[0]:g}: they give a slope")
        us.students.hidden_sizes(self._sizes, self.multiple)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.dim, *self.teacher_layers, self.outputs)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for norm, lr in product(NORMS, self.rates):
            for seeds in blocks(self.seed_names, _SEEDS_PER_PIECE):
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
        every = max(1, round(self.time / (lr * self.probes)))
        source = us.data.Gaussian(self.dim, 1.0, train=_BLOCK * self.batch, evaluation=1, fresh=True)
        batches = gradient_flow.batches(source, seeds, self.batch, every * self.probes, self.device)
        found = list(batchnorm_energy.drifts(teacher, student, batches, lr, every))
        networks = {
            "network": np.arange(first, first + len(seeds), dtype=np.int32),
            "seed": seeds,
            "norm": [norm] * len(seeds),
            "lr": [lr] * len(seeds),
        }
        return _tables(networks, found, every, student.sizes[1:-1])


def _tables(networks: dict[str, Any], found: list[Drift], every: int, sizes: tuple[int, ...]) -> Tables:
    """The median growth of each layer, and each node's squared norms and mean change per step."""
    squared, change = (np.stack([part.cpu().numpy() for part in parts]) for parts in zip(*found, strict=True))
    numbers = networks["network"]
    alive = np.isfinite(squared).all(axis=(1, 3))  # [probe, net]
    diverged = [None if column.all() else int(np.argmin(column)) * every for column in alive.T]
    layer = np.repeat(np.arange(len(sizes), dtype=np.int16), sizes)
    nets, nodes = squared.shape[2:]
    steps = every * np.arange(len(squared), dtype=np.int32)
    growth = squared[:, 0] / squared[0, 0]  # [probe, net, node]
    network, step = np.repeat(numbers, len(steps)), np.tile(steps, nets)
    medians = [np.median(growth[:, :, layer == i], axis=2).T.ravel() for i in range(len(sizes))]
    with_bias, alone = change[1:].mean(axis=0)
    return {
        "networks": pa.table(networks | {"diverged_at": pa.array(diverged, pa.int64())}),
        "metrics": pa.concat_tables(
            table_rows(network, step, i, metric="growth", value=value) for i, value in enumerate(medians)
        ),
        "nodes": table_rows(
            np.repeat(numbers, nodes),
            steps[-1],
            np.tile(layer, nets),
            node=np.tile(np.concatenate([np.arange(n, dtype=np.int32) for n in sizes]), nets),
            first=squared[0, 0].ravel(),
            squared=squared[-1, 0].ravel(),
            change=with_bias.ravel(),
            change_weights=alone.ravel(),
        ),
    }
