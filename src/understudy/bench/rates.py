"""Rate of training steps against one large matrix product and the plain PyTorch loop, and the cost of probing.

What is compared is timed in alternation.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.bench.clock import Repetitions, all_cores, lasting
from understudy.bench.plain import plain_loops
from understudy.bench.setting import Report, Sizes, network_steps, step_flops
from understudy.training import Records, Training


@dataclass(frozen=True)
class Probing:
    """Seconds per epoch, and seconds that a probe of every network adds to it."""

    epoch: Repetitions
    probe: Repetitions
    networks: int

    @property
    def share(self) -> Repetitions:
        pairs = zip(self.epoch.values, self.probe.values, strict=True)
        return Repetitions(tuple(probe / (epoch + probe) for epoch, probe in pairs))


def train_with_probes(training: Training, epochs: int) -> None:
    """Train and probe as a study does: another thread makes the table rows while the next epoch trains."""
    written = []
    with ThreadPoolExecutor(1) as writer:
        for _ in range(epochs):
            training.advance()
            written.append(writer.submit(Records.tables, training.probe()))
    for rows in written:
        rows.result()  # raises what went wrong in the thread


def probe_seconds(training: Training, epochs: int, epoch: float, device: str) -> float:
    """Seconds that a probe adds to an epoch, which takes `epoch` seconds alone."""
    return max(0.0, lasting(lambda: train_with_probes(training, epochs), device, least=0) / epochs - epoch)


def probing(sizes: Sizes, device: str, report: Report) -> Probing:
    """Time the widths of the two-layer study together, with and without probes."""
    training = sizes.training(sizes.teacher(sizes.mix_seeds), sizes.mix, device)
    train_with_probes(training, epochs=1)

    def train() -> None:
        for _ in range(sizes.probes):
            training.advance()

    pairs = []
    for repetition in range(1, sizes.repetitions + 1):
        alone = lasting(train, device, least=0) / sizes.probes
        pairs.append((alone, probe_seconds(training, sizes.probes, alone, device)))
        report(f"probing, {repetition} of {sizes.repetitions}")
    epoch, probe = (Repetitions(values) for values in zip(*pairs, strict=True))
    return Probing(epoch, probe, len(training))


@dataclass(frozen=True)
class Rates:
    """Speed at one n: FLOP/s of the matrix product, network-steps per second of understudy and of the plain loop."""

    peak: Repetitions
    ours: Repetitions
    plain: Repetitions
    probing: Probing
    flops: int
    """Floating-point operations per network and step."""
    engine: str

    @property
    def share_of_peak(self) -> Repetitions:
        return self.ours * self.flops / self.peak

    @property
    def plain_share_of_peak(self) -> Repetitions:
        """Share of the peak that the plain loop reaches; its inverse bounds every speed-up in this precision."""
        return self.plain * self.flops / self.peak

    @property
    def against_plain(self) -> Repetitions:
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
        peaks, ours, plains, epochs, probes = (Repetitions(values) for values in zip(*timed[n], strict=True))
        probed, flops = Probing(epochs, probes, len(training)), step_flops((sizes.dim, n, sizes.outputs), sizes.batch)
        found[n] = Rates(peaks, ours, plains, probed, flops, training.groups[0].engine)
    return found
