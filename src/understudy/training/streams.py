"""CUDA streams, and copies between the CPU and the GPU that do not block."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

Tensors = TypeVar("Tensors")
"""A tensor, or a tuple of tensors and tuples."""


class Streams:
    """CUDA streams by number. On the CPU there are none, and work runs immediately.

    Each group gets its own CUDA stream, so that groups too small to fill the GPU overlap.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: dict[int, torch.cuda.Stream] = {}

    @contextmanager
    def on(self, number: int) -> Iterator[None]:
        """Run the block on a stream, after all work submitted to the current stream so far."""
        if self.device.type != "cuda":
            yield
            return
        if number not in self._streams:
            self._streams[number] = torch.cuda.Stream(self.device)
        stream = self._streams[number]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            yield

    @contextmanager
    def after_all(self) -> Iterator[None]:
        """Run the block on a separate stream that waits for all others, while none waits for it."""
        with self.on(-1):
            self.join()
            yield

    def join(self) -> None:
        """Make the current stream wait for all others."""
        for stream in self._streams.values():
            torch.cuda.current_stream(self.device).wait_stream(stream)


def fetch_async(tensors: Tensors, device: torch.device) -> Callable[[], Tensors]:
    """Start an asynchronous copy to the CPU; return a callable that waits for it."""
    if device.type != "cuda":
        return lambda: tensors
    copies = map_tensors(tensors, lambda tensor: tensor.to("cpu", non_blocking=True))
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(device))

    def wait() -> Tensors:
        copied.synchronize()
        return copies

    return wait


def to_device_async(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to `device` without blocking."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply `change` to every tensor in a nested tuple; None stays None."""
    if value is None or isinstance(value, Tensor):
        return None if value is None else change(value)
    items = (map_tensors(item, change) for item in value)
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
