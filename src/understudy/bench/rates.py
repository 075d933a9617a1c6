"""Rate of training steps against one large matrix product and against the plain PyTorch loop, in alternation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.bench.clock import Measured, all_cores, lasting
from understudy.bench.plain import plain_loops
from understudy.bench.probing import Probing, probe_seconds, train_with_probes
from understudy.bench.setting import Report, Sizes, network_steps, step_flops


@dataclass(frozen=True)
class Rates:
    """Speed at one n: FLOP/s of the matrix product, network-steps per second of understudy and of the plain loop."""

    peak: Measured
    ours: Measured
    plain: Measured
    probing: Probing
    flops: int
    """Floating-point operations per network and step."""
    engine: str

    @property
    def share_of_peak(self) -> Measured:
        return self.ours * self.flops / self.peak

    @property
    def plain_share_of_peak(self) -> Measured:
        """Share of the peak that the plain loop reaches; its inverse bounds every speed-up in this precision."""
        return self.plain * self.flops / self.peak

    @property
    def against_plain(self) -> Measured:
        return self.ours / self.plain


def product(size: int, device: str) -> Callable[[], Tensor]:
    """One large float32 matrix product on all cores; on a GPU without TF32, which is torch's default."""
    left, right = (torch.randn(size, size, device=device) for _ in range(2))
    out = torch.empty_like(left)

    def multiply() -> Tensor:
        with all_cores():
            return torch.mm(left, right, out=out)

    return multiply


def rates(sizes: Sizes, device: str, report: Report) -> dict[int, Rates]:
    """Rates by n. The first epoch, probe and plain steps are warm-up: they compile kernels and generate the data."""
    multiply, teacher = product(sizes.product, device), sizes.teacher(sizes.seeds)
    trainings = {n: sizes.training(teacher, (k,), device) for n, k in sizes.widths.items()}
    timed: dict[int, list[tuple[float, ...]]] = {n: [] for n in trainings}
    with plain_loops(sizes, device) as plain:
        lasting(multiply, device, least=0)
        for n, training in trainings.items():
            train_with_probes(training, epochs=1)
            plain(n, 0)
        for repetition in range(1, sizes.repetitions + 1):
            for n, training in trainings.items():
                peak = 2 * sizes.product**3 / lasting(multiply, device, sizes.least)
                epoch = lasting(training.advance, device, sizes.least)
                probe = probe_seconds(training, sizes.probes, epoch, device)
                timed[n].append((peak, network_steps(training) / epoch, plain(n, sizes.least), epoch, probe))
                report(f"steps at n = {n}, {repetition} of {sizes.repetitions}")
    found = {}
    for n, training in trainings.items():
        peaks, ours, plains, epochs, probes = (Measured(values) for values in zip(*timed[n], strict=True))
        probing, flops = Probing(epochs, probes, len(training)), step_flops((sizes.dim, n, sizes.outputs), sizes.batch)
        found[n] = Rates(peaks, ours, plains, probing, flops, training.groups[0].engine)
    return found
