"""The study `teacher-aware`: training sets drawn near the teacher's boundaries, or blindly (Tian 2020, fig. 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, get_args

from annotated_types import Ge

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Among, Count, Counts, Distinct, NonNegatives, Positive, option, validate_widths
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import SeparatedTeachers

Data = Literal["aware", "agnostic", "aware-near"]


@dataclass(frozen=True)
class TeacherAwareData(SeparatedTeachers, TrainingStudy):
    """How many samples a student needs if they are Gaussian, and if they lie near the teacher's boundaries."""

    name: ClassVar[str] = "teacher-aware"
    summary: ClassVar[str] = "samples near the teacher's boundaries teach more than samples drawn blindly"
    figures: ClassVar[str] = "S0 fig. 9"
    decides: ClassVar[str] = "T9"

    seeds: Count = 10
    data: Annotated[tuple[Data, ...], Among(get_args(Data)), Distinct()] = ("aware", "agnostic", "aware-near")
    """Training sets: samples on the teacher's boundaries and beside them, Gaussian ones, or beside them but nearer."""
    samples: Counts = (50, 100, 150, 300, 1_000, 3_000, 10_000)
    """Training samples of each network."""
    polarity: NonNegatives = (0.0, 1.0)
    moved: Annotated[tuple[float, float], Ge(0)] = (10.0, 11.0)
    """Least and largest distance by which samples of `aware` are moved from a boundary."""
    moved_near: Annotated[tuple[float, float], Ge(0)] = (1.0, 2.0)
    """Least and largest distance for `aware-near`; 1 to 2 is the default of the paper's released code."""
    teacher_nodes: Count = 10
    over_realization: Positive = 5.0
    """Student nodes per teacher node."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, samples=(50, 150, 1_000), epochs=10, evaluation=1_000)

    def validate(self) -> None:
        for name, (low, high) in {"moved": self.moved, "moved_near": self.moved_near}.items():
            if low > high:
                raise UserError(f"{option(name)} must be two distances, the smaller first, got {low:g} {high:g}")
        validate_widths(self.teacher_nodes, (self.over_realization,), "--over-realization")
        if (least := min(self.samples)) < self.batch:
            raise UserError(f"--samples must be at least the batch size ({self.batch}), got {least}")

    def source(self, kind: Data, samples: int, teacher: us.Population) -> us.data.Source:
        """The source of a training set of this kind and size."""
        if kind == "agnostic":
            return us.data.Gaussian(self.dim, self.input_std, samples, self.evaluation)
        moved = self.moved if kind == "aware" else self.moved_near
        return us.data.TeacherAware(teacher, samples, self.evaluation, moved, self.input_std)

    def experiment(self, *runs: us.Run) -> Experiment:
        teacher = self.teachers(self.teacher_nodes)
        students = us.students.gaussian(teacher, multiple=self.over_realization)
        return self.training(
            ({"data": kind, "samples": n}, us.training.Group(students, teacher, self.source(kind, n, teacher)))
            for kind in self.data
            for n in self.samples
        )
