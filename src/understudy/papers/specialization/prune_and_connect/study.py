"""What the nodes that learned nothing cost, and whether two solutions are joined: S0 theorem 2, appendix E, fig 13."""

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
from understudy.lab.study import ComputedStudy, Piece, Study
from understudy.papers.specialization.second_draw.study import SecondDraw
from understudy.papers.specialization.shared import OverRealized
from understudy.papers.specialization.two_layer.study import TwoLayer

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.nets import Population
    from understudy.papers.specialization.theory.student_pairs import StudentPair
    from understudy.store import Run

DRAWS = (1, 2)


@dataclass(frozen=True)
class PruneAndConnect(OverRealized, ComputedStudy):
    """Two trained students of each teacher: what is lost when their unspecialised nodes go, and a path between them.

    Starts from `two-layer` and `second-draw` with the same options, made first where they are not there yet.
    """

    name: ClassVar[str] = "prune-and-connect"
    summary: ClassVar[str] = "unspecialised students can go at little cost, and a path of low loss joins two solutions"
    figures: ClassVar[str] = "S0 theorem 2, fig 13"
    decides: ClassVar[str] = "Y4 Y5"

    teacher_nodes: int = 20
    """Hidden nodes of the teacher."""
    polarity: tuple[float, ...] = (1.0,)
    """Teacher polarities p: node j's fan-out is divided by j^p (S0 eqn 10)."""
    multiple: tuple[float, ...] = (5.0, 10.0)
    """Over-realizations: how many times as many hidden nodes the students have."""
    below: float = 0.8
    """Best correlation with a teacher node under which a student is unspecialised: it goes, or loses its fan-out."""
    points: int = 5
    """Points of each segment at which the loss is taken, both ends among them."""

    @classmethod
    def quick(cls) -> Self:
        return cls(**SecondDraw.quick().options())

    def validate(self) -> None:
        super().validate()
        check(self, "points", least=2)
        check(self, "multiple", above=1)
        if not 0 <= self.below <= 1:
            raise UserError(f"--below: {self.below} was given; allowed is a number from 0 to 1")

    def depends_on(self) -> tuple[Study, ...]:
        """The students of both draws."""
        same = {name: value for name, value in self.options().items() if name not in ("below", "points")}
        return TwoLayer(**(same | {"teacher_nodes": (self.teacher_nodes,)})), SecondDraw(**same)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        teachers = runs[0].weights("teacher")
        draws = [run.weights(f"epoch.{self.epochs}") for run in runs]
        lost = [run.networks["diverged_at"].to_pylist() for run in runs]
        for k, multiple in enumerate(self.multiple):
            for i, cell in enumerate(self.cells):
                alive = all(each[k * len(self.cells) + i] is None for each in lost)
                students = [draw[k][i] for draw in draws] if alive else []
                name = f"{multiple:g}×, p = {cell['polarity']:g}, seed {cell['seed']}"
                parameters = {"multiple": float(multiple)} | cell
                yield Piece(name, len(DRAWS), partial(self._pair, parameters, teachers[k][i], students))

    def _pair(self, parameters: dict[str, Any], teacher: Population, students: list[Population], first: int) -> Tables:
        """Networks `first` and the next: each pruned, and the path between them under the first."""
        found = self._look(teacher, students)
        ids = range(first, first + len(DRAWS))
        networks = pa.table(
            {"network": pa.array(ids, pa.int32())}
            | {name: [value] * len(DRAWS) for name, value in parameters.items()}
            | {"draw": list(DRAWS), "diverged_at": pa.array([None if students else self.epochs] * 2, pa.int64())}
            | {"left_out": pa.array([found if isinstance(found, str) else None] * 2, pa.string())}
        )
        rows, nodes = [], [_nodes(first, self.epochs, np.zeros(0), np.zeros(0), np.zeros(0, bool))]
        if not isinstance(found, str):
            for network, pruned in zip(ids, found.pruned, strict=True):
                rows += [(network, self.epochs, name, value) for name, value in pruned.metrics.items()]
                nodes.append(_nodes(network, self.epochs, pruned.correlation, pruned.contribution, pruned.kept))
            for name, losses in (("path_loss", found.path), ("line_loss", found.line)):
                rows += [(first, step, name, value) for step, value in enumerate(losses.tolist())]
            rows.append((first, self.epochs, "segments", float(found.segments)))
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        return {"networks": networks, "metrics": _metrics(*columns), "nodes": pa.concat_tables(nodes)}

    def _look(self, teacher: Population, students: list[Population]) -> StudentPair | str:
        """Why a pair is left out: one diverged, or learned too little to be pruned and joined."""
        from understudy.papers.specialization.theory.student_pairs import measure_pair

        if not students:
            return "one of the two diverged"
        source = us.data.Gaussian(self.dim, self.input_std, self.train, self.evaluation)
        try:
            return measure_pair(teacher, (students[0], students[1]), source, self.below, self.points)
        except UserError as error:
            return str(error)


def _metrics(network: Any, epoch: Any, metric: Any, value: Any) -> pa.Table:
    return pa.table(
        {
            "network": pa.array(network, pa.int32()),
            "epoch": pa.array(epoch, pa.int32()),
            "layer": pa.array([-1] * len(network), pa.int16()),
            "metric": pa.array(metric, pa.string()),
            "value": pa.array(value, pa.float64()),
        }
    )


def _nodes(network: int, epoch: int, correlation: np.ndarray, contribution: np.ndarray, kept: np.ndarray) -> pa.Table:
    """Every student node: what decided, and what it gives on."""
    count = len(kept)
    return pa.table(
        {
            "network": np.full(count, network, np.int32),
            "epoch": np.full(count, epoch, np.int32),
            "layer": np.zeros(count, np.int16),
            "student": np.arange(count, dtype=np.int32),
            "correlation": correlation.astype(np.float32),
            "contribution": contribution.astype(np.float32),
            "kept": kept.astype(bool),
        }
    )
