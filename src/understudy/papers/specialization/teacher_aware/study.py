"""Training sets made with and without knowledge of the teacher, from few samples to many: S0 fig 9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import understudy as us
from understudy.lab.options import check, validate_widths
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import SeparatedTeachers

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population
    from understudy.store import Run

Data = Literal["aware", "agnostic", "aware-near"]


@dataclass(frozen=True)
class TeacherAwareData(SeparatedTeachers, TrainingStudy):
    """How many samples a student needs, when they are drawn blindly and when they lie beside the teacher's planes."""

    name: ClassVar[str] = "teacher-aware"
    summary: ClassVar[str] = "samples beside the teacher's planes teach more than samples drawn blindly"
    figures: ClassVar[str] = "S0 fig 9"
    decides: ClassVar[str] = "T9"

    seeds: int = 10
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    data: tuple[Data, ...] = ("aware", "agnostic", "aware-near")
    """Training sets: beside the teacher's planes, Gaussian, or beside them but near."""
    samples: tuple[int, ...] = (50, 100, 150, 300, 1_000, 3_000, 10_000)
    """Training samples of each network."""
    polarity: tuple[float, ...] = (0.0, 1.0)
    """Teacher polarities p: node j's fan-out is divided by j^p (S0 eqn 10)."""
    moved: tuple[float, float] = (10.0, 11.0)
    """How far from its plane a sample of `aware` is moved: from, to."""
    moved_near: tuple[float, float] = (1.0, 2.0)
    """The same for `aware-near`; 1 to 2 is what the paper's released code does by default."""
    teacher_nodes: int = 10
    """Hidden nodes of the teacher."""
    over_realization: float = 5.0
    """How many times as many hidden nodes the student has."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, samples=(50, 150, 1_000), epochs=10, evaluation=1_000)

    def validate(self) -> None:
        from understudy.errors import UserError

        super().validate()
        check(self, "samples", least=1, distinct=True)
        check(self, "over_realization", above=0)
        for field in ("moved", "moved_near"):
            check(self, field, least=0)
            low, high = getattr(self, field)
            if low > high:
                option = f"--{field.replace('_', '-')}"
                raise UserError(f"{option}: {low:g} {high:g} was given; allowed are two distances, the smaller first")
        _check_data(self.data)
        validate_widths(self.teacher_nodes, (self.over_realization,), "--over-realization")
        if (least := min(self.samples)) < self.batch:
            raise UserError(
                f"--samples: {least} was given; allowed is a whole number from the samples of a batch, {self.batch}"
            )

    def source(self, kind: Data, samples: int, teacher: Population) -> Source:
        if kind == "agnostic":
            return us.data.Gaussian(self.dim, self.input_std, samples, self.evaluation)
        moved = self.moved if kind == "aware" else self.moved_near
        return us.data.TeacherAware(teacher, samples, self.evaluation, moved, self.input_std)

    def experiment(self, *runs: Run) -> Experiment:
        teacher = self.teacher(self.teacher_nodes)
        students = us.students.gaussian(teacher, multiple=self.over_realization)
        sets: list[tuple[Data, int]] = [(kind, samples) for kind in self.data for samples in self.samples]
        return self.training(
            [
                (
                    {"data": kind, "samples": samples},
                    us.training.Group(students, teacher, self.source(kind, samples, teacher)),
                )
                for kind, samples in sets
            ]
        )


def _check_data(given: tuple[str, ...]) -> None:
    from typing import get_args

    from understudy.errors import UserError

    allowed = get_args(Data)
    if not given:
        raise UserError(f"--data: no value was given; give one or more of {', '.join(allowed)}")
    for kind in given:
        if kind not in allowed:
            raise UserError(f"--data: {kind} was given; allowed are {', '.join(allowed)}")
    if len(set(given)) < len(given):
        raise UserError(f"--data: {' '.join(given)} was given; name each value once")
