"""Figures and headline of `over-parameterization` (Tian et al. 2019, fig. 12)."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from understudy.lab import layers
from understudy.lab.matrices import matrix_images, measure_modulation
from understudy.papers.luck.over_parameterization.claims import BEST, MOST, correlations, gained
from understudy.papers.luck.over_parameterization.study import NAMES, OverParameterization
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_RHO: dict[str, Any] = {"name": "mean best correlation", "limits": (0.0, 1.02), "band": "deviation"}


def story(study: OverParameterization, run: Run) -> Story:
    """Correlations and losses by width, as in the paper, then every student, matrices and ranks."""
    each = {kind: correlations(run, kind).dropna("multiple", how="all") for kind in study.networks}
    found: dict[str, xr.DataArray] = {kind: rho for kind, rho in each.items() if rho.size}
    if not found:
        return layers.diverged_story(
            study, run, " ".join({"fc": "lr", "cnn": "cnn_lr"}[kind] for kind in study.networks)
        )
    titles = layers.multiple_titles(study.multiple)
    figures = (
        *(_width_curves(study, kind, rho) for kind, rho in found.items()),
        Figure(
            "width-ends",
            "How well students match in the end, and how reliably",
            f"Mean best correlation after {counted(study.epochs, 'epoch')} by the width of the student; the band is "
            "one standard deviation over seeds to either side.",
            "S2 fig. 12, at the end",
            Curves.from_array(
                run.array("rho_mean", "networks multiple seed layer epoch").isel(epoch=-1),
                x="multiple",
                panel="networks",
                line="layer",
                titles=NAMES,
                labels=layers.layer_names(len(study.teacher_layers)),
                x_name="student nodes per teacher node",
                log_x=True,
                **_RHO,
            ),
        ),
        Figure(
            "losses",
            "What that does to the loss",
            "Squared error averaged over outputs, on the evaluation inputs, over training: mean and standard deviation "
            "of its logarithm over seeds.",
            "",
            layers.multiple_curves(
                run.array("eval_loss", "networks multiple seed epoch"),
                "networks",
                NAMES,
                name="MSE loss",
                band="deviation",
                log_y=True,
            ),
        ),
        *(figure for kind, rho in found.items() for figure in _students(study, run, kind, rho)),
        *layers.rank_figures(run, "networks multiple seed", ("networks", "multiple"), NAMES | titles),
    )
    return Story(_headline(study, run, found), _numbers(run, *next(iter(found.items()))), figures)


def _width_curves(study: OverParameterization, kind: str, rho: xr.DataArray) -> Figure:
    widths = " ".join(layers.multiple_titles(rho["multiple"].to_numpy()).values())
    return Figure(
        f"width-curves-{kind}",
        f"How students of several widths come to match their teacher, {NAMES[kind]}",
        f"Mean correlation of a layer's teacher nodes with their best students over training, for students with "
        f"{widths} the teacher's nodes: mean and standard deviation over {counted(study.seeds, 'teacher')}.",
        "S2 fig. 12",
        layers.multiple_curves(rho, "layer", layers.layer_names(rho.sizes["layer"]), columns=2, **_RHO),
    )


def _students(study: OverParameterization, run: Run, kind: str, rho: xr.DataArray) -> list[Figure]:
    """Every student of one kind of network, one row of panels per width; H* and β* at 10×, or at the widest."""
    multiples = rho["multiple"].to_numpy()
    titles = layers.multiple_titles(multiples)
    shown = BEST if BEST in multiples else float(multiples[-1])
    matrices = measure_modulation(run, layers.first_network(rho.sel(multiple=shown)), partial(study.source, kind))
    return [
        *layers.student_figures(
            run,
            rho,
            "multiple",
            titles=titles,
            subject=f", {NAMES[kind]}",
            name=f"layer-specialization-{kind}",
            channels=kind == "cnn",
        ),
        *matrix_images(matrices, f"{NAMES[kind]}, {titles[shown]}", f"modulation-{kind}"),
    ]


def _headline(study: OverParameterization, run: Run, found: dict[str, xr.DataArray]) -> str:
    sentences = (f"{NAMES[kind]}: {_summary(study, rho)}" for kind, rho in found.items())
    text = ". ".join(f"{words[0].upper()}{words[1:]}" for words in sentences)
    return f"{text} (mean over layers and {counted(study.seeds, 'seed')}).{layers.some_diverged(run)}"


def _summary(study: OverParameterization, rho: xr.DataArray) -> str:
    """How correlation and spread change up to 10×, and where wider students are when 10× has made most of its gain."""
    multiples = rho["multiple"].to_numpy()
    end, spread = _ends(rho)
    compared = np.flatnonzero(multiples <= BEST)
    measured = f"the mean best correlation after {counted(study.epochs, 'epoch')}"
    if len(compared) > 1:
        first, last = compared[[0, -1]]
        words = (
            f"from {multiples[first]:g}× to {multiples[last]:g}× {measured} goes from {end[first]:.2f} to "
            f"{end[last]:.2f}, its standard deviation over seeds from {spread[first]:.3f} to {spread[last]:.3f}"
        )
    else:
        words = f"{measured} is " + ", ".join(f"{v:.2f} at {k:g}×" for k, v in zip(multiples, end, strict=True))
    if BEST in multiples and (multiples > BEST).any():
        epoch = gained(rho, MOST)
        soon = rho.sel(epoch=epoch).mean("seed").mean("layer").to_numpy()
        others = ", ".join(f"{multiples[i]:g}× at {soon[i]:.3f}" for i in np.flatnonzero(multiples > BEST))
        words += f"; at epoch {epoch} 10× is at {soon[multiples == BEST][0]:.3f}, {others}"
    return words


def _ends(rho: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [multiple] over seeds of the final mean best correlation, averaged over layers."""
    last = rho.isel(epoch=-1)
    return last.mean("seed").mean("layer").to_numpy(), last.std("seed").mean("layer").to_numpy()


def _numbers(run: Run, kind: str, rho: xr.DataArray) -> tuple[Number, ...]:
    end, spread = _ends(rho)
    best, steadiest = (rho["multiple"].to_numpy()[i] for i in (end.argmax(), spread.argmin()))
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{best:g}×", f"matches best at the end, {end.max():.3f} ({NAMES[kind]})"),
        Number(f"{steadiest:g}×", f"varies least over seeds ({NAMES[kind]})"),
    )
