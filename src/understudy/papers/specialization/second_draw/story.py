"""Figures and headline of `second-draw`."""

from typing import Any

import numpy as np
import xarray as xr

from understudy.lab.layers import diverged_story, some_diverged
from understudy.papers.specialization.second_draw.study import SecondDraw
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story
from understudy.store import Run


def story(study: SecondDraw, run: Run) -> Story:
    """Losses and recovered nodes over training."""
    loss = run.array("eval_loss", "multiple polarity seed epoch")
    recovered = run.array("recovered", "multiple polarity seed epoch", layer=0)
    if loss.isnull().all():
        return diverged_story(study, run)
    titles = {(float(k), float(p)): f"{k:g}×, p = {p:g}" for k in loss["multiple"] for p in loss["polarity"]}

    def curves(values: xr.DataArray, name: str, **more: Any) -> Curves:
        return Curves.from_array(values, panel=("multiple", "polarity"), titles=titles, name=name, **more)

    end, found = (float(np.nanmedian(values.isel(epoch=-1))) for values in (loss, recovered))
    figures = (
        Figure(
            "loss-curves",
            "How they learn",
            "Evaluation loss over training.",
            "",
            curves(loss, "MSE loss", log_y=True),
        ),
        Figure(
            "recovered",
            "Which nodes they recover",
            "Share of the teacher's nodes that have a student above 0.95, over training.",
            "",
            curves(recovered, "teacher nodes recovered", limits=(0.0, 1.02)),
        ),
    )
    headline = (
        f"Students from other initial weights end at a median loss of {end:.1e} and recover {found:.0%} of the nodes."
        f"{some_diverged(run)}"
    )
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{found:.0%}", "of teacher nodes recovered"),
    )
    return Story(headline, numbers, figures)
