"""Cost of training networks with several exits (Phuong & Lampert 2019b) on a GPU: all side by side, and one alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch

from understudy.bench.clock import Repetitions, lasting
from understudy.bench.setting import Report, Sizes
from understudy.training.multi_exit.engine import Batches, ExitImages, MultiExitEngine
from understudy.training.multi_exit.objectives import ExitObjective
from understudy.training.multi_exit.plain import PlainEngine

_STEPS = 20
"""Steps timed together, as an epoch that ends with its losses on the CPU."""
_IMAGES = 3_000
_RATE = 0.01
"""Learning rate at which no network diverges: one that does takes no further step in the plain engine."""

MakeEngine = Callable[..., MultiExitEngine]


@dataclass(frozen=True)
class ExitTraining:
    """Seconds per network-step of the fused engine, and of the plain one, which trains one network after the other."""

    fused: Repetitions
    plain: Repetitions

    @property
    def milliseconds(self) -> Repetitions:
        return self.fused * 1e3

    @property
    def gain(self) -> Repetitions:
        return self.plain / self.fused


def exit_training(sizes: Sizes, device: str, report: Report) -> ExitTraining | None:
    """Time the fused engine with all networks against the plain engine with one; None if there are none to train."""
    if not sizes.exit_networks:
        return None
    fused = import_module("understudy.training.multi_exit.fused").FusedEngine  # needs Triton
    return compare_engines(fused, PlainEngine, sizes, device, report)


def compare_engines(fused: MakeEngine, plain: MakeEngine, sizes: Sizes, device: str, report: Report) -> ExitTraining:
    """Time two engines in alternation. The first epoch is warm-up: it compiles kernels and captures the steps.

    Args:
        fused: Engine that trains all networks of `sizes`.
        plain: Engine that trains one of them.
        sizes: Their architecture, number and batch size.
        device: `cpu` or `cuda`.
        report: Called with a line of text after every repetition.
    """
    networks = sizes.exit_networks
    epochs = [_epoch(make, count, sizes, device) for make, count in ((fused, networks), (plain, 1))]
    for epoch in epochs:
        epoch()
    timed = []
    for repetition in range(1, sizes.repetitions + 1):
        together, alone = (lasting(epoch, device, sizes.least) / _STEPS for epoch in epochs)
        timed.append((together / networks, alone))
        report(f"networks with several exits, {repetition} of {sizes.repetitions}")
    return ExitTraining(*(Repetitions(values) for values in zip(*timed, strict=True)))


def _epoch(make: MakeEngine, networks: int, sizes: Sizes, device: str) -> Callable[[], object]:
    """An epoch of networks that learn random classes of random images, with distillation from the last exit."""
    grid, random = sizes.exit_grid, torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (_IMAGES, grid.colours, grid.image, grid.image), generator=random).to(torch.uint8)
    moments = (0.5,) * grid.colours, (0.25,) * grid.colours
    pictures = ExitImages(pixels, torch.randint(grid.classes, (_IMAGES,), generator=random), *moments)
    objective = ExitObjective.last_teacher(len(grid.exits))
    engine = make(grid, range(1, networks + 1), [objective] * networks, pictures, device=device)
    shape = networks, _STEPS, sizes.exit_batch
    index, flip = (torch.randint(most, shape, generator=random) for most in (_IMAGES, 2))
    shift = torch.randint(2 * pictures.border + 1, (*shape, 2), generator=random)
    batches = Batches(index, shift, flip.bool(), labelled=sizes.exit_batch)
    return lambda: engine.train(batches, [_RATE] * networks)
