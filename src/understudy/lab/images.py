"""What the stories of studies on CIFAR-10 share: metrics of layers, and the shifts of BatchNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from understudy.report.figures import SignedHistograms
from understudy.report.story import Number, Story
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.nets import Population


def layers_of(run: Run, count: int, metric: str = "rho_mean") -> np.ndarray:
    """[network, layer, epoch] of a metric of layers, NaN where a network has fewer."""
    return np.stack([run.series(metric, layer) for layer in range(count)], axis=1)


def shifts(networks: Population) -> tuple[np.ndarray, ...]:
    """Of BatchNorm at each hidden layer, [network, node]; none without BatchNorm or without its affine part."""
    return tuple(norm.shift.numpy() for norm in networks.norms if norm.shift is not None)


def shift_histograms(titles: Sequence[str], each: Sequence[np.ndarray]) -> SignedHistograms:
    return SignedHistograms(tuple(titles), tuple(np.ravel(one) for one in each), "BatchNorm shift")


def all_diverged(run: Run, option: str, lr: float) -> Story:
    """What is left to say."""
    first, total = run.networks["diverged_at"].drop_null().to_numpy().min(), run.networks.num_rows
    return Story(
        f"All {total:,} networks diverged, the first at step {first:,}: choose a smaller {option} than {lr:g}.",
        (Number(f"{total:,}", "networks, all diverged"),),
        (),
    )


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"
