"""Epoch after epoch: steps by an engine, then a look at every network. State that can be saved and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.data import Labelled, Source
from understudy.errors import UserError
from understudy.nets import Population
from understudy.training.engines import ENGINES, choose, resident
from understudy.training.group import Group, GroupState, Shard
from understudy.training.objectives import Objective, SquaredError
from understudy.training.optimisers import Optimiser, rates
from understudy.training.packing import State
from understudy.training.parallel import products, side_by_side
from understudy.training.plan import (
    Plan,
    at_once,
    available,
    looked_at,
    plainly_at_once,
    planned,
    refuse_too_many,
    splits,
)
from understudy.training.probes import fused_cpu as cpu_looking
from understudy.training.probes import fused_cuda as looking
from understudy.training.probes.reading import looked, loss, quick_look, read
from understudy.training.problem import Problem
from understudy.training.records import METRICS, NODES, Records, joined, made_rows
from understudy.training.samples import Samples
from understudy.training.streams import Streams, fetch_async, to_device_async

Job = tuple[Shard, Int[Tensor, "_"]]
"""A piece of the work of an epoch: some networks of a part, by their place in it."""


class Training:
    """All networks of a run, marching together. `epoch` 0 is before the first step."""

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
        tf32: bool = False,
        memory: int | None = None,
    ) -> None:
        """`engine`: none takes the fastest that suits. `memory`: bytes that may be used; none takes what is free.

        `ranks`: epochs at which every student's place is recorded. `tf32`: whether a card may round the factors of
        float32 products to 11 bits, as its fastest multipliers do.
        """
        if steps < 1:
            raise UserError(f"steps: {steps} was given; an epoch has 1 step or more")
        self.device = torch.device(device)
        self.optimiser, self.steps, self.pairs, self.ranks, self.tf32 = optimiser, steps, pairs, ranks, tf32
        self.epoch = 0
        count = sum(len(g.students) for g in groups)
        self.stops = torch.full((count,), torch.iinfo(torch.int64).max) if stops is None else torch.tensor(stops)
        if len(self.stops) != count:
            raise UserError(f"stops: {len(self.stops)} were given for {count} networks; give one a network")
        rates(optimiser, count, epoch=1)  # refuses a wrong number of rates now rather than in the first epoch
        for group in groups:
            if optimiser.batch is not None and group.data.train < optimiser.batch:
                raise UserError(f"{group.data.train} training samples are fewer than a batch of {optimiser.batch}")
            if group.students.norms and optimiser.batch == 1:
                raise UserError("batch: 1 was given; BatchNorm needs batches of 2 samples or more")
        free = available(self.device) if memory is None else memory
        refuse_too_many(groups, optimiser, free)
        firsts = [sum(len(g.students) for g in groups[:i]) for i in range(len(groups))]
        self.members = [GroupState(g, f, optimiser.slots, self.device) for g, f in zip(groups, firsts, strict=True)]
        for member in self.members:
            like = member.state.blocks[0]
            member.engine = engine or choose(member.packing, member.objective, optimiser, like)
            on_card = looking.supports(member.students, member.teacher.sizes[1], member.objective)
            alike = member.teacher.shape.dense and not isinstance(member.data, Labelled)
            on_card = alike and on_card
            member.quick = on_card or (alike and cpu_looking.supports(member.students, member.objective))
            if member.engine == "resident":
                resident.prepare(member.packing, optimiser, like)
            if on_card:
                looking.prepare(member.students, member.teacher.sizes[1])
        self.plan: Plan = planned(self.members, optimiser, steps, self.device, free)
        self.samples = Samples(self.device)
        # Where the networks are: to ask which of them go on would be to wait for the card.
        self._marks = torch.full((count,), -1, device=self.device)
        self._losses = torch.full((count,), torch.nan, dtype=torch.float64, device=self.device)
        self._lanes = Streams(self.device)
        self._flows = len(self.plan.waves) == 1 and not any(group.data.fresh for group in groups)
        """Whether all samples stay, so that groups need not wait for each other."""
        self._going = torch.ones(count, dtype=torch.bool)
        self._asked = [self._ask()]

    def __len__(self) -> int:
        return len(self.stops)

    @property
    def diverged_at(self) -> Int[Tensor, "all"]:
        """The step at which each network diverged; −1: it has not."""
        self._lanes.join()
        return self._marks

    @property
    def train_loss(self) -> Float[Tensor, "all"]:
        """Of the last epoch of each network."""
        self._lanes.join()
        return self._losses

    @property
    def alive(self) -> Bool[Tensor, "all"]:
        """Which networks have not diverged."""
        return (self.diverged_at < 0).cpu()

    def _ask(self) -> Callable[[], Bool[Tensor, "all"]]:
        """The same, when all that was begun so far has been done; nobody waits for it who does not want to know."""
        with self._lanes.after_all():
            return fetch_async(self._marks < 0, self.device)

    @property
    def precision(self) -> str:
        """Of the steps, and of the looks where it is another."""
        numbers = ", ".join(sorted({str(m.students.dtype).removeprefix("torch.") for m in self.members}))
        split = self.device.type == "cuda" and any(m.quick and m.students.dtype == torch.float32 for m in self.members)
        if self.tf32 and self.device.type == "cuda" and numbers == "float32":
            return "float32, products in TF32 (11 bits)"
        return numbers + (", looked at in 3xTF32 (about 21 bits)" if split else "")

    def populations(self) -> list[Population]:
        """The students as they are now, group by group; networks that diverged as they last were finite."""
        self._lanes.join()
        return [m.students for m in self.members]

    def advance(self) -> None:
        """One epoch of every network that has neither diverged nor come to its stop."""
        with products(self.tf32):
            self._advance()

    def _advance(self) -> None:
        self.epoch += 1
        # Of a card, as of the epoch before the last: it has always been given an epoch to do. Who has diverged since
        # takes his steps in vain.
        alive = self.alive if self.device.type == "cpu" else self._asked[0]()
        self._going = alive & (self.stops >= self.epoch)
        rate = rates(self.optimiser, len(self), self.epoch)
        for wave in self.plan.waves:
            jobs = []
            # The widest first: what is left to the end then is small.
            for part in _widest_first(wave):
                self.samples.targets(part, self.epoch)
                jobs += self._jobs(part, at_once(part.member, self.optimiser, self.device))
            self._abreast(lambda job: self._settle(job, *self._take(job, rate)), jobs)
            self._leave()
        self._asked = [*self._asked[-1:], self._ask()]

    def _jobs(self, part: Shard, size: int) -> list[Job]:
        """The networks of a part that go on, in pieces."""
        inside = torch.nonzero(self._going[part.member.ids[part.which]]).flatten()
        return [(part, piece) for piece in splits(inside, size)]

    def _abreast(self, work: Callable[[Job], Any], jobs: Sequence[Job]) -> list[Any]:
        """Each job beside those of other groups."""
        if self.device.type == "cpu":
            return side_by_side(work, jobs, self.device)
        results = []
        for job in jobs:
            with self._lanes.on(job[0].member.first):
                results.append(work(job))
        if not self._flows:
            self._lanes.join()
        return results

    def _take(self, job: Job, rate: Float[Tensor, "all"]) -> tuple[State, Float[Tensor, "piece step"]]:
        part, piece = job
        member, where, inside = (
            part.member,
            to_device_async(part.which[piece], self.device),
            to_device_async(piece, self.device),
        )
        problem = Problem(
            member.packing,
            member.objective,
            self.optimiser,
            self.samples.inputs(part, self.epoch),
            self.samples.targets(part, self.epoch),
            part.set_of[inside],
            part.teacher_of[inside],
            member.students.seeds[where],
            to_device_async(rate[member.ids[part.which[piece]]], self.device),
        )
        state = member.state.pick(where)
        return state, ENGINES[member.engine].take(problem, state, (self.epoch - 1) * self.steps, self.steps)

    def _settle(self, job: Job, state: State, losses: Float[Tensor, "piece step"]) -> None:
        """Take over what a piece has become; a network that diverged stays as it was, marked with the step."""
        part, piece = job
        where = to_device_async(part.which[piece], self.device)
        ids = where + part.member.first
        sound = torch.stack([block.isfinite().all(1) for block in state.blocks]).all(0)
        broken = torch.cat((~losses.isfinite(), ~sound.unsqueeze(1)), dim=1)
        good = (self._marks[ids] < 0) & ~broken.any(1)
        self._mark(ids, broken.any(1), (self.epoch - 1) * self.steps + broken.int().argmax(1))
        self._losses[ids] = torch.where(good, _means(losses), self._losses[ids])
        part.member.state.put(where, state, good)

    def _mark(self, ids: Int[Tensor, "some"], which: Bool[Tensor, "some"], when: Int[Tensor, "some"]) -> None:
        """Those that diverged, with the step at which they did; who had before keeps his."""
        before = self._marks[ids]
        self._marks[ids] = torch.where((before < 0) & which, when, before)

    def _leave(self) -> None:
        """Where not all data is kept at once, what a wave needed makes room for the next."""
        if len(self.plan.waves) > 1:
            self.samples.forget()

    def probe(self) -> Records:
        """Look at every network that still goes, or has just come to its stop."""
        with products(self.tf32):
            return self._probe()

    def _probe(self) -> Records:
        rows: list[tuple[int, Callable[[], dict[str, pa.Table]]]] = []
        for wave in self.plan.waves:
            if self.epoch == 0:
                self._first_loss(wave)
            jobs = []
            for part in _widest_first(wave):
                if part.member.quick:
                    self.samples.answers(part)
                self.samples.evaluation(part)
                self.samples.labels(part)
                jobs += self._jobs(part, looked_at(part.member, self.device))
            rows += self._abreast(self._look, jobs)
            self._leave()
        rows.sort(key=lambda row: row[0])
        return Records([make for _, make in rows], self._ask())

    def _look(self, job: Job) -> tuple[int, Callable[[], dict[str, pa.Table]]]:
        """The first network of a piece, and what makes the rows of all."""
        part, piece = job
        member, where, inside = (
            part.member,
            to_device_async(part.which[piece], self.device),
            to_device_async(piece, self.device),
        )
        student, teacher = member.students[where], member.teacher[where]
        x, sets = self.samples.evaluation(part), part.set_of[inside]
        if member.quick:
            look = quick_look(student, teacher, x, sets, self.samples.answers(part), part.teacher_of[inside])
        else:
            labels = self.samples.labels(part)
            here = None if labels is None else labels[sets]
            look = looked(read(student, teacher, x[sets], member.objective, here, member.labelled))
        ids = where + member.first
        self._mark(ids, ~look.loss.isfinite(), torch.full_like(ids, self.epoch * self.steps))
        known = fetch_async((self._marks[ids] < 0, self._losses[ids]), self.device)
        networks = member.ids[part.which[piece]]
        ranked = self.epoch in self.ranks
        return int(networks[0]), partial(made_rows, networks, self.epoch, known, look, self.pairs, ranked)

    def _first_loss(self, wave: Sequence[Shard]) -> None:
        """Before the first step the training loss is that over the whole training set."""
        jobs = [
            (part, piece) for part in wave for piece in splits(part.which, plainly_at_once(part.member, self.device))
        ]
        for part in wave:
            self.samples.targets(part, epoch=1)

        def measure(job: tuple[Shard, Int[Tensor, "some"]]) -> Tensor:
            part, piece = job
            member, where = part.member, piece.to(self.device)
            inside = torch.searchsorted(part.which, piece).to(self.device)
            x = self.samples.inputs(part, epoch=1)[part.set_of[inside]]
            wanted = self.samples.targets(part, epoch=1)[part.teacher_of[inside]]
            return loss(member.students[where], x, wanted, member.objective)

        for (part, piece), each in zip(jobs, side_by_side(measure, jobs, self.device), strict=True):
            self._losses[part.member.ids[piece].to(self.device)] = each

    def state(self) -> dict[str, Tensor]:
        """Everything that goes on from here, by name; what follows from the configuration is not in it."""
        self._lanes.join()
        named = {f"{i}.{k}": v for i, m in enumerate(self.members) for k, v in m.state.tensors().items()}
        return named | {
            "diverged_at": self.diverged_at,
            "train_loss": self.train_loss,
            "epoch": torch.tensor(self.epoch),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state that `state` gave."""
        self._lanes.join()
        for i, member in enumerate(self.members):
            member.state.load({k.removeprefix(f"{i}."): v for k, v in state.items() if k.startswith(f"{i}.")})
        self._marks.copy_(state["diverged_at"])
        self._losses.copy_(state["train_loss"])
        self.epoch = int(state["epoch"])
        self._asked = [self._ask()]


