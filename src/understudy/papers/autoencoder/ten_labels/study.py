"""The study `ten-labels`: labels coded with as much information as is asked for (Phuong 2021, secs. 4.5, 4.6.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Self, get_args

from annotated_types import Ge, Le

from understudy._errors import UserError
from understudy._numbers import number
from understudy.lab.options import Among, Count, Distinct, NonNegatives, Positive, Positives
from understudy.papers.autoencoder.settings import MUTUAL, PRIOR, SCATTERED, CodeMember, CodeSetting, Start
from understudy.papers.autoencoder.shared import CodeStudy

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.nets.latent.model import LatentModel
    from understudy.training.latent.plan import CodeNetwork, Part

_SHOWN, _POINTS = 4.0, 321
"""Largest code that is drawn, and number of codes."""
_TOLERANCE = 1e-8
_LOW = 0.5


@dataclass(frozen=True)
class TenLabels(CodeStudy):
    """Mutual autoencoders of equally likely labels: how much the code knows, and what a Gaussian encoder costs.

    The decoder is fully connected; encoder and inference network are normal distributions, one for each label. At the
    largest target a resampling encoder is trained beside the Gaussian one. Information, likelihoods, posteriors, the
    gap of theorem 4.2 and the variance of gradient estimators are exact.
    """

    name: ClassVar[str] = "ten-labels"
    summary: ClassVar[str] = "codes of ten labels, from independent to deterministic; the gap of Gaussian encoders"
    figures: ClassVar[str] = "S3 figs. 4.2, 4.3b, theorem 4.2"
    decides: ClassVar[str] = "M1 M2 M3"

    seeds: Count = 10
    """Number of seeds: each is the initial weights and the noise."""
    labels: Annotated[int, Ge(2)] = 10
    """Number of labels, which are equally likely."""
    targets: NonNegatives = (0.0, 0.5, 1.0, 1.5, 2.0, math.log(10))
    """Information M between code and label that is asked for, in nats; at most log 10, the entropy of the labels."""
    resamples: Annotated[int, Ge(1)] = 5
    """Codes k of which the resampling encoder keeps one, by its importance weight; 1 to train no such encoder. It is
    compared with the Gaussian encoder at the largest target."""
    starts: Annotated[tuple[Start, ...], Among(get_args(Start)), Distinct()] = (PRIOR, SCATTERED)
    """Initial encoders: the prior for each label, or scattered, with means from N(0, 1). The first is used throughout,
    the other at the largest target."""
    free_bits: Positives = (0.5, 1.0, 2.0)
    """Free bits: λ, the KL term below which it is not penalised, in nats."""
    table_rate: Positive = 1e-2
    """Learning rate of Adam for the tables, which are the encoder and the inference network."""
    decayed: Annotated[float, Ge(0), Le(1)] = 0.4
    """Share of the steps, the last ones, over which learning rates fall linearly to 0."""
    estimates: Annotated[int, Ge(2)] = 500
    """Batches by which the estimators of the gradient of the information are compared with the exact gradient."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=1,
            targets=(0.0, 1.0, math.log(10)),
            penalties=(1.0,),
            starts=(PRIOR,),
            free_bits=(1.0,),
            betas=(1.0, 0.5),
            steps=400,
            width=32,
            batch=80,
            samples=128,
            rate=5e-3,
            table_rate=3e-2,
            estimates=100,
        )

    def validate(self) -> None:
        super().validate()
        entropy = math.log(self.labels)
        for target in self.targets:
            if target > entropy * (1 + 1e-9):
                raise UserError(
                    f"--targets must be at most log {self.labels} = {number(entropy, '.10g')} nats, the entropy of "
                    f"{self.labels} equally likely labels, got {number(target, '.10g')}"
                )
        if self.batch % self.labels:
            near = max(1, round(self.batch / self.labels)) * self.labels
            raise UserError(
                f"--batch must be a multiple of the number of labels ({self.labels}), so that each is in it equally "
                f"often, got {self.batch}; try {near}"
            )

    @property
    def largest(self) -> float:
        """The largest target, at which encoders and starts are compared."""
        return max(self.targets)

    @property
    def ends(self) -> tuple[float, float]:
        """Targets at which estimators of gradients are compared: 0.5 nats, or the smallest above 0, and the largest."""
        positive = [target for target in self.targets if target > 0] or [0.0]
        return (_LOW if _LOW in self.targets else min(positive), self.largest)

    def compared(self, resamples: int, penalty: float | None = None, start: Start | None = None) -> CodeSetting:
        """Setting of the mutual autoencoder at the largest target.

        Args:
            resamples: Codes of the encoder; 1 for the Gaussian one.
            penalty: C; by default the usual one.
            start: Initial encoder; by default the usual one.
        """
        return CodeSetting(MUTUAL, self.largest, penalty or self.penalties[0], resamples, start or self.starts[0])

    def variants(self) -> dict[str, tuple[CodeSetting, CodeSetting]]:
        """Gaussian and resampling encoder at the largest target with every penalty and start, the usual ones first."""
        how: list[tuple[str, float, Start]] = [(f"C = {each:g}", each, self.starts[0]) for each in self.penalties]
        how += [(f"{start} start", self.penalties[0], start) for start in self.starts[1:]]
        return {
            words: (self.compared(1, penalty, start), self.compared(self.resamples, penalty, start))
            for words, penalty, start in how
        }

    def mutual(self, penalty: float | None = None) -> tuple[CodeSetting, ...]:
        return tuple(each._replace(start=self.starts[0]) for each in super().mutual(penalty))

    def remedies(self) -> tuple[CodeSetting, ...]:
        return tuple(each._replace(start=self.starts[0]) for each in super().remedies())

    def settings(self) -> tuple[CodeSetting, ...]:
        usual = super().settings()
        if MUTUAL not in self.methods:
            return usual
        several = self.resamples > 1
        found = [self.compared(self.resamples, penalty) for penalty in self.penalties] if several else []
        for start in self.starts[1:]:
            found += [self.compared(k, start=start) for k in sorted({1, self.resamples})]
        return (*usual, *found)

    def rates(self) -> dict[Part, float]:
        return {"encoder": self.table_rate, "decoder": self.rate, "infer": self.table_rate}

    def network(self, member: CodeMember) -> CodeNetwork:
        from understudy.papers.autoencoder.ten_labels.networks import LabelNetwork

        setting = member.setting
        return LabelNetwork(member.seed, setting.objective(self.steps), setting.resamples, setting.start)

    def build(self, network: CodeNetwork) -> LatentModel:
        from understudy.papers.autoencoder.ten_labels.networks import build_network

        return build_network(network, self.labels, self.width)

    def draw(self, seed: int, step: int, count: int) -> Tensor:
        import torch

        return torch.arange(count) % self.labels

    def measure(self, model: LatentModel, member: CodeMember) -> tuple[dict[str, float], Tables]:
        import numpy as np
        import torch

        from understudy.lab.pieces import unit_table
        from understudy.measures.information import information
        from understudy.papers.autoencoder.ten_labels.networks import compare_estimators
        from understudy.papers.autoencoder.theory.labels import label_code, label_densities

        labels, setting = self.labels, member.setting
        known = information(model, torch.arange(labels), tolerance=_TOLERANCE, device="cpu")
        exact = label_code(model, labels, _TOLERANCE)._asdict()
        values = {"information": known.value if known.method == "quadrature" else math.nan}
        values |= {"bound": math.nan if known.bound is None else known.bound}
        values |= exact if math.isfinite(exact["error"]) else {}
        tables: Tables = {}
        if setting in self.mutual():
            values |= compare_estimators(model, self, member)
        if member.seed == self.first_seed:
            z = torch.linspace(-_SHOWN, _SHOWN, _POINTS, dtype=torch.float64)
            found = label_densities(model, labels, z)
            at, label = np.indices((_POINTS, labels), np.int16).reshape(2, -1)
            each = {name: np.float32(part.flatten().numpy()) for name, part in found._asdict().items()}
            tables["densities"] = unit_table(z=z.numpy()[at], label=label, **each)
        return values, tables
