"""Weight norms under BatchNorm in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.luck.batchnorm_energy.claims import ORDERS, Order, orders
from understudy.papers.specialization.deep.story import some_diverged
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.batchnorm_energy.study import BatchNormEnergy

_COLOURS = {"before": style.BLUE, "after": style.GREEN, "none": style.VERMILLION}


def story(study: BatchNormEnergy, run: Run) -> Story:
    found = orders(study, run)
    count = Number(f"{run.networks.num_rows:,}", "networks")
    if not all(len(order.median) for order in found):
        words = f"In no seed did students come through all rates: choose smaller --rates than {max(study.rates):g}."
        return Story(words + some_diverged(run), (count,), ())
    rates = np.sort(np.array(study.rates, float))
    note = f"n = {counted(study.seeds, 'seed')}"
    figures = (
        Figure(
            "drift",
            "Conserved by the flow, so of second order in the step",
            "Mean absolute change of ‖(w, b)‖² a step against the learning rate, median and quartiles over nodes and "
            "seeds; dotted: slope 2 with BatchNorm, slope 1 without.",
            "S2 theorem 3",
            Curves(
                tuple(
                    Panel(
                        ORDERS[order.norm],
                        "learning rate",
                        "change of ‖(w, b)‖² a step",
                        (_drift(order, rates),),
                        log_x=True,
                        log_y=True,
                        slope=1.0 if order.norm == "none" else 2.0,
                    )
                    for order in found
                ),
                note,
            ),
        ),
        Figure(
            "growth",
            "The smaller the steps, the less it changes",
            "‖(w, b)‖² relative to the start over time, learning rate × step, median over a layer's nodes, then over "
            "layers and seeds, a line a rate: with BatchNorm it goes to 1 as steps get smaller; without, all rates "
            "follow the same flow.",
            "S2 theorem 3",
            Curves(tuple(_growth(study, run, order, rates) for order in found), note),
        ),
    )
    return Story(_headline(run, found), (count, *_numbers(found)), figures)


def _drift(order: Order, rates: np.ndarray) -> Series:
    values = order.change.reshape(len(rates), -1)
    low, middle, high = np.nanquantile(values, (0.25, 0.5, 0.75), axis=1)
    return Series(ORDERS[order.norm], rates, middle, low, high, colour=_COLOURS[order.norm])


def _growth(study: BatchNormEnergy, run: Run, order: Order, rates: np.ndarray) -> Panel:
    layers = np.stack([run.series("growth", layer) for layer in range(len(study.teacher_layers))])
    series = []
    for lr, networks, colour in zip(rates, order.network, style.ramp(len(rates)), strict=True):
        each = layers[:, networks[networks >= 0]]  # [layer, seed, step]
        there = np.isfinite(each).any(axis=(0, 1))
        middle = np.nanmedian(each[..., there].reshape(-1, there.sum()), axis=0)
        series.append(Series(f"rate {lr:g}", lr * run.epochs[there], middle, colour=colour))
    return Panel(ORDERS[order.norm], "learning rate × step", "‖(w, b)‖² / its start", tuple(series))


def _headline(run: Run, found: list[Order]) -> str:
    before, after, none = (f"{np.median(order.median):.2f}" for order in found)
    alone = f"{np.median(found[1].median_weights):.2f}"
    return (
        f"A step of SGD changes ‖(w, b)‖² by the learning rate to the power {before} with BatchNorm before the ReLU, "
        f"{after} with it after the ReLU, where ‖w‖² alone has {alone}, and {none} without BatchNorm."
        f"{some_diverged(run)}"
    )


def _numbers(found: list[Order]) -> tuple[Number, ...]:
    names = ("BatchNorm before the ReLU", "BatchNorm after the ReLU", "no BatchNorm")
    return tuple(
        Number(f"{np.median(order.median):.3f}", f"slope of the change a step, {name}")
        for order, name in zip(found, names, strict=True)
    )
