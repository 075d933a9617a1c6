"""What to train: models with a latent code, their objectives and the schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from understudy._errors import UserError
from understudy._numbers import number
from understudy.data.source import require_counts
from understudy.training.latent.objective import CodeObjective

Part = Literal["encoder", "decoder", "infer"]
PARTS: tuple[Part, ...] = ("encoder", "decoder", "infer")


@dataclass(frozen=True)
class CodeNetwork:
    """A network to train.

    Args:
        seed: Seed of its initial weights, data and noise.
        objective: Its objective.
        resamples: Number of codes that its encoder draws for each row (`LatentModel.resamples`).

    Raises:
        UserError: No codes.
    """

    seed: int
    objective: CodeObjective
    resamples: int = 1

    def __post_init__(self) -> None:
        require_counts(resamples=self.resamples)


@dataclass(frozen=True)
class CodePlan:
    """What to train, and how.

    Args:
        networks: The networks.
        steps: Updates of the model; each is followed by one of the inference network.
        batch: Rows of data per update.
        samples: Samples of the model per update, by which the information is estimated.
        rates: Learning rates of Adam for `encoder`, `decoder` and `infer`. Default: 0.001 for each.
        decayed: Share of the steps, the last ones, over which all rates fall linearly to 0.
        probes: Steps after which `on_probe` measures the networks and curves get a point, increasing; the last step is
            always one of them.

    Raises:
        UserError: No networks, or a number out of range.
    """

    networks: tuple[CodeNetwork, ...]
    steps: int
    batch: int = 512
    samples: int = 512
    rates: Mapping[Part, float] = field(default_factory=dict)
    decayed: float = 0.0
    probes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.networks:
            raise UserError("must have at least 1 network, got none", "networks")
        require_counts(steps=self.steps, batch=self.batch, samples=self.samples)
        if unknown := [part for part in self.rates if part not in PARTS]:
            raise UserError(f"must name encoder, decoder or infer, got {unknown[0]!r}", "rates")
        for part, rate in self.rates.items():
            if not (math.isfinite(rate) and rate > 0):
                raise UserError(f"must be a finite number above 0 for the {part}, got {number(rate)}", "rates")
        if not 0 <= self.decayed <= 1:
            raise UserError(f"must be a share from 0 to 1, got {number(self.decayed)}", "decayed")
        if outside := [probe for probe in self.probes if not 0 <= probe <= self.steps]:
            raise UserError(f"must be steps from 0 to {self.steps}, got {outside[0]}", "probes")
        object.__setattr__(self, "probes", tuple(sorted({*self.probes, self.steps})))

    def factor(self, step: int) -> float:
        """Factor of all learning rates at a step, counted from 0.

        Args:
            step: The step.
        """
        falling = self.decayed * self.steps
        return min(1.0, (self.steps - step) / falling) if falling else 1.0
