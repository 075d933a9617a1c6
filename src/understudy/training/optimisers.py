"""Optimisers: batch size, learning-rate schedule and update rule.

Updates consist of additions, products, quotients and roots, each rounded once. Fused operations such as `addcmul` round
differently inside and at the end of a vector, so that a network's numbers would depend on its position in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.training.packing import Block

Schedule = tuple[tuple[int, float], ...]
"""Pairs (epoch, factor): from that epoch on, counted from 1, learning rates are multiplied by the factor."""
Rate = float | Sequence[float]
"""One learning rate for all networks, or one per network."""
Rates = Float[Tensor, "net 1"]
Slots = tuple[Block, ...]


@runtime_checkable
class Optimiser(Protocol):
    """Batch size, learning rates and update rule.

    Implement this protocol to train with another update rule; unless it is `plain`, it runs on the engines `batched`
    and `autograd`.
    """

    @property
    def lr(self) -> Rate:
        """Learning rate, for all networks or per network."""

    @property
    def batch(self) -> int | None:
        """Samples per step, drawn with replacement; None uses all samples at every step."""

    @property
    def schedule(self) -> Schedule:
        """Factors of the learning rate, by first epoch."""

    @property
    def slots(self) -> int:
        """Number of state values per parameter (momentum, second moment, …)."""

    @property
    def plain(self) -> bool:
        """Whether an update is rate × gradient alone, which engines may then apply while computing the gradient."""

    def update(self, block: Block, gradient: Block, slots: Slots, rate: Rates, step: int | Tensor) -> None:
        """Update one block of parameters in place.

        Args:
            block: Parameters of all networks, one row per network.
            gradient: Their gradient.
            slots: State values of the parameters, updated in place.
            rate: Learning rate of each network.
            step: Number of steps taken before; a tensor while a CUDA graph is captured.
        """


def rates(optimiser: Optimiser, networks: int, epoch: int) -> Float[Tensor, "net"]:
    """Compute each network's learning rate in an epoch, counted from 1.

    The factor is that of the last entry of the schedule that has begun.
    """
    factor = 1.0
    for start, value in sorted(optimiser.schedule):
        factor = value if epoch >= start else factor
    lr = torch.as_tensor(optimiser.lr, dtype=torch.float64)
    if lr.ndim and len(lr) != networks:
        raise UserError(f"lr must be one rate, or one per network ({networks}), got {len(lr)} rates")
    return lr.expand(networks) * factor


def _validate(optimiser: Optimiser, decay: float) -> None:
    lr = torch.as_tensor(optimiser.lr, dtype=torch.float64)
    if not (lr.isfinite() & (lr > 0)).all():
        raise UserError(f"lr must be positive and finite, got {optimiser.lr}")
    if optimiser.batch is not None and optimiser.batch < 1:
        raise UserError(f"batch must be at least 1, or None for all samples, got {optimiser.batch}")
    for start, factor in optimiser.schedule:
        if start < 1 or not math.isfinite(factor) or factor < 0:
            raise UserError(
                "schedule must have entries (epoch, factor) with epoch at least 1 and a finite factor at least 0, "
                f"got ({start}, {factor})"
            )
    if not (math.isfinite(decay) and decay >= 0):
        raise UserError(f"decay must be finite and at least 0, got {decay}")


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with the update rule of torch.optim.SGD.

    Args:
        lr: Learning rate, for all networks or per network.
        batch: Samples per step, drawn with replacement; None uses all samples.
        momentum: Momentum coefficient (Polyak).
        nesterov: Use Nesterov's momentum.
        schedule: Pairs (epoch, factor): from that epoch on, `lr` is multiplied by the factor.
        decay: Weight decay λ; adds λ times the parameter to its gradient, which is the gradient of ½ λ ‖·‖².

    Raises:
        UserError: If a value is out of range.
    """

    lr: Rate = 0.01
    batch: int | None = 16
    momentum: float = 0.0
    nesterov: bool = False
    schedule: Schedule = ()
    decay: float = 0.0

    def __post_init__(self) -> None:
        _validate(self, self.decay)
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        if self.nesterov and not self.momentum:
            raise UserError("nesterov=True needs a momentum above 0")

    @property
    def slots(self) -> int:
        """Number of state values per parameter: one with momentum."""
        return int(self.momentum > 0)

    @property
    def plain(self) -> bool:
        """Whether an update is rate × gradient alone."""
        return self.momentum == 0 and self.decay == 0

    def update(self, block: Block, gradient: Block, slots: Slots, rate: Rates, step: int | Tensor) -> None:
        """Update one block of parameters in place: weight decay, momentum, then the step.

        Args:
            block: Parameters of all networks, one row per network.
            gradient: Their gradient.
            slots: State values of the parameters, updated in place.
            rate: Learning rate of each network.
            step: Number of steps taken before; a tensor while a CUDA graph is captured.
        """
        if self.decay:
            gradient = gradient + block * self.decay
        if self.momentum:
            slots[0].mul_(self.momentum).add_(gradient)
            gradient = gradient + slots[0] * self.momentum if self.nesterov else slots[0]
        block.sub_(gradient * rate)


def GD(lr: Rate = 0.01, schedule: Schedule = ()) -> SGD:
    """Gradient descent on all samples: SGD with batch=None.

    Args:
        lr: Learning rate, for all networks or per network.
        schedule: Pairs (epoch, factor): from that epoch on, `lr` is multiplied by the factor.

    Returns:
        The optimiser.

    Raises:
        UserError: A value out of range.
    """
    return SGD(lr=lr, batch=None, schedule=schedule)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015), with the update rule of torch.optim.AdamW.

    Args:
        lr: Learning rate, for all networks or per network.
        batch: Samples per step, drawn with replacement; None uses all samples.
        betas: Decay rates of the first and second moment.
        eps: Constant added to the root of the second moment.
        schedule: Pairs (epoch, factor): from that epoch on, `lr` is multiplied by the factor.
        decay: Decoupled weight decay (Loshchilov and Hutter 2019); each step subtracts lr × decay × parameter.

    Raises:
        UserError: If a value is out of range.
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
        _validate(self, self.decay)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas must both be at least 0 and below 1, got {self.betas}")
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise UserError(f"eps must be positive and finite, got {self.eps}")

    def update(self, block: Block, gradient: Block, slots: Slots, rate: Rates, step: int | Tensor) -> None:
        """Update one block of parameters in place: weight decay, both moments, then the step.

        Args:
            block: Parameters of all networks, one row per network.
            gradient: Their gradient.
            slots: State values of the parameters, updated in place.
            rate: Learning rate of each network.
            step: Number of steps taken before; a tensor while a CUDA graph is captured.
        """
        first, second = self.betas
        if self.decay:
            block.sub_(block * (rate * self.decay))
        slots[0].mul_(first).add_(gradient * (1 - first))
        slots[1].mul_(second).add_(gradient.square().mul_(1 - second))
        size = slots[1].sqrt().div_((1 - second ** (step + 1)) ** 0.5).add_(self.eps)
        block.sub_((slots[0] / size) * (rate / (1 - first ** (step + 1))))
