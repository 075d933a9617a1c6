"""The study `batchnorm-energy`: weight norms under BatchNorm and without it (Tian et al. 2019, theorem 3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Positive, Positives, Sizes
from understudy.lab.pieces import blocks, network_rows, table_rows
from understudy.lab.study import Piece
from understudy.papers.luck.shared import ExactDescent, diverged_steps

NORMS: dict[str, us.students.BatchNorm] = {"before": "before", "after": "after", "none": None}
"""Whether BatchNorm comes before or after the ReLU."""
_SEEDS_PER_PIECE = 4


@dataclass(frozen=True)
class BatchNormEnergy(ExactDescent):
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
    arrays: ClassVar[tuple[str, ...]] = ("batch dim", "dim teacher_layers multiple", "teacher_layers outputs multiple")

    teacher_layers: Sizes = (15, 20)
    """Hidden nodes of the teacher, layer by layer from the lowest."""
    rates: Positives = (0.0003, 0.001, 0.003, 0.01, 0.03)
    """Learning rates on ½‖f*−f‖², at least two."""
    time: Positive = 2.0
    """Learning rate × steps, the same for all learning rates."""
    batch: Annotated[int, Ge(2)] = 64
    probes: Count = 20
    """Number of probes, besides the one at the start; the number of steps is rounded to a multiple of it."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, rates=(0.001, 0.003, 0.01, 0.03), time=0.5, probes=10)

    def validate(self) -> None:
        if len(self.rates) < 2:
            raise UserError(f"--rates must be at least two learning rates, got {self.rates[0]:g}: they give a slope")
        us.students.hidden_sizes((self.dim, *self.teacher_layers, self.outputs), self.multiple)

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        for norm, lr, seeds in product(NORMS, self.rates, blocks(self.seed_names, _SEEDS_PER_PIECE)):
            name = f"BatchNorm {norm}, rate {lr:g}, seeds {seeds[0]} to {seeds[-1]}"
            yield Piece(name, len(seeds), partial(self._piece, norm, lr, seeds))

    def _piece(self, norm: str, lr: float, seeds: range, first: int) -> dict[str, Any]:
        """The median growth of each layer, and each node's squared norms and mean change per step."""
        from understudy.papers.luck.theory.batchnorm_energy import drifts
        from understudy.theory.gradient_flow import batches

        teacher, student, source = self.initial(self.teacher_layers, seeds, norm=NORMS[norm])
        every, sizes = max(1, round(self.time / (lr * self.probes))), student.sizes[1:-1]
        inputs = batches(source, seeds, self.batch, every * self.probes, self.device)
        found = zip(*drifts(teacher, student, inputs, lr, every), strict=True)
        squared, change = (np.stack([part.cpu().numpy() for part in parts]) for parts in found)
        numbers = np.arange(first, first + len(seeds), dtype=np.int32)
        layer = np.repeat(np.arange(len(sizes), dtype=np.int16), sizes)
        nets, nodes = squared.shape[2:]
        steps = every * np.arange(len(squared), dtype=np.int32)
        growth = squared[:, 0] / squared[0, 0]  # [probe, net, node]
        network, step = np.repeat(numbers, len(steps)), np.tile(steps, nets)
        medians = [np.median(growth[:, :, layer == i], axis=2).T.ravel() for i in range(len(sizes))]
        with_bias, alone = change[1:].mean(axis=0)
        alive = np.isfinite(squared).all(axis=(1, 3))  # [probe, net]
        return {
            "networks": network_rows(first, seeds, diverged_steps(alive, steps), norm=norm, lr=lr),
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
