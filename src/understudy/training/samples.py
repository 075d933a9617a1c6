"""Samples: inputs, targets and teacher outputs, computed once and kept while the same networks are in memory."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from understudy.data import Labelled
from understudy.training.group import Shard
from understudy.training.objectives import label_targets
from understudy.training.parallel import run_parallel
from understudy.training.probes.reading import split_samples
from understudy.training.probes.teacher_outputs import TeacherOutputs, concatenate_outputs, teacher_outputs


def allocate(like: Tensor, count: int) -> Shaped[Tensor, "item ..."]:
    """Allocate `count` tensors like the given one, in huge pages on the CPU.

    Rows are read at random, and the address translation cache of a core covers few pages of the usual size.
    """
    if like.device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE") or not like.numel():
        return like.new_empty(count, *like.shape)
    pages = mmap.mmap(-1, count * like.numel() * like.element_size())
    with suppress(OSError):  # huge pages are only an optimisation
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=like.dtype).view(count, *like.shape)


class Samples:
    """Inputs per seed and targets per teacher and seed; shards with the same source share them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._tensors: dict[tuple[object, ...], tuple[int, Tensor]] = {}
        self._teacher_outputs: dict[tuple[object, ...], TeacherOutputs] = {}

    def clear(self) -> None:
        self._tensors.clear()
        self._teacher_outputs.clear()

    def inputs(self, shard: Shard, epoch: int) -> Float[Tensor, "set sample in"]:
        data, dtype = shard.group.data, shard.group.students.dtype
        make = partial(data.training, epoch=epoch, dtype=dtype, device=self.device)
        return self._cached(("inputs", id(data), dtype, *shard.sets), epoch if data.fresh else 0, make, shard.sets)

    def targets(self, shard: Shard, epoch: int) -> Float[Tensor, "teacher sample out"]:
        group, inputs = shard.group, self.inputs(shard, epoch)
        place = {seed: i for i, seed in enumerate(shard.sets)}

        def target(network: int) -> Tensor:
            seed, objective = group.seeds[network], group.objective
            if group.labelled:
                assert isinstance(group.data, Labelled)
                labels = group.data.training_labels(seed, epoch).to(self.device)
                return label_targets(labels, group.students.sizes[-1], inputs.dtype)
            teacher, x = group.teacher[network], inputs[place[seed]].unsqueeze(0)
            return torch.cat([objective.target(teacher(some)) for some in split_samples(x, teacher)], dim=1)[0]

        key = ("targets", id(group.data), group.teacher_id, inputs.dtype, group.objective, group.labelled)
        seeds = [group.seeds[network] for network in shard.teachers]
        return self._cached((*key, *shard.teachers, *seeds), epoch if group.data.fresh else 0, target, shard.teachers)

    def evaluation(self, shard: Shard) -> Float[Tensor, "set sample in"]:
        data, dtype = shard.group.data, shard.group.students.dtype
        make = partial(data.evaluating, dtype=dtype, device=self.device)
        return self._cached(("evaluation", id(data), dtype, *shard.sets), 0, make, shard.sets)

    def labels(self, shard: Shard) -> Int[Tensor, "set sample"] | None:
        """Labels of the evaluation sets, where the data has any."""
        data = shard.group.data
        if not isinstance(data, Labelled):
            return None
        key = ("labels", id(data), *shard.sets)
        return self._cached(key, 0, lambda seed: data.evaluation_labels(seed).to(self.device), shard.sets)

    def teacher_outputs(self, shard: Shard) -> TeacherOutputs:
        """Teacher activations and outputs on the evaluation sets of their networks."""
        group, x = shard.group, self.evaluation(shard)
        seeds = [group.seeds[network] for network in shard.teachers]
        key = (id(group.data), group.teacher_id, x.dtype, group.objective, *shard.teachers, *seeds)
        if key not in self._teacher_outputs:
            place = {seed: i for i, seed in enumerate(shard.sets)}

            def compute(network: int) -> TeacherOutputs:
                inputs = x[place[group.seeds[network]]].unsqueeze(0)
                return teacher_outputs(group.teacher[network], inputs, group.objective)

            self._teacher_outputs[key] = concatenate_outputs(run_parallel(compute, shard.teachers, self.device))
        return self._teacher_outputs[key]

    def _cached(
        self, key: tuple[object, ...], version: int, make: Callable[[int], Tensor], items: Sequence[int]
    ) -> Shaped[Tensor, "item ..."]:
        """Stack make(item) over the items, once per version."""
        if key not in self._tensors or self._tensors[key][0] != version:
            self._tensors.pop(key, None)
            first = run_parallel(make, items[:1], self.device)[0]
            stacked = allocate(first, len(items))

            def fill(i: int) -> None:
                stacked[i] = make(items[i]) if i else first

            run_parallel(fill, range(len(items)), self.device)
            self._tensors[key] = (version, stacked)
        return self._tensors[key][1]
