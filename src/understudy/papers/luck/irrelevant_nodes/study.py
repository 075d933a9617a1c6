"""The study `irrelevant-nodes`: what becomes of the weights of deep students (Tian et al. 2019, sec. 3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.lab.options import Among, Count, Distinct, Positive, Positives, Sizes, Steps, validate_widths
from understudy.lab.study import Experiment, TrainingStudy, ranked
from understudy.papers.specialization.shared import TrainedStudents

Start = Literal["lucky", "random"]
_BIAS_SPREAD = 0.5


@dataclass(frozen=True)
class IrrelevantNodes(TrainedStudents, TrainingStudy):
    """Whether, in deep students, weights from irrelevant to lucky nodes vanish while those to irrelevant ones stay.

    With lucky starts, the first nodes of every layer start near the nodes of the teacher, as those of the layer below
    do; all other weights are as drawn, those from irrelevant nodes to lucky ones among them.
    """

    name: ClassVar[str] = "irrelevant-nodes"
    summary: ClassVar[str] = "in deep students weights from irrelevant to lucky nodes vanish, others keep their start"
    figures: ClassVar[str] = "S2 sec. 3.4"
    decides: ClassVar[str] = "L4"

    seeds: Count = 10
    hidden: Sizes = (10, 15, 20)
    """Hidden nodes of the teacher, layer by layer from the lowest."""
    outputs: Count = 30
    dim: Count = 10
    """Number of inputs d, which are N(0, 1)."""
    multiple: Positives = (2.0, 5.0)
    """Over-realizations: student nodes per teacher node in every hidden layer."""
    starts: Annotated[tuple[Start, ...], Among(get_args(Start)), Distinct()] = ("lucky", "random")
    """Initial weights: near the teacher's for the first nodes of every layer, or as drawn for all."""
    noise: Positive = 0.1
    """Share of the drawn weights that is added to the teacher's with lucky starts."""
    epochs: Count = 40
    steps: Steps = 1_000
    batch: Count = 64
    lr: Positive = 0.05
    train: Count = 64_000
    """Training samples of each network in an epoch; every epoch draws new ones."""
    evaluation: Count = 2_000

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=3, hidden=(4, 5), outputs=8, dim=5, multiple=(3.0,), epochs=10, evaluation=500)

    def validate(self) -> None:
        validate_widths(self.hidden, self.multiple)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the teacher's layers, including inputs and outputs."""
        return self.dim, *self.hidden, self.outputs

    def source(self) -> us.data.Gaussian:
        """The source of inputs."""
        return us.data.Gaussian(self.dim, 1.0, self.train, self.evaluation, fresh=True)

    def experiment(self, *runs: us.Run) -> Experiment:
        self.require_memory((self.sizes, k) for k in self.multiple for _ in self.starts)
        teacher = us.teachers.distinct_rows(
            self.sizes, seeds=self.seed_names, bias_spread=_BIAS_SPREAD, dtype=self.torch_dtype
        )
        return self.training(self._groups(teacher), keep=frozenset(ranked(self.epochs)))

    def _groups(self, teacher: us.Population) -> Iterator[tuple[dict[str, Any], us.training.Group]]:
        source = self.source()
        for start, k in product(self.starts, self.multiple):
            students = us.students.like_linear(teacher, multiple=k)
            if start == "lucky":
                students = lucky(teacher, students, self.noise)
            yield {"start": start, "multiple": float(k)}, us.training.Group(students, teacher, source)


def lucky(teacher: us.Population, students: us.Population, noise: float) -> us.Population:
    """Students whose first nodes of every layer start near the teacher's, up to a share of the weights as drawn.

    Args:
        teacher: The teachers.
        students: Students as drawn, at least as wide in every layer.
        noise: Share of the drawn weights that is added to the teacher's.
    """
    layers = []
    for theirs, ours in zip(teacher.layers, students.layers, strict=True):
        (outs, ins), weight = theirs.weight.shape[1:], ours.weight.clone()
        weight[:, :outs, :ins] = theirs.weight + noise * weight[:, :outs, :ins]
        bias = None if ours.bias is None else ours.bias.clone()
        if bias is not None and theirs.bias is not None:
            bias[:, :outs] = theirs.bias + noise * bias[:, :outs]
        layers.append(us.nets.Layer(weight, bias))
    return replace(students, layers=tuple(layers))
