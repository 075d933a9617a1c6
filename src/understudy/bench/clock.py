"""Timing: what is compared is timed in alternation, so that a machine that others use as well slows both alike."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch


@dataclass(frozen=True)
class Measured:
    """One number in several repetitions: what is told is their median, and between which two they lie."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


def lasting(work: Callable[[], Any], device: str, least: float) -> float:
    """Seconds a call of work(), called until `least` seconds have passed."""
    wait(device)
    start, calls = perf_counter(), 0
    while True:
        work()
        wait(device)
        calls += 1
        if (passed := perf_counter() - start) >= least:
            return passed / calls


def wait(device: str) -> None:
    """Until a card has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
