"""Kernels for CUDA cards: compiled by torch when first needed, with the compiler that comes with it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.cuda import _utils as cuda

_NUMBERS = {torch.float32: "float", torch.float64: "double"}
_kernels: dict[tuple[object, ...], Future[tuple[Any, str]]] = {}
_compilers = ThreadPoolExecutor(4, thread_name_prefix="compiler")
_lock = Lock()


def room(like: Tensor) -> int:
    """Bytes of shared memory that a block may take where `like` is; 0 where our kernels do not run."""
    # What torch offers for this is not public: where it has gone, other engines take over.
    known = all(hasattr(cuda, name) for name in ("_nvrtc_compile", "_cuda_load_module", "_CudaKernel"))
    if not (like.is_cuda and torch.version.cuda and known and like.dtype in _NUMBERS):
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
    kernel = _load(prepare(name, like, constants), like.device)
    if shared > kernel._max_shared_mem_bytes:
        kernel.set_shared_memory_config(shared)
    stream = torch.cuda.current_stream(like.device)
    kernel(grid=(*grid, 1), block=(threads, 1, 1), args=list(arguments), shared_mem=shared, stream=stream)


def prepare(name: str, like: Tensor, constants: dict[str, int]) -> Future[tuple[Any, str]]:
    """Begin to compile a kernel that will be needed, if nobody has: it takes about a second, beside other work."""
    key = (name, like.device, like.dtype, *constants.items())
    with _lock:
        if key not in _kernels:
            _kernels[key] = _compilers.submit(_compile, name, like.device, like.dtype, constants)
        return _kernels[key]


@cache
def _load(compiled: Future[tuple[Any, str]], device: torch.device) -> Any:
    """On the card, by the thread that launches: those that compile have no part in it."""
    code, name = compiled.result()
    with torch.cuda.device(device):
        kernels: Any = cuda._cuda_load_module(code, [name])
    return kernels[name]


def _compile(name: str, device: torch.device, dtype: torch.dtype, constants: dict[str, int]) -> tuple[Any, str]:
    head = "".join(f"constexpr int {key} = {value};\n" for key, value in constants.items())
    source = [Path(__file__).with_name(f"{part}.cu").read_text(encoding="utf-8") for part in ("tiles", name)]
    major, minor = torch.cuda.get_device_capability(device)
    code = "\n".join((f"typedef {_NUMBERS[dtype]} T;", head, *source))
    return cuda._nvrtc_compile(code, name, compute_capability=f"{major}{minor}")


def up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def stride(count: int) -> int:
    """As in tiles.cu."""
    return up(count, 4) + (0 if up(count, 4) % 8 else 4)
