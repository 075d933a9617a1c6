"""Ways down: each says how large its batches are and what a step does with a gradient.

Updates are made of additions, products, quotients and roots alone, each rounded once: fused forms round differently in
the body and at the end of a vector, and a network's numbers would depend on its place among others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.training.packing import Block

Schedule = tuple[tuple[int, float], ...]
Rate = float | Sequence[float]


@runtime_checkable
class Optimiser(Protocol):
    """What turns gradients into steps: its learning rate, batch, schedule, and how it keeps and uses its slots."""

    @property
    def lr(self) -> Rate: ...

    @property
    def batch(self) -> int | None:
        """Samples a step, drawn with replacement; none: all samples, each step."""

    @property
    def schedule(self) -> Schedule: ...

    @property
    def slots(self) -> int:
        """How many numbers it keeps a parameter."""

    @property
    def plain(self) -> bool:
        """A step is the gradient times the rate and nothing else, so that engines may add it as they find it."""

    def update(
        self,
        block: Block,
        gradient: Block,
        slots: tuple[Block, ...],
        rate: Float[Tensor, "net 1"],
        step: int | Tensor,
    ) -> None:
        """Take one step with one block, in place; `step` counts from 0, and is a tensor where steps are recorded."""


def rates(optimiser: Optimiser, networks: int, epoch: int) -> Float[Tensor, "net"]:
    """Each network's learning rate in an epoch (from 1): the last factor of the schedule that has begun."""
    factor = 1.0
    for start, value in sorted(optimiser.schedule):
        factor = value if epoch >= start else factor
    lr = torch.as_tensor(optimiser.lr, dtype=torch.float64)
    if lr.ndim and len(lr) != networks:
        raise UserError(f"lr: {len(lr)} rates were given for {networks} networks; give one, or one a network")
    return lr.expand(networks) * factor


def _check(optimiser: Optimiser) -> None:
    lr = torch.as_tensor(optimiser.lr, dtype=torch.float64)
    if not (lr.isfinite() & (lr > 0)).all():
        raise UserError(f"lr: {optimiser.lr} was given; a learning rate is a finite number above 0")
    if optimiser.batch is not None and optimiser.batch < 1:
        raise UserError(f"batch: {optimiser.batch} was given; a batch has 1 sample or more")
    for start, factor in optimiser.schedule:
        if start < 1 or not math.isfinite(factor) or factor < 0:
            raise UserError(f"schedule: ({start}, {factor}) was given; it takes an epoch from 1 and a factor from 0")


def _check_decay(decay: float) -> None:
    if not (math.isfinite(decay) and decay >= 0):
        raise UserError(f"decay: {decay} was given; it is a finite number from 0")


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum (Polyak) or Nesterov's, in the form that torch.optim.SGD has.

    `decay` adds that times each parameter to its gradient: the gradient of ½ decay ‖·‖².
    """

    lr: Rate = 0.01
    batch: int | None = 16
    momentum: float = 0.0
    nesterov: bool = False
    schedule: Schedule = ()
    decay: float = 0.0

    def __post_init__(self) -> None:
        _check(self)
        _check_decay(self.decay)
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum: {self.momentum} was given; it lies from 0 to below 1")
        if self.nesterov and not self.momentum:
            raise UserError("nesterov: needs a momentum above 0")

    @property
    def slots(self) -> int:
        return int(self.momentum > 0)

    @property
    def plain(self) -> bool:
        return self.momentum == 0 and self.decay == 0

    def update(
        self,
        block: Block,
        gradient: Block,
        slots: tuple[Block, ...],
        rate: Float[Tensor, "net 1"],
        step: int | Tensor,
    ) -> None:
        if self.decay:
            gradient = gradient + block * self.decay
        if self.momentum:
            slots[0].mul_(self.momentum).add_(gradient)
            gradient = gradient + slots[0] * self.momentum if self.nesterov else slots[0]
        block.sub_(gradient * rate)


def GD(lr: Rate = 0.01, schedule: Schedule = ()) -> SGD:
    """Full gradient descent: every step sees every sample."""
    return SGD(lr=lr, batch=None, schedule=schedule)


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba (2015), in the form that torch.optim.Adam has.

    `decay` takes rate · decay of itself from each parameter at each step, beside Adam's own step (Loshchilov and Hutter
    2019), as torch.optim.AdamW does.
    """

    lr: Rate = 0.001
    batch: int | None = 16
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    schedule: Schedule = ()
    decay: float = 0.0
    slots = 2
    plain = False

    def __post_init__(self) -> None:
        _check(self)
        _check_decay(self.decay)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas: {self.betas} was given; both lie from 0 to below 1")
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise UserError(f"eps: {self.eps} was given; it is a finite number above 0")

    def update(
        self,
        block: Block,
        gradient: Block,
        slots: tuple[Block, ...],
        rate: Float[Tensor, "net 1"],
        step: int | Tensor,
    ) -> None:
        first, second = self.betas
        if self.decay:
            block.sub_(block * (rate * self.decay))
        slots[0].mul_(first).add_(gradient * (1 - first))
        slots[1].mul_(second).add_(gradient.square().mul_(1 - second))
        size = slots[1].sqrt().div_((1 - second ** (step + 1)) ** 0.5).add_(self.eps)
        block.sub_((slots[0] / size) * (rate / (1 - first ** (step + 1))))
