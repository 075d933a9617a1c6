"""Plan of a training: engines, sizes of pieces, waves that fit in memory, and an estimate of the time."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from understudy._cores import cores
from understudy._errors import TooLargeError
from understudy._memory import free_memory
from understudy._numbers import number
from understudy.nets import Shape
from understudy.training.group import Group, GroupState, Shard
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing
from understudy.training.probes.curvature import curvature_bytes, curvature_products
from understudy.training.probes.reading import PASS

_CACHE = 1 << 21
"""Bytes of parameters that one core trains at once by batched products: about the size of its cache."""
_PIECE = 1 << 26
"""Most bytes of parameters in a piece of the engine that trains one network after the other."""
_GPU_SHARE = 0.8
"""Fraction of the free memory of a GPU that a plan may use."""
_PROBE_BYTES = 8 << 30
"""Maximum bytes of activations of networks probed together on a GPU."""
_GRID = 65_535
"""Maximum number of networks in one launch of the fused GPU probe."""
_RATE = {"compiled": 0.8, "resident": 0.3, "batched": 0.2, "autograd": 0.1, "probe": 0.6}
"""Approximate speed of each kind of work, relative to a large matrix product: see docs/results/performance.md."""


@dataclass(frozen=True)
class GroupPlan:
    """Plan of one group."""

    networks: int
    sizes: tuple[int, ...]
    engine: str
    piece_size: int
    """Networks in a piece."""
    pieces: int
    step_flops: float
    """FLOPs of the steps of one epoch."""
    probe_flops: float
    """FLOPs of one probe of all networks."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Plan of all groups, the waves of networks whose data is in memory together, and the memory that they take."""

    rows: tuple[GroupPlan, ...]
    """One per group."""
    waves: tuple[tuple[Shard, ...], ...]
    memory: dict[str, int]
    """Bytes of the largest wave, by use."""
    free: int
    """Bytes that may be used."""
    device: torch.device

    def estimate_seconds(self, epochs: int, probes: int) -> float:
        """Estimate the time of epochs and probes, from the speed of a large matrix product measured now."""
        steps = sum(row.step_flops / _RATE[row.engine] for row in self.rows)
        work = epochs * steps + probes * sum(row.probe_flops for row in self.rows) / _RATE["probe"]
        return work / _measure_flops(self.device)


