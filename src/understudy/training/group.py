"""Students of one shape, each with its teacher and the source of its inputs; and what of it a wave of work needs."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from understudy.data import Labelled, Source
from understudy.errors import UserError
from understudy.nets import Population
from understudy.training.objectives import CrossEntropy, Logistic, Objective, SquaredError
from understudy.training.packing import Packing, State


@dataclass(frozen=True, eq=False)
class Group:
    """Students of one shape, each with the teacher at the same place, where their inputs come from, and their task."""

    students: Population
    teacher: Population
    data: Source
    objective: Objective = field(default_factory=SquaredError)
    labelled: bool = False
    """Whether students learn the labels of the data instead of their teacher, which they are then only compared with:
    as they were before training, if there is no other."""

    def __post_init__(self) -> None:
        ours, theirs = self.students, self.teacher
        if len(ours) != len(theirs):
            raise UserError(f"{len(ours)} students were given {len(theirs)} teachers; give one each")
        for name, mine, other in (
            ("inputs", ours.inputs, theirs.inputs),
            ("outputs", ours.sizes[-1], theirs.sizes[-1]),
        ):
            if mine != other:
                raise UserError(f"students have {mine} {name} and their teachers {other}; they must be equal")
        if ours.shape.maps != theirs.shape.maps:
            raise UserError(
                f"students have {_depth(ours)} and their teachers {_depth(theirs)}; make them equal: each layer is "
                "compared with one"
            )
        if len(ours.layers) != len(theirs.layers):
            raise UserError(
                f"students have {len(ours.layers)} layers and their teachers {len(theirs.layers)}; make them equal"
            )
        if self.data.dim != ours.inputs:
            raise UserError(f"the data has {self.data.dim} inputs and the networks {ours.inputs}; they must be equal")
        if self.labelled and not isinstance(self.data, Labelled):
            raise UserError(f"{type(self.data).__name__} has no labels to learn; give data with labels, or a teacher")
        classes, outputs = self.data.classes if isinstance(self.data, Labelled) else None, ours.sizes[-1]
        if classes is not None and classes != outputs and (classes, outputs) != (2, 1):
            raise UserError(
                f"the data has {classes} classes and the networks {outputs} outputs; make them equal, or let one "
                "output tell two classes apart"
            )
        if isinstance(self.objective, Logistic) and outputs != 1:
            raise UserError(f"the networks have {outputs} outputs, and the logistic loss takes 1; choose another loss")
        if isinstance(self.objective, CrossEntropy) and outputs == 1:
            raise UserError(
                "the networks have 1 output, whose cross-entropy is 0; choose another loss, as the logistic"
            )


def _depth(networks: Population) -> str:
    if not networks.image:
        return f"{len(networks.layers)} linear layers"
    return f"{len(networks.shape.maps)} convolutions of images of {networks.image[0]} × {networks.image[1]}"


class GroupState:
    """A group in training: its state on the device, and which ids its networks have."""

    def __init__(self, group: Group, first: int, slots: int, device: torch.device) -> None:
        students = group.students.to(device)
        self.teacher = group.teacher.to(device, dtype=group.students.dtype)
        self.teacher_id = id(group.teacher)
        self.data, self.objective, self.labelled = group.data, group.objective, group.labelled
        self.engine, self.quick = "batched", False
        """Which engine takes its steps, and whether the quick way to look at it will do."""
        self.first = first
        self.ids = torch.arange(first, first + len(group.students))
        self.packing = Packing(students.shape)
        like = students.layers[0].weight
        kept = tuple(self.packing.empty(len(students), like) for _ in range(slots))
        self.state = State(self.packing.blocks(students), kept, self.packing.running(students))
        self.students = self.packing.population(self.state.blocks, students.seeds, self.state.running)
        """As they are at any time: the state itself, seen as networks."""
        self.seeds: list[int] = group.students.seeds.tolist()
        self.like = _first_alike(group.teacher, group.students.seeds)
        """For each network the first that has the same teacher and seed, and so the same answers."""

    def __len__(self) -> int:
        return len(self.ids)


def _first_alike(teacher: Population, seeds: Int[Tensor, "net"]) -> list[int]:
    """By seed and the bytes of all parameters."""
    parts = [part for parts in (*teacher.layers, *teacher.norms) for part in parts if part is not None]
    numbers = torch.cat([part.flatten(1) for part in parts], dim=1)
    rows = numbers.cpu().contiguous().view(torch.uint8).numpy()
    first: dict[tuple[int, bytes], int] = {}
    return [
        first.setdefault((seed, row.tobytes()), i)
        for i, (seed, row) in enumerate(zip(seeds.tolist(), rows, strict=True))
    ]


class Shard:
    """Some networks of a group, with the sets of inputs and the teachers that they need."""

    def __init__(self, member: GroupState, which: Int[Tensor, "some"], device: torch.device) -> None:
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
