"""Kernels for CUDA cards: compiled by torch when first needed, with the compiler that comes with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_NUMBERS = {torch.float32: "float", torch.float64: "double"}


def room(like: Tensor) -> int:
    """Bytes of shared memory that a block may take where `like` is; 0 where our kernels do not run."""
    if not (like.is_cuda and torch.version.cuda and hasattr(torch.cuda, "_compile_kernel")):
        return 0
    card = torch.cuda.get_device_properties(like.device)
    return getattr(card, "shared_memory_per_block_optin", 0) if card.major >= 8 else 0


def launch(
    name: str,
    like: Tensor,
    constants: dict[str, int],
    grid: tuple[int, int],
    threads: int,
    shared: int,
    arguments: Sequence[Any],
) -> None:
    """Run the kernel of `name`.cu, for numbers of `like`'s kind, where it is."""
    kernel = _kernel(name, like.device, like.dtype, tuple(constants.items()))
    if shared > kernel._max_shared_mem_bytes:
        kernel.set_shared_memory_config(shared)
    stream = torch.cuda.current_stream(like.device)
    kernel(grid=(*grid, 1), block=(threads, 1, 1), args=list(arguments), shared_mem=shared, stream=stream)


@cache
def _kernel(name: str, device: torch.device, dtype: torch.dtype, constants: tuple[tuple[str, int], ...]) -> Any:
    head = f"typedef {_NUMBERS[dtype]} T;\n" + "".join(f"constexpr int {key} = {value};\n" for key, value in constants)
    source = [Path(__file__).with_name(f"{part}.cu").read_text(encoding="utf-8") for part in ("tiles", name)]
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel("\n".join((head, *source)), name)


def up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def stride(count: int) -> int:
    """As in tiles.cu."""
    return up(count, 4) + (0 if up(count, 4) % 8 else 4)