def _widest_first(parts: Sequence[Shard]) -> list[Shard]:
    return sorted(parts, key=lambda part: -part.member.packing.numbers)


def _means(losses: Float[Tensor, "net step"]) -> Float[Tensor, "net"]:
    """Over the steps; on a processor one network at a time, so that company changes no rounding."""
    if losses.is_cuda:
        return losses.double().mean(1)
    return torch.stack([each.double().mean() for each in losses])


class Trained(NamedTuple):
    """What training leaves behind: the two tables, the students, and when each network diverged (−1: it did not)."""

    metrics: pa.Table
    nodes: pa.Table
    students: Population | list[Population]
    teacher: Population
    diverged_at: Int[Tensor, "net"]
    data: Source
    """What they were trained on."""


def train(
    students: Population | Sequence[Population],
    teacher: Population,
    data: Source,
    optimiser: Optimiser,
    *,
    epochs: int,
    steps: int,
    objective: Objective | None = None,
    stops: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    pairs: bool = False,
    memory: int | None = None,
) -> Trained:
    """Train students (one population, or one a shape) against their teacher, looking at them after every epoch."""
    several = [students] if isinstance(students, Population) else list(students)
    groups = [Group(population, teacher, data, objective or SquaredError()) for population in several]
    training = Training(
        groups,
        optimiser,
        steps=steps,
        stops=stops,
        device=device,
        pairs=pairs,
        memory=memory,
    )
    tables = [training.probe().tables()]
    for _ in range(epochs):
        training.advance()
        tables.append(training.probe().tables())
    ends = training.populations()
    return Trained(
        joined([each["metrics"] for each in tables], METRICS),
        joined([each["nodes"] for each in tables], NODES),
        ends[0] if isinstance(students, Population) else ends,
        teacher,
        training.diverged_at.cpu(),
        data,
    )
