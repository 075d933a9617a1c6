"""Whether one input more brings a learner nearer to its teacher, and what it risks: S3 sec 5.4.3, fig 5.5."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from understudy.errors import UserError
from understudy.lab.options import check, typed
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import OnTransfer, set_tables

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
_TOGETHER = 5_000
"""Transfer sets computed at once: a thousand are one batch, and a hundred thousand still fit into memory."""


@dataclass(frozen=True)
class Monotonicity(OnTransfer):
    """Expected risks and monotonicity indices of learners of a linear teacher, from thousands of transfer sets at once.

    Distillation is the student ŵ of soft labels; w_δ fits them as well, δ‖ŵ‖ from ŵ in a random direction; hard targets
    are labels 0 and 1, learned by some steps of descent, and as the max-margin separator that descent goes to. The
    index is the share of transfer sets of which one input more lowers the angle with the teacher (eq. 5.34).
    """

    name: ClassVar[str] = "monotonicity"
    summary: ClassVar[str] = (
        "how often one input more helps a learner, and what it risks: distillation, hard targets, w_δ"
    )
    figures: ClassVar[str] = "S3 fig 5.5"
    decides: ClassVar[str] = "K5"

    kappa: float = 1.0
    """κ of the task: angles between inputs and teacher have P[a ≥ θ] = (1 − 2θ/π)^κ."""
    dim: int = 100
    """Numbers in an input, d."""
    inputs: int = 5
    """Inputs in a transfer set, n; the index compares with n + 1."""
    deltas: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    """δ of the learners w_δ."""
    rate: float = 1.0
    """Learning rate of the hard-target learner, which starts at 0."""
    steps: int = 2_000
    """Steps of gradient descent of the hard-target learner."""
    longest: int = 20_000
    """Steps up to which the same learner is followed beside."""
    looks: int = 30
    """How often it is looked at, about evenly on a logarithmic axis."""

    @classmethod
    def quick(cls) -> Self:
        return cls(longest=2_000, looks=16)

    def validate(self) -> None:
        super().validate()
        for field in ("kappa", "rate"):
            check(self, field, above=0)
        check(self, "deltas", above=0, distinct=True)
        check(self, "dim", least=3)
        for field in ("inputs", "steps", "longest"):
            check(self, field, least=1)
        check(self, "looks", least=2)
        if self.inputs > self.dim - 2:
            raise UserError(
                f"--inputs: {self.inputs} was given; allowed is up to {self.dim - 2}, two fewer than an input has "
                "numbers: who sees more knows the teacher, and learners do not differ"
            )

    @property
    def task(self) -> AngleTask:
        from understudy.papers.distillation.theory.tasks import AngleTask

        return AngleTask(self.dim, self.kappa)

    @property
    def learners(self) -> tuple[str, ...]:
        return (DISTILLATION, *map(biased_name, self.deltas), DESCENT, LIMIT)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        yield Piece("every learner", self.seeds * len(self.learners), self._learners)
        yield Piece(PATH, self.seeds, self._path)

    def _learners(self, first: int) -> Tables:
        import pyarrow as pa
        import torch

        seeds = range(1, self.seeds + 1)
        each = [self._values(*(self.learned(x, some) for x in both)) for some, both in self._sets(seeds)]
        deltas = dict(zip(self.learners, (0.0, *self.deltas), strict=False))
        found: list[Tables] = []
        for i, name in enumerate(self.learners):
            values = {metric: torch.cat([one[metric][i] for one in each]) for metric in each[0]}
            parameters = {"learner": name} | ({"delta": deltas[name]} if name in deltas else {})
            rows = {metric: value.double().numpy() for metric, value in values.items()}
            found.append(set_tables(first + i * self.seeds, seeds, parameters, rows, self._means(values)))
        names = ("networks", "metrics", "nodes")
        return {name: pa.concat_tables([one[name] for one in found], promote_options="default") for name in names}

    def _path(self, first: int) -> Tables:
        import torch

        from understudy.papers.distillation.theory.soft_labels import hard_path

        seeds, looks = range(1, self.seeds + 1), log_probes(self.longest, self.looks)[1:]
        each = [
            self._values(*(hard_path(x, self.task.teacher, self.rate, looks) for x in both))
            for _, both in self._sets(seeds)
        ]
        values = {metric: torch.cat([one[metric] for one in each], 1) for metric in ("risk", "nearer")}
        rows = {metric: value.double().numpy() for metric, value in values.items()}
        for i in range(len(looks)):
            for metric, estimate in self._means({metric: value[i] for metric, value in values.items()}).items():
                for end in ("mean", "low", "high"):
                    into = rows.setdefault(f"{end} {metric}", np.full((len(looks), self.seeds), np.nan))
                    into[i, 0] = getattr(estimate, end)
        return network_tables(first, seeds, {"learner": PATH}, looks, rows)

    def _sets(self, seeds: Sequence[int]) -> Iterator[tuple[Sequence[int], tuple[Tensor, Tensor]]]:
        """Transfer sets, and the same with one input more, as many at once as memory holds."""
        for first in range(0, len(seeds), _TOGETHER):
            some = seeds[first : first + _TOGETHER]
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
                distillation.hard_descent(x, teacher, self.rate, self.steps)[None],
                distillation.hard_target(x, teacher)[None],
            )
        )

    def _values(self, fewer: Tensor, more: Tensor) -> dict[str, Tensor]:
        """What is recorded of students of n inputs, and of n + 1."""
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
    """What a learner w_δ is called: no two of different δ alike."""
    return f"δ = {typed(delta)}"
