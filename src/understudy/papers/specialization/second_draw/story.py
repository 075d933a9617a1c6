"""Figures and headline of `second-draw`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from understudy.lab.old_layers import at, laid_out
from understudy.lab.old_layers import some_diverged
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.second_draw.study import SecondDraw


def story(study: SecondDraw, run: Run) -> Story:
    axes = {
        "multiple": np.array(sorted(map(float, study.multiple))),
        "polarity": np.array(sorted(map(float, study.polarity))),
        "seed": np.arange(1, study.seeds + 1),
    }
    network = laid_out(run, axes)
    network = network.reshape(-1, study.seeds)
    titles = tuple(f"{k:g}×, p = {p:g}" for k in axes["multiple"] for p in axes["polarity"])
    count = Number(f"{run.networks.num_rows:,}", "networks")
    if not (network >= 0).any():
        return Story(f"Every network diverged: choose a smaller --lr than {study.lr:g}.", (count,), ())
    loss, recovered = (at(network, run.series(*of))[:, :, None] for of in (("eval_loss",), ("recovered", 0)))

    def curves(values: np.ndarray, label: str, log_y: bool, limits: tuple[float, float] | None = None) -> Curves:
        array = xr.DataArray(
            values,
            dims=("setting", "seed", "line", "epoch"),
            coords={
                "setting": list(titles),
                "line": [label],
                "epoch": run.epochs,
                "network": (("setting", "seed"), network),
            },
        )
        return Curves.from_array(array, panel="setting", line="line", name=label, log_y=log_y, limits=limits)

    end, found = (float(np.nanmedian(values[..., -1])) for values in (loss, recovered))
    figures = (
        Figure("loss-curves", "How they learn", "Evaluation loss over training.", "", curves(loss, "MSE loss", True)),
        Figure(
            "recovered",
            "What they find",
            "Share of the teacher's nodes that have a student above 0.95, over training.",
            "",
            curves(recovered, "teacher nodes recovered", False, (0.0, 1.02)),
        ),
    )
    words = f"Students from other first weights end at a median loss of {end:.1e} and recover {found:.0%} of the nodes"
    share = Number(f"{found:.0%}", "of teacher nodes recovered")
    return Story(f"{words}.{some_diverged(run)}", (count, share), figures)
