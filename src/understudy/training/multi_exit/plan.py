"""What to train: networks with several exits, their data and the schedule."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from understudy._errors import UserError, kind_of
from understudy._numbers import number
from understudy.data.source import require_counts
from understudy.nets.multi_exit.grid import Grid
from understudy.training.multi_exit.architectures import Architecture
from understudy.training.multi_exit.objectives import ExitObjective


@dataclass(frozen=True)
class ExitNetwork:
    """A network to train.

    Args:
        seed: Seed of its labelled images, initial weights, batches and crops.
        objective: Its objective.
        rate: Initial learning rate.
        unlabelled: Whether unlabelled images enter the distillation loss (Phuong 2021, eq. 6.6): each batch then has as
            many images again, drawn from all but those for model selection.

    Raises:
        UserError: A learning rate out of range, or unlabelled images without distillation.
    """

    seed: int
    objective: ExitObjective
    rate: float = 0.5
    unlabelled: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise UserError(f"must be a finite number above 0, got {number(self.rate)}", "rate")
        if self.unlabelled and not self.objective.distils:
            raise UserError(
                "must be False for the exit-wise loss, which has no distillation that unlabelled images could enter",
                "unlabelled",
            )


@dataclass(frozen=True)
class ExitPlan:
    """What to train, and how: the defaults are those of Phuong (2021, section 6.3.1) for CIFAR-100.

    Args:
        networks: The networks.
        grid: Architecture of all networks: a `Grid`, or `OwnNetworks` with a function that makes modules of your own.
        per_class: X, the labelled images of each class, those for model selection included.
        selection: Images of each class for model selection.
        epochs: Epochs to train.
        batch: Labelled images per batch. An incomplete last batch of an epoch is dropped.
        drops: Epochs after which the learning rate is divided by 10, increasing.
        probes: Epochs after which validation and test accuracies are measured, increasing; 0 is before the first step.
            The last epoch is always one of them.
        momentum: Weight of the previous update.
        decay: Weight decay of all parameters that are trained.

    Raises:
        UserError: No networks, objectives for another number of exits, or a number out of range.
    """

    networks: tuple[ExitNetwork, ...]
    grid: Architecture = field(default_factory=Grid)
    per_class: int = 150
    selection: int = 50
    epochs: int = 300
    batch: int = 64
    drops: tuple[int, ...] = (150, 225)
    probes: tuple[int, ...] = ()
    momentum: float = 0.9
    decay: float = 1e-4

    def __post_init__(self) -> None:
        if not self.networks:
            raise UserError("must have at least 1 network, got none", "networks")
        if not isinstance(self.grid, Architecture):
            raise UserError(f"must be a Grid or OwnNetworks(function), got {kind_of(self.grid)}", "grid")
        require_counts(epochs=self.epochs, batch=self.batch)
        if self.batch < 2:
            raise UserError("must be at least 2 for networks with BatchNorm, got 1", "batch")
        _require_epochs("drops", self.drops, 1, self.epochs)
        _require_epochs("probes", self.probes, 0, self.epochs)
        if not 0 <= self.momentum < 1:
            raise UserError(f"must be at least 0 and below 1, got {number(self.momentum)}", "momentum")
        if not (math.isfinite(self.decay) and self.decay >= 0):
            raise UserError(f"must be a finite number of at least 0, got {number(self.decay)}", "decay")
        object.__setattr__(self, "probes", tuple(sorted({*self.probes, self.epochs})))

    def rate(self, network: int, epoch: int) -> float:
        """Learning rate of a network in an epoch.

        Args:
            network: The network, by its place in `networks`.
            epoch: The epoch, counted from 1.
        """
        return self.networks[network].rate / 10 ** sum(epoch > drop for drop in self.drops)


def _require_epochs(name: str, epochs: tuple[int, ...], first: int, last: int) -> None:
    if outside := [epoch for epoch in epochs if not first <= epoch <= last]:
        raise UserError(f"must be epochs from {first} to {last}, got {outside[0]}", name)
    if any(a >= b for a, b in itertools.pairwise(epochs)):
        raise UserError(f"must increase, got {', '.join(map(str, epochs))}", name)
