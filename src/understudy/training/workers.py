"""Independent pieces of work side by side on the cores of this machine, one thread each."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
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


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> list[Result]:
    """work(item) for every item, in order of the items; on a card one after the other, since it is shared."""
    if device.type != "cpu":
        return [work(item) for item in items]
    with one_thread_each(), ThreadPoolExecutor(cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(work, items))


def abreast(work: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> list[Result]:
    """The same for work that fills no card by itself: there each item is launched on a stream of its own."""
    if device.type != "cuda":
        return side_by_side(work, items, device)
    here, results = torch.cuda.current_stream(device), []
    for i, item in enumerate(items):
        beside = _stream(device, i)
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            results.append(work(item))
    for i in range(len(items)):
        here.wait_stream(_stream(device, i))
    return results


def aside(work: Callable[[], Result], device: torch.device) -> Callable[[], Result]:
    """Work on what has been launched so far, put off for another thread: a card goes on with what comes after.

    On a processor there is nothing to put it off for: it is done now, where it is side by side with its like.
    """
    if device.type != "cuda":
        done = work()
        return lambda: done
    so_far = torch.cuda.Event()
    so_far.record(torch.cuda.current_stream(device))

    def later() -> Result:
        stream = _first_served(device)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            stream.wait_event(so_far)
            done = work()
        stream.synchronize()
        return done

    return later


@cache
def _first_served(device: torch.device) -> torch.cuda.Stream:
    """Small work that would otherwise wait until long work has ended."""
    return torch.cuda.Stream(device, priority=-1)


@cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