def available(device: torch.device) -> int:
    """Bytes that a plan may use: most of the free memory of the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _GPU_SHARE)
    return free_memory()


def require_memory(networks: Iterable[tuple[Shape, int]], dtype: torch.dtype, *, copies: int = 3) -> None:
    """Raise a TooLargeError unless networks, pairs of a shape and a number, fit in the free memory of the CPU.

    Parameters are held several times: by default as they start, as they are, and as a piece changes them.
    """
    sizes = [(nets, sum(math.prod(w) + shape.bias * w[0] for w in shape.weights)) for shape, nets in networks]
    need = copies * sum(nets * numbers for nets, numbers in sizes) * dtype.itemsize
    _require(sum(nets for nets, _ in sizes), need, available(torch.device("cpu")))


def require_parameters_fit(groups: Sequence[Group], optimiser: Optimiser, free: int) -> None:
    """Check that the parameters and optimiser state of groups fit, before anything is copied to the device."""
    each = [group.students for group in groups]
    numbers = sum(len(nets) * Packing(nets.shape).numbers * nets.dtype.itemsize for nets in each)
    _require(sum(map(len, each)), 2 * numbers * (1 + optimiser.slots), free)


def _require(networks: int, need: int, free: int) -> None:
    if need > free:
        raise TooLargeError(
            f"memory: {networks:,} networks need at least {number(need / 1e9)} GB, but only {number(free / 1e9)} GB "
            "may be used; train fewer or smaller networks"
        )


def make_plan(
    groups: Sequence[GroupState],
    optimiser: Optimiser,
    steps: int,
    device: torch.device,
    free: int,
    record: Collection[str] = (),
) -> Plan:
    """Plan the training, with the metrics recorded on request, with the fewest waves that fit in `free` bytes."""
    # Twice: the current state, and the copy of it that a piece changes.
    state = sum(_state_bytes(group, optimiser) for group in groups) * 2
    waves = 1
    while True:
        cut = _cut(groups, waves, device)
        each = [_data_bytes(wave) | {"work": _working_bytes(wave, optimiser, steps, device, record)} for wave in cut]
        memory = {"parameters": state} | {name: max(wave[name] for wave in each) for name in each[0]}
        if sum(memory.values()) <= free:
            break
        if waves >= max(map(len, groups)):
            _require(sum(map(len, groups)), sum(memory.values()), free)
        waves *= 2
    return Plan(tuple(_plan_group(g, optimiser, steps, device, record) for g in groups), cut, memory, free, device)


def piece_size(group: GroupState, optimiser: Optimiser, device: torch.device) -> int:
    """Networks trained together: as many as fit the cache, or a share of the GPU; on the CPU pieces for all cores."""
    count = len(group)
    if group.engine == "resident":
        return count
    each = _state_bytes(group, optimiser) // count
    if device.type != "cpu":
        return max(2, min(count, (1 << 30) // each))
    if group.engine == "autograd":
        return 1
    if group.engine == "compiled":
        most = max(1, min(64, _PIECE // each))
        pieces = max(2, -(-count // (most * cores()))) * cores()  # the same number for every core
        return -(-count // pieces)
    return min(-(-count // cores()), max(2, _CACHE // each))


def probe_size(group: GroupState, device: torch.device) -> int:
    """Networks probed together."""
    if not group.fused_probe:
        return plain_probe_size(group, device)
    return min(16, -(-len(group) // (2 * cores()))) if device.type == "cpu" else min(len(group), _GRID)


def plain_probe_size(group: GroupState, device: torch.device) -> int:
    """Networks probed together without the fused kernel.

    One on the CPU, so that results do not depend on the batch composition; as many as fit in memory on a GPU.
    """
    if device.type == "cpu":
        return 1
    room = min(_PROBE_BYTES, torch.cuda.get_device_properties(device).total_memory // 8)
    return max(1, min(len(group), room // _probe_bytes(group)))


def split(which: Int[Tensor, "some"], size: int) -> tuple[Int[Tensor, "_"], ...]:
    """Split into pieces of nearly equal size, none larger than `size`."""
    return which.tensor_split(-(-len(which) // size)) if len(which) else ()


def rank_bytes(groups: Iterable[Group], probes: int) -> int:
    """Bytes of the ranks of every student by correlation with each teacher node, at a number of probes."""
    return sum(
        2 * len(group.students) * m * n * probes
        for group in groups
        for m, n in zip(group.teacher.sizes[1:-1], group.students.sizes[1:-1], strict=True)
    )


def _state_bytes(group: GroupState, optimiser: Optimiser) -> int:
    return len(group) * group.packing.numbers * group.state.blocks[0].element_size() * (1 + optimiser.slots)


def _working_bytes(
    wave: Sequence[Shard], optimiser: Optimiser, steps: int, device: torch.device, record: Collection[str]
) -> int:
    """Bytes besides parameters and data: of the pieces trained at the same time, or of those probed if these need more.

    The numbers of copies below are upper estimates.
    """
    trained, probed = [0], [0]
    for shard in wave:
        group, count = shard.group, len(shard)
        size, shape = group.state.blocks[0].element_size(), group.students.shape
        each = steps * size  # losses
        if group.engine in ("batched", "autograd"):
            batch = optimiser.batch or group.data.train
            each += steps * 48 * (optimiser.batch or 0)  # indices of all batches
            # Activations kept for the backward pass. On a GPU autograd holds them twice, outside and in a CUDA graph.
            kept = 3 if group.engine == "batched" else 8 if device.type == "cpu" else 16
            # Steps whose inputs, targets and outputs are gathered at once.
            held = 10 if optimiser.batch and group.engine == "batched" else 1
            each += batch * (held * (shape.inputs + 2 * shape.sizes[-1]) + kept * shape.activations) * size
            # Gradients and intermediate results of the optimiser.
            each += 0 if optimiser.plain and group.engine == "batched" else 5 * group.packing.numbers * size
        if group.engine == "compiled":
            each += 2 * _state_bytes(group, optimiser) // len(group)  # a copy of the piece, and its padded matrices
        # On a GPU all pieces are launched at once.
        together = min(count, piece_size(group, optimiser, device)) if device.type == "cpu" else count
        trained.append(each * together)
        curved = curvature_bytes(shape, group.data.evaluation, record)
        probed.append(_probe_bytes(group) * min(count, plain_probe_size(group, device)) + curved)
    if device.type == "cpu":
        return cores() * max(*trained, *probed)
    return max(sum(trained), *probed)


def _probe_bytes(group: GroupState) -> int:
    """Bytes of one network on all samples of a pass; the first probe also uses those of the training set."""
    numbers = 3 * (group.students.shape.activations + group.teacher.shape.activations)
    samples = max(group.data.evaluation, group.data.train)
    like = group.state.blocks[0]
    together = samples * group.students.inputs + min(samples * numbers, 3 * PASS[like.device.type])
    return together * like.element_size()


def _cut(groups: Sequence[GroupState], waves: int, device: torch.device) -> tuple[tuple[Shard, ...], ...]:
    """Cut all groups into waves of consecutive seeds, so that a wave needs few input sets."""
    cut: list[list[Shard]] = [[] for _ in range(waves)]
    for group in groups:
        order = torch.tensor(sorted(range(len(group)), key=group.seeds.__getitem__))
        for wave, which in zip(cut, order.tensor_split(waves), strict=True):
            if len(which):
                wave.append(Shard(group, which.sort().values, device))
    return tuple(tuple(wave) for wave in cut)


def _data_bytes(wave: Sequence[Shard]) -> dict[str, int]:
    """Bytes of the samples that a wave needs; samples that several shards share count once."""
    named: dict[str, dict[object, int]] = {name: {} for name in ("inputs", "targets", "evaluation", "teacher_outputs")}
    for shard in wave:
        group, sets, teachers = shard.group, len(shard.sets), len(shard.teachers)
        key = (id(group.data), group.students.dtype)
        size, inputs, outputs = group.state.blocks[0].element_size(), group.students.inputs, group.students.sizes[-1]
        by_seed, seeds = (key, *shard.sets), [group.seeds[network] for network in shard.teachers]
        by_teacher = (key, group.teacher_id, group.objective, group.labelled, *shard.teachers, *seeds)
        named["inputs"][by_seed] = sets * group.data.train * inputs * size
        named["evaluation"][by_seed] = sets * group.data.evaluation * inputs * size
        named["targets"][by_teacher] = teachers * group.data.train * outputs * size
        if group.fused_probe:
            nodes = sum(group.teacher.sizes[1:])
            named["teacher_outputs"][by_teacher] = teachers * group.data.evaluation * nodes * size
    return {name: sum(each.values()) for name, each in named.items()}


def _plan_group(
    group: GroupState, optimiser: Optimiser, steps: int, device: torch.device, record: Collection[str]
) -> GroupPlan:
    shape, teacher, batch = group.students.shape, group.teacher.shape, optimiser.batch or group.data.train
    products, nodes = shape.products, zip(teacher.sizes[1:-1], shape.sizes[1:-1], shape.positions, strict=True)
    correlations = sum(m * n * positions for m, n, positions in nodes)
    probe = sum(products) + correlations + (0 if group.fused_probe else sum(teacher.products))
    probe += curvature_products(shape, record)
    size, count = piece_size(group, optimiser, device), len(group)
    return GroupPlan(
        count,
        group.students.sizes,
        group.engine,
        size,
        -(-count // size),
        step_flops=2.0 * count * steps * batch * (3 * sum(products) - products[0]),
        probe_flops=2.0 * count * group.data.evaluation * probe,
    )


def _measure_flops(device: torch.device) -> float:
    """FLOPs per second of one large matrix product."""
    size = 8192 if device.type == "cuda" else 2048
    a = torch.ones(size, size, device=device)
    for _ in range(2):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        float((a @ a)[0, 0])
        spent = time.perf_counter() - start
    return 2.0 * size**3 / spent
