"""One thread block a network on a CUDA card, its weights in shared memory for all the steps of a call.

The kernel is `resident.cu`; torch compiles it when it is first needed, with the compiler that comes with it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream
from understudy.training.objectives import Objective, SquaredError
from understudy.training.optimisers import Optimiser
from understudy.training.packing import ALIGN, Packing, State
from understudy.training.problem import Problem

_WORDS = {torch.float32: "float", torch.float64: "double"}
_LARGEST_BATCH = 64


def suits(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    """Two-layer networks that fit the shared memory of a multiprocessor, squared error, plain SGD in batches."""
    sizes, batch = packing.shape.sizes, optimiser.batch
    if not (like.is_cuda and torch.version.cuda and hasattr(torch.cuda, "_compile_kernel")):
        return False
    if len(sizes) != 3 or not isinstance(objective, SquaredError) or not optimiser.plain or batch is None:
        return False
    card = torch.cuda.get_device_properties(like.device)
    room: int = getattr(card, "shared_memory_per_block_optin", 0)
    return batch <= _LARGEST_BATCH and card.major >= 8 and _bytes(packing, batch, like.element_size()) <= room


def resident(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Engine (see `Engine`): the steps of every network in one launch."""
    shape, batch, like = problem.packing.shape, problem.optimiser.batch, problem.inputs
    assert batch is not None
    inputs, nodes, outputs = shape.sizes
    losses = like.new_empty(len(problem), count)
    # Without biases the kernel is given the weights in their place, and leaves them alone.
    weights, biases = (state.blocks[0::2], state.blocks[1::2]) if shape.bias else (state.blocks, state.blocks)
    kernel = _kernel(like.device, like.dtype, inputs, outputs, batch, shape.bias, _tile(nodes, batch))
    room = _bytes(problem.packing, batch, like.element_size())
    if room > kernel._max_shared_mem_bytes:
        kernel.set_shared_memory_config(room)
    kernel(
        grid=(len(problem), 1, 1),
        block=(_threads(nodes), 1, 1),
        args=[
            *(problem.inputs, problem.targets, problem.set_of, problem.teacher_of, problem.seeds),
            *(problem.rate.to(like.dtype), weights[0], biases[0], weights[1], biases[1], losses),
            *(nodes, first & 0xFFFFFFFF, first >> 32, count, like.shape[1], float(shape.slope)),
        ],
        shared_mem=room,
        stream=torch.cuda.current_stream(like.device),
    )
    return losses


@cache
def _kernel(
    device: torch.device, dtype: torch.dtype, inputs: int, outputs: int, batch: int, bias: bool, tile: int
) -> Any:
    fixed = {"D": inputs, "C": outputs, "B": batch, "BIAS": int(bias), "TILE": tile, "ALIGN": ALIGN}
    fixed["STREAM"] = int(Stream.BATCH)
    head = "".join(f"constexpr int {name} = {value};\n" for name, value in fixed.items())
    source = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel(f"typedef {_WORDS[dtype]} T;\n{head}{source}", "resident")


def _tile(nodes: int, batch: int) -> int:
    """Wide networks have enough tiles of 8 × 8 for all threads; narrow ones finish sooner in tiles of 4 × 4."""
    return 8 if nodes >= 80 and batch >= 8 else 4


def _threads(nodes: int) -> int:
    return 128 if nodes <= 128 else 256


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _stride(count: int) -> int:
    return _up(count, 4) + (0 if _up(count, 4) % 8 else 4)


def _bytes(packing: Packing, batch: int, size: int) -> int:
    """Shared memory of a network, as the kernel lays it out."""
    (inputs, nodes, outputs), bias = packing.shape.sizes, int(packing.shape.bias)
    tile = _tile(nodes, batch)
    rows, wide, high, tall = (_up(count, tile) for count in (batch, inputs + bias, nodes, outputs))
    sx, sh = _stride(wide), _stride(high + tile * bias)
    numbers = high * sx + tall * sh + 2 * rows * sh + rows * _stride(tall)
    numbers += 2 * rows * sx + 2 * _up(rows * outputs, 4) + 32
    return numbers * size + 2 * batch * 4
