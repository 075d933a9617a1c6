"""The study `split-normal`: the standard normal as a mixture with as much information as is asked for (Phuong 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from annotated_types import Ge

from understudy.lab.options import Count, NonNegatives, Steps
from understudy.papers.autoencoder.settings import CodeMember
from understudy.papers.autoencoder.shared import CodeStudy

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.nets.latent.model import LatentModel
    from understudy.training.latent.plan import CodeNetwork

CODES = (-2.1, -1.3, -0.4, 0.4, 1.3, 2.1)
"""Codes z whose p(x|z) p(z) are drawn (Phuong 2021, fig. 4.3)."""


@dataclass(frozen=True)
class SplitNormal(CodeStudy):
    """Mutual autoencoders of standard normal data: p(x) is split into p(x|z) that carry M nats about x.

    The likelihood is greatest with and without information, so a variational autoencoder ignores its code. Encoder,
    decoder and inference network are fully connected and normal; annealing, free bits and β-VAEs are trained beside
    them. Information and likelihoods are exact.
    """

    name: ClassVar[str] = "split-normal"
    summary: ClassVar[str] = "the mutual autoencoder splits the normal with as much information as is asked for"
    figures: ClassVar[str] = "S3 fig. 4.3a"
    decides: ClassVar[str] = "M1"

    targets: NonNegatives = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.5)
    """Information M between code and data that is asked for, in nats; the thesis shows 0, 0.6, 1.2 and 1.8."""
    steps: Steps = 6_000
    """Updates of the model, each followed by one of the inference network."""
    batch: Count = 512
    """Rows of data per update."""
    samples: Annotated[int, Ge(2)] = 512
    """Samples of the model per update, by which the information is estimated."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=1,
            targets=(0.0, 0.6, 1.2),
            penalties=(1.0,),
            free_bits=(1.2,),
            betas=(1.0, 0.5),
            steps=600,
            width=32,
            batch=128,
            samples=128,
            rate=5e-3,
            decayed=0.4,
        )

    def build(self, network: CodeNetwork) -> LatentModel:
        from understudy.nets.latent.initial import initialise
        from understudy.nets.latent.layers import mlp
        from understudy.nets.latent.model import LatentModel

        encoder, decoder, infer = (mlp(1, 2, self.width) for _ in range(3))
        return initialise(LatentModel(encoder, decoder, infer, likelihood="gaussian"), network.seed)

    def draw(self, seed: int, step: int, count: int) -> Tensor:
        from understudy._random import Stream, normal

        return normal(seed, Stream.TRAIN, step, count).float()[:, None]

    def measure(self, model: LatentModel, member: CodeMember) -> tuple[dict[str, float], Tables]:
        import torch

        from understudy.lab.pieces import unit_table
        from understudy.measures.information import information
        from understudy.papers.autoencoder.theory.normal import ENTROPY, conditionals, normal_code

        exact = normal_code(model)
        known = information(model, self.draw(member.seed, self.steps, self.batch), tolerance=1e-4, device="cpu")
        values = {
            "information": known.value if known.method == "quadrature" else math.nan,
            "bound": math.nan if known.bound is None else known.bound,
            "likelihood": exact.likelihood,
            "elbo": exact.elbo,
            "gap": -ENTROPY - exact.elbo,
            "kl": exact.kl,
        }
        mean, std = conditionals(model, torch.tensor(CODES))
        return values, {"conditionals": unit_table(z=CODES, mean=mean.numpy(), std=std.numpy())}
