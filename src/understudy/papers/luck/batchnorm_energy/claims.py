"""What a run of weight norms under BatchNorm decides: Y9."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.luck.batchnorm_energy.study import NORMS
from understudy.lab.old_layers import at, laid_out
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.luck.batchnorm_energy.study import BatchNormEnergy

SLOPE, WITHIN = 2.0, 0.1
ORDERS = {"before": "Linear → BN → ReLU", "after": "Linear → ReLU → BN", "none": "without BatchNorm"}
_FREE = ("seeds", "device")


class Order(NamedTuple):
    """Students of one order of BatchNorm and ReLU, or without BatchNorm; NaN where one diverged."""

    norm: str
    network: np.ndarray
    """[rate, seed]."""
    change: np.ndarray
    """[rate, seed, node]: mean absolute change of ‖(w, b)‖² a step, all layers in a row."""
    slope: np.ndarray
    """[seed, node]: of its logarithm against that of the rate."""
    slope_weights: np.ndarray
    """The same of ‖w‖², without the bias."""

    @property
    def median(self) -> np.ndarray:
        """[seed], of seeds in which no student diverged: over nodes."""
        return _median(self.slope)

    @property
    def median_weights(self) -> np.ndarray:
        return _median(self.slope_weights)


def _median(slope: np.ndarray) -> np.ndarray:
    there = np.isfinite(slope).any(axis=1)
    return np.nanmedian(slope[there], axis=1)


def orders(study: BatchNormEnergy, run: Run) -> list[Order]:
    """Rates from small to large."""
    import torch

    from understudy.papers.luck.theory.batchnorm_energy import log_log_slopes

    rates = np.sort(np.array(study.rates, float))
    axes = {"norm": np.array(NORMS), "lr": rates, "seed": np.arange(1, study.seeds + 1)}
    network = laid_out(run, axes)
    count = run.networks.num_rows
    rows = np.argsort(run.nodes["network"].to_numpy(), kind="stable")
    with_bias, alone = (
        at(network, run.nodes[name].to_numpy()[rows].reshape(count, -1)) for name in ("change", "change_weights")
    )

    def slope(change: np.ndarray) -> np.ndarray:
        return log_log_slopes(torch.from_numpy(rates), torch.from_numpy(change)).numpy()

    return [Order(norm, network[n], with_bias[n], slope(with_bias[n]), slope(alone[n])) for n, norm in enumerate(NORMS)]


def claims(study: BatchNormEnergy, run: Run) -> list[Claim]:
    """Decided on the settings as they are by default, whatever the number of seeds, for each order."""
    plain = type(study)()
    if any(getattr(study, f.name) != getattr(plain, f.name) for f in fields(study) if f.name not in _FREE):
        return []
    *normed, without = orders(study, run)
    return [_claim(order, without) for order in normed if len(order.median)]


def _claim(order: Order, without: Order) -> Claim:
    median = order.median
    slope = float(np.median(median))
    nodes = order.slope[np.isfinite(order.slope)]
    return Claim(
        id="Y9",
        statement=f"{ORDERS[order.norm]}: mean absolute change of ‖(w, b)‖² a step against the learning rate, log-log slope, "
        "median over nodes and then over seeds (below: each seed)",
        paper=f"{SLOPE:g} ± {WITHIN:g}",
        measured=f"{slope:.3f}; seeds from {median.min():.3f} to {median.max():.3f}, {len(nodes):,} nodes "
        f"from {nodes.min():.2f} to {nodes.max():.2f}",
        n=len(median),
        holds=abs(slope - SLOPE) <= WITHIN,
        part=ORDERS[order.norm],
        values=tuple(median.tolist()),
        low=SLOPE - WITHIN,
        high=SLOPE + WITHIN,
        variants=(
            _beside("‖w‖² alone", order.median_weights),
            _beside(ORDERS[without.norm], without.median),
        ),
    )


def _beside(where: str, median: np.ndarray) -> Variant:
    slope = float(np.median(median)) if len(median) else np.nan
    return Variant(where, f"{slope:.3f}", bool(abs(slope - SLOPE) <= WITHIN))
