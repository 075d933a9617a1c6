"""Gradient descent near a teacher on the exact loss, and its geometry on the way: S4 theorems 3, 4, 6 and lemmas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import Piece
from understudy.papers.local.shared import FileTeacherStudy, endpoints, measure, node_rows, rate_warning

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.store import Run

FROM, TO = 1_000, 3_000
"""Steps between which slopes of the loss are taken."""
_PROBES = 40
_WORK, _SAMPLES = 15_000, 2_000
"""Steps of networks by mini-batches in a piece, and the samples that take as long as all else in a step."""


class Setting(NamedTuple):
    """Teachers of one kind."""

    r: int
    d: int
    separation: float
    w_min: float
    w_max: float

    def __str__(self) -> str:
        apart = f", Δ ≥ {self.separation:.4g}" if self.r > 1 else ""
        lengths = f"{self.w_min:g}" if self.w_min == self.w_max else f"{self.w_min:g} to {self.w_max:g}"
        return f"r = {self.r}, d = {self.d}{apart}, lengths {lengths}"


CLAIMED = (3, 5)
"""r and d of the claims on rates."""


@dataclass(frozen=True)
class LocalRate(FileTeacherStudy):
    """How fast students that start near their teacher come to it, however many they are, and what S4 proves on the way.

    Gradient descent on the exact loss over all kinds of teachers, and on fresh mini-batches for one kind.
    """

    name: ClassVar[str] = "local-rate"
    summary: ClassVar[str] = "how fast descent near a teacher converges, and the geometry that S4 proves, on the way"
    figures: ClassVar[str] = "S4 theorems 3, 4, 6, lemmas 8, 9, 11, C.3, C.4"
    decides: ClassVar[str] = "Z2 Z3 Z4 Z8 Z10"

    r: tuple[int, ...] = (1, 3, 5)
    """Numbers of teacher neurons, where teachers are drawn; so are --d, --separation and their lengths."""
    d: tuple[int, ...] = (2, 5)
    """Numbers of inputs."""
    multiple: tuple[int, ...] = (1, 2, 5, 20)
    """How many times as many student neurons there are: m / r."""
    separation: tuple[float, ...] = (0.2, 0.5)
    """Δ: the least angle of two teacher neurons up to sign, in radians; above 0, and no more than r lines in d
    dimensions can have."""
    w_min: tuple[float, ...] = (1.0, 0.4)
    """Least lengths of teacher neurons."""
    w_max: tuple[float, ...] = (1.0, 0.8)
    """Greatest lengths, one for each of --w-min."""
    angle: float = 0.3
    """Angle of every student neuron with its teacher neuron at the start, in radians."""
    by: Literal["descent", "flow"] = "descent"
    """Gradient descent, or gradient flow by an adaptive integrator: after the time that as many steps of --rate have.
    Mini-batches descend in either case."""
    rate: float = 0.05
    """Learning rate η; above the bound of theorem 4 there is a warning."""
    steps: int = 10_000
    """Steps of descent on the exact loss."""
    batch: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    """Samples in a mini-batch, every step with fresh ones."""
    batch_multiple: int = 5
    """How many times as many student neurons there are that learn by mini-batches."""
    batch_steps: int = 2_000
    """Steps by mini-batches, and on the exact loss beside them."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=3, r=(1, 3), d=(5,), multiple=(1, 2, 5), separation=(0.5,), w_min=(1.0,), w_max=(1.0,),
            steps=3_000, batch=(1, 8, 64), batch_multiple=2, batch_steps=1_000,
        )  # fmt: skip

    def validate(self) -> None:
        super().validate()
        for field in ("r", "multiple", "batch"):
            check(self, field, least=1, distinct=True)
        check(self, "d", least=2, distinct=True)
        for field in ("steps", "batch_steps", "batch_multiple"):
            check(self, field, least=1)
        for field in ("rate", "angle", "w_min"):
            check(self, field, above=0)
        check(self, "separation", above=0, distinct=True)
        if max(self.separation) > math.pi / 2:
            raise UserError(
                f"--separation: {max(self.separation):g} was given; allowed is a number above 0 and up to π/2, where "
                "lines are at right angles"
            )
        if self.angle > math.pi / 2:
            raise UserError(f"--angle: {self.angle:g} was given; allowed is a number above 0 and up to π/2")
        if len(self.w_min) != len(self.w_max) or len(set(self.lengths)) < len(self.w_min):
            raise UserError(
                f"--w-max: {len(self.w_max)} values were given for {len(self.w_min)} of --w-min; give one each, and no "
                "pair twice"
            )
        for least, most in self.lengths:
            if not least <= most < math.inf:
                raise UserError(
                    f"--w-max: {most:g} was given for --w-min {least:g}; allowed is a finite number from {least:g}"
                )

    @property
    def lengths(self) -> list[tuple[float, float]]:
        """(w_min, w_max) of each kind."""
        return list(zip(self.w_min, self.w_max, strict=False))

    @property
    def probes(self) -> tuple[int, ...]:
        """Steps at which the exact descent is probed."""
        return _with(log_probes(self.steps, _PROBES), FROM, TO)

    @property
    def batch_probes(self) -> tuple[int, ...]:
        return _with(log_probes(self.batch_steps, _PROBES), self.batch_steps // 3)

    def settings(self) -> list[Setting]:
        """Every kind of teacher; one neuron is as far from the others as can be, so it comes once."""
        if self.teacher:
            own = self.file_teacher()
            found = _described(own)
            lengths = (round(found["shortest"][0], 12), round(found["longest"][0], 12))
            return [Setting(own.shape[1], own.shape[2], found["delta"][0], *lengths)]
        grid = product(self.r, self.d, self.separation, self.lengths)
        every = (Setting(r, d, apart, *pair) for r, d, apart, pair in grid)
        return list(dict.fromkeys(s._replace(separation=math.pi / 2) if s.r == 1 else s for s in every))

    def named(self, setting: Setting) -> str:
        """A kind of teacher in words: of a teacher of one's own Δ is what it has, and not what was asked for."""
        return str(setting).replace("Δ ≥", "Δ =") if self.teacher else str(setting)

    def batched(self) -> Setting:
        """The kind of teacher for mini-batches: that of the claims, where it is among them."""
        every = self.settings()
        return next((setting for setting in every if (setting.r, setting.d) == CLAIMED), every[-1])

    def teachers(self, setting: Setting) -> Tensor:
        from understudy.papers.local.theory.teachers import random_teachers

        if self.teacher:
            return self.file_teacher().expand(self.seeds, -1, -1)
        apart = setting.separation if setting.r > 1 else 0.0
        try:
            return random_teachers(setting.r, setting.d, self._seeds, apart, setting.w_min, setting.w_max)
        except UserError as error:
            raise UserError(f"--separation: {error}") from error

    @property
    def _seeds(self) -> range:
        return range(1, self.seeds + 1)

    def warnings(self) -> tuple[str, ...]:
        from understudy.papers.local.theory.descent import rate_bound

        bound = min(float(rate_bound(self.teachers(setting)).min()) for setting in self.settings())
        return (rate_warning(self.rate, bound),) if self.rate > bound else ()

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        together = 1 if self.by == "flow" else self.seeds
        for setting in self.settings():
            for multiple in self.multiple:
                for first in range(0, self.seeds, together):
                    seeds = self._seeds[first : first + together]
                    which = f", seed {seeds[0]}" if self.by == "flow" else ""
                    name = f"{self.named(setting)}: m = {multiple * setting.r}{which}"
                    yield Piece(name, len(seeds), partial(self._exact, setting, multiple, seeds))
        for batch in (0, *self.batch):
            block = max(1, int(_WORK / self.batch_steps / (1 + batch / _SAMPLES)))
            for first in range(0, self.seeds, block):
                seeds = self._seeds[first : first + block]
                name = f"mini-batches of {batch}" if batch else "without mini-batches"
                yield Piece(f"{name}, seeds {seeds[0]} to {seeds[-1]}", len(seeds), partial(self._batch, batch, seeds))

    def _exact(self, setting: Setting, multiple: int, seeds: range, first: int) -> Tables:
        from understudy.papers.local.theory.descent import descend, gradient_flow
        from understudy.papers.local.theory.starts import place_near

        teachers = self.teachers(setting)[seeds[0] - 1 : seeds[-1]]
        students = self.to_device(place_near(teachers, multiple * setting.r, self.angle, seeds).students)
        swept = {"part": "exact", "multiple": multiple, "batch": 0} | setting._asdict() | _described(teachers)
        teachers = self.to_device(teachers)
        if self.by == "flow":
            path = gradient_flow(students, teachers, [self.rate * step for step in self.probes])
        else:
            path = descend(students, teachers, self.rate, self.steps, self.probes)
        found = measure(path, teachers, self.rate)
        nodes, weights = node_rows(first, self.probes, found), endpoints(path, teachers, seeds)
        return network_tables(first, seeds, swept, self.probes, found.values, nodes, weights)

    def _batch(self, batch: int, seeds: range, first: int) -> Tables:
        from understudy.papers.local.theory.descent import descend
        from understudy.papers.local.theory.starts import place_near

        setting = self.batched()
        teachers = self.teachers(setting)[seeds[0] - 1 : seeds[-1]]
        students = self.to_device(place_near(teachers, self.batch_multiple * setting.r, self.angle, seeds).students)
        swept = {"part": "batch", "multiple": self.batch_multiple, "batch": batch}
        swept |= setting._asdict() | _described(teachers)
        teachers = self.to_device(teachers)
        drawn: dict[str, Any] = {"batch": batch, "seeds": seeds} if batch else {}
        path = descend(students, teachers, self.rate, self.batch_steps, self.batch_probes, **drawn)
        found = measure(path, teachers, self.rate)
        nodes, weights = node_rows(first, self.batch_probes, found), endpoints(path, teachers, seeds)
        return network_tables(first, seeds, swept, self.batch_probes, found.values, nodes, weights)


def _with(probes: tuple[int, ...], *more: int) -> tuple[int, ...]:
    return tuple(sorted({*probes, *(step for step in more if step <= probes[-1])}))


def _described(teachers: Tensor) -> dict[str, Any]:
    """What each teacher has of what its kind allows: its least angle, its shortest and its longest neuron."""
    from understudy.papers.local.theory.geometry import least_angle

    lengths = teachers.norm(dim=-1)
    columns = {"delta": least_angle(teachers), "shortest": lengths.amin(-1), "longest": lengths.amax(-1)}
    return {name: column.tolist() for name, column in columns.items()}
