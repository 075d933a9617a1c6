"""The study `local-rate`: gradient descent near a teacher on the exact loss, and its geometry along the trajectory.

Zhou, Ge & Jin 2021, theorems 3, 4, 6 and their lemmas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa
from annotated_types import Ge, Gt, Le, Lt

from understudy._errors import UserError
from understudy.lab.options import Count, Counts, Distinct, Positive, Steps
from understudy.lab.pieces import blocks, log_probes, network_tables, unit_table
from understudy.lab.study import Piece
from understudy.papers.local.shared import FileTeacherStudy, endpoints, measure, node_rows, rate_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.store import Run

FROM, TO = 1_000, 3_000
"""Steps between which slopes of the loss are measured."""
CLAIMED = (3, 5)
"""r and d of the claim on the rate of convergence."""
LEVELS = (1.0, 10.0, 100.0)
"""Losses of the search for the smallest ‖∇L‖/L, relative to the threshold; the claim is decided at the first."""
DELTA = 0.1
"""δ: probability with which lemma F.1 and theorem 6 may fail."""
_SEARCHED = 2
"""Largest m / r of that search: with many more weights it does not converge."""
_DRAWS = 100
"""Mini-batches of each size whose gradients are compared with the exact one."""
_PROBES = 40
_WORK, _SAMPLES = 15_000, 2_000
"""Steps times networks of a piece with mini-batches; and the batch size at which drawing samples takes as long as the
rest of a step."""
_Lengths = Annotated[tuple[float, ...], Gt(0)]


class RateSetting(NamedTuple):
    """A kind of teacher."""

    r: int
    d: int
    separation: float
    w_min: float
    w_max: float

    def __str__(self) -> str:
        apart = f", Δ ≥ {self.separation:.4g}" if self.r > 1 else ""
        lengths = f"{self.w_min:g}" if self.w_min == self.w_max else f"{self.w_min:g} to {self.w_max:g}"
        return f"r = {self.r}, d = {self.d}{apart}, lengths {lengths}"


@dataclass(frozen=True)
class LocalRate(FileTeacherStudy):
    """How fast students that start near their teacher converge to it, for any number of them.

    Gradient descent on the exact loss for all kinds of teachers, and with fresh mini-batches for one kind. The
    quantities that the paper bounds are measured along the trajectories. Besides, a search for the students of small
    loss whose gradient is smallest, and gradients of samples against the exact one.
    """

    name: ClassVar[str] = "local-rate"
    summary: ClassVar[str] = "rate of convergence near a teacher, and the lemmas of its proof along the trajectory"
    figures: ClassVar[str] = "S4 theorems 3, 4, 6, lemmas 8, 9, 11, C.3, C.4, F.1"
    decides: ClassVar[str] = "Z2 Z3 Z4 Z8 Z10"
    arrays: ClassVar[tuple[str, ...]] = ("seeds r d", "seeds r multiple d", "batch_seeds r d", "batch d")

    r: Counts = (1, 3, 5)
    """Numbers of teacher neurons. This, --d, --separation and the lengths describe random teachers."""
    d: Annotated[tuple[int, ...], Ge(2), Distinct()] = (2, 5)
    """Numbers of inputs."""
    multiple: Counts = (1, 2, 5, 20)
    """Numbers of student neurons as multiples of the teacher's: m / r."""
    separation: Annotated[tuple[float, ...], Gt(0), Le(math.pi / 2), Distinct()] = (0.2, 0.5)
    """Δ: least angles between two teacher neurons, up to sign, in rad; at most those that r lines in d dimensions can
    have."""
    w_min: _Lengths = (1.0, 0.4)
    """Least lengths of teacher neurons."""
    w_max: _Lengths = (1.0, 0.8)
    """Greatest lengths of teacher neurons, one for each of --w-min."""
    angle: Annotated[float, Gt(0), Lt(0.5)] = 0.4
    """Initial angle between every student neuron and its teacher neuron, relative to the teacher's Δ: below ½, so that
    no other teacher neuron is nearer."""
    by: Literal["descent", "flow"] = "descent"
    """Gradient descent, or gradient flow by an adaptive integrator, for the time of as many steps of --rate. With
    mini-batches it is descent in either case."""
    rate: Positive = 0.05
    """Learning rate η; above the bound of theorem 4 there is a warning."""
    steps: Steps = 10_000
    """Steps of descent on the exact loss."""
    batch: Counts = (1, 4, 16, 64, 256, 1024)
    """Samples per mini-batch, fresh at every step."""
    batch_multiple: Count = 5
    """m / r of students that learn with mini-batches."""
    batch_seeds: Count = 40
    """Number of seeds of students that learn with mini-batches."""
    batch_steps: Steps = 2_000
    """Steps with mini-batches, and of descent on the exact loss beside them."""
    attempts: Count = 4
    """Starts of the search for the students of small loss whose gradient is smallest, for each teacher."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=3, r=(1, 3), d=(5,), multiple=(1, 2, 5), separation=(0.5,), w_min=(1.0,), w_max=(1.0,),
            steps=3_000, batch=(1, 8, 64), batch_multiple=2, batch_seeds=3, batch_steps=1_000, attempts=2,
        )  # fmt: skip

    def validate(self) -> None:
        super().validate()
        if len(self.w_min) != len(self.w_max) or len(set(self.lengths)) < len(self.w_min):
            raise UserError(
                f"--w-max must have one value for each of --w-min, and no pair twice, got {len(self.w_max)} for "
                f"{len(self.w_min)}"
            )
        for least, most in self.lengths:
            if most < least:
                raise UserError(f"--w-max must be at least its --w-min ({least:g}), got {most:g}")

    @property
    def lengths(self) -> list[tuple[float, float]]:
        """(w_min, w_max) of each kind of teacher."""
        return list(zip(self.w_min, self.w_max, strict=False))

    @property
    def searched(self) -> list[int]:
        """m / r of the search for the smallest gradient."""
        return [multiple for multiple in self.multiple if multiple <= _SEARCHED]

    @property
    def probes(self) -> tuple[int, ...]:
        """Steps at which descent on the exact loss is probed."""
        return _merge(log_probes(self.steps, _PROBES), FROM, TO)

    @property
    def batch_probes(self) -> tuple[int, ...]:
        """Steps at which descent with mini-batches is probed."""
        return _merge(log_probes(self.batch_steps, _PROBES), self.batch_steps // 3)

    def settings(self) -> list[RateSetting]:
        """Every kind of teacher; a single neuron has no separation, so that it occurs once."""
        if self.teacher:
            own = self.file_teacher()
            found = _describe(own)
            lengths = (round(found["shortest"][0], 12), round(found["longest"][0], 12))
            return [RateSetting(own.shape[1], own.shape[2], found["delta"][0], *lengths)]
        grid = product(self.r, self.d, self.separation, self.lengths)
        every = (RateSetting(r, d, apart, *pair) for r, d, apart, pair in grid)
        return list(dict.fromkeys(s._replace(separation=math.pi / 2) if s.r == 1 else s for s in every))

    def setting_words(self, setting: RateSetting) -> str:
        """A kind of teacher in words; Δ of a teacher from a file is its own, not a lower bound."""
        return str(setting).replace("Δ ≥", "Δ =") if self.teacher else str(setting)

    def batch_setting(self) -> RateSetting:
        """The kind of teacher for mini-batches: that of the claims, if it is among them."""
        every = self.settings()
        return next((setting for setting in every if (setting.r, setting.d) == CLAIMED), every[-1])

    def teachers(self, setting: RateSetting, seeds: Sequence[int]) -> Tensor:
        """One teacher per seed."""
        from understudy.papers.local.theory.teachers import random_teachers

        if self.teacher:
            return self.file_teacher().expand(len(seeds), -1, -1)
        apart = setting.separation if setting.r > 1 else 0.0
        try:
            return random_teachers(setting.r, setting.d, seeds, apart, setting.w_min, setting.w_max)
        except UserError as error:
            raise UserError(f"--separation: {error}") from error

    def warnings(self) -> tuple[str, ...]:
        return rate_warnings(self.rate, (self.teachers(setting, self.seed_names) for setting in self.settings()))

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for setting in self.settings():
            for multiple in self.multiple:
                for seeds in blocks(self.seed_names, 1 if self.by == "flow" else self.seeds):
                    which = f", seed {seeds[0]}" if self.by == "flow" else ""
                    name = f"{self.setting_words(setting)}: m = {multiple * setting.r}{which}"
                    yield Piece(name, len(seeds), partial(self._descend, "exact", setting, multiple, 0, seeds))
        for setting in self.settings():
            for multiple in self.searched:
                name = f"smallest gradient, {self.setting_words(setting)}: m = {multiple * setting.r}"
                for level in LEVELS:
                    at = f"{name}, at {level:g} times the threshold"
                    yield Piece(at, self.seeds, partial(self._search, setting, multiple, level))
            yield Piece(f"sampled gradients, {self.setting_words(setting)}", 0, partial(self._sample, setting))
        setting = self.batch_setting()
        for batch in (0, *self.batch):
            size = max(1, int(_WORK / self.batch_steps / (1 + batch / _SAMPLES)))
            for seeds in blocks(range(1, self.batch_seeds + 1), size):
                name = f"mini-batches of {batch}" if batch else "without mini-batches"
                compute = partial(self._descend, "batch", setting, self.batch_multiple, batch, seeds)
                yield Piece(f"{name}, seeds {seeds[0]} to {seeds[-1]}", len(seeds), compute)

    def _descend(
        self, part: Literal["exact", "batch"], setting: RateSetting, multiple: int, batch: int, seeds: range, first: int
    ) -> Tables:
        """Descend on the exact loss, or with mini-batches if `batch` is not 0, and measure at every probe."""
        from understudy.papers.local.theory.descent import descend, gradient_flow

        teachers = self.teachers(setting, seeds)
        students = self.to_device(self._place(teachers, multiple, seeds))
        swept = {"part": part, "multiple": multiple, "batch": batch} | setting._asdict() | _describe(teachers)
        teachers = self.to_device(teachers)
        steps, probes = (self.steps, self.probes) if part == "exact" else (self.batch_steps, self.batch_probes)
        if part == "exact" and self.by == "flow":
            path = gradient_flow(students, teachers, [self.rate * step for step in probes])
        else:
            drawn: dict[str, Any] = {"batch": batch, "seeds": seeds} if batch else {}
            path = descend(students, teachers, self.rate, steps, probes, **drawn)
        found = measure(path, teachers, self.rate)
        nodes, weights = node_rows(first, probes, found), endpoints(path, teachers, seeds)
        return network_tables(first, seeds, swept, probes, found.values, nodes, weights)

    def _place(self, teachers: Tensor, multiple: int, seeds: Sequence[int]) -> Tensor:
        """Initial students at the angle of the study from their teacher neurons."""
        from understudy.papers.local.theory.geometry import least_angle
        from understudy.papers.local.theory.starts import place_near

        return place_near(teachers, multiple * teachers.shape[1], self.angle * least_angle(teachers), seeds).students

    def _search(self, setting: RateSetting, multiple: int, level: float, first: int) -> Tables:
        """Search for the students of a loss of at most `level` thresholds whose ‖∇L‖/L is smallest."""
        from understudy.papers.local.theory.smallest_gradient import smallest_gradient, threshold

        seeds = self.seed_names
        teachers = self.teachers(setting, seeds)
        most = level * threshold(teachers)
        path = smallest_gradient(teachers, multiple * setting.r, most, seeds, self.attempts)[None]
        swept = {"part": "search", "multiple": multiple, "level": level, "level_loss": most.tolist()}
        found = measure(path, teachers, self.rate)
        nodes, weights = node_rows(first, (0,), found), endpoints(path, teachers, seeds)
        described = setting._asdict() | _describe(teachers)
        return network_tables(first, seeds, swept | described, (0,), found.values, nodes, weights)

    def _sample(self, setting: RateSetting, first: int) -> Tables:
        """One row per teacher and batch size: the distance of sampled gradients of the initial students from ∇L.

        `error` is the root of its mean square over draws, `quantile` what a share 1 − δ of the draws does not exceed.
        """
        import torch

        from understudy.papers.local.theory.descent import sampled_gradient
        from understudy.papers.local.theory.gaussian import gradient

        seeds = self.seed_names
        teachers = self.teachers(setting, seeds)
        described = _describe(teachers)
        students = self.to_device(self._place(teachers, self.batch_multiple, seeds))
        teachers = self.to_device(teachers)
        exact, rows = gradient(students, teachers), []
        for batch in self.batch:
            # Steps that descent with mini-batches does not reach, so that its samples are others.
            drawn = range(self.batch_steps, self.batch_steps + _DRAWS)
            each = torch.stack([sampled_gradient(students, teachers, batch, seeds, step) for step in drawn])
            away = (each - exact).flatten(2).norm(dim=-1)
            found = {"error": away.square().mean(0).sqrt(), "quantile": away.quantile(1 - DELTA, dim=0)}
            values = {name: value.cpu().numpy() for name, value in found.items()}
            rows.append(unit_table(seed=seeds, batch=batch, **setting._asdict(), **described, **values))
        return {"gradients": pa.concat_tables(rows)}


def _merge(probes: tuple[int, ...], *more: int) -> tuple[int, ...]:
    return tuple(sorted({*probes, *(step for step in more if step <= probes[-1])}))


def _describe(teachers: Tensor) -> dict[str, Any]:
    """Least angle, and lengths of the shortest and the longest neuron, of each teacher."""
    from understudy.papers.local.theory.geometry import least_angle

    lengths = teachers.norm(dim=-1)
    columns = {"delta": least_angle(teachers), "shortest": lengths.amin(-1), "longest": lengths.amax(-1)}
    return {name: column.tolist() for name, column in columns.items()}
