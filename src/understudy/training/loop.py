"""The epoch loop: an engine runs the steps of an epoch, then every network is probed.

The networks of all groups are cut into waves whose data fits in memory, and each wave into jobs (`plan.py`). On the CPU
the jobs of a wave run in parallel, on a GPU each group has its own stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._devices import allow_tf32, resolve_device
from understudy._errors import UserError
from understudy._recorded import validate_recorded
from understudy.data import Labelled
from understudy.nets import Population
from understudy.training.engines import ENGINES, choose, resident
from understudy.training.group import Group, GroupState, Shard
from understudy.training.optimisers import Optimiser, rates
from understudy.training.packing import State
from understudy.training.parallel import run_parallel
from understudy.training.plan import (
    Plan,
    available,
    make_plan,
    piece_size,
    plain_probe_size,
    probe_size,
    require_parameters_fit,
    split,
)
from understudy.training.probes import fused_cpu, fused_cuda
from understudy.training.probes.curvature import measure_curvature, requested
from understudy.training.probes.reading import loss, probe, probe_fused
from understudy.training.problem import Problem
from understudy.training.records import Records, make_rows
from understudy.training.samples import Samples
from understudy.training.streams import Streams, fetch_async, to_device_async

Job = tuple[Shard, Int[Tensor, "_"]]
"""A piece of the work of an epoch: some networks of a shard, by their index in it."""


class Training:
    """Training of all networks of a run, epoch by epoch.

    `probe` measures the networks, `advance` trains them for one epoch; `epoch` counts the epochs done, and is 0 before
    the first step. `state_dict` and `load_state_dict` save and resume a training, bit for bit.

    Args:
        groups: Groups of students; their networks are numbered consecutively.
        optimiser: Optimiser of all networks. Its `lr` may be one number or one per network.
        steps: Optimiser steps per epoch.
        stops: Last epoch of each network. Default: no limit.
        engine: Name of the engine that runs the steps. Default: the fastest that supports each group.
        device: "cpu", "cuda", or "auto" for a CUDA GPU if there is one.
        pairs: Record the correlation of every teacher node with every student node.
        ranks: Epochs at which the rank of every student by correlation with each teacher node is recorded.
        record: Further metrics that are recorded by every probe: `gradient_norm`, `hessian_eigenvalues`,
            `students_per_teacher`. Those of the final winners are computed from the ranks.
        tf32: Allow TF32 (11-bit mantissa) in float32 matrix products and convolutions on a GPU.
        memory: Bytes that may be used. Default: most of the free memory of the device.

    Raises:
        UserError: If a value is out of range, or the networks do not fit in memory.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        optimiser: Optimiser,
        *,
        steps: int,
        stops: Sequence[int] | None = None,
        engine: str | None = None,
        device: torch.device | str = "cpu",
        pairs: bool = False,
        ranks: Collection[int] = (),
        record: Collection[str] = (),
        tf32: bool = False,
        memory: int | None = None,
    ) -> None:
        count = sum(len(group.students) for group in groups)
        _validate(groups, optimiser, steps, stops, count)
        self.device = resolve_device(device)
        self.optimiser, self.steps, self.pairs, self.ranks, self.tf32 = optimiser, steps, pairs, ranks, tf32
        self.record = validate_recorded(record)
        self.epoch = 0
        self.stops = torch.full((count,), torch.iinfo(torch.int64).max) if stops is None else torch.tensor(stops)
        free = available(self.device) if memory is None else memory
        require_parameters_fit(groups, optimiser, free)
        firsts = [sum(len(g.students) for g in groups[:i]) for i in range(len(groups))]
        self.groups = [GroupState(g, f, optimiser.slots, self.device) for g, f in zip(groups, firsts, strict=True)]
        for group in self.groups:
            _choose_kernels(group, optimiser, engine)
        self.plan: Plan = make_plan(self.groups, optimiser, steps, self.device, free, self.record)
        self.samples = Samples(self.device)
        # Both on the device: reading them on the host would wait for the GPU.
        self._diverged_at = torch.full((count,), -1, device=self.device)
        self._train_loss = torch.full((count,), torch.nan, dtype=torch.float64, device=self.device)
        self._streams = Streams(self.device)
        self._data_stays = len(self.plan.waves) == 1 and not any(group.data.fresh for group in groups)
        """Whether all samples stay in memory, so that groups need not wait for each other."""
        self._active = torch.ones(count, dtype=torch.bool)
        """Networks that train in the current epoch."""
        self._past_alive = [self._fetch_alive()]
        """Liveness after the last two epochs, as callables that wait for it."""

    def __len__(self) -> int:
        return len(self.stops)

    @property
    def diverged_at(self) -> Int[Tensor, "all"]:
        """Step at which each network diverged, −1 if it has not."""
        self._streams.join()
        return self._diverged_at

    @property
    def train_loss(self) -> Float[Tensor, "all"]:
        """Training loss of the last epoch of each network."""
        self._streams.join()
        return self._train_loss

    @property
    def alive(self) -> Bool[Tensor, "all"]:
        """Whether each network has not diverged."""
        return (self.diverged_at < 0).cpu()

    @property
    def precision(self) -> str:
        """Floating-point precision of training steps, and of probes where it differs."""
        numbers = ", ".join(sorted({str(g.students.dtype).removeprefix("torch.") for g in self.groups}))
        if self.device.type != "cuda":
            return numbers
        if self.tf32 and numbers == "float32":
            return "float32, products in TF32 (11 bits)"
        split_floats = any(g.fused_probe and g.students.dtype == torch.float32 for g in self.groups)
        return numbers + (", probed in 3xTF32 (about 21 bits)" if split_floats else "")

    @property
    def at_rest(self) -> bool:
        """Whether `state_dict` and `populations` are those of this epoch; always, unless epochs are computed ahead."""
        return True

    def populations(self) -> list[Population]:
        """Return the current students, group by group; a diverged network as it was when last finite."""
        self._streams.join()
        return [group.students for group in self.groups]

    def advance(self) -> None:
        """Train every network that has neither diverged nor reached its stop for one epoch."""
        with allow_tf32(self.tf32):
            self.epoch += 1
            # On a GPU, use the liveness of two epochs ago so that the host never waits. A network that diverged since
            # then trains one more epoch, whose result is discarded.
            alive = self.alive if self.device.type == "cpu" else self._past_alive[0]()
            self._active = alive & (self.stops >= self.epoch)
            rate = rates(self.optimiser, len(self), self.epoch)
            for wave in self.plan.waves:
                jobs = []
                for shard in _widest_first(wave):
                    self.samples.targets(shard, self.epoch)
                    jobs += self._make_jobs(shard, piece_size(shard.group, self.optimiser, self.device))
                self._run_jobs(lambda job: self._commit(job, *self._train(job, rate)), jobs)
                self._release_samples()
            self._past_alive = [*self._past_alive[-1:], self._fetch_alive()]

    def probe(self) -> Records:
        """Measure every network that is still training or has just reached its stop."""
        with allow_tf32(self.tf32):
            rows: list[tuple[int, Callable[[], dict[str, pa.Table]]]] = []
            for wave in self.plan.waves:
                if self.epoch == 0:
                    self._measure_initial_loss(wave)
                jobs = []
                for shard in _widest_first(wave):
                    if shard.group.fused_probe:
                        self.samples.teacher_outputs(shard)
                    self.samples.evaluation(shard)
                    self.samples.labels(shard)
                    jobs += self._make_jobs(shard, probe_size(shard.group, self.device))
                rows += self._run_jobs(self._probe_job, jobs)
                self._release_samples()
            rows.sort(key=lambda row: row[0])
            return Records([make for _, make in rows], self._fetch_alive())

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors needed to resume from this epoch, by name.

        Whatever the configuration determines is left out.
        """
        self._streams.join()
        named = {f"{i}.{k}": v for i, group in enumerate(self.groups) for k, v in group.state.tensors().items()}
        return named | {
            "diverged_at": self.diverged_at,
            "train_loss": self.train_loss,
            "epoch": torch.tensor(self.epoch),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from a state returned by `state_dict`.

        Args:
            state: Tensors by name.
        """
        self._streams.join()
        for i, group in enumerate(self.groups):
            group.state.load({k.removeprefix(f"{i}."): v for k, v in state.items() if k.startswith(f"{i}.")})
        self._diverged_at.copy_(state["diverged_at"])
        self._train_loss.copy_(state["train_loss"])
        self.epoch = int(state["epoch"])
        self._past_alive = [self._fetch_alive()]

    def _fetch_alive(self) -> Callable[[], Bool[Tensor, "all"]]:
        """Return a callable that waits for all work submitted so far and then returns `alive`.

        Does not block until it is called.
        """
        with self._streams.after_all():
            return fetch_async(self._diverged_at < 0, self.device)

    def _make_jobs(self, shard: Shard, size: int) -> list[Job]:
        """Split the active networks of a shard into pieces of at most `size`."""
        active = torch.nonzero(self._active[shard.group.ids[shard.which]]).flatten()
        return [(shard, piece) for piece in split(active, size)]

    def _locate(self, job: Job) -> tuple[GroupState, Int[Tensor, "piece"], Int[Tensor, "piece"]]:
        """Return the group of a job, and on the device the indices of its networks in the group and in the shard."""
        shard, piece = job
        return shard.group, to_device_async(shard.which[piece], self.device), to_device_async(piece, self.device)

    def _run_jobs(self, work: Callable[[Job], Any], jobs: Sequence[Job]) -> list[Any]:
        """Run jobs in parallel: by threads on the CPU, on one stream per group on a GPU."""
        if self.device.type == "cpu":
            return run_parallel(work, jobs, self.device)
        results = []
        for job in jobs:
            with self._streams.on(job[0].group.first):
                results.append(work(job))
        if not self._data_stays:
            self._streams.join()
        return results

    def _train(self, job: Job, rate: Float[Tensor, "all"]) -> tuple[State, Float[Tensor, "piece step"]]:
        """Run the steps of an epoch on a copy of a piece; return the new state and the loss of every step."""
        shard, piece = job
        group, where, inside = self._locate(job)
        problem = Problem(
            group.packing,
            group.objective,
            self.optimiser,
            self.samples.inputs(shard, self.epoch),
            self.samples.targets(shard, self.epoch),
            shard.set_of[inside],
            shard.teacher_of[inside],
            group.students.seeds[where],
            to_device_async(rate[group.ids[shard.which[piece]]], self.device),
        )
        state = group.state.pick(where)
        return state, ENGINES[group.engine].run(problem, state, (self.epoch - 1) * self.steps, self.steps)

    def _commit(self, job: Job, state: State, losses: Float[Tensor, "piece step"]) -> None:
        """Write the new state of a piece back, except for networks that diverged, which are marked with the step."""
        group, where, _ = self._locate(job)
        ids = where + group.first
        finite = torch.stack([block.isfinite().all(1) for block in state.blocks]).all(0)
        broken = torch.cat((~losses.isfinite(), ~finite.unsqueeze(1)), dim=1)
        good = (self._diverged_at[ids] < 0) & ~broken.any(1)
        self._mark_diverged(ids, broken.any(1), (self.epoch - 1) * self.steps + broken.int().argmax(1))
        self._train_loss[ids] = torch.where(good, _mean_losses(losses), self._train_loss[ids])
        group.state.put(where, state, good)

    def _mark_diverged(self, ids: Int[Tensor, "some"], which: Bool[Tensor, "some"], step: Int[Tensor, "some"]) -> None:
        """Record the step at which networks diverged; networks already marked keep their first step."""
        before = self._diverged_at[ids]
        self._diverged_at[ids] = torch.where((before < 0) & which, step, before)

    def _release_samples(self) -> None:
        """Free the samples of a wave for the next one, where not all fit in memory."""
        if len(self.plan.waves) > 1:
            self.samples.clear()

    def _probe_job(self, job: Job) -> tuple[int, Callable[[], dict[str, pa.Table]]]:
        """Measure a piece; return the id of its first network and a callable that makes the rows of all."""
        shard, piece = job
        group, where, inside = self._locate(job)
        student, teacher = group.students[where], group.teacher[where]
        x, sets = self.samples.evaluation(shard), shard.set_of[inside]
        labels = self.samples.labels(shard)
        if group.fused_probe:
            outputs = self.samples.teacher_outputs(shard)
            reading = probe_fused(student, teacher, x, sets, outputs, shard.teacher_of[inside])
        else:
            own_labels = None if labels is None else labels[sets]
            reading = probe(student, teacher, x[sets], group.objective, own_labels, group.labelled)
        if requested(self.record):
            wanted = labels if group.labelled else None
            found = measure_curvature(student, teacher, x, sets, group.objective, self.record, wanted)
            reading = reading._replace(curvature=found)
        fetch_reading = fetch_async(reading, self.device)
        ids = where + group.first
        self._mark_diverged(ids, ~reading.eval_loss.isfinite(), torch.full_like(ids, self.epoch * self.steps))
        fetch_training = fetch_async((self._diverged_at[ids] < 0, self._train_loss[ids]), self.device)
        networks = group.ids[shard.which[piece]]
        ranked = self.epoch in self.ranks
        rows = partial(make_rows, networks, self.epoch, fetch_training, fetch_reading, self.pairs, ranked, self.record)
        return int(networks[0]), rows

    def _measure_initial_loss(self, wave: Sequence[Shard]) -> None:
        """Measure the training loss before the first step, over the whole training set."""
        jobs = []
        for shard in wave:
            self.samples.targets(shard, epoch=1)
            jobs += self._make_jobs(shard, plain_probe_size(shard.group, self.device))

        def measure(job: Job) -> Tensor:
            group, where, inside = self._locate(job)
            x = self.samples.inputs(job[0], epoch=1)[job[0].set_of[inside]]
            targets = self.samples.targets(job[0], epoch=1)[job[0].teacher_of[inside]]
            return loss(group.students[where], x, targets, group.objective)

        for job, each in zip(jobs, run_parallel(measure, jobs, self.device), strict=True):
            self._train_loss[self._locate(job)[1] + job[0].group.first] = each


