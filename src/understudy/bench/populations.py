"""Cost of a network-step in small and large populations, and the memory they take."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from understudy.bench.clock import Repetitions, lasting
from understudy.bench.setting import Report, Sizes, network_steps
from understudy.training import Training

_LEAST_STEPS = 300
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True)
class Cost:
    """Seconds per network-step of one population, and of the reference timed just before and after it."""

    networks: int
    steps: int
    """Steps per epoch."""
    seconds: Repetitions
    reference: Repetitions
    """A population of the smallest size, the same one throughout."""
    peak_bytes: int
    """Largest memory of the process (allocated on the GPU) while the population was made and trained."""

    @property
    def ratio(self) -> Repetitions:
        return self.seconds / self.reference


def costs(sizes: Sizes, device: str, report: Report) -> list[Cost]:
    """Costs from the smallest population to the largest.

    The first is compared with a reference of its own size, which shows the noise.
    """
    teacher = sizes.teacher(sizes.population_seeds)

    def population(networks: int, steps: int) -> Training:
        training = sizes.training(teacher[_teachers(sizes, networks)], (1,), device, steps)
        training.advance()  # warm-up
        return training

    reference = population(min(sizes.populations), sizes.steps)
    known = _seconds(reference, device, sizes.least)
    measured = []
    for networks in sorted(sizes.populations):
        _reset_peak(device)
        wanted = sizes.population_seconds / (networks * known)
        steps = min(sizes.steps, max(_LEAST_STEPS, round(wanted)))
        training = population(networks, steps)
        seconds, references = [], [_seconds(reference, device, sizes.least)]
        for repetition in range(1, sizes.population_repetitions + 1):
            seconds.append(_seconds(training, device, sizes.least))
            references.append(_seconds(reference, device, sizes.least))
            report(f"population of {networks:,}, {repetition} of {sizes.population_repetitions}")
        around = tuple((before + after) / 2 for before, after in pairwise(references))
        measured.append(Cost(networks, steps, Repetitions(tuple(seconds)), Repetitions(around), _peak(device)))
        known = measured[-1].seconds.median
        del training  # frees its memory before the next population is made
    return measured


def _teachers(sizes: Sizes, networks: int) -> Int[Tensor, "net"]:
    """Teacher index of each network: all seeds in turn, then the next polarity; those of one seed together."""
    count = torch.arange(networks)
    seed, polarity = count % sizes.population_seeds, count // sizes.population_seeds % len(sizes.polarity)
    return (seed * len(sizes.polarity) + polarity).sort().values


def _seconds(training: Training, device: str, least: float) -> float:
    return lasting(training.advance, device, least) / network_steps(training)


def _reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif _CLEAR.exists():
        try:
            _CLEAR.write_text("5")
        except OSError:
            return  # not permitted: the peak is then that of the whole process so far


def _peak(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
