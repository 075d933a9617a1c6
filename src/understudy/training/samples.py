"""What networks see and what their teachers answer, made once and kept for as long as the same networks are at work."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from understudy.data import Labelled
from understudy.training.group import Shard
from understudy.training.objectives import of_labels
from understudy.training.parallel import side_by_side
from understudy.training.probes.reading import cut
from understudy.training.probes.teacher_outputs import TeacherOutputs, answered, joined


def roomy(like: Tensor, count: int) -> Shaped[Tensor, "item ..."]:
    """Room for so many tensors of one kind. On a processor in large pages: rows are read at random, and a core knows
    the places of few small ones."""
    if like.device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE") or not like.numel():
        return like.new_empty(count, *like.shape)
    pages = mmap.mmap(-1, count * like.numel() * like.element_size())
    with suppress(OSError):  # small ones will do
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=like.dtype).view(count, *like.shape)


class Samples:
    """Inputs a set for each seed, targets a set for each teacher and seed; parts of one source share what they can."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._kept: dict[tuple[object, ...], tuple[int, Tensor]] = {}
        self._answers: dict[tuple[object, ...], TeacherOutputs] = {}

    def forget(self) -> None:
        self._kept.clear()
        self._answers.clear()

    def inputs(self, part: Shard, epoch: int) -> Float[Tensor, "set sample in"]:
        data, dtype = part.member.data, part.member.students.dtype
        return self._once(
            ("inputs", id(data), dtype, *part.sets),
            epoch if data.fresh else 0,
            lambda seed: data.training(seed, epoch, dtype=dtype, device=self.device),
            part.sets,
        )

    def targets(self, part: Shard, epoch: int) -> Float[Tensor, "teacher sample out"]:
        member, inputs = part.member, self.inputs(part, epoch)
        place = {seed: i for i, seed in enumerate(part.sets)}

        def answer(network: int) -> Tensor:
            seed, objective = member.seeds[network], member.objective
            if member.labelled:
                assert isinstance(member.data, Labelled)
                labels = member.data.training_labels(seed, epoch).to(self.device)
                return of_labels(labels, member.students.sizes[-1], inputs.dtype)
            teacher, x = member.teacher[network], inputs[place[seed]].unsqueeze(0)
            return torch.cat([objective.target(teacher(some)) for some in cut(x, teacher)], dim=1)[0]

        key = ("targets", id(member.data), member.teacher_id, inputs.dtype, member.objective, member.labelled)
        seeds = [member.seeds[network] for network in part.teachers]
        return self._once((*key, *part.teachers, *seeds), epoch if member.data.fresh else 0, answer, part.teachers)

    def evaluation(self, part: Shard) -> Float[Tensor, "set sample in"]:
        data, dtype = part.member.data, part.member.students.dtype
        return self._once(
            ("evaluation", id(data), dtype, *part.sets),
            0,
            lambda seed: data.evaluating(seed, dtype=dtype, device=self.device),
            part.sets,
        )

    def labels(self, part: Shard) -> Int[Tensor, "set sample"] | None:
        """Of the evaluation sets, where the data has any."""
        data = part.member.data
        if not isinstance(data, Labelled):
            return None
        return self._once(
            ("labels", id(data), *part.sets), 0, lambda seed: data.evaluation_labels(seed).to(self.device), part.sets
        )

    def answers(self, part: Shard) -> TeacherOutputs:
        """What teachers do on the evaluation sets of their networks."""
        member, x = part.member, self.evaluation(part)
        seeds = [member.seeds[network] for network in part.teachers]
        key = (id(member.data), member.teacher_id, x.dtype, member.objective, *part.teachers, *seeds)
        if key not in self._answers:
            place = {seed: i for i, seed in enumerate(part.sets)}

            def answer(network: int) -> TeacherOutputs:
                return answered(member.teacher[network], x[place[member.seeds[network]]].unsqueeze(0), member.objective)

            self._answers[key] = joined(side_by_side(answer, part.teachers, self.device))
        return self._answers[key]

    def _once(
        self, key: tuple[object, ...], version: int, make: Callable[[int], Tensor], items: Sequence[int]
    ) -> Shaped[Tensor, "item ..."]:
        """make(item) stacked over the items, made once a version."""
        if key not in self._kept or self._kept[key][0] != version:
            self._kept.pop(key, None)
            first = side_by_side(make, items[:1], self.device)[0]
            room = roomy(first, len(items))

            def put(i: int) -> None:
                room[i] = make(items[i]) if i else first

            side_by_side(put, range(len(items)), self.device)
            self._kept[key] = (version, room)
        return self._kept[key][1]
