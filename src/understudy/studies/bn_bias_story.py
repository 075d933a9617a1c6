"""The signs of BatchNorm shifts in words and figures, and what they decide: D10."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from understudy.report import style
from understudy.report.figures import Dots
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Claim, Run
from understudy.studies.on_cifar_story import layers_of, shift_histograms

if TYPE_CHECKING:
    from understudy.studies.bn_bias import BatchNormBias

HALF = 0.5


def _layers(run: Run) -> list[tuple[str, np.ndarray]]:
    """Each layer's name and shifts."""
    found = []
    for layer in range(1 + pc.max(run.nodes["layer"]).as_py()):
        rows = run.nodes.filter(pc.field("layer") == layer)
        found.append((rows["name"][0].as_py(), rows["shift"].to_numpy()))
    return found


def _upper(count: int) -> slice:
    """The upper half of the layers, the middle one among them."""
    return slice(count // 2, None)


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


def claims(study: BatchNormBias, run: Run) -> list[Claim]:
    """Decided on networks trained here, on all images, with four layers."""
    settings = (study.layers, study.train, study.epochs, study.batch)
    if study.network or settings != ((64, 64, 64, 64), 50_000, 30, 128):
        return []
    share = layers_of(run, len(study.layers), "negative_shifts")[..., 0]
    upper = share[:, _upper(share.shape[1])]
    return [
        Claim(
            "D10",
            f"share of negative BatchNorm shifts, layers 1 to {share.shape[1]} of ConvNets trained on CIFAR-10 with "
            "BatchNorm before each ReLU: above one half in each of the upper two, mean over networks (below: the upper "
            "two of each network)",
            "most are negative, in particular in the top layers (VGG on ImageNet)",
            ", ".join(f"{s:.0%}" for s in share.mean(axis=0)),
            len(share),
            bool((upper.mean(axis=0) > HALF).all()),
            values=tuple(upper.ravel().tolist()),
            low=HALF,
        )
    ]
