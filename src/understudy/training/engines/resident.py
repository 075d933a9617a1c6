"""One thread block a network on a CUDA card, its weights in shared memory for all the steps of a call (resident.cu)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream
from understudy.training.kernels import cuda as card
from understudy.training.kernels.cuda import stride, up
from understudy.training.objectives import Objective, SquaredError
from understudy.training.optimisers import Optimiser
from understudy.training.packing import ALIGN, Packing, State
from understudy.training.problem import Problem

_LARGEST_BATCH = 64
_LONGEST = 5_000
"""Steps of a launch, which nobody can interrupt."""


def supports(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    """Two-layer networks that fit the shared memory of a multiprocessor, squared error, plain SGD in batches."""
    batch = optimiser.batch
    if not packing.shape.dense or len(packing.shape.sizes) != 3 or not isinstance(objective, SquaredError):
        return False
    if batch is None or batch > _LARGEST_BATCH:
        return False
    return optimiser.plain and _bytes(packing, batch, like) <= card.room(like)


def resident(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Engine (see `Engine`): all networks in one launch, many steps each."""
    starts = range(0, count, _LONGEST)
    losses = [_launch(problem, state, first + start, min(_LONGEST, count - start)) for start in starts]
    return losses[0] if len(losses) == 1 else torch.cat(losses, dim=1)


def _launch(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    shape, batch, like = problem.packing.shape, problem.optimiser.batch, problem.inputs
    assert batch is not None
    nodes = shape.sizes[1]
    losses = like.new_empty(len(problem), count)
    # Without biases the kernel is given the weights in their place, and leaves them alone.
    weights, biases = (state.blocks[0::2], state.blocks[1::2]) if shape.bias else (state.blocks, state.blocks)
    card.launch(
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
    """Begin to compile what these networks will need."""
    if optimiser.batch is not None:
        card.prepare("resident", like, _constants(packing, optimiser.batch))


def _constants(packing: Packing, batch: int) -> dict[str, int]:
    (inputs, nodes, outputs), bias = packing.shape.sizes, int(packing.shape.bias)
    sizes = {"D": inputs, "N": nodes, "C": outputs, "B": batch, "BIAS": bias}
    ways = {"TILE": _tile(nodes, batch), "THREADS": _threads(nodes, batch)}
    return sizes | ways | {"ALIGN": ALIGN, "STREAM": int(Stream.BATCH)}


def _threads(nodes: int, batch: int) -> int:
    return 128 if _tile(nodes, batch) == 8 and nodes <= 128 else 256


def _tile(nodes: int, batch: int) -> int:
    """Wide networks have enough tiles of 8 × 8 for all threads; narrow ones finish sooner in tiles of 4 × 4."""
    return 8 if nodes >= 80 and batch >= 8 else 4


def _bytes(packing: Packing, batch: int, like: Tensor) -> int:
    """Shared memory of a network, as the kernel lays it out."""
    (inputs, nodes, outputs), bias = packing.shape.sizes, int(packing.shape.bias)
    tile = _tile(nodes, batch)
    rows, wide, high, tall = (up(count, tile) for count in (batch, inputs + bias, nodes, outputs))
    sx, sh = stride(wide), stride(high + tile * bias)
    numbers = high * sx + tall * sh + 2 * rows * sh + rows * stride(tall)
    numbers += 2 * rows * sx + 2 * up(rows * outputs, 4) + 32
    return numbers * like.element_size() + 2 * batch * 4
