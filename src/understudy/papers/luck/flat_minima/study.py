"""The study `flat-minima`: the Hessian at the end of training, by width and by teacher (Tian et al. 2019, sec. 3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

import understudy as us
from understudy.lab.options import Count, Distinct, Positive, Steps, validate_batch, validate_widths
from understudy.lab.pieces import network_rows, table_rows, unit_table
from understudy.lab.study import ComputedStudy, Piece
from understudy.papers.specialization.shared import seen

FLAT = 1e-3
"""An eigenvalue is near zero if its size is below this share of the largest."""
MATCHED, OTHERS = 0.95, 0.8
"""Correlations with the best teacher node above which a student is matched, and below which it is not."""
_CUTS = ((0.8, 0.3), (0.95, 0.1))
"""Shares of the epochs after which the learning rate has these shares of its first value."""
_BIAS_SPREAD = 0.5


@dataclass(frozen=True)
class FlatMinima(ComputedStudy):
    """Whether wide students end where the loss is flat, and whether that is due to nodes that match no teacher node.

    Two-layer students of a small teacher, of several widths, and students as wide as the widest of larger teachers.
    The Hessian of ½‖f*−f‖² in all parameters is computed in float64 on the evaluation inputs, with all eigenvalues,
    before and after training.
    """

    name: ClassVar[str] = "flat-minima"
    summary: ClassVar[str] = "wide students of small teachers end where the loss is flat in most directions"
    figures: ClassVar[str] = "S2 sec. 3.3, fig. 2"
    decides: ClassVar[str] = "L1"

    seeds: Count = 10
    teacher_nodes: Annotated[tuple[int, ...], Ge(1), Distinct()] = (5, 25, 50)
    """Hidden nodes of the teachers. Those of the first have students of every width."""
    multiple: Annotated[tuple[float, ...], Ge(1), Distinct()] = (1.0, 2.0, 5.0, 10.0)
    """Over-realizations: student nodes per node of the first teacher. Students of the others are as wide as the
    widest."""
    dim: Count = 10
    """Number of inputs d, which are N(0, 1)."""
    outputs: Count = 10
    """Number of outputs C."""
    epochs: Count = 20
    """Number of epochs; the five largest eigenvalues are recorded after each."""
    steps: Steps = 1_000
    """Steps per epoch."""
    batch: Count = 16
    """Samples per step, drawn with replacement."""
    lr: Positive = 0.05
    """Learning rate of plain SGD on ½‖f*−f‖²; 0.3 of it after 80% of the epochs, and 0.1 after 95%."""
    train: Count = 10_000
    """Training samples of each network."""
    evaluation: Count = 500
    """Evaluation samples of each network, on which losses, correlations and Hessians are measured."""

    arrays: ClassVar[tuple[str, ...]] = ("train dim", "train outputs")

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=3, teacher_nodes=(3, 15), multiple=(1.0, 2.0, 5.0), dim=5, outputs=5, epochs=10, evaluation=200
        )

    def validate(self) -> None:
        validate_widths(self.teacher_nodes[0], self.multiple)
        validate_batch(self.train, self.batch)

    @property
    def groups(self) -> list[tuple[int, int]]:
        """Teacher and student nodes of each network of a seed."""
        first, *larger = self.teacher_nodes
        widths = [round(first * k) for k in self.multiple]
        return [(first, n) for n in widths] + [(m, max(widths)) for m in larger]

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        for seed in self.seed_names:
            for m in self.teacher_nodes:
                widths = [n for nodes, n in self.groups if nodes == m]
                yield Piece(f"seed {seed}, {m} teacher nodes", len(widths), partial(self._piece, seed, m, widths))

    def source(self) -> us.data.Gaussian:
        """The source of inputs."""
        return us.data.Gaussian(self.dim, 1.0, self.train, self.evaluation)

    def teacher(self, nodes: int, seed: int) -> us.Population:
        """A teacher whose outputs have mean 0 and standard deviation 1 on the evaluation inputs of its seed."""
        import torch

        plain = us.teachers.distinct_rows(
            (self.dim, nodes, self.outputs), seeds=seed, bias_spread=_BIAS_SPREAD, dtype=self.torch_dtype
        )
        return us.teachers.standardised(plain, self.source().evaluating(seed, dtype=torch.float64))

    def _piece(self, seed: int, nodes: int, widths: list[int], first: int) -> dict[str, Any]:
        """Train one student per width on one teacher; their losses, eigenvalues and curvatures."""
        teacher = self.teacher(nodes, seed)
        schedule = tuple((1 + round(share * self.epochs), factor) for share, factor in _CUTS)
        run = us.train(
            [us.students.like_linear(teacher, multiple=n / nodes) for n in widths],
            teacher,
            self.source(),
            us.SGD(lr=self.lr, batch=self.batch, schedule=schedule),
            epochs=self.epochs,
            steps=self.steps,
            device=self.device,
            record=["hessian_eigenvalues"],
            progress=False,
        )
        numbers = np.arange(first, first + len(widths), dtype=np.int32)
        ended = run.networks["diverged_at"].to_pylist()
        rows, spectra = [run.metrics.select(["network", "epoch", "layer", "metric", "value"])], []
        for epoch in (0, self.epochs):
            for place, students in enumerate(run.weights(epoch)):
                if ended[place] is None:
                    spectrum, values = self._curvature(teacher, students, seed)
                    for metric, value in values.items():
                        rows.append(table_rows(place, epoch, -1, metric=metric, value=[value]))
                    where = {"network": numbers[place], "epoch": np.int32(epoch)}
                    spectra.append(unit_table(**where, place=np.arange(len(spectrum)), value=spectrum))
        metrics = pa.concat_tables([_plain(each) for each in rows])
        network = pa.array(metrics["network"].to_numpy() + first, pa.int32())
        empty = unit_table(network=numbers[:0], epoch=numbers[:0], place=np.arange(0), value=np.zeros(0))
        return {
            "networks": network_rows(first, [seed] * len(widths), ended, teacher_nodes=nodes, student_nodes=widths),
            "metrics": metrics.set_column(0, "network", network),
            "nodes": table_rows([], [], []),
            "spectra": pa.concat_tables([empty, *spectra]),
        }

    def _curvature(
        self, teacher: us.Population, students: us.Population, seed: int
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Eigenvalues of the Hessian, and curvature along the incoming weights of matched and of other students."""
        import torch

        ours, theirs = (each.to("cpu", dtype=torch.float64) for each in (students, teacher))
        x = self.source().evaluating(seed, dtype=self.torch_dtype).double()
        matrix = us.measures.hessian(ours, x, theirs(x)[0])[0]
        values = torch.linalg.eigvalsh(matrix).flip(0)
        dim, nodes, _ = ours.sizes
        diagonal = matrix.diagonal()
        incoming = diagonal[: dim * nodes].view(nodes, dim).sum(1) + diagonal[dim * nodes : (dim + 1) * nodes]
        hidden = [network.activations(x).hidden[0] for network in (theirs, ours)]
        best = us.measures.best_teachers(us.measures.correlation(*hidden)).correlation[0]
        others, partly = best < OTHERS, torch.from_numpy(seen(us.measures.active_share(ours, x)[0].numpy()))
        found = {
            "flat_share": (values.abs() < FLAT * values[0]).double().mean(),
            "curvature_matched": incoming[best > MATCHED].mean(),
            "curvature_others": incoming[others & partly].mean(),
            "curvature_all_others": incoming[others].mean(),
            "others": others.sum(),
            "unseen": (others & ~partly).sum(),
        }
        return values.numpy(), {name: float(value) for name, value in found.items()}


def _plain(rows: pa.Table) -> pa.Table:
    """Rows of `metrics` with words instead of a dictionary of words, and without values that are not numbers."""
    types = {"network": pa.int32(), "epoch": pa.int32(), "layer": pa.int16(), "metric": pa.string()}
    table = rows.cast(pa.schema(types | {"value": pa.float64()}))
    return table.filter(pa.array(np.isfinite(table["value"].to_numpy())))
