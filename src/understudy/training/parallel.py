"""Independent work items on all CPU cores, one thread per core."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from understudy._cores import cores

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Make torch single-threaded in the block.

    Its threads would compete with those of `run_parallel`, and would split sums in an order that depends on their
    number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_parallel(work: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> list[Result]:
    """Compute work(item) for every item, in order: on the CPU in parallel, on a GPU one after the other."""
    if device.type != "cpu":
        return [work(item) for item in items]
    with one_thread_each(), ThreadPoolExecutor(cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(work, items))
