"""Students of one shape, each with its teacher and the source of its inputs; and what of it a wave of work needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data import Source
from understudy.nets import Population
from understudy.training.packing import Packing, State


@dataclass(frozen=True, eq=False)
class Group:
    """Students of one shape, each with the teacher at the same place, and where their inputs come from."""

    students: Population
    teacher: Population
    data: Source

    def __post_init__(self) -> None:
        ours, theirs = self.students.sizes, self.teacher.sizes
        if len(self.students) != len(self.teacher):
            raise UserError(f"{len(self.students)} students were given {len(self.teacher)} teachers; give one each")
        for name, mine, other in (("inputs", ours[0], theirs[0]), ("outputs", ours[-1], theirs[-1])):
            if mine != other:
                raise UserError(f"students have {mine} {name} and their teachers {other}; they must be equal")
        if len(ours) != len(theirs):
            raise UserError(
                f"students have {len(ours) - 1} layers and their teachers {len(theirs) - 1}; make them equal"
            )
        if self.data.dim != ours[0]:
            raise UserError(f"the data has {self.data.dim} inputs and the networks {ours[0]}; they must be equal")


class Members:
    """A group in training: its state on the device, and which ids its networks have."""

    def __init__(self, group: Group, first: int, slots: int, device: torch.device) -> None:
        students = group.students.to(device)
        self.teacher = group.teacher.to(device, dtype=group.students.dtype)
        self.teacher_id = id(group.teacher)
        self.data = group.data
        self.engine, self.quick = "batched", False
        """Which engine takes its steps, and whether the quick way to look at it will do."""
        self.first = first
        self.ids = torch.arange(first, first + len(group.students))
        self.packing = Packing(students.shape)
        like = students.layers[0].weight
        kept = tuple(self.packing.empty(len(students), like) for _ in range(slots))
        self.state = State(self.packing.blocks(students), kept)
        self.students = self.packing.population(self.state.blocks, students.seeds)
        """As they are at any time: the state itself, seen as networks."""
        self.seeds: list[int] = group.students.seeds.tolist()
        self.like = _first_alike(group.teacher, group.students.seeds)
        """For each network the first that has the same teacher and seed, and so the same answers."""

    def __len__(self) -> int:
        return len(self.ids)


def _first_alike(teacher: Population, seeds: Int[Tensor, "net"]) -> list[int]:
    """By seed and the bytes of all parameters."""
    numbers = torch.cat([p.flatten(1) for layer in teacher.layers for p in layer if p is not None], dim=1)
    rows = numbers.cpu().contiguous().view(torch.uint8).numpy()
    first: dict[tuple[int, bytes], int] = {}
    return [
        first.setdefault((seed, row.tobytes()), i)
        for i, (seed, row) in enumerate(zip(seeds.tolist(), rows, strict=True))
    ]


class Part:
    """Some networks of a group, with the sets of inputs and the teachers that they need."""

    def __init__(self, member: Members, which: Int[Tensor, "some"], device: torch.device) -> None:
        self.member, self.which = member, which
        places = which.tolist()
        seeds, asked = [member.seeds[i] for i in places], [member.like[i] for i in places]
        self.sets, self.teachers = sorted(set(seeds)), sorted(set(asked))
        self.set_of, self.teacher_of = (
            torch.tensor([place[x] for x in each], device=device)
            for each, distinct in ((seeds, self.sets), (asked, self.teachers))
            for place in [{x: i for i, x in enumerate(distinct)}]
        )

    def __len__(self) -> int:
        return len(self.which)
