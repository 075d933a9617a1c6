"""CUDA streams, and copies between the CPU and the GPU that do not block."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

Tensors = TypeVar("Tensors")
"""A tensor, or a tuple of tensors and tuples."""


class Streams:
    """Streams of a card: what is put on one goes in its order, and does not wait for the others.

    Work that fills no card by itself goes side by side, and whoever has ended his goes on to what comes next. On a
    processor there are none, and everything is done when it is asked for.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._lanes: dict[int, torch.cuda.Stream] = {}

    @contextmanager
    def on(self, number: int) -> Iterator[None]:
        """On one of them, after all that was put on the common stream so far."""
        if self.device.type != "cuda":
            yield
            return
        if number not in self._lanes:
            self._lanes[number] = torch.cuda.Stream(self.device)
        lane = self._lanes[number]
        lane.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(lane):
            yield

    @contextmanager
    def after_all(self) -> Iterator[None]:
        """On one that waits for all others, and for which none of them does."""
        with self.on(-1):
            self.join()
            yield

    def join(self) -> None:
        """What is put on the current stream from here on comes after everything."""
        for lane in self._lanes.values():
            torch.cuda.current_stream(self.device).wait_stream(lane)


def fetch_async(tensors: Tensors, device: torch.device) -> Callable[[], Tensors]:
    """Tensors on their way to the processor: called, it waits until they are there. A card goes on meanwhile."""
    if device.type != "cuda":
        return lambda: tensors
    here = map_tensors(tensors, lambda tensor: tensor.to("cpu", non_blocking=True))
    there = torch.cuda.Event()
    there.record(torch.cuda.current_stream(device))

    def wait() -> Tensors:
        there.synchronize()
        return here

    return wait


def to_device_async(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on its way to the device: nobody waits until it has come, or for what a card does before."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same tuple of tensors and tuples, every tensor changed; nothing stays nothing."""
    if value is None or isinstance(value, Tensor):
        return None if value is None else change(value)
    parts = (map_tensors(part, change) for part in value)
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