def _validate(
    groups: Sequence[Group], optimiser: Optimiser, steps: int, stops: Sequence[int] | None, count: int
) -> None:
    if steps < 1:
        raise UserError(f"steps must be at least 1 per epoch, got {steps}")
    if stops is not None and len(stops) != count:
        raise UserError(f"stops must have one epoch per network ({count}), got {len(stops)}")
    rates(optimiser, count, epoch=1)  # raises on a wrong number of rates
    for group in groups:
        if optimiser.batch is not None and group.data.train < optimiser.batch:
            raise UserError(
                f"the batch size must be at most the number of training samples ({group.data.train}), "
                f"got {optimiser.batch}"
            )
        if group.students.norms and optimiser.batch == 1:
            raise UserError("the batch size must be at least 2 for networks with BatchNorm, got 1")


def _choose_kernels(group: GroupState, optimiser: Optimiser, engine: str | None) -> None:
    """Choose the engine and the probe of a group, and start to compile their GPU kernels."""
    like, teacher_nodes = group.state.blocks[0], group.teacher.sizes[1]
    group.engine = engine or choose(group.packing, group.objective, optimiser, like)
    plain_teacher = group.teacher.shape.dense and not isinstance(group.data, Labelled)
    on_gpu = plain_teacher and fused_cuda.supports(group.students, teacher_nodes, group.objective)
    group.fused_probe = on_gpu or (plain_teacher and fused_cpu.supports(group.students, group.objective))
    if group.engine == "resident":
        resident.prepare(group.packing, optimiser, like)
    if on_gpu:
        fused_cuda.prepare(group.students, teacher_nodes)


def _widest_first(shards: Sequence[Shard]) -> list[Shard]:
    """Sort by network size, largest first, so that the jobs left for the end are short."""
    return sorted(shards, key=lambda shard: -shard.group.packing.numbers)


def _mean_losses(losses: Float[Tensor, "net step"]) -> Float[Tensor, "net"]:
    """Average over steps; on the CPU network by network, so that rounding does not depend on the batch composition."""
    if losses.is_cuda:
        return losses.double().mean(1)
    return torch.stack([each.double().mean() for each in losses])
