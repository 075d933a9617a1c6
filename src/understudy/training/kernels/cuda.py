"""CUDA kernels, compiled when first needed by the compiler that torch includes."""

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


def shared_memory(like: Tensor) -> int:
    """Bytes of shared memory available to a block on the device of `like`; 0 where these kernels do not run."""
    # These torch functions are private: without them, other engines are used.
    known = all(hasattr(cuda, name) for name in ("_nvrtc_compile", "_cuda_load_module", "_CudaKernel"))
    if not (like.is_cuda and torch.version.cuda and known and like.dtype in _NUMBERS):
        return 0
    gpu = torch.cuda.get_device_properties(like.device)
    return getattr(gpu, "shared_memory_per_block_optin", 0) if gpu.major >= 8 else 0


def launch(
    name: str,
    like: Tensor,
    constants: dict[str, int],
    grid: tuple[int, int],
    threads: int,
    shared: int,
    arguments: Sequence[Any],
) -> None:
    """Launch the kernel `name` of `name`.cu with the precision and on the device of `like`."""
    kernel = _load(prepare(name, like, constants), like.device)
    if shared > kernel._max_shared_mem_bytes:
        kernel.set_shared_memory_config(shared)
    stream = torch.cuda.current_stream(like.device)
    kernel(grid=(*grid, 1), block=(threads, 1, 1), args=list(arguments), shared_mem=shared, stream=stream)


def prepare(name: str, like: Tensor, constants: dict[str, int]) -> Future[tuple[Any, str]]:
    """Start to compile a kernel in the background, which takes about a second; return its future."""
    key = (name, like.device, like.dtype, *constants.items())
    with _lock:
        if key not in _kernels:
            _kernels[key] = _compilers.submit(_compile, name, like.device, like.dtype, constants)
        return _kernels[key]


@cache
def _load(compiled: Future[tuple[Any, str]], device: torch.device) -> Any:
    """Load a compiled kernel to the GPU, in the thread that launches it."""
    code, name = compiled.result()
    with torch.cuda.device(device):
        kernels: Any = cuda._cuda_load_module(code, [name])
    return kernels[name]


def _compile(name: str, device: torch.device, dtype: torch.dtype, constants: dict[str, int]) -> tuple[Any, str]:
    head = "".join(f"constexpr int {key} = {value};\n" for key, value in constants.items())
    source = [Path(__file__).with_name(f"{stem}.cu").read_text(encoding="utf-8") for stem in ("tiles", name)]
    major, minor = torch.cuda.get_device_capability(device)
    code = "\n".join((f"typedef {_NUMBERS[dtype]} T;", head, *source))
    return cuda._nvrtc_compile(code, name, compute_capability=f"{major}{minor}")


def round_up(count: int, unit: int) -> int:
    """Round up to a multiple of `unit`."""
    return -(-count // unit) * unit


def stride(count: int) -> int:
    """Row stride that avoids bank conflicts, as in tiles.cu."""
    return round_up(count, 4) + (0 if round_up(count, 4) % 8 else 4)
