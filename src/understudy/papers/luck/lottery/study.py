"""Lottery tickets: winners reset to their first weights, against new draws and against the whole student: S2 fig 3."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import understudy as us
from understudy.lab.options import check
from understudy.lab.study import Experiment, TrainingStudy, ranked
from understudy.papers.specialization.shared import OverRealized
from understudy.papers.specialization.two_layer.study import TwoLayer

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

    from understudy.data import Source
    from understudy.nets import Population
    from understudy.store import Run

TICKETS = ("reset", "redrawn", "full")
"""Winners with their first weights, as many nodes drawn anew, and the student that the winners are of."""
_OTHER_DRAWS = 1 << 32
"""Between the seeds of first weights: no student of the two-layer studies begins with one that is this far off."""


@dataclass(frozen=True)
class LotteryTickets(OverRealized, TrainingStudy):
    """Whether the nodes that won are enough, and whether it is their first weights that made them win."""

    name: ClassVar[str] = "lottery"
    summary: ClassVar[str] = "winners reset to their first weights end below new draws of as many nodes"
    figures: ClassVar[str] = "S2 fig 3"
    decides: ClassVar[str] = "D11"

    teacher_nodes: int = 20
    """Hidden nodes of the teacher, and so the number of winners that are kept."""
    polarity: tuple[float, ...] = (1.0,)
    """Teacher polarities p: node j's fan-out is divided by j^p (S0 eqn 10)."""
    multiple: tuple[float, ...] = (5.0, 10.0)
    """Over-realizations: how many times as many hidden nodes the student has that the winners are taken from."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=6, teacher_nodes=10, multiple=(5.0,), epochs=25, evaluation=2_000)

    def validate(self) -> None:
        super().validate()
        check(self, "multiple", least=1)

    def depends_on(self) -> tuple[TwoLayer, ...]:
        """The run whose winners are taken: the same students, trained as long."""
        same = {name: value for name, value in self.options().items() if name != "teacher_nodes"}
        return (TwoLayer(**same, teacher_nodes=(self.teacher_nodes,)),)

    def experiment(self, *runs: Run) -> Experiment:
        (run,), (study,) = runs, self.depends_on()
        source, teacher = study.source(), run.weights("teacher")[0]
        begun, ended = (run.weights(f"epoch.{epoch}") for epoch in (0, self.epochs))
        groups = []
        for multiple, first, last in zip(self.multiple, begun, ended, strict=True):
            students = {
                "reset": us.nets.with_nodes(first, [winners(teacher, last, source)]),
                "redrawn": redrawn(teacher, first),
                "full": first,
            }
            groups += [
                (
                    {"teacher_nodes": self.teacher_nodes, "multiple": float(multiple), "ticket": ticket},
                    us.training.Group(students[ticket], teacher, source),
                )
                for ticket in TICKETS
            ]
        return replace(self.training(groups), ranks=frozenset(ranked(self.epochs)))


def winners(teacher: Population, students: Population, source: Source) -> Int[Tensor, "net teacher"]:
    """Each teacher node's best student on the evaluation inputs, every student once: the highest correlation first.

    One to one, so that there are as many winners as teacher nodes in every network: a student that is best for two
    teacher nodes wins the one it is closer to, and the next best wins the other.
    """
    import torch

    def won(net: int, seed: int) -> Tensor:
        x = source.evaluating(seed, dtype=students.dtype)
        (ours,), (theirs,) = (each[net].activations(x).hidden for each in (teacher, students))
        rho = us.measures.correlation(ours, theirs)
        return us.measures.reorder_students(rho.mT, rho).order[:, : teacher.sizes[1]]

    return torch.cat([won(net, seed) for net, seed in enumerate(students.seeds.tolist())])


def redrawn(teacher: Population, students: Population) -> Population:
    """Students with as many nodes as the teacher, drawn as all are, but with none of the given students' weights."""
    others = [seed + _OTHER_DRAWS * students.sizes[1] for seed in students.seeds.tolist()]
    return replace(us.students.gaussian(teacher, seeds=others), seeds=students.seeds)
