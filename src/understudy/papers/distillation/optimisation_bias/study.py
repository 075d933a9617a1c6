"""What it costs to give up the bias of gradient descent: S3 sec 5.4.2, fig 5.4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import OnOwnData, read_data, set_tables

if TYPE_CHECKING:
    from understudy.data import Mnist
    from understudy.lab.study import Tables
    from understudy.papers.distillation.theory.tasks import FittedTask
    from understudy.store import Run

_TOGETHER = 100
"""Transfer sets learned from at once: of MNIST's images these are 60 MB."""


@dataclass(frozen=True)
class OptimisationBias(OnOwnData):
    """Risks of learners that fit a teacher's soft labels as well as gradient descent does, and are off its solution.

    w_δ = ŵ + δ‖ŵ‖ q, q a random direction across the transfer set: δ = 0 is distillation by gradient descent, and the
    larger δ, the less is left of what it prefers. The teacher is a logistic regression.
    """

    name: ClassVar[str] = "optimisation-bias"
    summary: ClassVar[str] = "what learners risk that fit soft labels as well as distillation does, off its solution"
    figures: ClassVar[str] = "S3 fig 5.4"
    decides: ClassVar[str] = "K4"

    seeds: int = 100
    """How many transfer sets, counted from 1; every δ has the same."""
    data: str = ""
    """Folder of MNIST's files, or of the folder they came in; without one $UNDERSTUDY_DATA, else ~/.cache/understudy.
    Or a file of one's own data, .npz: `x`, an input a row, and `y`, labels of two classes, to which a logistic
    regression is fitted as the teacher; or in place of `y` `w`, the weights of a linear teacher. There is no bias: for
    one, give `x` a column of ones."""
    digits: tuple[int, ...] = (0, 1)
    """The two digits of MNIST to tell apart; one's own data have none."""
    train: int = 0
    """Training images of MNIST: half of them are for the teacher, from the others transfer sets are drawn; 0 takes all
    that there are of the two digits."""
    inputs: int = 100
    """Inputs in a transfer set, n."""
    deltas: tuple[float, ...] = tuple(10.0 * k for k in range(10))
    """δ of the learners w_δ; 0 is distillation."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=20)

    def validate(self) -> None:
        super().validate()
        check(self, "train", least=0)
        check(self, "inputs", least=1)
        check(self, "deltas", least=0, distinct=True)
        check(self, "digits", least=0, distinct=True)
        if len(self.digits) != 2 or max(self.digits) > 9:
            words = " ".join(map(str, self.digits))
            raise UserError(f"--digits: {words} was given; allowed are two different digits from 0 to 9")

    @property
    def own(self) -> bool:
        """Whether the data are a file of the user's, and not MNIST."""
        return self.data.lower().endswith(".npz")

    @property
    def where(self) -> str:
        return Path(self.data).name if self.own else f"the digits {self.digits[0]} and {self.digits[1]} of MNIST"

    def config(self) -> dict[str, Any]:
        return super().config() if self.own else super(OnOwnData, self).config()

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        # Refuses what cannot be, before anything is written.
        if self.own:
            task = read_data(self.data).task
            self._check_counts(len(task.pool), task.dim)
        else:
            source = self.source()
            self._check_counts(source.train // 2, source.dim)
        yield Piece("every δ", self.seeds * len(self.deltas), self._part)

    def source(self) -> Mnist:
        import understudy as us

        try:
            if not self.train:
                return us.data.Mnist(self.data or None, self.digits)
            return us.data.Mnist(self.data or None, self.digits, train=self.train)
        except UserError as error:
            raise UserError(f"--data: {error}") from None

    def given(self) -> FittedTask:
        """The task, and the regression that is its teacher: of MNIST's training images every other one is for it."""
        import torch

        from understudy.papers.distillation.theory.tasks import FittedTask, GivenTask, logistic_regression

        if self.own:
            return read_data(self.data)
        source = self.source()
        x, labels = source.training(0, dtype=torch.float64), source.training_labels(0)
        fitted = logistic_regression(x[::2], labels[::2], names=self.digits)
        return FittedTask(GivenTask(x[1::2], fitted.weights, source.evaluating(0, dtype=torch.float64)), fitted)

    def _check_counts(self, pool: int, dim: int) -> None:
        most = min(pool, dim - 1)
        if self.inputs > most:
            raise UserError(
                f"--inputs: {self.inputs} was given; allowed is up to {most}: there are {pool} to draw from, and fewer "
                f"are needed than an input has numbers, {dim}, or learners do not differ"
            )

    def _part(self, first: int) -> Tables:
        import pyarrow as pa
        import torch

        from understudy.papers.distillation.theory.risk import errors, held_out_risk
        from understudy.papers.distillation.theory.soft_labels import angle, less_biased

        task, fitted = self.given()
        teacher, held_out = self.to_device(task.teacher), self.to_device(task.held_out)
        seeds = range(1, self.seeds + 1)
        wrong, angles = [], []
        for start in range(0, self.seeds, _TOGETHER):
            some = seeds[start : start + _TOGETHER]
            w = less_biased(self.to_device(task.inputs(some, self.inputs)), teacher, self.deltas, some)
            wrong.append(errors(w, teacher, held_out).cpu())
            angles.append(angle(w, teacher).cpu())
        every, turned = torch.cat(wrong, 1), torch.cat(angles, 1)
        once = {"pool": len(task.pool), "held out": len(task.held_out)} | ({"right": fitted.right} if fitted else {})
        found: list[Tables] = []
        for i, delta in enumerate(self.deltas):
            values = {"risk": every[i].double().mean(-1).numpy(), "angle": turned[i].numpy()}
            means = {"risk": held_out_risk(every[i], self.confidence)}
            parameters = {"delta": float(delta)}
            found.append(set_tables(first + i * self.seeds, seeds, parameters, values, means, once=once))
        names = ("networks", "metrics", "nodes")
        return {name: pa.concat_tables([one[name] for one in found]) for name in names}
