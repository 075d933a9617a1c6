"""Independent pieces of work side by side on the cores of this machine, one thread each."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


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
