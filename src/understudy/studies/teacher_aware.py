"""Training sets made with and without knowledge of the teacher, from few samples to many: S0 fig 9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import understudy as us
from understudy.studies.study import Experiment, Study, check
from understudy.studies.two_layer import check_widths

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population
    from understudy.report.story import Story
    from understudy.store import Claim, Run

Data = Literal["aware", "agnostic", "aware-near"]


@dataclass(frozen=True)
class TeacherAwareData(Study):
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
    epochs: int = 100
    """Epochs; networks are looked at after each."""
    steps: int = 1_000
    """Steps an epoch."""
    batch: int = 16
    """Samples a step, drawn with replacement."""
    lr: float = 0.01
    """Learning rate of plain SGD on ½‖f*−f‖² averaged over the batch."""
    dim: int = 100
    """Inputs d."""
    outputs: int = 50
    """Outputs C."""
    evaluation: int = 10_000
    """Evaluation samples of each network, Gaussian for every training set."""
    input_std: float = 1.5
    """Standard deviation of each Gaussian input; the others are brought to the same norm, √d times it."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, samples=(50, 150, 1_000), epochs=10, evaluation=1_000)

    def check(self) -> None:
        from understudy._errors import UserError

        for field in ("samples", "teacher_nodes", "epochs", "steps", "batch", "dim", "outputs", "evaluation"):
            check(self, field, least=1, distinct=field == "samples")
        check(self, "polarity", least=0, distinct=True)
        for field in ("over_realization", "lr", "input_std"):
            check(self, field, above=0)
        for field in ("moved", "moved_near"):
            check(self, field, least=0)
            low, high = getattr(self, field)
            if low > high:
                option = f"--{field.replace('_', '-')}"
                raise UserError(f"{option}: {low:g} {high:g} was given; allowed are two distances, the smaller first")
        _check_data(self.data)
        check_widths(self.teacher_nodes, (self.over_realization,))
        if (least := min(self.samples)) < self.batch:
            raise UserError(
                f"--samples: {least} was given; allowed is a whole number from the samples of a batch, {self.batch}"
            )

    def source(self, kind: Data, samples: int, teacher: Population) -> Source:
        if kind == "agnostic":
            return us.data.Gaussian(self.dim, self.input_std, samples, self.evaluation)
        moved = self.moved if kind == "aware" else self.moved_near
        return us.data.TeacherAware(teacher, samples, self.evaluation, moved, self.input_std)

    def experiment(self) -> Experiment:
        cells = [(p, seed) for seed in range(1, self.seeds + 1) for p in self.polarity]
        teacher = us.teachers.separated(
            (self.dim, self.teacher_nodes, self.outputs),
            polarity=[p for p, _ in cells],
            seeds=[seed for _, seed in cells],
            dtype=self.torch_dtype,
        )
        students = us.students.gaussian(teacher, multiple=self.over_realization)
        sets = [(kind, samples) for kind in self.data for samples in self.samples]
        return Experiment(
            groups=tuple(us.training.Group(students, teacher, self.source(*each, teacher)) for each in sets),
            parameters=tuple(
                {"data": kind, "samples": samples, "polarity": p, "seed": seed}
                for kind, samples in sets
                for p, seed in cells
            ),
            optimiser=us.SGD(lr=self.lr, batch=self.batch),
            epochs=self.epochs,
            steps=self.steps,
        )

    def story(self, run: Run) -> Story:
        from understudy.studies.teacher_aware_story import story

        return story(self, run)

    def claims(self, run: Run) -> list[Claim]:
        from understudy.studies.teacher_aware_claims import claims

        return claims(self, run)


def _check_data(given: tuple[str, ...]) -> None:
    from typing import get_args

    from understudy._errors import UserError

    allowed = get_args(Data)
    if not given:
        raise UserError(f"--data: no value was given; give one or more of {', '.join(allowed)}")
    for kind in given:
        if kind not in allowed:
            raise UserError(f"--data: {kind} was given; allowed are {', '.join(allowed)}")
    if len(set(given)) < len(given):
        raise UserError(f"--data: {' '.join(given)} was given; name each value once")
