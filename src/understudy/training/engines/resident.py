"""Engine `resident`: one thread block per network on a GPU, weights in shared memory for all steps (resident.cu)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream
from understudy.training import kernels
from understudy.training.kernels import cuda as cuda_kernels
from understudy.training.kernels.cuda import round_up, stride
from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import ALIGN, Packing, State
from understudy.training.problem import Problem

_LARGEST_BATCH = 64
_LAUNCH_STEPS = 5_000
"""Maximum steps of one launch, which cannot be interrupted."""


def supports(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    """Two-layer networks that fit the shared memory of a multiprocessor, squared error, plain SGD in batches."""
    batch = optimiser.batch
    if not kernels.supports(packing.shape, objective) or batch is None or batch > _LARGEST_BATCH:
        return False
    return optimiser.plain and _bytes(packing, batch, like) <= cuda_kernels.shared_memory(like)


def run(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Run steps (see `Engine.run`): all networks in one launch, many steps each."""
    starts = range(0, count, _LAUNCH_STEPS)
    losses = [_launch(problem, state, first + start, min(_LAUNCH_STEPS, count - start)) for start in starts]
    return losses[0] if len(losses) == 1 else torch.cat(losses, dim=1)


def _launch(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    shape, batch, like = problem.packing.shape, problem.optimiser.batch, problem.inputs
    assert batch is not None
    nodes = shape.sizes[1]
    losses = like.new_empty(len(problem), count)
    # Without biases, pass the weights in their place; the kernel does not use them.
    weights, biases = (state.blocks[0::2], state.blocks[1::2]) if shape.bias else (state.blocks, state.blocks)
    cuda_kernels.launch(
        "resident",
        like,
        _constants(problem.packing, batch),
        grid=(len(problem), 1),
        threads=_threads(nodes, batch),
        shared=_bytes(problem.packing, batch, like),
        arguments=[
            *(problem.inputs, problem.targets, problem.set_of, problem.teacher_of, problem.seeds),
            *(problem.rate.to(like.dtype), weights[0], biases[0], weights[1], biases[1], losses),
            *(first & 0xFFFFFFFF, first >> 32, count, like.shape[1], float(shape.slope)),
        ],
    )
    return losses


def prepare(packing: Packing, optimiser: Optimiser, like: Tensor) -> None:
    """Start to compile the kernel for these networks."""
    if optimiser.batch is not None:
        cuda_kernels.prepare("resident", like, _constants(packing, optimiser.batch))


def _constants(packing: Packing, batch: int) -> dict[str, int]:
    (inputs, nodes, outputs), bias = packing.shape.sizes, int(packing.shape.bias)
    sizes = {"D": inputs, "N": nodes, "C": outputs, "B": batch, "BIAS": bias}
    tiling = {"TILE": _tile(nodes, batch), "THREADS": _threads(nodes, batch)}
    return sizes | tiling | {"ALIGN": ALIGN, "STREAM": int(Stream.BATCH)}


def _threads(nodes: int, batch: int) -> int:
    return 128 if _tile(nodes, batch) == 8 and nodes <= 128 else 256


def _tile(nodes: int, batch: int) -> int:
    """Choose the tile size: 8 × 8 for wide networks, which have enough tiles for all threads, 4 × 4 for narrow ones."""
    return 8 if nodes >= 80 and batch >= 8 else 4


def _bytes(packing: Packing, batch: int, like: Tensor) -> int:
    """Bytes of shared memory that a network needs, laid out as in the kernel."""
    (inputs, nodes, outputs), bias = packing.shape.sizes, int(packing.shape.bias)
    tile = _tile(nodes, batch)
    rows, wide, high, tall = (round_up(count, tile) for count in (batch, inputs + bias, nodes, outputs))
    sx, sh = stride(wide), stride(high + tile * bias)
    numbers = high * sx + tall * sh + 2 * rows * sh + rows * stride(tall)
    numbers += 2 * rows * sx + 2 * round_up(rows * outputs, 4) + 32
    return numbers * like.element_size() + 2 * batch * 4
