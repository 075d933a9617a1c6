"""Groups: students of one shape with their teachers and data, their state during training, and shards of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data import Labelled, Source
from understudy.nets import Population
from understudy.training.objectives import CrossEntropy, Logistic, Objective, SquaredError
from understudy.training.packing import Packing


@dataclass(frozen=True, eq=False)
class Group:
    """Students of one shape, paired with teachers by index, with their data and objective.

    Args:
        students: Networks to train, as they are before the first step.
        teacher: One teacher per student, or one for all, with the same inputs, outputs and number of layers.
        data: Source of the training and evaluation inputs.
        objective: Loss that is minimised.
        labelled: Train on the labels of `data` instead of the teacher's outputs. Students are then only compared with
            the teacher; without another one, give the students before training as teacher.

    Raises:
        UserError: If students, teacher, data and objective do not fit together.
    """

    students: Population
    teacher: Population
    data: Source
    objective: Objective = field(default_factory=SquaredError)
    labelled: bool = False

    def __post_init__(self) -> None:
        students, teacher = self.students, share(self.teacher, len(self.students))
        object.__setattr__(self, "teacher", teacher)
        if len(students) != len(teacher):
            raise UserError(f"{len(students)} students need one teacher, or as many teachers, got {len(teacher)}")
        inputs, outputs = (students.inputs, teacher.inputs), (students.sizes[-1], teacher.sizes[-1])
        for name, (one, other) in {"inputs": inputs, "outputs": outputs}.items():
            if one != other:
                raise UserError(f"students and teachers must have the same number of {name}, got {one} and {other}")
        if students.shape.maps != teacher.shape.maps or len(students.layers) != len(teacher.layers):
            raise UserError(
                "students and teachers must have the same number of layers, which are compared one to one, "
                f"got {_describe_layers(students)}, and {_describe_layers(teacher)}"
            )
        if self.data.dim != students.inputs:
            raise UserError(
                f"data and networks must have the same number of inputs, got {self.data.dim} and {students.inputs}"
            )
        if self.labelled and not isinstance(self.data, Labelled):
            raise UserError(
                f"labelled=True needs data with labels, got {type(self.data).__name__}; "
                "give labelled data, or train on the teacher's outputs"
            )
        classes, nodes = self.data.classes if isinstance(self.data, Labelled) else None, students.sizes[-1]
        if classes is not None and classes != nodes and (classes, nodes) != (2, 1):
            raise UserError(
                f"networks need one output per class, got {nodes} outputs for {classes} classes "
                "(two classes may also share a single output)"
            )
        if isinstance(self.objective, Logistic) and nodes != 1:
            raise UserError(f"the logistic loss needs 1 output, got {nodes}; use us.CrossEntropy() for several")
        if isinstance(self.objective, CrossEntropy) and nodes == 1:
            raise UserError("cross-entropy needs 2 or more outputs, got 1; use us.Logistic() for binary targets")


def share(teacher: Population, students: int) -> Population:
    """A single teacher as the teacher of each of several students; several teachers unchanged."""
    return teacher[[0] * students] if len(teacher) == 1 < students else teacher


def _describe_layers(networks: Population) -> str:
    if not networks.image:
        return f"{len(networks.layers)} linear"
    (height, width), convolutions = networks.image, len(networks.shape.maps)
    return f"{convolutions} convolutions and {len(networks.layers) - convolutions} linear on {height} × {width} images"


class GroupState:
    """A group in training: its parameters on the device and the ids of its networks."""

    def __init__(self, group: Group, first: int, slots: int, device: torch.device) -> None:
        """Move a group to the device; its networks get the ids first, first + 1, …"""
        students = group.students.to(device)
        self.teacher = group.teacher.to(device, dtype=group.students.dtype)
        self.teacher_id = id(group.teacher)
        self.data, self.objective, self.labelled = group.data, group.objective, group.labelled
        self.engine, self.fused_probe = "batched", False
        """Name of the engine that runs its steps, and whether a fused kernel can probe it."""
        self.first = first
        self.ids = torch.arange(first, first + len(group.students))
        self.packing = Packing(students.shape)
        self.state = self.packing.state(students, slots)
        self.students = self.packing.population(self.state.blocks, students.seeds, self.state.running)
        """The current students: views of `state`."""
        self.seeds: list[int] = group.students.seeds.tolist()
        self.representative = _first_equal(group.teacher, group.students.seeds)
        """For each network, the first one with the same teacher and seed: both have the same teacher outputs."""

    def __len__(self) -> int:
        return len(self.ids)


def _first_equal(teacher: Population, seeds: Int[Tensor, "net"]) -> list[int]:
    """Index of the first network with the same seed and the same teacher parameters, byte for byte."""
    tensors = [tensor for layer in (*teacher.layers, *teacher.norms) for tensor in layer if tensor is not None]
    numbers = torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)
    rows = [row.tobytes() for row in numbers.cpu().contiguous().view(torch.uint8).numpy()]
    first: dict[tuple[int, bytes], int] = {}
    return [first.setdefault(key, i) for i, key in enumerate(zip(seeds.tolist(), rows, strict=True))]


class Shard:
    """Some networks of a group, with the distinct input sets and teachers that they need."""

    def __init__(self, group: GroupState, which: Int[Tensor, "some"], device: torch.device) -> None:
        self.group, self.which = group, which
        networks = which.tolist()
        seeds, teachers = [group.seeds[i] for i in networks], [group.representative[i] for i in networks]
        self.sets, self.teachers = sorted(set(seeds)), sorted(set(teachers))
        self.set_of, self.teacher_of = (
            torch.tensor([place[x] for x in each], device=device)
            for each, distinct in ((seeds, self.sets), (teachers, self.teachers))
            for place in [{x: i for i, x in enumerate(distinct)}]
        )

    def __len__(self) -> int:
        return len(self.which)
