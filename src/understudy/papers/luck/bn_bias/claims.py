"""Claim D10: the signs of BatchNorm shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.lab.images import layers_of
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.luck.bn_bias.study import BatchNormBias

HALF = 0.5


def claims(study: BatchNormBias, run: Run) -> list[Claim]:
    """Decided on networks trained here, on all images, with four layers."""
    settings = (study.layers, study.train, study.epochs, study.batch)
    if study.network or settings != ((64, 64, 64, 64), 50_000, 30, 128):
        return []
    share = layers_of(run, len(study.layers), "negative_shifts")[..., 0]
    upper = share[:, _upper(share.shape[1])]
    return [
        Claim(
            id="D10",
            statement=f"share of negative BatchNorm shifts, layers 1 to {share.shape[1]} of ConvNets trained on CIFAR-10 with "
            "BatchNorm before each ReLU: above one half in each of the upper two, mean over networks (below: the upper "
            "two of each network)",
            paper="most are negative, in particular in the top layers (VGG on ImageNet)",
            measured=", ".join(f"{s:.0%}" for s in share.mean(axis=0)),
            n=len(share),
            holds=bool((upper.mean(axis=0) > HALF).all()),
            values=tuple(upper.ravel().tolist()),
            low=HALF,
        )
    ]


def _upper(count: int) -> slice:
    """The upper half of the layers, the middle one among them."""
    return slice(count // 2, None)
