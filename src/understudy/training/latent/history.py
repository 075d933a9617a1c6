"""What is measured while models with a latent code train."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.training.latent.plan import CodePlan

CURVES = ("objective", "elbo", "divergence", "information")
"""What is averaged over the steps from one probe to the next."""


@dataclass(eq=False)
class CodeHistory:
    """What was measured during training; NaN where a network had diverged or a probe has not come yet.

    Attributes:
        curves: Means over the steps since the probe before, by name (`CURVES`) and [network, probe], in nats.
        diverged: Step, counted from 1, at which each network diverged; 0 if it has not.
        measures: What `on_probe` returned, by (step, name).
    """

    curves: dict[str, Float[Tensor, "net probe"]]
    diverged: Int[Tensor, "net"]
    measures: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    @classmethod
    def empty(cls, plan: CodePlan) -> CodeHistory:
        """The history before training.

        Args:
            plan: What is trained.
        """
        shape = len(plan.networks), len(plan.probes)
        curves = {name: torch.full(shape, torch.nan, dtype=torch.float64) for name in CURVES}
        return cls(curves, torch.zeros(shape[0], dtype=torch.int64))
