"""The study `folds`: exact fold-sets in two dimensions, canonical surfaces and dependency graphs.

Phuong & Lampert 2020, figs 2.1 to 2.4, lemmas 2.1 to 2.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from annotated_types import Ge

from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, Positive, Steps
from understudy.lab.pieces import blocks, network_tables, unit_table
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.store import Run

_PER_PIECE = 50
"""Networks per piece."""
_SLICED_INPUTS = 10
"""Inputs of networks whose regions are counted on random lines and planes."""
_SLICES = 5
"""Random planes through each of these."""


@dataclass(frozen=True)
class FoldStudy(ExactStudy):
    """Subdivisions of [−2, 2]² by random transparent networks, the lemmas on them, and folds during training."""

    name: ClassVar[str] = "folds"
    summary: ClassVar[str] = "exact fold-sets in two dimensions, and what they say about layers"
    figures: ClassVar[str] = "S3 figs 2.1 to 2.4, lemmas 2.1 to 2.3"
    decides: ClassVar[str] = "E2"
    arrays: ClassVar[tuple[str, ...]] = ("grid grid", "width width", "students multiple")

    seeds: Count = 200
    """Number of random transparent networks of every architecture."""
    hidden: Annotated[tuple[str, ...], Distinct()] = ("6-4", "6-4-3", "8-6-4")
    """Units of the hidden layers of random networks, such as 6-4; two inputs and one output."""
    grid: Annotated[int, Ge(2)] = 400
    """Points along each edge of a grid whose activation patterns are compared with the cells."""
    lines: Count = 200
    """Random lines through every network of 10 inputs on which linear regions are counted."""
    width: Annotated[tuple[int, ...], Ge(1), Distinct()] = (5, 10, 20, 40)
    """Units of each hidden layer of these networks, which have 1 to 3 hidden layers."""
    students: Count = 4
    """Number of students that are trained against one teacher 2-4-3-1."""
    multiple: Count = 3
    """Units of each layer of the students per unit of the teacher."""
    rate: Positive = 0.01
    """Learning rate of Adam; 0.3 of it from the middle of training on, and 0.05 of it in the last quarter."""
    epochs: Steps = 60
    """Epochs of training."""
    steps: Steps = 300
    """Steps per epoch, on 200 samples each."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=20, hidden=("6-4", "6-4-3"), lines=50, width=(5, 10, 20), students=2, epochs=30, steps=150)

    def validate(self) -> None:
        for words in self.hidden:
            self.sizes(words)

    @staticmethod
    def sizes(hidden: str) -> tuple[int, ...]:
        """Units of all layers of a random network: two inputs, the hidden layers, one output."""
        parts = hidden.split("-")
        if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
            raise UserError(f"--hidden must be numbers of units joined by hyphens, such as 6-4, got {hidden!r}")
        return (2, *map(int, parts), 1)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for hidden in self.hidden:
            for numbers in blocks(range(self.seeds), _PER_PIECE):
                name = f"random networks 2-{hidden}-1, {numbers[0] + 1} to {numbers[-1] + 1}"
                yield Piece(name, 0, partial(self._windows, hidden, numbers))
        yield Piece("linear regions on lines and in slices", 0, self._slices)
        yield Piece("folds during training", self.students, self._training)

    def _windows(self, hidden: str, numbers: range, first: int) -> Tables:
        """One row per random transparent network: errors of its subdivision, counts, and the lemmas."""
        import numpy as np

        from understudy.papers.equivalence.folds.trials import measure_window, transparent_networks

        sizes = self.sizes(hidden)
        found = [
            {"seed": seed, **measure_window(made, self.grid)}
            for seed, made in transparent_networks(sizes, numbers.start, numbers.stop)
        ]
        columns = {name: np.array([row[name] for row in found]) for name in found[0]}
        return {"windows": unit_table(hidden=hidden, **columns)}

    def _slices(self, first: int) -> Tables:
        """One row per architecture of 10 inputs: linear regions on random lines and planes through [−2, 2]¹⁰."""
        import numpy as np
        import pyarrow as pa

        from understudy.papers.equivalence.theory.domain import as_box
        from understudy.papers.equivalence.theory.region_counts import regions_in_slices, regions_on_lines
        from understudy.papers.equivalence.theory.relu_network import random_network

        box, rows = as_box(None, _SLICED_INPUTS), []
        for depth in (1, 2, 3):
            for width in self.width:
                network = random_network((_SLICED_INPUTS, *[width] * depth, 1), 1)
                on_lines = regions_on_lines(network, box, self.lines, 1)
                in_slices = regions_in_slices(network, box, _SLICES, 1)
                values = {"on_lines": on_lines.mean(), "most_on_lines": on_lines.max(), "in_slices": in_slices.mean()}
                spread = on_lines.std(ddof=1) / np.sqrt(len(on_lines)) if len(on_lines) > 1 else np.nan
                rows.append(unit_table(depth=[depth], width=width, lines_error=spread, **values))
        return {"slices": pa.concat_tables(rows)}

    def _training(self, first: int) -> Tables:
        """Students of one teacher with two inputs: losses, and how many of their folds are on the teacher's."""
        from understudy.papers.equivalence.folds.students import train_students

        found = train_students(self)
        swept = {"part": "training"}
        return network_tables(first, self.student_seeds, swept, found.epochs, found.values, weights=found.weights)

    @property
    def student_seeds(self) -> range:
        """Seeds of the students that are trained."""
        return range(1, self.students + 1)
