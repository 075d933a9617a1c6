"""Claim Y9: how a step changes weight norms under BatchNorm (Tian et al. 2019, theorem 3)."""

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, median
from understudy.papers.luck.batchnorm_energy.study import BatchNormEnergy
from understudy.store import Run

SLOPE, WITHIN = 2.0, 0.1
ORDERS = {"before": "Linear → BN → ReLU", "after": "Linear → ReLU → BN", "none": "without BatchNorm"}

claims = Claims(free="seeds device", tuned_on="")


def changes(run: Run, column: str = "change") -> xr.DataArray:
    """Mean absolute change of ‖(w, b)‖² per step, or with `change_weights` of ‖w‖², by norm, lr, seed and node.

    Learning rates rise; the nodes of all layers follow each other. NaN where a network diverged.
    """
    network = run.array("growth", "norm lr seed")["network"]
    order = np.argsort(run.nodes["network"].to_numpy(), kind="stable")
    values = run.nodes[column].to_numpy()[order].reshape(run.networks.num_rows, -1)[network]
    return xr.DataArray(values, dims=(*network.dims, "node"), coords=network.coords).where(network >= 0)


def change_slopes(run: Run, column: str = "change") -> xr.DataArray:
    """Slope of the logarithm of the change against that of the learning rate, by norm, seed and node."""
    import torch

    from understudy.papers.luck.theory.batchnorm_energy import log_log_slopes

    change = changes(run, column)
    rates = torch.from_numpy(np.array(change["lr"]))
    found = [log_log_slopes(rates, torch.from_numpy(each.to_numpy())).numpy() for each in change]
    return change.isel(lr=0, drop=True).drop_vars("network").copy(data=np.stack(found))


@claims.claim(
    "Y9",
    "{order}",
    statement="{order}: slope of the mean absolute change of ‖(w, b)‖² per step against the learning rate, both "
    "logarithmic, median over nodes and then over seeds",
    paper=f"{SLOPE:g} ± {WITHIN:g}",
    values_are="median over nodes, per seed",
    cases=lambda study, run: [{"norm": norm, "order": ORDERS[norm]} for norm in ("before", "after")],
)
def second_order(study: BatchNormEnergy, run: Run, norm: str, order: str) -> Verdict | None:
    slope = change_slopes(run)

    def test(values: xr.DataArray, say: str = "{median:.3f}") -> Verdict:
        return median(values.median("node"), at_least=SLOPE - WITHIN, at_most=SLOPE + WITHIN, say=say)

    nodes = slope.sel(norm=norm).to_numpy()
    nodes = nodes[np.isfinite(nodes)]
    if not len(nodes):
        return None
    words = f"{{median:.3f}}; seeds {{range:.3f}}, {len(nodes):,} nodes {nodes.min():.2f} to {nodes.max():.2f}"
    alone, without = change_slopes(run, "change_weights").sel(norm=norm), slope.sel(norm="none")
    return test(slope.sel(norm=norm), words).with_variants({"‖w‖² alone": test(alone), ORDERS["none"]: test(without)})
