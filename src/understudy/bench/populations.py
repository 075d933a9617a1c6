"""What a network-step costs in small and large populations, and the memory they take."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from understudy.bench.clock import Measured, lasting
from understudy.bench.setting import Sizes, Tell, network_steps
from understudy.training import Training

_LEAST_STEPS = 300
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True)
class Cost:
    """Of one population: seconds a network-step, and the reference's just before and after, a repetition each."""

    networks: int
    steps: int
    """Steps an epoch."""
    seconds: Measured
    reference: Measured
    """A population of the smallest size, the same one throughout."""
    peak_bytes: int
    """The most memory the process held (on a card: allocated there) while the population was made and trained."""

    @property
    def ratio(self) -> Measured:
        pairs = zip(self.seconds.values, self.reference.values, strict=True)
        return Measured(tuple(seconds / reference for seconds, reference in pairs))


def costs(sizes: Sizes, device: str, tell: Tell) -> list[Cost]:
    """From the smallest to the largest; the first is measured against one of its own size, and shows the noise."""
    teacher = sizes.teacher(sizes.population_seeds)

    def population(networks: int, steps: int) -> Training:
        training = sizes.training(teacher[_in_turn(sizes, networks)], (1,), device, steps)
        training.advance()  # warm-up
        return training

    reference = population(min(sizes.populations), sizes.steps)
    known = _seconds(reference, device, sizes.least)
    measured = []
    for networks in sorted(sizes.populations):
        _forget_peak(device)
        wanted = sizes.population_seconds / (networks * known)
        steps = min(sizes.steps, max(_LEAST_STEPS, round(wanted)))
        training = population(networks, steps)
        seconds, references = [], [_seconds(reference, device, sizes.least)]
        for repetition in range(1, sizes.population_repetitions + 1):
            seconds.append(_seconds(training, device, sizes.least))
            references.append(_seconds(reference, device, sizes.least))
            tell(f"population of {networks:,}, {repetition} of {sizes.population_repetitions}")
        around = tuple((before + after) / 2 for before, after in pairwise(references))
        measured.append(Cost(networks, steps, Measured(tuple(seconds)), Measured(around), _peak(device)))
        known = measured[-1].seconds.median
        del training  # before the next is made: its memory is not the next one's
    return measured


def _in_turn(sizes: Sizes, networks: int) -> Int[Tensor, "net"]:
    """Teachers of so many networks: all seeds in turn, then the next polarity; those of a seed side by side."""
    count = torch.arange(networks)
    seed, polarity = count % sizes.population_seeds, count // sizes.population_seeds % len(sizes.polarity)
    return (seed * len(sizes.polarity) + polarity).sort().values


def _seconds(training: Training, device: str, least: float) -> float:
    return lasting(training.advance, device, least) / network_steps(training)


def _forget_peak(device: str) -> None:
    """Begin to look for the most memory anew."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif _CLEAR.exists():
        try:
            _CLEAR.write_text("5")
        except OSError:
            return  # where that is not allowed the peak is that of the process so far


def _peak(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
