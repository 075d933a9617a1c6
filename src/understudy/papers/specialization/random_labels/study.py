"""The study `random-labels`: students of structured and of random labels (Tian et al. 2019, sec. 1 and fig. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, get_args

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Among, Count, Distinct, Positive, Positives, Steps, validate_batch, validate_widths
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import TrainedStudents

Labels = Literal["structured", "random"]


@dataclass(frozen=True)
class LabelledStudents(TrainedStudents, TrainingStudy):
    """Students of several widths that learn classes by cross-entropy: those of a small teacher, or random ones.

    Students of random labels are compared with the teacher, too, although they learn nothing of it.
    """

    name: ClassVar[str] = "random-labels"
    summary: ClassVar[str] = (
        "wide students fit random labels as well as a teacher's, and specialise with a teacher's only"
    )
    figures: ClassVar[str] = "S0 sec. 1, S2 fig. 2"
    decides: ClassVar[str] = "P4"

    seeds: Count = 16
    first_seed: Steps = 1
    """First seed."""
    labels: Annotated[tuple[Labels, ...], Among(get_args(Labels)), Distinct()] = ("structured", "random")
    """Labels of the samples: the class of the teacher's largest output, or random classes."""
    dim: Count = 20
    """Number of inputs d, N(0, I)."""
    teacher_nodes: Count = 5
    """Hidden nodes of the teacher."""
    outputs: Count = 10
    """Number of outputs C, which are the classes."""
    multiple: Positives = (1.0, 4.0, 16.0, 40.0)
    """Over-realizations: student nodes per teacher node."""
    train: Count = 500
    """Training samples of each network."""
    evaluation: Count = 2_000
    """Evaluation samples of each network, with labels of the same kind."""
    lr: Positive = 0.1
    """Learning rate of plain SGD on cross-entropy averaged over the batch."""
    epochs: Count = 20

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, dim=10, teacher_nodes=3, outputs=5, multiple=(1.0, 20.0), train=100, epochs=8)

    def validate(self) -> None:
        validate_widths(self.teacher_nodes, self.multiple)
        validate_batch(self.train, self.batch)
        if self.outputs < 2:
            raise UserError(f"--outputs must be at least 2, got {self.outputs}: they are the classes")

    @property
    def seed_names(self) -> range:
        """The seeds, from `first_seed` on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def experiment(self, *runs: us.Run) -> Experiment:
        import torch

        sizes = (self.dim, self.teacher_nodes, self.outputs)
        self.require_memory([(sizes, k) for k in self.multiple for _ in self.labels])
        source = us.data.Gaussian(self.dim, 1.0, self.train, self.evaluation)
        plain = us.teachers.regular(sizes, seeds=self.seed_names, bias=0.0, dtype=self.torch_dtype)
        x = torch.stack([source.evaluating(seed, dtype=self.torch_dtype) for seed in self.seed_names])
        teacher = us.teachers.standardised(plain, x)  # so that the classes are about equally frequent
        labelled: dict[Labels, us.data.Source] = {
            "structured": us.data.TeacherLabels(source, teacher),
            "random": us.data.RandomLabels(source, self.outputs),
        }

        def group(kind: Labels, multiple: float) -> us.training.Group:
            students = us.students.like_linear(teacher, multiple=multiple)
            return us.training.Group(students, teacher, labelled[kind], us.CrossEntropy(), labelled=True)

        return self.training(
            [({"labels": kind, "multiple": float(k)}, group(kind, k)) for kind in self.labels for k in self.multiple]
        )
