"""The study `monotonicity`: how often another input helps a learner, and its risk (Phuong 2021, sec. 5.4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_TOGETHER = 5_000
"""Transfer sets that are computed at once, so that a hundred thousand fit into memory."""


@dataclass(frozen=True)
class Monotonicity(TransferStudy):
    """Expected risks and monotonicity indices of learners of a linear teacher, from thousands of transfer sets at once.

    Distillation is the student ŵ of soft labels; w_δ fits them equally well, at a distance δ‖ŵ‖ from ŵ in a random
    direction; hard targets are labels 0 and 1, learned by some steps of gradient descent, or by the max-margin
    separator to which descent converges. The index is the share of transfer sets for which another input lowers the
    angle with the teacher (eq. 5.34).
    """

    name: ClassVar[str] = "monotonicity"
    summary: ClassVar[str] = "how often another input helps a learner, and its risk: distillation, hard targets, w_δ"
    figures: ClassVar[str] = "S3 fig. 5.5"
    decides: ClassVar[str] = "K5"
    renamed: ClassVar[Mapping[str, str]] = {"looks": "probes"}
    arrays: ClassVar[tuple[str, ...]] = ("seeds inputs dim", "seeds probes")

    kappa: Positive = 1.0
    """κ of the task: angles between inputs and teacher have P[a ≥ θ] = (1 − 2θ/π)^κ."""
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
        return cls(longest=2_000, probes=16)

    def validate(self) -> None:
        if self.inputs > self.dim - 2:
            raise UserError(
                f"--inputs must be at most dim − 2 = {self.dim - 2}, got {self.inputs}: with more inputs the teacher "
                "is determined and all learners coincide"
            )

    @property
    def task(self) -> AngleTask:
        """The distribution of inputs, and the teacher."""
        from understudy.papers.distillation.theory.tasks import AngleTask

        return AngleTask(self.dim, self.kappa)

    @property
    def learners(self) -> tuple[str, ...]:
        """The names of the learners."""
        return (DISTILLATION, *map(biased_name, self.deltas), DESCENT, LIMIT)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        yield Piece("every learner", 0, self._learners)
        yield Piece(PATH, self.seeds, self._path)

    def _learners(self, first: int) -> Tables:
        import torch

        each = [self._values(*(self.learned(x, some) for x in both)) for some, both in self._sets()]
        deltas = dict(zip(self.learners, (0.0, *self.deltas), strict=False))
        found: list[Tables] = []
        for i, name in enumerate(self.learners):
            values = {metric: torch.cat([one[metric][i] for one in each]) for metric in each[0]}
            parameters = {"learner": name} | ({"delta": deltas[name]} if name in deltas else {})
            found.append(set_tables(self.seed_names, parameters, values, self._means(values)))
        return {name: pa.concat_tables([one[name] for one in found], promote_options="default") for name in found[0]}

    def _path(self, first: int) -> Tables:
        """The hard-target learner along gradient descent: one network per transfer set, and means over them."""
        import torch

        from understudy.papers.distillation.theory.soft_labels import hard_path

        probes = log_probes(self.longest, self.probes)[1:]
        each = [
            self._values(*(hard_path(x, self.task.teacher, self.rate, probes) for x in both))
            for _, both in self._sets()
        ]
        values = {metric: torch.cat([one[metric] for one in each], 1) for metric in ("risk", "nearer")}
        rows = {metric: value.double().numpy() for metric, value in values.items()}
        means = [self._means({metric: value[i] for metric, value in values.items()}) for i in range(len(probes))]
        steps = [{"step": step} | estimate_columns(one) for step, one in zip(probes, means, strict=True)]
        tables = network_tables(first, self.seed_names, {"learner": PATH}, probes, rows)
        return tables | {"steps": pa.Table.from_pylist(steps)}

    def _sets(self) -> Iterator[tuple[Sequence[int], tuple[Tensor, Tensor]]]:
        """Transfer sets of n inputs, and the same sets with one more input, some at a time."""
        for some in blocks(self.seed_names, _TOGETHER):
            x = self.to_device(self.task.inputs(some, self.inputs + 1))
            yield some, (x[:, :-1], x)

    def learned(self, x: Float[Tensor, "net sample in"], seeds: Sequence[int]) -> Float[Tensor, "learner net in"]:
        """The student of every learner on every transfer set."""
        import torch

        from understudy.papers.distillation.theory import soft_labels as distillation

        teacher = self.task.teacher
        return torch.cat(
            (
                distillation.solution(x, teacher)[None],
                distillation.less_biased(x, teacher, self.deltas, seeds),
                distillation.hard_path(x, teacher, self.rate, [self.steps]),
                distillation.hard_target(x, teacher)[None],
            )
        )

    def _values(self, fewer: Tensor, more: Tensor) -> dict[str, Tensor]:
        """Values of students of n inputs, and of n + 1."""
        from understudy.papers.distillation.theory.risk import nearer
        from understudy.papers.distillation.theory.soft_labels import angle

        teacher = self.task.teacher
        before, after = (angle(w, teacher.to(w)).cpu() for w in (fewer, more))
        return {
            "risk": self.task.risk(before),
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
