"""Figures and headline of `bn-bias` (Tian et al. 2019, figs 6, 18)."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from understudy.papers.luck.bn_bias.claims import HALF
from understudy.papers.luck.bn_bias.study import BatchNormBias
from understudy.report import style
from understudy.report.figures import Dots, SignedHistograms
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run


def story(study: BatchNormBias, run: Run) -> Story:
    """The shifts of every layer, and the share of negative ones."""
    share = run.array("negative_shifts", "layer network")
    rows = [run.nodes.filter(pc.field("layer") == layer) for layer in share["layer"].to_numpy().tolist()]
    names = [each["name"][0].as_py().removesuffix(".bias").removesuffix(".shift") for each in rows]
    layers, networks = len(rows), run.networks.num_rows
    figures = (
        Figure(
            "shifts",
            "The shifts of BatchNorm, layer by layer",
            "Shifts of all nodes of a layer, from the lowest layer. Where the shift is below 0, most samples do not "
            "pass a following ReLU.",
            "S2 figs. 6, 18",
            SignedHistograms(tuple(names), tuple(each["shift"].to_numpy() for each in rows), "BatchNorm shift"),
        ),
        Figure(
            "negative-shares",
            "How many shifts are negative",
            "Share of a layer's shifts that are below 0, one point per network.",
            "S2 figs. 6, 18, in numbers",
            Dots(
                tuple(str(i + 1) for i in range(layers)),
                share.to_numpy(),
                np.broadcast_to(np.arange(networks), share.shape),
                "share of negative shifts",
                "layer with BatchNorm, the lowest first",
                bound=HALF,
                bound_words="half",
                colours=(style.BLUE,) * layers,
                percent=True,
            ),
        ),
    )
    mean = share.mean("network").to_numpy()
    whole = f"{np.mean(run.nodes['shift'].to_numpy() < 0):.0%}"
    subject = f"in {Path(study.network).name}" if study.network else f"of {counted(networks, 'trained network')}"
    headline = (
        f"{whole} of {counted(run.nodes.num_rows, 'BatchNorm shift')} {subject} are negative, {mean[-1]:.0%} in the "
        f"top layer; they are most of the shifts in {(mean > HALF).sum()} of {counted(layers, 'layer')}."
    )
    numbers = (
        Number(f"{networks:,}", "network" if networks == 1 else "networks"),
        Number(whole, "of all shifts are negative"),
        Number(f"{mean[0]:.0%}", "in the lowest layer"),
        Number(f"{mean[-1]:.0%}", "in the top layer"),
    )
    return Story(headline, numbers, figures)
