"""Timing: what is compared is timed in alternation, so that a machine that others use as well slows both alike."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from understudy.training.parallel import cores


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


class Company:
    """Watches what other programs take of the cores, which no alternation takes out altogether."""

    def __init__(self) -> None:
        self.start = _busy()

    def share(self) -> float | None:
        """Of all cores, since the start; none where the system does not say. Children count as ours once they ended."""
        if self.start is None or (now := _busy()) is None:
            return None
        (busy, ours, clock), (busy_now, ours_now, clock_now) = self.start, now
        others = (busy_now - busy) - (ours_now - ours)
        return max(0.0, others / ((clock_now - clock) * cores()))


def _busy() -> tuple[float, float, float] | None:
    """Seconds that the cores were busy, that we kept them busy, and the clock."""
    system = Path("/proc/stat")
    if not system.is_file():
        return None
    user, nice, kernel, _, _, *rest = map(int, system.read_text().splitlines()[0].split()[1:9])
    mine = os.times()
    busy = (user + nice + kernel + sum(rest)) / os.sysconf("SC_CLK_TCK")
    return busy, mine.user + mine.system + mine.children_user + mine.children_system, perf_counter()
