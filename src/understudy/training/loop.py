"""Epoch after epoch: steps by an engine, then a look at every network. State that can be saved and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import pyarrow as pa
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data import Source
from understudy.nets import Population
from understudy.training.engines import ENGINES, choose, cpu_looking, looking, resident
from understudy.training.group import Group, Members, Part
from understudy.training.objectives import Objective, SquaredError
from understudy.training.optimisers import Optimiser, rates
from understudy.training.packing import State
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
from understudy.training.probe import Look, loss, quick_look, read
from understudy.training.problem import Problem
from understudy.training.records import METRICS, NODES, joined, metric_rows, node_rows
from understudy.training.samples import Samples
from understudy.training.workers import abreast, side_by_side


class Records:
    """The rows that one look at all networks adds to the two tables: made when they are first asked for.

    On a card that is best done by another thread than the one that trains, which can go on meanwhile.
    """

    def __init__(self, rows: Sequence[Callable[[], tuple[pa.Table, pa.Table]]]) -> None:
        self._rows = tuple(rows)

    def tables(self) -> dict[str, pa.Table]:
        return {"metrics": self.metrics, "nodes": self.nodes}

    @property
    def metrics(self) -> pa.Table:
        return self._made[0]

    @property
    def nodes(self) -> pa.Table:
        return self._made[1]

    @cached_property
    def _made(self) -> tuple[pa.Table, pa.Table]:
        made = [rows() for rows in self._rows]
        self._rows = ()  # and what they were made of
        return joined([metrics for metrics, _ in made], METRICS), joined([nodes for _, nodes in made], NODES)


class _Job(NamedTuple):
    """A piece of the work of an epoch: some networks of a part, by their place in it and in its group."""

    part: Part
    problem: Problem
    inside: Int[Tensor, "piece"]
    where: Int[Tensor, "piece"]


class Training:
    """All networks of a run, marching together. `epoch` 0 is before the first step."""

    def __init__(
        self,
        groups: Sequence[Group],
        optimiser: Optimiser,
        *,
        steps: int,
        objective: Objective | None = None,
        stops: Sequence[int] | None = None,
        engine: str | None = None,
        device: torch.device | str = "cpu",
        pairs: bool = False,
        memory: int | None = None,
    ) -> None:
        """`engine`: none takes the fastest that suits. `memory`: bytes that may be used; none takes what is free."""
        if steps < 1:
            raise UserError(f"steps: {steps} was given; an epoch has 1 step or more")
        self.device = torch.device(device)
        self.optimiser, self.objective, self.steps, self.pairs = optimiser, objective or SquaredError(), steps, pairs
        self.epoch = 0
        count = sum(len(g.students) for g in groups)
        self.stops = torch.full((count,), torch.iinfo(torch.int64).max) if stops is None else torch.tensor(stops)
        if len(self.stops) != count:
            raise UserError(f"stops: {len(self.stops)} were given for {count} networks; give one a network")
        rates(optimiser, count, epoch=1)  # refuses a wrong number of rates now rather than in the first epoch
        for group in groups:
            if optimiser.batch is not None and group.data.train < optimiser.batch:
                raise UserError(f"{group.data.train} training samples are fewer than a batch of {optimiser.batch}")
        free = available(self.device) if memory is None else memory
        refuse_too_many(groups, optimiser, free)
        firsts = [sum(len(g.students) for g in groups[:i]) for i in range(len(groups))]
        self.members = [Members(g, f, optimiser.slots, self.device) for g, f in zip(groups, firsts, strict=True)]
        for member in self.members:
            like = member.state.blocks[0]
            member.engine = engine or choose(member.packing, self.objective, optimiser, like)
            on_card = looking.suits(member.students, member.teacher.sizes[1], self.objective)
            member.quick = on_card or cpu_looking.suits(member.students, self.objective)
            if member.engine == "resident":
                resident.prepare(member.packing, optimiser, like)
            if on_card:
                looking.prepare(member.students)
        self.plan: Plan = planned(self.members, optimiser, steps, self.device, free)
        self.samples = Samples(self.objective, self.device)
        self.diverged_at = torch.full((count,), -1)
        self.train_loss = torch.full((count,), torch.nan, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.stops)

    @property
    def alive(self) -> Tensor:
        """Which networks have not diverged."""
        return self.diverged_at < 0

    @property
    def precision(self) -> str:
        """Of the steps, and of the looks where it is another."""
        numbers = ", ".join(sorted({str(m.students.dtype).removeprefix("torch.") for m in self.members}))
        split = self.device.type == "cuda" and any(m.quick and m.students.dtype == torch.float32 for m in self.members)
        return numbers + (", looked at in 3xTF32 (about 21 bits)" if split else "")

    def populations(self) -> list[Population]:
        """The students as they are now, group by group; networks that diverged as they last were finite."""
        return [m.students for m in self.members]

    def advance(self) -> None:
        """One epoch of every network that has neither diverged nor come to its stop."""
        self.epoch += 1
        going = self.alive & (self.stops >= self.epoch)
        rate = rates(self.optimiser, len(self), self.epoch).to(self.device)
        for wave in self.plan.waves:
            # The widest first: what is left to the end then is small.
            parts = sorted(wave, key=lambda part: -part.member.packing.numbers)
            jobs = [job for part in parts for job in self._jobs(part, going, rate)]
            if self.device.type == "cpu":
                side_by_side(lambda job: self._settle(job, *self._take(job)), jobs, self.device)
            else:
                # Settling waits for the card: first let it have all of the work.
                for job, taken in zip(jobs, abreast(self._take, jobs, self.device), strict=True):
                    self._settle(job, *taken)
            self._leave()

    def _jobs(self, part: Part, going: Tensor, rate: Float[Tensor, "all"]) -> list[_Job]:
        member = part.member
        inside = torch.nonzero(going[member.ids[part.which]]).flatten()
        if not len(inside):
            return []
        problem = Problem(
            member.packing,
            self.objective,
            self.optimiser,
            self.samples.inputs(part, self.epoch),
            self.samples.targets(part, self.epoch),
            part.set_of,
            part.teacher_of,
            member.students.seeds[part.which.to(self.device)],
            rate[member.ids[part.which].to(self.device)],
        )
        pieces = splits(inside, at_once(member, self.optimiser, self.device))
        return [_Job(part, problem, piece, part.which[piece].to(self.device)) for piece in pieces]

    def _take(self, job: _Job) -> tuple[State, Float[Tensor, "piece step"]]:
        member = job.part.member
        state = member.state.pick(job.where)
        problem = job.problem.pick(job.inside.to(self.device))
        return state, ENGINES[member.engine].take(problem, state, (self.epoch - 1) * self.steps, self.steps)

    def _settle(self, job: _Job, state: State, losses: Float[Tensor, "piece step"]) -> None:
        """Take over what a piece has become; a network that diverged stays as it was, marked with the step."""
        member, ids = job.part.member, job.part.member.ids[job.part.which[job.inside]]
        sound = torch.stack([block.isfinite().all(1) for block in state.blocks]).all(0)
        broken = torch.cat((~losses.isfinite(), ~sound.unsqueeze(1)), dim=1)
        bad, when, mean = broken.any(1).cpu(), broken.int().argmax(1).cpu(), _means(losses).cpu()
        self.diverged_at[ids[bad]] = (self.epoch - 1) * self.steps + when[bad]
        self.train_loss[ids[~bad]] = mean[~bad]
        good = torch.nonzero(~bad).flatten().to(self.device)
        member.state.put(job.where[good], state.pick(good))

    def _leave(self) -> None:
        """Where not all data is kept at once, what a wave needed makes room for the next."""
        if len(self.plan.waves) > 1:
            self.samples.forget()

    def probe(self) -> Records:
        """Look at every network that still goes, or has just come to its stop."""
        shown = self.alive & (self.stops >= self.epoch)
        rows: list[tuple[int, Callable[[], tuple[pa.Table, pa.Table]]]] = []
        for wave in self.plan.waves:
            if self.epoch == 0:
                self._first_loss(wave)
            jobs = []
            for part in wave:
                if part.member.quick:
                    self.samples.answers(part)
                self.samples.evaluation(part)
                inside = torch.nonzero(shown[part.member.ids[part.which]]).flatten()
                jobs += [(part, piece) for piece in splits(inside, looked_at(part.member, self.device))]
            for (part, piece), look in zip(jobs, abreast(self._look, jobs, self.device), strict=True):
                ids, finite = part.member.ids[part.which[piece]], look.loss.isfinite().cpu()
                self.diverged_at[ids[~finite]] = self.epoch * self.steps
                if finite.any():
                    ids, which = ids[finite], torch.nonzero(finite).flatten()
                    make = partial(_rows, ids, self.epoch, self.train_loss[ids], look, which, self.pairs)
                    rows.append((int(ids[0]), make))
            self._leave()
        rows.sort(key=lambda row: row[0])
        return Records([make for _, make in rows])

    def _look(self, job: tuple[Part, Int[Tensor, "some"]]) -> Look:
        part, piece = job
        member, where, inside = part.member, part.which[piece].to(self.device), piece.to(self.device)
        student, teacher = member.students[where], member.teacher[where]
        x, sets = self.samples.evaluation(part), part.set_of[inside]
        if member.quick:
            return quick_look(student, teacher, x, sets, self.samples.answers(part), part.teacher_of[inside])
        reading = read(student, teacher, x[sets], self.objective)
        return Look(reading.eval_loss, lambda: reading)

    def _first_loss(self, wave: Sequence[Part]) -> None:
        """Before the first step the training loss is that over the whole training set."""
        jobs = [
            (part, piece) for part in wave for piece in splits(part.which, plainly_at_once(part.member, self.device))
        ]
        for part in wave:
            self.samples.inputs(part, epoch=1)

        def measure(job: tuple[Part, Int[Tensor, "some"]]) -> Tensor:
            part, piece = job
            member, where = part.member, piece.to(self.device)
            inside = torch.searchsorted(part.which, piece).to(self.device)
            x = self.samples.inputs(part, epoch=1)[part.set_of[inside]]
            return loss(member.students[where], member.teacher[where], x, self.objective)

        for (part, piece), each in zip(jobs, side_by_side(measure, jobs, self.device), strict=True):
            self.train_loss[part.member.ids[piece]] = each.cpu()

    def state(self) -> dict[str, Tensor]:
        """Everything that goes on from here, by name; what follows from the configuration is not in it."""
        named = {f"{i}.{k}": v for i, m in enumerate(self.members) for k, v in m.state.tensors().items()}
        return named | {
            "diverged_at": self.diverged_at,
            "train_loss": self.train_loss,
            "epoch": torch.tensor(self.epoch),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state that `state` gave."""
        for i, member in enumerate(self.members):
            member.state.load({k.removeprefix(f"{i}."): v for k, v in state.items() if k.startswith(f"{i}.")})
        self.diverged_at, self.train_loss = state["diverged_at"].clone(), state["train_loss"].clone()
        self.epoch = int(state["epoch"])


def _rows(
    ids: Tensor, epoch: int, train_loss: Tensor, look: Look, which: Int[Tensor, "some"], pairs: bool
) -> tuple[pa.Table, pa.Table]:
    reading = look.reading().pick(which)
    return metric_rows(ids, epoch, train_loss, reading), node_rows(ids, epoch, reading, pairs)


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
    groups = [Group(population, teacher, data) for population in several]
    training = Training(
        groups,
        optimiser,
        steps=steps,
        objective=objective,
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
        training.diverged_at,
    )
