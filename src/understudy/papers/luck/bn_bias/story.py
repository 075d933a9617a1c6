"""Figures and headline of the signs of BatchNorm shifts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from understudy.lab.images import layers_of, shift_histograms
from understudy.papers.luck.bn_bias.claims import HALF
from understudy.report import style
from understudy.report.figures import Dots
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.bn_bias.study import BatchNormBias


def _layers(run: Run) -> list[tuple[str, np.ndarray]]:
    """Each layer's name and shifts."""
    found = []
    for layer in range(1 + pc.max(run.nodes["layer"]).as_py()):
        rows = run.nodes.filter(pc.field("layer") == layer)
        found.append((rows["name"][0].as_py(), rows["shift"].to_numpy()))
    return found


def story(study: BatchNormBias, run: Run) -> Story:
    layers = _layers(run)
    names, networks = [_short(name) for name, _ in layers], run.networks.num_rows
    share = layers_of(run, len(layers), "negative_shifts")[..., 0].T
    figures = (
        Figure(
            "shifts",
            "What BatchNorm adds, layer by layer",
            "Shifts of all nodes of a layer, the lowest first: what lies below zero keeps most samples from passing a "
            "ReLU that follows.",
            "S2 figs 6, 18",
            shift_histograms(names, [shift for _, shift in layers]),
        ),
        Figure(
            "negative-shares",
            "How many are negative",
            "Share of a layer's shifts that are below zero, a point a network.",
            "S2 figs 6, 18, in numbers",
            Dots(
                tuple(str(i + 1) for i in range(len(layers))),
                share,
                np.broadcast_to(np.arange(networks), share.shape),
                "share of negative shifts",
                "layer with BatchNorm, the lowest first",
                bound=HALF,
                bound_words="half",
                colours=(style.BLUE,) * len(layers),
                percent=True,
            ),
        ),
    )
    mean = share.mean(axis=1)
    whole = float((np.concatenate([shift for _, shift in layers]) < 0).mean())
    most = int((mean > HALF).sum())
    top = f"{mean[-1]:.0%} in the top layer"
    whose = f"in {Path(study.network).name}" if study.network else f"over {counted(networks, 'network')} trained here"
    return Story(
        f"{whole:.0%} of {counted(sum(len(shift) for _, shift in layers), 'BatchNorm shift')} {whose} are negative, "
        f"{top}; they are most of the shifts in {most} of {counted(len(layers), 'layer')}.",
        (
            Number(f"{networks:,}", "network" if networks == 1 else "networks"),
            Number(f"{whole:.0%}", "of all shifts are negative"),
            Number(f"{mean[0]:.0%}", "in the lowest layer"),
            Number(f"{mean[-1]:.0%}", "in the top layer"),
        ),
        figures,
    )


def _short(name: str) -> str:
    """Without what every shift is called."""
    return name.removesuffix(".bias").removesuffix(".shift")
