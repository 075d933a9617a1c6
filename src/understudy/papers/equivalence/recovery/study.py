"""The study `recovery`: parameters of random networks from their values alone (Phuong & Lampert 2020, theorem 2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from annotated_types import Ge

from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, Positive, Steps
from understudy.lab.pieces import blocks, unit_table
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.store import Run

USUAL, RARE = "usual", "rare"
"""Networks of which every unit folds at least --least of the box, and networks of which one folds less."""
_LARGE = 600
"""Parameters from which networks are recovered one by one."""
_TOGETHER = 5
"""Networks per piece, of smaller ones."""


@dataclass(frozen=True)
class Recovery(ExactStudy):
    """Recovery of random networks from their values on [−2, 2]^d: success, error and evaluations by architecture."""

    name: ClassVar[str] = "recovery"
    summary: ClassVar[str] = "parameters of random ReLU networks from their values alone"
    figures: ClassVar[str] = "S3 theorem 2.1, constructive"
    decides: ClassVar[str] = "E3"

    seeds: Count = 25
    """Number of random networks of every architecture: weights N(0, 2 / fan-in), biases N(1, 0.5²)."""
    architecture: Annotated[tuple[str, ...], Distinct()] = (
        "20-10-1",
        "10-10-10-1",
        "20-10-10-1",
        "40-20-10-10-1",
        "10-10-10-10-1",
    )
    """Units from the inputs to the outputs, as in 20-10-1."""
    least: Positive = 1e-3
    """Smallest share of the box on the smaller side of a unit's fold; networks are drawn until every unit reaches
    it."""
    rare: Annotated[int, Ge(0)] = 10
    """Number of networks of every architecture with one unit below --least."""
    most_evaluations: Steps = 200_000
    """Maximum number of inputs at which the network may be evaluated."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=3, architecture=("20-10-1", "10-10-10-1"), rare=2)

    def validate(self) -> None:
        from understudy.papers.equivalence.theory.recovery.recover import fewest_evaluations

        if not self.least < 0.5:
            raise UserError(f"--least must be below 0.5, the largest share of a smaller side, got {self.least:g}")
        for words in self.architecture:
            fewest = fewest_evaluations(max(self.sizes(words)))
            if self.most_evaluations < fewest:
                raise UserError(
                    f"--most-evaluations must be at least {fewest:,} for {words}, got {self.most_evaluations:,}"
                )

    @staticmethod
    def sizes(words: str) -> tuple[int, ...]:
        """Units of all layers."""
        parts = words.split("-")
        if len(parts) < 3 or not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
            raise UserError(
                "--architecture must be numbers of units joined by -, with a hidden layer, as in 20-10-1, got "
                f"{words!r}"
            )
        return tuple(map(int, parts))

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for words in self.architecture:
            sizes = self.sizes(words)
            parameters = sum((below + 1) * above for below, above in pairwise(sizes))
            together = 1 if parameters > _LARGE else _TOGETHER
            for kind, count in ((USUAL, self.seeds), (RARE, self.rare)):
                for numbers in blocks(range(count), together):
                    name = f"{kind} networks {words}, {numbers[0] + 1} to {numbers[-1] + 1}"
                    yield Piece(name, 0, partial(self._recover, words, kind, numbers))

    def _recover(self, words: str, kind: str, numbers: range, first: int) -> Tables:
        """One row per network: what was recovered of it, and the error of its parameters."""
        from understudy.papers.equivalence.recovery.trials import SAMPLES, draw, measure_recovery

        sizes = self.sizes(words)
        least, most = (self.least, 1.0) if kind == USUAL else (1 / SAMPLES, self.least)
        count = self.seeds if kind == USUAL else self.rare
        drawn, others = draw(sizes, least, most, count)
        rows = [measure_recovery(sizes, each, self.most_evaluations) for each in drawn[numbers.start : numbers.stop]]
        if not rows:
            return {}
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return {"recoveries": unit_table(sizes=words, kind=kind, skipped=others, **columns)}
