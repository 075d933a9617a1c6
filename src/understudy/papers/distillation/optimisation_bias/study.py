"""The study `optimisation-bias`: risk of learners without the bias of gradient descent (Phuong 2021, sec. 5.4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import pyarrow as pa
from annotated_types import Ge, Le

from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, InputFile, NonNegatives
from understudy.lab.pieces import blocks
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import TransferStudy, read_data, set_tables

if TYPE_CHECKING:
    from understudy.data import Mnist
    from understudy.lab.study import Tables
    from understudy.papers.distillation.theory.tasks import GivenTask
    from understudy.store import Run

_TOGETHER = 100
"""Transfer sets that are learned from at once: 60 MB of MNIST's images."""


@dataclass(frozen=True)
class OptimisationBias(TransferStudy):
    """Risks of learners that fit a teacher's soft labels as well as gradient descent does, but find another solution.

    w_δ = ŵ + δ‖ŵ‖ q with a random direction q orthogonal to the transfer set: δ = 0 is distillation by gradient
    descent, and the larger δ, the weaker the bias of gradient descent. The teacher is a logistic regression.
    """

    name: ClassVar[str] = "optimisation-bias"
    summary: ClassVar[str] = "risk of learners that fit soft labels as well as distillation, away from its solution"
    figures: ClassVar[str] = "S3 fig. 5.4"
    decides: ClassVar[str] = "K4"

    seeds: Count = 100
    """Number of transfer sets, counted from 1; the same for every δ."""
    data: InputFile = ""
    """Folder of MNIST's files, or its parent; by default $UNDERSTUDY_DATA, else ~/.cache/understudy. Or a file of your
    own data, .npz: `x`, one input per row, and `y`, labels of two classes, to which a logistic regression is fitted as
    the teacher; or, in place of `y`, `w`, the weights of a linear teacher. There is no bias: add a column of ones to
    `x` for one."""
    digits: Annotated[tuple[int, ...], Ge(0), Le(9), Distinct()] = (0, 1)
    """The two digits of MNIST to classify; not used with your own data."""
    train: Annotated[int, Ge(0)] = 0
    """Training images of MNIST: half of them train the teacher, transfer sets are drawn from the others; 0: all images
    of the two digits."""
    inputs: Count = 100
    """Inputs per transfer set, n."""
    deltas: NonNegatives = tuple(10.0 * k for k in range(10))
    """δ of the learners w_δ; 0 is distillation."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=20)

    def validate(self) -> None:
        if len(self.digits) != 2:
            raise UserError(f"--digits must be two different digits, got {' '.join(map(str, self.digits))}")

    def validate_files(self) -> None:
        if self.own:
            read_data(self.data)

    def require_data(self) -> None:
        if not self.own:
            self.source()

    @property
    def own(self) -> bool:
        """Whether the data are a file of the user's instead of MNIST."""
        return self.data.lower().endswith(".npz")

    @property
    def where(self) -> str:
        """The data in words."""
        return Path(self.data).name if self.own else f"the digits {self.digits[0]} and {self.digits[1]} of MNIST"

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        if self.own:
            pool, dim = read_data(self.data).pool.shape
        else:
            source = self.source()
            pool, dim = source.train // 2, source.dim
        if self.inputs > (most := min(pool, dim - 1)):
            raise UserError(
                f"--inputs must be at most {most}, got {self.inputs}: sets are drawn from {pool} inputs, and with as "
                f"many as the dimension {dim} all learners coincide"
            )
        yield Piece("every δ", 0, self._measure)

    def source(self) -> Mnist:
        """The images of the two digits."""
        import understudy as us

        try:
            return us.data.Mnist(self.data or None, self.digits, **({"train": self.train} if self.train else {}))
        except UserError as error:
            raise UserError(f"--data: {error}") from None

    def task(self) -> GivenTask:
        """The task and its teacher, a regression, which is fitted to every other training image of MNIST."""
        import torch

        from understudy.papers.distillation.theory.tasks import GivenTask, logistic_regression

        if self.own:
            return read_data(self.data)
        source = self.source()
        x, labels = source.training(0, dtype=torch.float64), source.training_labels(0)
        weights, right = logistic_regression(x[::2], labels[::2], self.digits)
        return GivenTask(x[1::2], weights, source.evaluating(0, dtype=torch.float64), right)

    def _measure(self, first: int) -> Tables:
        import torch

        from understudy.papers.distillation.theory.risk import errors, held_out_risk
        from understudy.papers.distillation.theory.soft_labels import angle, less_biased

        task = self.task()
        teacher, held_out = self.to_device(task.teacher), self.to_device(task.held_out)
        wrong, angles = [], []
        for some in blocks(self.seed_names, _TOGETHER):
            w = less_biased(self.to_device(task.inputs(some, self.inputs)), teacher, self.deltas, some)
            wrong.append(errors(w, teacher, held_out).cpu())
            angles.append(angle(w, teacher).cpu())
        every, turned = torch.cat(wrong, 1), torch.cat(angles, 1)
        once: dict[str, float] = {"pool": len(task.pool), "held out": len(task.held_out)}
        once |= {} if task.right is None else {"right": task.right}
        found: list[Tables] = []
        for i, delta in enumerate(self.deltas):
            values = {"risk": every[i].double().mean(-1), "angle": turned[i]}
            means = {"risk": held_out_risk(every[i], self.confidence)}
            found.append(set_tables(self.seed_names, {"delta": float(delta)}, values, means, once))
        return {name: pa.concat_tables([one[name] for one in found]) for name in found[0]}
