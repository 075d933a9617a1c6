"""The study `lottery`: winners reset to their initial weights, and redrawn nodes (Tian et al. 2019, fig. 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from annotated_types import Ge

import understudy as us
from understudy.lab.options import Count, Distinct, NonNegatives
from understudy.lab.study import Experiment, TrainingStudy, ranked
from understudy.papers.specialization.shared import OverRealized
from understudy.papers.specialization.two_layer.study import TwoLayer

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

TICKETS = ("reset", "redrawn", "full")
"""Winners with their initial weights, as many redrawn nodes, and the full student that the winners are taken from."""
_SEED_OFFSET = 1 << 32
"""Seed offset for redrawn weights, chosen so that no seed of the two-layer study is reused."""


@dataclass(frozen=True)
class LotteryTickets(OverRealized, TrainingStudy):
    """Whether the winning nodes are sufficient, and whether it is their initial weights that made them win."""

    name: ClassVar[str] = "lottery"
    summary: ClassVar[str] = "winners reset to their initial weights end at a lower loss than as many redrawn nodes"
    figures: ClassVar[str] = "S2 fig. 3"
    decides: ClassVar[str] = "D11"

    teacher_nodes: Count = 20
    """Hidden nodes of the teacher, and so the number of winners that are kept."""
    polarity: NonNegatives = (1.0,)
    multiple: Annotated[tuple[float, ...], Ge(1), Distinct()] = (5.0, 10.0)
    """Over-realizations of the students that the winners are taken from: student nodes per teacher node."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=6, teacher_nodes=10, multiple=(5.0,), epochs=25, evaluation=2_000)

    def depends_on(self) -> tuple[TwoLayer, ...]:
        """The run that the winners are taken from: the same students, trained for as long."""
        same = {name: value for name, value in self.options().items() if name != "teacher_nodes"}
        return (TwoLayer(**same, teacher_nodes=(self.teacher_nodes,)),)

    def experiment(self, *runs: us.Run) -> Experiment:
        (run,), (study,) = runs, self.depends_on()
        source, teacher = study.source(), run.weights("teacher")[0]
        start, end = (run.weights(f"epoch.{epoch}") for epoch in (0, self.epochs))
        groups = []
        for multiple, first, last in zip(self.multiple, start, end, strict=True):
            won = us.nets.with_nodes(first, [winners(teacher, last, source)])
            groups += [
                (
                    {"teacher_nodes": self.teacher_nodes, "multiple": float(multiple), "ticket": ticket},
                    us.training.Group(students, teacher, source),
                )
                for ticket, students in zip(TICKETS, (won, redrawn(teacher, first), first), strict=True)
            ]
        return replace(self.training(groups), ranks=frozenset(ranked(self.epochs)))


def winners(teacher: us.Population, students: us.Population, source: us.data.Source) -> Int[Tensor, "net teacher"]:
    """The best student of each teacher node on the evaluation inputs, each student chosen once.

    Pairs are chosen by correlation, the highest first, so that every network has as many winners as teacher nodes: a
    student that is best for two teacher nodes wins the one it is closer to, and the next best wins the other.
    """
    import torch

    def won(net: int, seed: int) -> Tensor:
        x = source.evaluating(seed, dtype=students.dtype)
        (ours,), (theirs,) = (each[net].activations(x).hidden for each in (teacher, students))
        rho = us.measures.correlation(ours, theirs)
        return us.measures.reorder_students(rho.mT, rho).order[:, : teacher.sizes[1]]

    return torch.cat([won(net, seed) for net, seed in enumerate(students.seeds.tolist())])


def redrawn(teacher: us.Population, students: us.Population) -> us.Population:
    """Students with as many nodes as the teacher, drawn as the given students were, but from other seeds."""
    others = [seed + _SEED_OFFSET * students.sizes[1] for seed in students.seeds.tolist()]
    return replace(us.students.gaussian(teacher, seeds=others), seeds=students.seeds)
