"""Figures and headline of `matrix-dynamics` (Tian et al. 2019, theorem 2)."""

from typing import Any

import numpy as np
import xarray as xr

from understudy.lab.layers import some_diverged
from understudy.papers.luck.matrix_dynamics.claims import OUTPUTS, by_layer, log10, mean_correlation
from understudy.papers.luck.matrix_dynamics.study import PATH_NAMES, PATHS, MatrixDynamics
from understudy.report import style
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, listed
from understudy.store import Run

_COLOURS = (style.VERMILLION, style.BLUE)
"""Colours of the paths."""


def story(study: MatrixDynamics, run: Run) -> Story:
    """Where both trajectories lead, how the two velocities compare along them, and the error of assumption 1."""
    loss = run.array("eval_loss", "hidden path seed epoch")
    whole = loss.notnull().all(("path", "epoch"))
    count = Number(f"{run.networks.num_rows:,}", "networks")
    if not whole.any():
        rates = " ".join(f"{rate:g}" for rate in study.lr)
        words = f"In every seed at least one of the two trajectories diverged: choose a smaller --lr than {rates}."
        return Story(words + some_diverged(run), (count,), ())
    cosine, distance, error_4, error_5 = (
        by_layer(run, metric).where(whole) for metric in ("cosine", "distance", "eqn_4", "eqn_5")
    )
    below = cosine.drop_sel(layer=OUTPUTS)
    figures = (
        Figure(
            "losses",
            "Two trajectories from the same initial weights",
            "Evaluation loss of students that follow Ẇ = L*W*H* − LWH, and of SGD on the same batches.",
            "S2 eq. 6",
            _by_path(loss.where(whole), name="evaluation loss", log_y=True),
        ),
        Figure(
            "correlations",
            "Which teacher nodes they find",
            "Best correlation with the teacher's nodes, averaged over nodes and hidden layers.",
            "S2 eq. 6",
            _by_path(mean_correlation(run).where(whole), name="mean best correlation"),
        ),
        Figure(
            "cosines",
            "The direction of eq. 6",
            "Cosine of eq. 6 and the negative gradient at every layer, along both trajectories. It is 1 at the layer "
            "of the outputs; where it is above 0, a small step of eq. 6 decreases the loss.",
            "S2 theorem 2",
            _by_layer(cosine, name="cosine", bound=(0.0, "0")),
        ),
        Figure(
            "distances",
            "The distance of eq. 6 from the gradient",
            "Length of their difference relative to that of the gradient, at every layer below the outputs, along both "
            "trajectories.",
            "S2 theorem 2",
            _by_layer(distance.drop_sel(layer=OUTPUTS), name="relative distance", log_y=True),
        ),
        Figure(
            "assumption",
            "Whether expectations factorise",
            "Relative error of eq. 5, assumption 1 between students, at every layer below the outputs, along both "
            "trajectories. At 0 the theorem would be exact.",
            "S2 assumption 1",
            _by_layer(error_5, name="relative error of eq. 5"),
        ),
    )
    errors = np.concatenate([_finite(error_4), _finite(error_5)])
    numbers = (
        count,
        Number(f"{below.median().item():.2f}", "median cosine of the two velocities below the highest layer"),
        Number(f"{(_finite(below) > 0).mean():.1%}", "of these cosines are above 0"),
        Number(f"{np.median(errors):.2f}", "median relative error of assumption 1"),
    )
    return Story(_headline(run, loss.where(whole), below), numbers, figures)


def _finite(values: xr.DataArray) -> np.ndarray:
    return values.to_numpy()[np.isfinite(values.to_numpy())]


def _by_path(values: xr.DataArray, **more: Any) -> Curves:
    """One panel per teacher, with one line per path."""
    return Curves.from_array(
        values, panel="hidden", line="path", labels=PATH_NAMES, x_name="step", colours=_COLOURS, **more
    )


def _by_layer(values: xr.DataArray, **more: Any) -> Curves:
    """One row of panels per path, SGD first, with one panel per teacher and one line per layer."""
    values = values.sel(path=list(reversed(PATHS))).dropna("hidden", how="all")
    hidden = [layer for layer in values["layer"].to_numpy() if layer != OUTPUTS]
    colours = [*style.layer_colours(len(hidden)), style.CONTEXT][: values.sizes["layer"]]
    return Curves.from_array(
        values,
        panel=("path", "hidden"),
        line="layer",
        titles={path: f"along {name}" for path, name in PATH_NAMES.items()},
        x_name="step",
        colours=colours,
        columns=values.sizes["hidden"],
        **more,
    )


def _headline(run: Run, loss: xr.DataArray, below: xr.DataArray) -> str:
    loss = loss.dropna("hidden", how="all")
    cosine = below.sel(path="SGD", hidden=loss["hidden"])
    least, middle = cosine.min(("seed", "layer", "epoch")), cosine.median(("seed", "layer", "epoch"))
    ours, theirs = log10(loss.isel(epoch=-1)).median("seed").transpose("path", "hidden")
    return (
        "At the highest layer L*W*H* − LWH is the negative gradient; below it, along SGD, their cosine has a median of "
        f"{_numbers(middle)} with hidden layers of {', '.join(loss['hidden'].to_numpy())} (least {_numbers(least)}). "
        f"Students that follow it end at log10 losses of {_numbers(ours)}, SGD at {_numbers(theirs)}."
        f"{some_diverged(run)}"
    )


def _numbers(values: xr.DataArray) -> str:
    return listed([f"{round(value, 2):g}" for value in values.to_numpy().tolist()])
