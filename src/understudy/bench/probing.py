"""Looking at networks, as a share of a study's time: what a look after every epoch adds to the epochs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from understudy.bench.clock import Measured, lasting
from understudy.bench.setting import Sizes, Tell
from understudy.training import Records, Training


@dataclass(frozen=True)
class Probing:
    """Seconds of an epoch, and what the look at every network after it adds to them, a repetition each."""

    epoch: Measured
    probe: Measured
    networks: int

    @property
    def share(self) -> Measured:
        pairs = zip(self.epoch.values, self.probe.values, strict=True)
        return Measured(tuple(probe / (epoch + probe) for epoch, probe in pairs))


def without(training: Training, epochs: int) -> None:
    for _ in range(epochs):
        training.advance()


def with_looks(training: Training, epochs: int) -> None:
    """As a study goes: a look after every epoch, and its rows made by another thread while the next one trains."""
    written = []
    with ThreadPoolExecutor(1) as writer:
        for _ in range(epochs):
            training.advance()
            written.append(writer.submit(Records.tables, training.probe()))
    for rows in written:
        rows.result()  # raises what went wrong there


def added(training: Training, epochs: int, epoch: float, device: str) -> float:
    """Seconds that a look adds to an epoch, which takes so many seconds without."""
    return max(0.0, lasting(lambda: with_looks(training, epochs), device, least=0) / epochs - epoch)


def probing(sizes: Sizes, device: str, tell: Tell) -> Probing:
    """As the two-layer study goes: all widths march together."""
    training = sizes.training(sizes.teacher(sizes.mix_seeds), sizes.mix, device)
    with_looks(training, epochs=1)
    pairs = []
    for repetition in range(1, sizes.repetitions + 1):
        alone = lasting(lambda: without(training, sizes.looks), device, least=0) / sizes.looks
        pairs.append((alone, added(training, sizes.looks, alone, device)))
        tell(f"probing, {repetition} of {sizes.repetitions}")
    epoch, probe = (Measured(values) for values in zip(*pairs, strict=True))
    return Probing(epoch, probe, len(training))
