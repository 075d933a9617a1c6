"""Figures and headline of `batchnorm-energy` (Tian et al. 2019, theorem 3)."""

import numpy as np
import xarray as xr

from understudy.lab.layers import some_diverged
from understudy.papers.luck.batchnorm_energy.claims import ORDERS, change_slopes, changes
from understudy.papers.luck.batchnorm_energy.study import BatchNormEnergy
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_COLOURS = {"before": style.BLUE, "after": style.GREEN, "none": style.VERMILLION}
_NAMES = {"before": "BatchNorm before the ReLU", "after": "BatchNorm after the ReLU", "none": "no BatchNorm"}


def story(study: BatchNormEnergy, run: Run) -> Story:
    """How a step changes weight norms with and without BatchNorm, and how these norms grow over training."""
    per_seed = change_slopes(run).median("node")
    count = Number(f"{run.networks.num_rows:,}", "networks")
    if not per_seed.notnull().any("seed").all():
        words = f"In every seed a student diverged at some rate: choose smaller --rates than {max(study.rates):g}."
        return Story(words + some_diverged(run), (count,), ())
    change, note = changes(run), f"n = {counted(study.seeds, 'seed')}"
    figures = (
        Figure(
            "drift",
            "Conserved by gradient flow, so of second order in the learning rate",
            "Mean absolute change of ‖(w, b)‖² per step against the learning rate, median and quartiles over nodes and "
            "seeds; dotted: slope 2 with BatchNorm, slope 1 without.",
            "S2 theorem 3",
            Curves(tuple(_drift(change.sel(norm=norm), norm) for norm in ORDERS), note),
        ),
        Figure(
            "growth",
            "The smaller the steps, the less the norm changes",
            "‖(w, b)‖² relative to the start over time, learning rate × step, one line per learning rate: median over "
            "the nodes of a layer, then over layers and seeds. With BatchNorm it approaches 1 as steps get smaller; "
            "without, all learning rates follow the same flow.",
            "S2 theorem 3",
            Curves(tuple(_growth(run, norm) for norm in ORDERS), note),
        ),
    )
    middle = per_seed.median("seed")
    numbers = (
        Number(f"{middle.sel(norm=norm).item():.3f}", f"slope of the change per step, {_NAMES[norm]}")
        for norm in ORDERS
    )
    return Story(_headline(run, middle), (count, *numbers), figures)


def _drift(change: xr.DataArray, norm: str) -> Panel:
    low, middle, high = change.quantile((0.25, 0.5, 0.75), ("seed", "node")).to_numpy()
    series = Series(ORDERS[norm], change["lr"].to_numpy(), middle, low, high, colour=_COLOURS[norm])
    slope = 1.0 if norm == "none" else 2.0
    names = ("learning rate", "change of ‖(w, b)‖² per step")
    return Panel(ORDERS[norm], *names, (series,), log_x=True, log_y=True, slope=slope)


def _growth(run: Run, norm: str) -> Panel:
    series = []
    growth = run.array("growth", "lr seed layer epoch", norm=norm)
    for each, colour in zip(growth, style.ramp(len(growth)), strict=True):
        lr, middle = each["lr"].item(), each.dropna("epoch", how="all").median(("seed", "layer"))
        series.append(Series(f"rate {lr:g}", lr * middle["epoch"].to_numpy(), middle.to_numpy(), colour=colour))
    return Panel(ORDERS[norm], "learning rate × step", "‖(w, b)‖² / its start", tuple(series))


def _headline(run: Run, middle: xr.DataArray) -> str:
    before, after, none = (f"{middle.sel(norm=norm).item():.2f}" for norm in ORDERS)
    alone = np.nanmedian(change_slopes(run, "change_weights").sel(norm="after").median("node"))
    return (
        f"A step of SGD changes ‖(w, b)‖² by the learning rate to the power {before} with BatchNorm before the ReLU, "
        f"{after} with it after the ReLU, where ‖w‖² alone has {alone:.2f}, and {none} without BatchNorm."
        f"{some_diverged(run)}"
    )
