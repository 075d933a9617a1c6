"""Two-layer students of several widths and teachers of several polarities: S0 figs 5, 7, 8; S1 figs 3, 5, 7, 11."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import understudy as us
from understudy.studies.study import Experiment, Study, check

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.report.story import Story
    from understudy.store import Claim, Run


@dataclass(frozen=True)
class TwoLayer(Study):
    """Who learns whom in two layers, and how over-realization and teacher strength decide it."""

    name: ClassVar[str] = "two-layer"
    summary: ClassVar[str] = "over-realization and teacher strength decide which nodes are learned, and when"
    figures: ClassVar[str] = "S0 figs 5, 7, 8; S1 figs 3, 5, 7, 11"
    decides: ClassVar[str] = "T1 T2 T3 T4 T5 T6 T10"

    teacher_nodes: int = 20
    """Hidden nodes of the teacher (10 in S0 fig 5, 20 in the others)."""
    polarity: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
    """Teacher polarities p: node j's fan-out is divided by j^p (S0 eqn 10)."""
    multiple: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0)
    """Over-realizations: how many times as many hidden nodes the student has."""
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
    train: int = 10_000
    """Training samples of each network."""
    evaluation: int = 10_000
    """Evaluation samples of each network: losses and correlations are measured on them."""
    inputs: Literal["gaussian", "uniform"] = "gaussian"
    """Distribution of each input."""
    input_std: float = 1.5
    """Standard deviation of each input (uniform: U[−a, a] with a = √3 times it)."""
    leaky: float = 0.0
    """Slope of the activation below zero, of teacher and student: 0 is ReLU."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=6, polarity=(1.0, 2.0), multiple=(1.0, 5.0), epochs=25, evaluation=2_000)

    def check(self) -> None:
        for field in ("teacher_nodes", "epochs", "steps", "batch", "dim", "outputs", "train", "evaluation"):
            check(self, field, least=1)
        check(self, "polarity", least=0, distinct=True)
        check(self, "multiple", above=0, distinct=True)
        for field in ("lr", "input_std"):
            check(self, field, above=0)
        check(self, "leaky")
        check_widths(self.teacher_nodes, self.multiple)
        check_batch(self.train, self.batch)

    def source(self) -> Source:
        kind = us.data.Gaussian if self.inputs == "gaussian" else us.data.Uniform
        return kind(self.dim, self.input_std, self.train, self.evaluation)

    def experiment(self) -> Experiment:
        # Networks of one seed see the same samples: side by side they find them in cache.
        cells = [(p, seed) for seed in range(1, self.seeds + 1) for p in self.polarity]
        teacher = us.teachers.separated(
            (self.dim, self.teacher_nodes, self.outputs),
            polarity=[p for p, _ in cells],
            seeds=[seed for _, seed in cells],
            slope=self.leaky,
            dtype=self.torch_dtype,
        )
        source = self.source()
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
        )

    def story(self, run: Run) -> Story:
        from understudy.studies.two_layer_story import story

        return story(self, run)

    def claims(self, run: Run) -> list[Claim]:
        from understudy.studies.two_layer_claims import claims

        return claims(self, run)


def check_widths(teacher_nodes: int, multiples: tuple[float, ...]) -> None:
    """Every multiple of the teacher's nodes is a whole node."""
    from understudy._errors import UserError

    for multiple in multiples:
        nodes = multiple * teacher_nodes
        if nodes < 1 or abs(nodes - round(nodes)) > 1e-9 * nodes:
            raise UserError(
                f"--multiple: {multiple:g} was given; times {teacher_nodes} teacher nodes makes {nodes:g} student "
                "nodes, and allowed is a multiple that gives a whole number from 1"
            )


def check_batch(samples: int, batch: int) -> None:
    from understudy._errors import UserError

    if samples < batch:
        raise UserError(f"--batch: {batch} was given; allowed is up to the number of training samples, {samples}")
