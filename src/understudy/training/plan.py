"""How the work is laid out: which engine, how many networks at a time, how much memory, about how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from understudy.errors import UserError
from understudy.training.group import Group, GroupState, Shard
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing
from understudy.training.parallel import cores
from understudy.training.probes.reading import PASS

_CACHE = 1 << 21
"""Parameters of the networks that a processor's core trains at once by batched products: about its cache."""
_CARD_SHARE, _CPU_SHARE = 0.8, 0.7
"""Of the memory that is free, what a plan takes."""
_LOOK = 8 << 30
"""Activations of the networks that are looked at at once on a card, at most."""
_GRID = 65_535
"""Networks that one look on a card can take."""
_RATE = {"compiled": 0.8, "resident": 0.3, "batched": 0.2, "autograd": 0.1, "looking": 0.6}
"""About which share of a large product's rate each kind of work reaches: see docs/results/performance.md."""


@dataclass(frozen=True)
class Row:
    """What a plan says of one group."""

    networks: int
    sizes: tuple[int, ...]
    engine: str
    at_once: int
    """Networks in a piece."""
    pieces: int
    work: float
    """Floating point operations of an epoch's steps."""
    looking: float
    """And of a look at all networks."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows a group, waves of networks whose data is in memory at the same time, and what memory that takes."""

    rows: tuple[Row, ...]
    waves: tuple[tuple[Shard, ...], ...]
    memory: dict[str, int]
    """Bytes by what they are for, of the largest wave."""
    free: int
    """Bytes that may be used."""
    device: torch.device

    def seconds(self, epochs: int, looks: int) -> float:
        """About how long epochs and looks take, from the rate of a large product measured now."""
        work = sum(epochs * row.work / _RATE[row.engine] + looks * row.looking / _RATE["looking"] for row in self.rows)
        return work / _product_rate(self.device)


def refuse_too_many(groups: Sequence[Group], optimiser: Optimiser, free: int) -> None:
    """Before anything is put on the device: networks whose parameters alone do not fit."""
    need = 0
    for group in groups:
        size = group.students.layers[0].weight.element_size()
        need += 2 * len(group.students) * Packing(group.students.shape).numbers * size * (1 + optimiser.slots)
    refuse(sum(len(group.students) for group in groups), need, free)


def refuse(networks: int, need: float, free: float) -> None:
    """Networks that need more memory than may be used."""
    if need > free:
        raise UserError(
            f"memory: {networks:,} networks need {need / 1e9:.3g} GB at the least, and {free / 1e9:.3g} GB may be "
            "used; train fewer networks, or smaller ones"
        )


def planned(members: Sequence[GroupState], optimiser: Optimiser, steps: int, device: torch.device, free: int) -> Plan:
    """Fewest waves that fit."""
    state = sum(_state(member, optimiser) for member in members) * 2  # as they are, and as a piece changes them
    waves = 1
    while True:
        cut = _cut(members, waves, device)
        each = [_data(wave) | {"work": _working(wave, optimiser, steps, device)} for wave in cut]
        memory = {"parameters": state} | {name: max(wave[name] for wave in each) for name in each[0]}
        if sum(memory.values()) <= free:
            break
        if waves >= max(map(len, members)):
            refuse(sum(map(len, members)), sum(memory.values()), free)
        waves *= 2
    return Plan(tuple(_row(m, optimiser, steps, device) for m in members), cut, memory, free, device)


