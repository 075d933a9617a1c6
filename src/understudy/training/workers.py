"""Independent pieces of work side by side on the cores of this machine, one thread each."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")
Tensors = TypeVar("Tensors")
"""A tensor, or a tuple of tensors and tuples."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Torch leaves the cores to us: its own threads would contend with ours, and cut sums in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def products(tf32: bool) -> Iterator[None]:
    """Whether a card may multiply float32 numbers as TF32, in matrix products and convolutions alike."""
    matrices, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matrices.allow_tf32, convolutions.allow_tf32
    matrices.allow_tf32 = convolutions.allow_tf32 = tf32
    try:
        yield
    finally:
        matrices.allow_tf32, convolutions.allow_tf32 = before


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> list[Result]:
    """work(item) for every item, in order of the items; on a card one after the other, since it is shared."""
    if device.type != "cpu":
        return [work(item) for item in items]
    with one_thread_each(), ThreadPoolExecutor(cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(work, items))


class Lanes:
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


def brought(tensors: Tensors, device: torch.device) -> Callable[[], Tensors]:
    """Tensors on their way to the processor: called, it waits until they are there. A card goes on meanwhile."""
    if device.type != "cuda":
        return lambda: tensors
    here = each(tensors, lambda tensor: tensor.to("cpu", non_blocking=True))
    there = torch.cuda.Event()
    there.record(torch.cuda.current_stream(device))

    def wait() -> Tensors:
        there.synchronize()
        return here

    return wait


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on its way to the device: nobody waits until it has come, or for what a card does before."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same tuple of tensors and tuples, every tensor changed; nothing stays nothing."""
    if value is None or isinstance(value, Tensor):
        return None if value is None else change(value)
    parts = (each(part, change) for part in value)
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
