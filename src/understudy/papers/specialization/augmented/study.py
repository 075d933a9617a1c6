"""The study `augmented`: students trained on augmented data, with few and many samples (Tian 2020, theorems 3, 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from annotated_types import Gt, Lt

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Among, Count, Counts, Distinct, Positive, Positives, Steps, validate_widths
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import TrainedStudents

Data = Literal["agnostic", "aware", "plain"]
NORMAL = NormalDist()


class SampleSetting(NamedTuple):
    """A setting: inputs d, teacher nodes m, and the share of the inputs on which each of them is active."""

    dim: int
    teacher_nodes: int
    active: float


@dataclass(frozen=True)
class AugmentedData(TrainedStudents, TrainingStudy):
    """How many samples align students with the teacher, against the inputs, the nodes, what they see, and how closely.

    One of the four is varied at a time, from the first value of each.
    """

    name: ClassVar[str] = "augmented"
    summary: ClassVar[str] = "how many samples students need that are trained on augmented data, and what it depends on"
    figures: ClassVar[str] = "S0 theorems 3, 4"
    decides: ClassVar[str] = "P3"

    seeds: Count = 16
    first_seed: Steps = 1
    """First seed."""
    data: Annotated[tuple[Data, ...], Among(get_args(Data)), Distinct()] = ("agnostic", "aware", "plain")
    """Training sets: D augmented along the axes (theorem 3), along the teacher's weights (theorem 4), or D itself."""
    samples: Counts = (10, 15, 20, 30, 45, 70, 100, 150, 220, 330, 500)
    """Samples N(0, I) of D."""
    dim: Counts = (8, 4, 16, 32)
    """Inputs d."""
    teacher_nodes: Counts = (4, 2, 8, 16)
    """Hidden nodes of the teacher."""
    active: Annotated[tuple[float, ...], Gt(0), Lt(1), Distinct()] = (0.5, 0.35, 0.25, 0.15)
    """Share of the inputs on which each teacher node is active; of a boundary, other nodes see about as much (κ)."""
    over_realization: Positive = 5.0
    """Student nodes per teacher node."""
    eps: Positives = (0.1, 0.2, 0.05, 0.03)
    """ε, the distance within which a student must be aligned. The first scales the shift of the augmentation."""
    batch: Count = 8
    outputs: Count = 10
    evaluation: Count = 1_000
    epochs: Count = 20
    lr: Positive = 0.05

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, samples=(30, 100, 330), dim=(4, 8), teacher_nodes=(3,), active=(0.5,), epochs=5)

    def validate(self) -> None:
        validate_widths(self.teacher_nodes, (self.over_realization,), "--over-realization")
        if (least := min(self.samples)) < self.batch:
            raise UserError(f"--samples must be at least the batch size ({self.batch}), got {least}")

    @property
    def seed_names(self) -> range:
        """The seeds, from `first_seed` on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def settings(self) -> tuple[SampleSetting, ...]:
        """The first setting, and those in which one value differs from it."""
        dim, nodes, active = self.dim[0], self.teacher_nodes[0], self.active[0]
        varied = [SampleSetting(d, nodes, active) for d in self.dim] + [
            SampleSetting(dim, m, active) for m in self.teacher_nodes
        ]
        return tuple(dict.fromkeys([*varied, *(SampleSetting(dim, nodes, share) for share in self.active)]))

    def boundaries(self, cell: SampleSetting) -> int:
        """K, the number of first-layer nodes of teacher and student together."""
        student = us.students.hidden_sizes((cell.dim, cell.teacher_nodes, self.outputs), self.over_realization)
        return cell.teacher_nodes + student[0]

    def teacher(self, cell: SampleSetting) -> us.Population:
        """One teacher per seed. Nodes are of length 1, so that their biases fix on how many inputs they are active."""
        return us.teachers.regular(
            (cell.dim, cell.teacher_nodes, self.outputs),
            seeds=self.seed_names,
            bias=NORMAL.inv_cdf(cell.active),
            output_bias=0.0,
            dtype=self.torch_dtype,
        )

    def experiment(self, *runs: us.Run) -> Experiment:
        self.require_memory(
            ((cell.dim, cell.teacher_nodes, self.outputs), self.over_realization)
            for cell in self.settings
            for _ in self.samples
            for _ in self.data
        )
        groups, parameters = [], []
        for cell in self.settings:
            teacher = self.teacher(cell)
            students = us.students.gaussian(teacher, multiple=self.over_realization)
            for kind in self.data:
                for samples in self.samples:
                    each = list(self._groups(cell, kind, samples, students, teacher))
                    groups += each
                    row = {"data": kind, "samples": samples} | cell._asdict()
                    parameters += [row | {"seed": seed} for seed in self.seed_names]
        return Experiment(
            groups=tuple(groups),
            parameters=tuple(parameters),
            optimiser=us.SGD(lr=self.lr, batch=self.batch),
            epochs=self.epochs,
            steps=self.steps,
        )

    def _groups(
        self, cell: SampleSetting, kind: Data, samples: int, students: us.Population, teacher: us.Population
    ) -> Iterator[us.training.Group]:
        """One group of all seeds; or one for each, where each has its own number of samples."""
        plain = us.data.Gaussian(cell.dim, 1.0, samples, self.evaluation)
        shift: dict[str, Any] = {"eps": self.eps[0], "nodes": self.boundaries(cell)}
        if kind != "aware":
            source = us.data.Augmented(plain, **shift) if kind == "agnostic" else plain
            yield us.training.Group(students, teacher, source)
            return
        for n in range(self.seeds):
            yield us.training.Group(students[n], teacher[n], us.data.Augmented(plain, **shift, teacher=teacher[n]))
