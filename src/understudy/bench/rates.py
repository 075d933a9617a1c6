"""How fast steps are taken: against one large matrix product, and against the plain loop, in alternation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.bench.clock import Measured, lasting
from understudy.bench.plain import plain_loops
from understudy.bench.probing import Probing, added, with_looks
from understudy.bench.setting import Sizes, Tell, network_steps, step_flops
from understudy.training import Training
from understudy.training.parallel import cores


@dataclass(frozen=True)
class Rates:
    """At one n, a value a repetition: operations a second of the product, network-steps a second of both loops."""

    peak: Measured
    ours: Measured
    plain: Measured
    looking: Probing
    flops: int
    """Of a network and step."""
    engine: str

    @property
    def share_of_peak(self) -> Measured:
        """Each repetition against the product timed just before it."""
        pairs = zip(self.ours.values, self.peak.values, strict=True)
        return Measured(tuple(rate * self.flops / peak for rate, peak in pairs))

    @property
    def plain_share_of_peak(self) -> Measured:
        """What the plain loop takes of the peak: nothing in this precision beats it by more than one over this."""
        pairs = zip(self.plain.values, self.peak.values, strict=True)
        return Measured(tuple(rate * self.flops / peak for rate, peak in pairs))

    @property
    def against_plain(self) -> Measured:
        pairs = zip(self.ours.values, self.plain.values, strict=True)
        return Measured(tuple(rate / plain for rate, plain in pairs))


def product(size: int, device: str) -> Callable[[], Tensor]:
    """One large float32 matrix product, with all cores; on a card without TF32, which torch leaves off."""
    left, right = (torch.randn(size, size, device=device) for _ in range(2))
    out = torch.empty_like(left)

    def multiply() -> Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(cores())
        try:
            return torch.mm(left, right, out=out)
        finally:
            torch.set_num_threads(before)

    return multiply


def rates(sizes: Sizes, device: str, tell: Tell) -> dict[int, Rates]:
    """By n. The first epoch, look and steps are warm-up: they compile, and make the data."""
    multiply, teacher = product(sizes.product, device), sizes.teacher(sizes.seeds)
    trainings = {n: sizes.training(teacher, (k,), device) for n, k in sizes.widths.items()}
    timed: dict[int, list[tuple[float, ...]]] = {n: [] for n in trainings}
    with plain_loops(sizes, device) as plain:
        lasting(multiply, device, least=0)
        for n, training in trainings.items():
            with_looks(training, epochs=1)
            plain(n, 0)
        for repetition in range(1, sizes.repetitions + 1):
            for n, training in trainings.items():
                peak = 2 * sizes.product**3 / lasting(multiply, device, sizes.least)
                epoch = lasting(training.advance, device, sizes.least)
                probe = added(training, sizes.looks, epoch, device)
                timed[n].append((peak, network_steps(training) / epoch, plain(n, sizes.least), epoch, probe))
                tell(f"steps at n = {n}, {repetition} of {sizes.repetitions}")
    return {n: _rates(sizes, n, training, timed[n]) for n, training in trainings.items()}


def _rates(sizes: Sizes, n: int, training: Training, timed: list[tuple[float, ...]]) -> Rates:
    peak, ours, plain, epoch, probe = (Measured(values) for values in zip(*timed, strict=True))
    flops = step_flops((sizes.dim, n, sizes.outputs), sizes.batch)
    return Rates(peak, ours, plain, Probing(epoch, probe, len(training)), flops, training.members[0].engine)
