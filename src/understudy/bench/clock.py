"""Timing in alternation, so that load from other programs slows what is compared equally."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import torch

from understudy._cores import cores


@dataclass(frozen=True)
class Repetitions:
    """One quantity in several repetitions, reported as their median and range."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)

    def __mul__(self, factor: float) -> "Repetitions":
        return Repetitions(tuple(value * factor for value in self.values))

    def __truediv__(self, other: "Repetitions | float") -> "Repetitions":
        """Divide repetition by repetition, so that each is compared with what was timed next to it."""
        divisors = other.values if isinstance(other, Repetitions) else (other,) * len(self.values)
        return Repetitions(tuple(value / divisor for value, divisor in zip(self.values, divisors, strict=True)))


def lasting(work: Callable[[], Any], device: str, least: float) -> float:
    """Seconds per call of `work`, which is called until `least` seconds have passed."""
    wait(device)
    start, calls = perf_counter(), 0
    while True:
        work()
        wait(device)
        calls += 1
        if (passed := perf_counter() - start) >= least:
            return passed / calls


def wait(device: str) -> None:
    """Wait until the GPU, if that is the device, has finished all submitted work."""
    if device == "cuda":
        torch.cuda.synchronize()


@contextmanager
def all_cores() -> Iterator[None]:
    """Let torch use all cores for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OtherLoad:
    """Measures the CPU time that other programs take, which alternation does not remove completely."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # the next call reports the load since this one
        self.start = os.times()

    def share(self) -> float:
        """Share of all cores since the start; child processes are counted as ours once they have ended."""
        busy = psutil.cpu_percent() / 100 * (psutil.cpu_count() or 1)
        *start, began = self.start
        *now, ended = os.times()
        ours = (sum(now) - sum(start)) / (ended - began)
        return max(0.0, (busy - ours) / cores())
