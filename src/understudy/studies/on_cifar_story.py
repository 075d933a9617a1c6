"""What the stories of studies on CIFAR-10 share: curves over epochs, and the shifts of BatchNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.report.figures import LayerCurves, SignedHistograms
from understudy.report.story import Number, Story
from understudy.store import Run
from understudy.studies.deep_claims import at
from understudy.studies.deep_story import LOSS_COLOURS, LOSSES, over_seeds

if TYPE_CHECKING:
    from understudy.nets import Population


def layers_of(run: Run, count: int, metric: str = "rho_mean") -> np.ndarray:
    """[network, layer, epoch] of a metric of layers, NaN where a network has fewer."""
    return np.stack([run.series(metric, layer) for layer in range(count)], axis=1)


def whole_of(run: Run, metrics: Sequence[str]) -> np.ndarray:
    """[network, metric, epoch] of metrics of whole networks."""
    return np.stack([run.series(metric) for metric in metrics], axis=1)


def layer_names(count: int) -> tuple[str, ...]:
    return tuple(f"layer {i + 1}" for i in range(count))


def curves(
    titles: tuple[str, ...], network: np.ndarray, x: np.ndarray, values: np.ndarray, seeds: int, **more: Any
) -> LayerCurves:
    """A panel a setting of networks [panel, seed], from values [panel, seed, line, time]."""
    middle, low, high = over_seeds(values, axis=1)
    return LayerCurves(
        titles,
        x=x,
        values=middle,
        low=low,
        high=high,
        seeds=seeds,
        network=np.broadcast_to(network[..., None], (*network.shape, len(x))),
        network_values=values,
        **more,
    )


def losses(run: Run, titles: tuple[str, ...], network: np.ndarray, seeds: int, name: str) -> LayerCurves:
    """Training and evaluation loss, a panel a setting of networks [panel, seed]."""
    each = at(network, whole_of(run, tuple(LOSSES.values())))
    more = {"labels": tuple(LOSSES), "name": name, "log_y": True, "colours": LOSS_COLOURS}
    return curves(titles, network, run.epochs, each, seeds, **more)


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
