"""Cost of probing: what a probe of every network after each epoch adds to the time of the epoch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from understudy.bench.clock import Measured, lasting
from understudy.bench.setting import Report, Sizes
from understudy.training import Records, Training


@dataclass(frozen=True)
class Probing:
    """Seconds per epoch, and seconds that a probe of every network adds to it."""

    epoch: Measured
    probe: Measured
    networks: int

    @property
    def share(self) -> Measured:
        pairs = zip(self.epoch.values, self.probe.values, strict=True)
        return Measured(tuple(probe / (epoch + probe) for epoch, probe in pairs))


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
    epoch, probe = (Measured(values) for values in zip(*pairs, strict=True))
    return Probing(epoch, probe, len(training))
