"""Figures and headline of `irrelevant-nodes` (Tian et al. 2019, sec. 3.4)."""

import numpy as np

from understudy.lab.layers import correlation_curves, diverged_story, some_diverged
from understudy.papers.luck.irrelevant_nodes.claims import (
    IRRELEVANT,
    LUCKY,
    IrrelevantWeights,
    between,
    kept_epochs,
    weights_of,
)
from understudy.papers.luck.irrelevant_nodes.study import IrrelevantNodes
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_COLOURS = {"to lucky nodes": style.BLUE, "to irrelevant nodes": style.VERMILLION}


def story(study: IrrelevantNodes, run: Run) -> Story:
    """Norms of weights from irrelevant nodes over training, and how well students match."""
    if not run.select().alive.any():
        return diverged_story(study, run)
    note = f"n = {counted(study.seeds, 'seed')}"
    figures = [
        Figure(
            f"weights-{start}",
            f"Weights from irrelevant nodes, {start} starts",
            "Norm, relative to the start, of the weights from irrelevant students (correlation below "
            f"{IRRELEVANT:g} with every teacher node at the end) that are active on part of the inputs, to lucky ones "
            f"(above {LUCKY:g}) and to irrelevant ones of the next layer, over training: median and quartiles over "
            "seeds. Rows are over-parameterizations. All outputs are lucky: they match the teacher's.",
            "S2 sec. 3.4",
            Curves(_panels(study, run, start), note, columns=len(study.hidden), share="axes", band="quartiles"),
        )
        for start in study.starts
    ]
    rho = run.array("rho_mean", "start multiple seed layer epoch")
    for start in study.starts:
        figures.append(
            Figure(
                f"correlations-{start}",
                f"Which teacher nodes they find, {start} starts",
                "Best correlation with the teacher nodes, averaged over the nodes of a layer: median and quartiles "
                "over seeds.",
                "",
                correlation_curves(rho.sel(start=start), "multiple", {k: f"{k:g}×" for k in study.multiple}),
            )
        )
    numbers = (Number(f"{run.networks.num_rows:,}", "networks"), *_numbers(study, run))
    return Story(_headline(study, run), numbers, tuple(figures))


def _panels(study: IrrelevantNodes, run: Run, start: str) -> tuple[Panel, ...]:
    epochs = np.array(kept_epochs(run))
    panels = []
    for k in study.multiple:
        networks = weights_of(run, start, k)
        for layer in range(len(study.hidden)):
            series = []
            for (label, colour), name in zip(_COLOURS.items(), ("to_lucky", "to_irrelevant"), strict=True):
                values = np.array([getattr(network[layer], name) for network in networks]).reshape(-1, len(epochs))
                values = values[np.isfinite(values).all(1)]
                if len(values):
                    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
                    series.append(Series(label, epochs, middle, low, high, colour=colour))
            names = ("epoch", "norm / its start")
            panels.append(Panel(f"{k:g}×, {between(study, layer)}", *names, tuple(series)))
    return tuple(panels)


def _ends(networks: list[list[IrrelevantWeights]], name: str) -> float:
    """Median over networks and layers of hidden nodes of the norm at the end relative to the start."""
    found = [getattr(weights, name)[-1] for network in networks for weights in network[:-1]]
    return float(np.nanmedian(found)) if np.isfinite(found).any() else np.nan


def _numbers(study: IrrelevantNodes, run: Run) -> list[Number]:
    found = []
    for start in study.starts:
        every = [network for k in study.multiple for network in weights_of(run, start, k)]
        if every:
            found.append(Number(f"{_ends(every, 'to_lucky'):.0%}", f"left of weights to lucky nodes, {start} starts"))
    return found


def _headline(study: IrrelevantNodes, run: Run) -> str:
    start = study.starts[0]
    every = [network for k in study.multiple for network in weights_of(run, start, k)]
    if not every:
        return f"All networks with {start} starts diverged.{some_diverged(run)}"
    return (
        f"With {start} starts, {_ends(every, 'to_lucky'):.0%} of the norm of the weights from irrelevant to lucky "
        f"nodes is left after {counted(study.epochs, 'epoch')}, and {_ends(every, 'to_irrelevant'):.0%} of those to "
        f"irrelevant nodes (medians).{some_diverged(run)}"
    )
