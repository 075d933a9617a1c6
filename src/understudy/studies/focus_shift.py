"""Students that chase a strong teacher node first and turn to a weaker one: S1 fig 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import understudy as us
from understudy.studies.study import Experiment, Study, check
from understudy.studies.two_layer import check_batch, check_widths

if TYPE_CHECKING:
    from understudy.report.story import Story
    from understudy.store import Claim, Run


@dataclass(frozen=True)
class FocusShifting(Study):
    """Which students leave a strong teacher node for a weaker one, looked at often enough to see it happen."""

    name: ClassVar[str] = "focus-shift"
    summary: ClassVar[str] = "students chase the strongest teacher node, then turn to weaker ones"
    figures: ClassVar[str] = "S1 fig 6"
    decides: ClassVar[str] = "T7"

    seeds: int = 8
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    teacher_nodes: int = 5
    """Hidden nodes of the teacher."""
    polarity: tuple[float, ...] = (1.0,)
    """Teacher polarities p: node j's fan-out is divided by j^p (S1 eqn 9)."""
    multiple: tuple[float, ...] = (2.0, 5.0)
    """Over-realizations: how many times as many hidden nodes the student has."""
    epochs: int = 200
    """Looks; networks are looked at after each."""
    steps: int = 200
    """Steps between two looks: five looks are one of the paper's epochs of 1,000 steps."""
    batch: int = 16
    """Samples a step, drawn with replacement."""
    lr: float = 0.01
    """Learning rate of plain SGD on ½‖f*−f‖² averaged over the batch."""
    dim: int = 100
    """Inputs d."""
    outputs: int = 50
    """Outputs C."""
    train: int = 10_000
    """Training samples of each network."""
    evaluation: int = 10_000
    """Evaluation samples of each network: losses and correlations are measured on them."""
    input_std: float = 1.5
    """Standard deviation of each input."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=3, epochs=100, train=5_000, evaluation=1_000)

    def check(self) -> None:
        for field in ("epochs", "steps", "batch", "dim", "outputs", "train", "evaluation"):
            check(self, field, least=1)
        check(self, "teacher_nodes", least=2)
        check(self, "polarity", least=0, distinct=True)
        check(self, "multiple", above=0, distinct=True)
        for field in ("lr", "input_std"):
            check(self, field, above=0)
        check_widths(self.teacher_nodes, self.multiple)
        check_batch(self.train, self.batch)

    def experiment(self) -> Experiment:
        cells = [(p, seed) for seed in range(1, self.seeds + 1) for p in self.polarity]
        teacher = us.teachers.separated(
            (self.dim, self.teacher_nodes, self.outputs),
            polarity=[p for p, _ in cells],
            seeds=[seed for _, seed in cells],
            dtype=self.torch_dtype,
        )
        source = us.data.Gaussian(self.dim, self.input_std, self.train, self.evaluation)
        students = [us.students.gaussian(teacher, multiple=multiple) for multiple in self.multiple]
        return Experiment(
            groups=tuple(us.training.Group(population, teacher, source) for population in students),
            parameters=tuple(
                {"polarity": p, "multiple": float(multiple), "seed": seed}
                for multiple in self.multiple
                for p, seed in cells
            ),
            optimiser=us.SGD(lr=self.lr, batch=self.batch),
            epochs=self.epochs,
            steps=self.steps,
            pairs=True,
        )

    def story(self, run: Run) -> Story:
        from understudy.studies.focus_shift_story import story

        return story(self, run)

    def claims(self, run: Run) -> list[Claim]:
        from understudy.studies.focus_shift_claims import claims

        return claims(self, run)
