"""The study `prune-and-connect`: cost of removing unspecialised nodes, and low-loss paths between solutions.

Tian 2020, theorem 2, app. E, fig. 13.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt, Le

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, NonNegatives
from understudy.lab.pieces import table_rows
from understudy.lab.study import ComputedStudy, Piece, Study, Tables
from understudy.papers.specialization.second_draw.study import SecondDraw
from understudy.papers.specialization.shared import OverRealized
from understudy.papers.specialization.two_layer.study import TwoLayer

if TYPE_CHECKING:
    from understudy.papers.specialization.theory.student_pairs import PruningMeasures

DRAWS = (1, 2)


@dataclass(frozen=True)
class PruneAndConnect(OverRealized, ComputedStudy):
    """Two trained students of each teacher: the cost of removing their unspecialised nodes, and a path between them.

    Starts from `two-layer` and `second-draw` with the same options, which are run first if they are not finished. Each
    student is a row of `networks`, each pair of students a row of `pairs`.
    """

    name: ClassVar[str] = "prune-and-connect"
    summary: ClassVar[str] = "removing unspecialised nodes costs little, and a path of low loss connects two solutions"
    figures: ClassVar[str] = "S0 theorem 2, fig. 13, S2 sec. 3.3"
    decides: ClassVar[str] = "P2 Y4 Y5"

    teacher_nodes: Count = 20
    polarity: NonNegatives = (1.0,)
    multiple: Annotated[tuple[float, ...], Gt(1), Distinct()] = (5.0, 10.0)
    below: Annotated[float, Ge(0), Le(1)] = 0.8
    """Nodes whose best correlation with a teacher node is below this are unspecialised: removed, or without fan-out."""
    points: Annotated[int, Ge(2)] = 5
    """Points of each segment at which the loss is evaluated, both ends among them."""

    @classmethod
    def quick(cls) -> Self:
        return cls(**SecondDraw.quick().options())

    def depends_on(self) -> tuple[Study, ...]:
        """The students of both draws."""
        same = {name: value for name, value in self.options().items() if name not in ("below", "points")}
        return TwoLayer(**(same | {"teacher_nodes": (self.teacher_nodes,)})), SecondDraw(**same)

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        teachers = runs[0].weights("teacher")
        draws = [run.weights(f"epoch.{self.epochs}") for run in runs]
        diverged = [run.networks["diverged_at"].to_pylist() for run in runs]
        for k, multiple in enumerate(self.multiple):
            for i, cell in enumerate(self.cells):
                alive = all(each[k * len(self.cells) + i] is None for each in diverged)
                students = [draw[k][i] for draw in draws] if alive else []
                name = f"{multiple:g}×, p = {cell['polarity']:g}, seed {cell['seed']}"
                parameters = {"multiple": float(multiple)} | cell
                yield Piece(name, len(DRAWS), partial(self._pair, parameters, teachers[k][i], students))

    def _pair(
        self, parameters: dict[str, Any], teacher: us.Population, students: list[us.Population], first: int
    ) -> Tables:
        """Tables of one pair: networks `first` and the next, each pruned, and the path between them."""
        from understudy.papers.specialization.theory.student_pairs import measure_pair

        found, left_out = None, None if students else "one of the two diverged"
        if students:
            try:
                found = measure_pair(teacher, (students[0], students[1]), self.source(), self.below, self.points)
            except UserError as error:  # one of them learned too little
                left_out = str(error)
        networks = np.arange(first, first + len(DRAWS), dtype=np.int32)
        diverged = pa.array([None if students else self.epochs] * len(DRAWS), pa.int64())
        same = {name: [value] * len(DRAWS) for name, value in parameters.items()}
        pair = {
            "path_loss": pa.array([found and found.path], pa.list_(pa.float64())),
            "line_loss": pa.array([found and found.line], pa.list_(pa.float64())),
            "segments": pa.array([found and found.segments], pa.int32()),
            "left_out": pa.array([left_out], pa.string()),
        }
        return {
            "networks": pa.table({"network": networks} | same | {"draw": list(DRAWS), "diverged_at": diverged}),
            "pairs": pa.table({name: [value] for name, value in parameters.items()} | pair),
            **self._pruned(networks, found.pruned if found else ()),
        }

    def _pruned(self, networks: np.ndarray, pruned: tuple[PruningMeasures, ...]) -> Tables:
        """Losses of pruned students, and the correlation and contribution of every node; no rows if there are none."""
        metrics = [(n, *item) for n, student in zip(networks, pruned, strict=False) for item in student.metrics.items()]
        counts = [len(student.kept) for student in pruned]

        def nodes(values: list[np.ndarray], kind: type) -> np.ndarray:
            return np.concatenate([np.zeros(0), *values]).astype(kind)

        return {
            "metrics": table_rows(
                [n for n, _, _ in metrics],
                self.epochs,
                -1,
                metric=np.array([name for _, name, _ in metrics], str),
                value=np.array([value for _, _, value in metrics], float),
            ),
            "nodes": table_rows(
                np.repeat(networks[: len(counts)], counts),
                self.epochs,
                0,
                student=nodes([np.arange(count) for count in counts], np.int32),
                correlation=nodes([student.correlation for student in pruned], np.float32),
                contribution=nodes([student.contribution for student in pruned], np.float32),
                kept=nodes([student.kept for student in pruned], bool),
            ),
        }
