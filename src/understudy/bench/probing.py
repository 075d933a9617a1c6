"""Looking at networks, as a share of a study's time: its mix of widths, an epoch and a look in turn."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.bench.clock import Measured, lasting
from understudy.bench.setting import Sizes, Tell


@dataclass(frozen=True)
class Probing:
    """Seconds of an epoch, and of the look at every network that follows it, a repetition each."""

    epoch: Measured
    probe: Measured
    networks: int

    @property
    def share(self) -> Measured:
        pairs = zip(self.epoch.values, self.probe.values, strict=True)
        return Measured(tuple(probe / (epoch + probe) for epoch, probe in pairs))


def probing(sizes: Sizes, device: str, tell: Tell) -> Probing:
    """As the two-layer study goes: all widths march together."""
    training = sizes.training(sizes.teacher(sizes.mix_seeds), sizes.mix, device)
    training.probe()
    training.advance()
    training.probe()
    pairs = []
    for repetition in range(1, sizes.repetitions + 1):
        pairs.append((lasting(training.advance, device, least=0), lasting(training.probe, device, least=0)))
        tell(f"probing, {repetition} of {sizes.repetitions}")
    epoch, probe = (Measured(values) for values in zip(*pairs, strict=True))
    return Probing(epoch, probe, len(training))
