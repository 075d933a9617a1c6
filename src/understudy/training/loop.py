"""Epoch after epoch: steps by an engine, then a look at every network. State that can be saved and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data import Source
from understudy.nets import Population
from understudy.training.engines import ENGINES, choose
from understudy.training.objectives import Objective, SquaredError
from understudy.training.optimisers import Optimiser, rates
from understudy.training.packing import Packing, State
from understudy.training.probe import Reading, cut, loss, read
from understudy.training.problem import Problem
from understudy.training.records import METRICS, NODES, joined, metric_rows, node_rows
from understudy.training.workers import cores, side_by_side

_PIECE_BYTES = {"cpu": 1 << 21, "cuda": 1 << 30}
"""Parameters of the networks that train in one piece: about a core's cache, or a share of the card."""
_PROBE_BYTES = 8 << 30
"""Activations of the networks that are looked at in one piece on a card."""


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


class Records(NamedTuple):
    """The rows that one look at all networks adds to the two tables."""

    metrics: pa.Table
    nodes: pa.Table


class _Members:
    """A group in training: its state, its data on the device, and which ids its networks have."""

    def __init__(self, group: Group, first: int, slots: int, device: torch.device) -> None:
        self.students = group.students.to(device)
        self.teacher = group.teacher.to(device, dtype=group.students.dtype)
        self.teacher_id = id(group.teacher)
        self.data = group.data
        self.ids = torch.arange(first, first + len(group.students))
        self.packing = Packing(self.students.shape)
        like = self.students.layers[0].weight
        kept = tuple(self.packing.empty(len(self.students), like) for _ in range(slots))
        self.state = State(self.packing.blocks(self.students), kept)
        seeds = self.students.seeds.tolist()
        self.sets = sorted(set(seeds))
        self.engine = "batched"
        self.set_of = torch.tensor([self.sets.index(seed) for seed in seeds], device=device)

    def population(self) -> Population:
        return self.packing.population(self.state.blocks, self.students.seeds)


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
    ) -> None:
        if steps < 1:
            raise UserError(f"steps: {steps} was given; an epoch has 1 step or more")
        self.device = torch.device(device)
        self.optimiser, self.objective, self.steps = optimiser, objective or SquaredError(), steps
        self.pairs = pairs
        self.epoch = 0
        firsts = [sum(len(g.students) for g in groups[:i]) for i in range(len(groups))]
        self.members = [_Members(g, f, optimiser.slots, self.device) for g, f in zip(groups, firsts, strict=True)]
        for member in self.members:
            like = member.state.blocks[0]
            member.engine = engine or choose(member.packing, self.objective, optimiser, like)
        count = sum(len(g.students) for g in groups)
        self.stops = torch.full((count,), torch.iinfo(torch.int64).max) if stops is None else torch.tensor(stops)
        if len(self.stops) != count:
            raise UserError(f"stops: {len(self.stops)} were given for {count} networks; give one a network")
        rates(optimiser, count, epoch=1)  # refuses a wrong number of rates now rather than in the first epoch
        self.diverged_at = torch.full((count,), -1)
        self.train_loss = torch.full((count,), torch.nan, dtype=torch.float64)
        self._cache: dict[tuple[object, ...], tuple[int, Tensor]] = {}
        for group in groups:
            if optimiser.batch is not None and group.data.train < optimiser.batch:
                raise UserError(f"{group.data.train} training samples are fewer than a batch of {optimiser.batch}")

    def __len__(self) -> int:
        return len(self.stops)

    @property
    def alive(self) -> Tensor:
        """Which networks have not diverged."""
        return self.diverged_at < 0

    def populations(self) -> list[Population]:
        """The students as they are now, group by group; networks that diverged as they last were finite."""
        return [m.population() for m in self.members]

    def advance(self) -> None:
        """One epoch of every network that has neither diverged nor come to its stop."""
        self.epoch += 1
        going = self.alive & (self.stops >= self.epoch)
        rate = rates(self.optimiser, len(self), self.epoch).to(self.device)
        jobs = []
        for member in self.members:
            which = torch.nonzero(going[member.ids]).flatten()
            if len(which):
                problem = self._problem(member, rate)
                jobs += [(member, problem, piece) for piece in which.split(self._piece(member, len(which)))]
        side_by_side(self._train, jobs, self.device)

    def _train(self, job: tuple[_Members, Problem, Int[Tensor, "some"]]) -> None:
        member, problem, piece = job
        where = piece.to(self.device)
        state, first = member.state.pick(where), (self.epoch - 1) * self.steps
        losses = ENGINES[member.engine].take(problem.pick(where), state, first, self.steps).cpu()
        sound = torch.stack([block.isfinite().all(1) for block in state.blocks]).all(0).cpu()
        broken = torch.cat((~losses.isfinite(), ~sound.unsqueeze(1)), dim=1)
        for i, network in enumerate(member.ids[piece].tolist()):
            if broken[i].any():
                self.diverged_at[network] = first + int(broken[i].int().argmax())
            else:
                self.train_loss[network] = losses[i].double().mean()
        good = torch.nonzero(~broken.any(1)).flatten().to(self.device)
        member.state.put(where[good], state.pick(good))

    def _piece(self, member: _Members, count: int) -> int:
        """Networks a piece: what fits the cache, but no fewer pieces than cores."""
        size = member.packing.numbers * member.state.blocks[0].element_size() * (1 + self.optimiser.slots)
        fits = max(2, _PIECE_BYTES[self.device.type] // size)
        share = -(-count // (cores() if self.device.type == "cpu" else 1))
        return min(fits, share)

    def _probed(self, member: _Members) -> int:
        """Networks looked at at once: one on a processor, and on a card as many as their activations leave room for."""
        if self.device.type == "cpu":
            return 1
        numbers = member.data.evaluation * (2 * sum(member.students.sizes) + 2 * sum(member.teacher.sizes))
        return max(1, _PROBE_BYTES // (numbers * member.state.blocks[0].element_size()))

    def _problem(self, member: _Members, rate: Float[Tensor, "all"]) -> Problem:
        inputs = self._inputs(member)
        return Problem(
            member.packing,
            self.objective,
            self.optimiser,
            inputs,
            self._targets(member, inputs),
            member.set_of,
            torch.arange(len(member.ids), device=self.device),
            member.students.seeds,
            rate[member.ids.to(self.device)],
        )

    def _inputs(self, member: _Members) -> Float[Tensor, "set sample in"]:
        """Training inputs, a set a seed; groups of the same source and seeds share them."""
        epoch, dtype = max(self.epoch, 1), member.students.dtype
        return self._kept(
            ("inputs", id(member.data), dtype, *member.sets),
            epoch if member.data.fresh else 0,
            lambda seed: member.data.training(seed, epoch, dtype=dtype, device=self.device),
            member.sets,
        )

    def _targets(self, member: _Members, inputs: Float[Tensor, "set sample in"]) -> Float[Tensor, "teacher sample out"]:
        """What the teachers answer; groups of the same source, teachers and seeds share it."""

        def answer(network: int) -> Tensor:
            x = inputs[int(member.set_of[network])].unsqueeze(0)
            return torch.cat([self.objective.target(member.teacher[network](part)) for part in cut(x)], dim=1)[0]

        fresh = self.epoch if member.data.fresh else 0
        key = ("targets", id(member.data), member.teacher_id, inputs.dtype, *member.students.seeds.tolist())
        return self._kept(key, fresh, answer, range(len(member.ids)))

    def _kept(
        self, key: tuple[object, ...], version: int, make: Callable[[int], Tensor], items: Sequence[int]
    ) -> Float[Tensor, "item ..."]:
        """make(item) stacked over the items, made once a version."""
        if key not in self._cache or self._cache[key][0] != version:
            self._cache[key] = (version, torch.stack(side_by_side(make, items, self.device)))
        return self._cache[key][1]

    def probe(self) -> Records:
        """Look at every network that still goes, or has just come to its stop."""
        if self.epoch == 0:
            self._first_loss()
        shown = self.alive & (self.stops >= self.epoch)
        jobs = []
        for member in self.members:
            self._evaluation(member)
            which = torch.nonzero(shown[member.ids]).flatten()
            jobs += [(member, piece) for piece in which.split(self._probed(member))]
        metrics, nodes = [], []
        for (member, piece), reading in zip(jobs, side_by_side(self._read, jobs, self.device), strict=True):
            ids, finite = member.ids[piece], reading.eval_loss.isfinite().cpu()
            self.diverged_at[ids[~finite]] = self.epoch * self.steps
            if finite.any():
                ids, sound = ids[finite], reading.pick(torch.nonzero(finite).flatten())
                metrics.append(metric_rows(ids, self.epoch, self.train_loss[ids], sound))
                nodes.append(node_rows(ids, self.epoch, sound, self.pairs))
        return Records(joined(metrics, METRICS), joined(nodes, NODES))

    def _read(self, job: tuple[_Members, Int[Tensor, "some"]]) -> Reading:
        member, piece = job
        where = piece.to(self.device)
        x = self._evaluation(member)[member.set_of[where]]
        return read(member.population()[where], member.teacher[where], x, self.objective)

    def _evaluation(self, member: _Members) -> Float[Tensor, "set sample in"]:
        dtype = member.students.dtype
        return self._kept(
            ("evaluation", id(member.data), dtype, *member.sets),
            0,
            lambda seed: member.data.evaluating(seed, dtype=dtype, device=self.device),
            member.sets,
        )

    def _first_loss(self) -> None:
        """Before the first step the training loss is that over the whole training set."""
        for member in self.members:
            inputs = self._inputs(member)

            def measure(network: int, member: _Members = member, inputs: Tensor = inputs) -> Tensor:
                x = inputs[int(member.set_of[network])].unsqueeze(0)
                return loss(member.population()[network], member.teacher[network], x, self.objective)[0]

            each = side_by_side(measure, range(len(member.ids)), self.device)
            self.train_loss[member.ids] = torch.stack(each).cpu()

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
) -> Trained:
    """Train students (one population, or one a shape) against their teacher, looking at them after every epoch."""
    several = [students] if isinstance(students, Population) else list(students)
    groups = [Group(population, teacher, data) for population in several]
    training = Training(groups, optimiser, steps=steps, objective=objective, stops=stops, device=device, pairs=pairs)
    records = [training.probe()]
    for _ in range(epochs):
        training.advance()
        records.append(training.probe())
    ends = training.populations()
    return Trained(
        joined([r.metrics for r in records], METRICS),
        joined([r.nodes for r in records], NODES),
        ends[0] if isinstance(students, Population) else ends,
        teacher,
        training.diverged_at,
    )