def at_once(member: GroupState, optimiser: Optimiser, device: torch.device) -> int:
    """Networks in a piece: what fits the cache or a share of the card; on a processor enough pieces for its cores."""
    count = len(member)
    if member.engine == "resident":
        return count
    each = _state(member, optimiser) // count
    if device.type != "cpu":
        return max(2, min(count, (1 << 30) // each))
    if member.engine == "autograd":
        return 1
    if member.engine == "compiled":
        pieces = max(2, -(-count // (64 * cores()))) * cores()  # as many for every core, and none too large
        return -(-count // pieces)
    return min(-(-count // cores()), max(2, _CACHE // each))


def looked_at(member: GroupState, device: torch.device) -> int:
    """Networks looked at at once."""
    if not member.quick:
        return plainly_at_once(member, device)
    return min(16, -(-len(member) // (2 * cores()))) if device.type == "cpu" else min(len(member), _GRID)


def plainly_at_once(member: GroupState, device: torch.device) -> int:
    """By plain products one on a processor, so that company changes no rounding; on a card as many as have room."""
    if device.type == "cpu":
        return 1
    room = min(_LOOK, torch.cuda.get_device_properties(device).total_memory // 8)
    return max(1, min(len(member), room // _look(member)))


def available(device: torch.device) -> int:
    """Bytes that a plan may use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _CARD_SHARE)
    try:
        found = [
            int(line.split()[1]) << 10 for line in Path("/proc/meminfo").read_text().splitlines() if "Avail" in line
        ]
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
        if limit.exists() and (most := limit.read_text().strip()).isdigit():
            lines = (limit.parent / "memory.stat").read_text().splitlines()
            files = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
            found.append(max(0, int(most) - int(used.read_text()) + files))
    except OSError:
        found = []
    return int(min(found, default=8 << 30) * _CPU_SHARE)


def _state(member: GroupState, optimiser: Optimiser) -> int:
    return len(member) * member.packing.numbers * member.state.blocks[0].element_size() * (1 + optimiser.slots)


def _working(wave: Sequence[Shard], optimiser: Optimiser, steps: int, device: torch.device) -> int:
    """Bytes beside parameters and data: of the pieces that are trained at the same time, then of those looked at."""
    trained, looked = [0], [0]
    for part in wave:
        member, count = part.member, len(part)
        size, shape = member.state.blocks[0].element_size(), member.students.shape
        each = steps * size  # losses
        if member.engine in ("batched", "autograd"):
            # The order of all batches; inputs, targets and outputs of some steps; what lies between the layers; and
            # where a step is more than its gradient, what the optimiser works out on the way.
            batch = optimiser.batch or member.data.train
            each += steps * 48 * (optimiser.batch or 0)
            # What autograd keeps for the way back a card holds twice: as first taken, and as recorded.
            kept = 3 if member.engine == "batched" else 8 if device.type == "cpu" else 16
            held = 10 if optimiser.batch and member.engine == "batched" else 1
            each += batch * (held * (shape.inputs + 2 * shape.sizes[-1]) + kept * shape.activations) * size
            each += 0 if optimiser.plain and member.engine == "batched" else 5 * member.packing.numbers * size
        # On a card all pieces are launched at once.
        together = min(count, at_once(member, optimiser, device)) if device.type == "cpu" else count
        trained.append(each * together)
        looked.append(_look(member) * min(count, plainly_at_once(member, device)))
    if device.type == "cpu":
        return cores() * max(*trained, *looked)
    return max(sum(trained), *looked)


def _look(member: GroupState) -> int:
    """Bytes of one network on all samples of a pass; the first look also sees those of the training."""
    numbers = 3 * (member.students.shape.activations + member.teacher.shape.activations)
    samples = max(member.data.evaluation, member.data.train)
    like = member.state.blocks[0]
    together = samples * member.students.inputs + min(samples * numbers, 3 * PASS[like.device.type])
    return together * like.element_size()


def _cut(members: Sequence[GroupState], waves: int, device: torch.device) -> tuple[tuple[Shard, ...], ...]:
    """Networks in the order of their seeds, in as many runs as there are waves: few seeds in each."""
    cut: list[list[Shard]] = [[] for _ in range(waves)]
    for member in members:
        order = torch.tensor(sorted(range(len(member)), key=member.seeds.__getitem__))
        for wave, which in zip(cut, order.tensor_split(waves), strict=True):
            if len(which):
                wave.append(Shard(member, which.sort().values, device))
    return tuple(tuple(wave) for wave in cut)


def _data(wave: Sequence[Shard]) -> dict[str, int]:
    """Bytes of the samples that a wave needs; parts that share them count once."""
    named: dict[str, dict[object, int]] = {name: {} for name in ("inputs", "targets", "evaluation", "answers")}
    for part in wave:
        member = part.member
        key = (id(member.data), member.students.dtype)
        size, into, out = member.state.blocks[0].element_size(), member.students.inputs, member.students.sizes[-1]
        sets, seeds = (key, *part.sets), [member.seeds[network] for network in part.teachers]
        asked = (key, member.teacher_id, member.objective, member.labelled, *part.teachers, *seeds)
        named["inputs"][sets] = len(part.sets) * member.data.train * into * size
        named["evaluation"][sets] = len(part.sets) * member.data.evaluation * into * size
        named["targets"][asked] = len(part.teachers) * member.data.train * out * size
        if member.quick:
            named["answers"][asked] = len(part.teachers) * member.data.evaluation * sum(member.teacher.sizes[1:]) * size
    return {name: sum(each.values()) for name, each in named.items()}


def _row(member: GroupState, optimiser: Optimiser, steps: int, device: torch.device) -> Row:
    shape, theirs, batch = member.students.shape, member.teacher.shape, optimiser.batch or member.data.train
    products, nodes = shape.products, zip(theirs.sizes[1:-1], shape.sizes[1:-1], shape.positions, strict=True)
    matched = sum(m * n * positions for m, n, positions in nodes)
    seen = sum(products) + matched + (0 if member.quick else sum(theirs.products))
    piece, count = at_once(member, optimiser, device), len(member)
    return Row(
        count,
        member.students.sizes,
        member.engine,
        piece,
        -(-count // piece),
        work=2.0 * count * steps * batch * (3 * sum(products) - products[0]),
        looking=2.0 * count * member.data.evaluation * seen,
    )


def _product_rate(device: torch.device) -> float:
    """Operations a second of one large matrix product."""
    size = 8192 if device.type == "cuda" else 2048
    a = torch.ones(size, size, device=device)
    for _ in range(2):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        float((a @ a)[0, 0])
        spent = time.perf_counter() - start
    return 2.0 * size**3 / spent


def splits(which: Int[Tensor, "some"], size: int) -> tuple[Int[Tensor, "_"], ...]:
    """Cut into pieces of nearly one size, none larger than `size`."""
    return which.tensor_split(-(-len(which) // size)) if len(which) else ()
