"""Losses of a training between two probes, without waiting for a GPU at every step."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from understudy._errors import UserError

_MANY = 1_024
"""Tensors of single losses that are held before they are joined into one."""


class Losses:
    """Named losses of every step since the last probe. A tensor is copied where it is, and read at the probe.

    Attributes:
        diverged_at: The first step whose loss is not finite; None if there is none.
    """

    def __init__(self) -> None:
        self.diverged_at: int | None = None
        self._single: dict[str, list[Tensor]] = defaultdict(list)
        self._joined: dict[str, list[Tensor]] = defaultdict(list)
        self._steps: dict[str, list[int]] = defaultdict(list)

    def add(self, step: int, losses: dict[str, Any]) -> None:
        """Add the losses of a step.

        Args:
            step: Number of the step, from 1.
            losses: Numbers, or tensors of one number, by name.

        Raises:
            UserError: A value of another kind.
        """
        for name, value in losses.items():
            if isinstance(value, Tensor):
                if value.numel() != 1:
                    raise UserError(f"{name} must be one number, got a tensor of shape {list(value.shape)}; average it")
                # A copy, since the tensor may be written again, as in a CUDA graph.
                held = value.detach().reshape(()).clone()
            else:
                held = torch.tensor(_number(name, value), dtype=torch.float64)
            if len(self._single[name]) >= _MANY or _differs(self._single[name], held):
                self._join(name)
            self._single[name].append(held)
            self._steps[name].append(step)

    def means(self) -> dict[str, float]:
        """Mean of each loss since the last call, NaN where one is; find the step at which the training diverged."""
        found = {}
        for name in list(self._steps):
            self._join(name)
            values = torch.cat([part.double().cpu() for part in self._joined.pop(name)])
            bad = (~values.isfinite()).nonzero().flatten().tolist()
            if bad and (self.diverged_at is None or self._steps[name][bad[0]] < self.diverged_at):
                self.diverged_at = self._steps[name][bad[0]]
            found[name] = float(values.mean())
        self._steps.clear()
        return found

    def _join(self, name: str) -> None:
        if self._single[name]:
            self._joined[name].append(torch.stack(self._single[name]))
            self._single[name].clear()


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a number or a tensor of one, got {type(value).__name__}") from None
    except OverflowError:
        return math.inf


def _differs(held: list[Tensor], other: Tensor) -> bool:
    return bool(held) and (held[0].device, held[0].dtype) != (other.device, other.dtype)
