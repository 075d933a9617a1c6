"""The study `monotonicity`: how often another input helps a learner, and its risk (Phuong 2021, sec. 5.4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import pyarrow as pa
from annotated_types import Ge

from understudy._errors import UserError
from understudy.lab.options import Count, Positive, Positives, Steps, typed
from understudy.lab.pieces import blocks, log_probes, network_tables
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import TransferStudy, estimate_columns, set_tables

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.papers.distillation.theory.risk import Estimate
    from understudy.papers.distillation.theory.tasks import AngleTask
    from understudy.store import Run

DISTILLATION = "distillation"
DESCENT = "hard targets by descent"
LIMIT = "hard targets, max-margin limit"
PATH = "hard targets, step by step"
"""Learners, in the column `learner`."""
_FOLLOWED = 1_000
"""Most transfer sets on which the hard-target learner is followed step by step."""
_TOGETHER = 5_000
"""Transfer sets that are computed at once, so that a hundred thousand fit into memory."""


@dataclass(frozen=True)
class Monotonicity(TransferStudy):
    """Expected risks and monotonicity indices of learners of a linear teacher, from thousands of transfer sets at once.

    Distillation is the student ŵ of soft labels; w_δ fits them equally well, at a distance δ‖ŵ‖ from ŵ in a random
    direction; hard targets are labels 0 and 1, learned by some steps of gradient descent, or by the max-margin
    separator to which descent converges. Every learner has transfer sets of its own. The index is the share of transfer
    sets for which another input lowers the angle with the teacher (eq. 5.34).
    """

    name: ClassVar[str] = "monotonicity"
    summary: ClassVar[str] = "how often another input helps a learner, and its risk: distillation, hard targets, w_δ"
    figures: ClassVar[str] = "S3 fig. 5.5"
    decides: ClassVar[str] = "K5"
    renamed: ClassVar[Mapping[str, str]] = {"looks": "probes"}
    arrays: ClassVar[tuple[str, ...]] = ("seeds inputs dim", "seeds probes")

    kappa: Positive = 1.0
    """κ of the task: angles between inputs and teacher have P[a ≥ θ] = (1 − 2θ/π)^κ."""
    seeds: Count = 20_000
    """Number of transfer sets of each learner, counted from 1; those of different learners are independent."""
    dim: Annotated[int, Ge(3)] = 100
    """Dimension d of the inputs."""
    inputs: Count = 5
    """Inputs per transfer set, n; the index compares with n + 1."""
    deltas: Positives = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    """δ of the learners w_δ."""
    rate: Positive = 1.0
    """Learning rate of the hard-target learner, which starts at 0."""
    steps: Steps = 2_000
    """Steps of gradient descent of the hard-target learner."""
    longest: Steps = 20_000
    """Steps up to which the same learner is also followed."""
    probes: Annotated[int, Ge(2)] = 30
    """Number of probes on the way, about evenly spaced on a logarithmic axis."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=1_000, longest=2_000, probes=16)

    def validate(self) -> None:
        if self.inputs > self.dim - 2:
            raise UserError(
                f"--inputs must be at most dim − 2 = {self.dim - 2}, got {self.inputs}: with more inputs the teacher "
                "is determined and all learners coincide"
            )

    def task(self, learner: str = DISTILLATION) -> AngleTask:
        """The distribution of inputs, and the teacher; every learner has transfer sets of its own."""
        from understudy.papers.distillation.theory.tasks import AngleTask

        return AngleTask(self.dim, self.kappa, draw=self.learners.index(learner))

    @property
    def learners(self) -> tuple[str, ...]:
        """The names of the learners."""
        return (DISTILLATION, *map(biased_name, self.deltas), DESCENT, LIMIT)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for learner in self.learners:
            yield Piece(learner, 0, partial(self._learner, learner))
        yield Piece(PATH, min(self.seeds, _FOLLOWED), self._path)

    def _learner(self, learner: str, first: int) -> Tables:
        import torch

        each = [
            self._values(*(self.learned(learner, x, some) for x in both))
            for some, both in self._sets(learner, self.seed_names)
        ]
        values = {metric: torch.cat([one[metric] for one in each]) for metric in each[0]}
        deltas = {DISTILLATION: 0.0} | {biased_name(delta): delta for delta in self.deltas}
        parameters = {"learner": learner} | ({"delta": deltas[learner]} if learner in deltas else {})
        return set_tables(self.seed_names, parameters, values, self._means(values))

    def _path(self, first: int) -> Tables:
        """The hard-target learner along gradient descent: one network per transfer set, and means over them."""
        import torch

        from understudy.papers.distillation.theory.soft_labels import hard_path

        probes, seeds = log_probes(self.longest, self.probes)[1:], self.seed_names[:_FOLLOWED]
        each = [
            self._values(*(hard_path(x, self.task().teacher, self.rate, probes) for x in both))
            for _, both in self._sets(DESCENT, seeds)
        ]
        values = {metric: torch.cat([one[metric] for one in each], 1) for metric in ("risk", "nearer")}
        rows = {metric: value.double().numpy() for metric, value in values.items()}
        means = [self._means({metric: value[i] for metric, value in values.items()}) for i in range(len(probes))]
        steps = [{"step": step} | estimate_columns(one) for step, one in zip(probes, means, strict=True)]
        tables = network_tables(first, seeds, {"learner": PATH}, probes, rows)
        return tables | {"steps": pa.Table.from_pylist(steps)}

    def _sets(self, learner: str, seeds: range) -> Iterator[tuple[Sequence[int], tuple[Tensor, Tensor]]]:
        """Transfer sets of n inputs, and the same sets with one more input, some at a time."""
        for some in blocks(seeds, _TOGETHER):
            x = self.to_device(self.task(learner).inputs(some, self.inputs + 1))
            yield some, (x[:, :-1], x)

    def learned(self, learner: str, x: Float[Tensor, "net sample in"], seeds: Sequence[int]) -> Float[Tensor, "net in"]:
        """The student of a learner on every transfer set."""
        from understudy.papers.distillation.theory import soft_labels as distillation

        task = self.task(learner)
        if learner == DISTILLATION:
            return distillation.solution(x, task.teacher)
        if learner == DESCENT:
            return distillation.hard_path(x, task.teacher, self.rate, [self.steps])[0]
        if learner == LIMIT:
            return distillation.hard_target(x, task.teacher)
        delta = self.deltas[self.learners.index(learner) - 1]
        return distillation.less_biased(x, task.teacher, [delta], seeds, task.draw)[0]

    def _values(self, fewer: Tensor, more: Tensor) -> dict[str, Tensor]:
        """Values of students of n inputs, and of n + 1."""
        from understudy.papers.distillation.theory.risk import nearer
        from understudy.papers.distillation.theory.soft_labels import angle

        teacher = self.task().teacher
        before, after = (angle(w, teacher.to(w)).cpu() for w in (fewer, more))
        return {
            "risk": self.task().risk(before),
            "angle": before,
            "angle with one more": after,
            "nearer": nearer(fewer, more, teacher).cpu(),
        }

    def _means(self, values: dict[str, Tensor]) -> dict[str, Estimate]:
        from understudy.papers.distillation.theory.risk import estimate_share, mean_risk

        return {
            "risk": mean_risk(values["risk"], self.confidence),
            "index": estimate_share(values["nearer"], self.confidence),
        }


def biased_name(delta: float) -> str:
    """The name of a learner w_δ, different for every δ."""
    return f"δ = {typed(delta)}"
