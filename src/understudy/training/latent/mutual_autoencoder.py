"""`us.MutualAutoencoder`: a latent model of the user's modules whose code has as much information as is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from understudy._devices import resolve_device
from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, integers, words
from understudy.measures.information.limits import information_limit
from understudy.nets.latent.likelihoods import Likelihood
from understudy.nets.latent.model import LatentModel
from understudy.training.latent.history import CodeHistory
from understudy.training.latent.objective import CodeObjective
from understudy.training.latent.plan import CodeNetwork, CodePlan, Part
from understudy.training.latent.population import train_codes


class MutualAutoencoder(LatentModel):
    """An autoencoder whose code has M nats of information about the data (Phuong 2021, ch. 4).

    It maximises the evidence lower bound minus C · |I − M|, where I is a lower bound, provided by an inference network,
    of the information between code and data. Without a target it is a variational autoencoder.

    Args:
        encoder: Module from data to the means and log variances of q(z|x), as a pair or one tensor.
        decoder: Module from codes [row, latent] to the parameters of p(x|z); see `likelihood`.
        infer: Module like the encoder, for r(z|x). It is needed for a target.
        target: M, in nats.
        penalty: C; values from 0.1 to 10 work best (Phuong 2021, sec. 4.4.1).
        likelihood: gaussian (the decoder returns means and log variances), bernoulli (logits), categorical (logits of
            classes along a further axis), sequence (a decoder with `generate`), or a `Likelihood`. Default: determined
            by the data.
        latent: Number of coordinates of the code. Default: determined by the encoder's output.
        resamples: Number of codes that the encoder draws, of which one is chosen by its importance weight (Phuong 2021,
            sec. 4.5).
        **options: Further options of `CodeObjective`: `penalty_from`, `beta`, `warm_up`, `free_bits`, `baseline`,
            `clip`, `clip_information`.

    Raises:
        UserError: A number out of range, or a target without an inference network.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        infer: nn.Module | None = None,
        *,
        target: float | None = None,
        penalty: float = 1.0,
        likelihood: str | Likelihood = "auto",
        latent: int | None = None,
        resamples: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(encoder, decoder, infer, likelihood=likelihood, latent=latent, resamples=resamples)
        self.objective = CodeObjective(target, penalty, **options)
        if target is not None and infer is None:
            raise UserError("is missing, by which a target for the information is reached; give a module", "infer")

    def fit(
        self,
        x: Tensor,
        steps: int = 2_000,
        *,
        batch: int = 256,
        samples: int = 256,
        rates: Mapping[Part, float] | None = None,
        decayed: float = 0.4,
        seed: int = 0,
        device: torch.device | str = "auto",
        say: Callable[[int, CodeHistory], None] | None = None,
        probes: tuple[int, ...] = (),
    ) -> CodeHistory:
        """Train the modules in place (Phuong 2021, algorithm 4.1), with Adam.

        Args:
            x: Data, one row each; batches are drawn from them with replacement.
            steps: Updates of the model, each followed by one of the inference network.
            batch: Rows per update.
            samples: Samples of the model per update, by which the information is estimated.
            rates: Learning rates of `encoder`, `decoder` and `infer`. Default: 0.001 for each.
            decayed: Share of the steps, the last ones, over which the rates fall linearly to 0.
            seed: Seed of batches and noise.
            device: auto (a CUDA GPU if there is one), cpu or cuda. Afterwards the modules are on the CPU.
            say: Called at each probe with the step and the history so far.
            probes: Steps at which the history gets a point, besides the last one.

        Returns:
            The curves of training.

        Raises:
            UserError: Data that do not fit the modules, a number out of range, or a target that is above the entropy of
                discrete data, or above what the code can carry (`information_limit`).
        """
        data = self.prepare(x)
        self._require_possible(data)
        self.train()
        plan = CodePlan(
            (CodeNetwork(seed, self.objective, self.resamples),),
            steps,
            batch=batch,
            samples=samples,
            rates=rates or {},
            decayed=decayed,
            probes=probes,
        )

        def draw(seed: int, step: int, count: int) -> Tensor:
            return data[integers(words(seed, Stream.BATCH, step, count), len(data))]

        device = resolve_device(device)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)  # for modules that draw numbers themselves, such as dropout
            trained = train_codes(plan, lambda network: self, draw, device=device, say=say, side_by_side=False)
        self.load_state_dict(trained.models[0].state_dict())
        self.eval()
        return trained.history

    def _require_possible(self, data: Tensor) -> None:
        """Refuse a target that no model with the distribution of the data reaches."""
        target, limit = self.objective.target, information_limit(self, data)
        if target is not None and target > limit.nats + 1e-9:
            most = number(math.floor(limit.nats * 1e4) / 1e4, ".4f")  # rounded down, so that it is accepted
            raise UserError(f"must be at most {most} nats, {limit.reason}, got {number(target)}", "target")
