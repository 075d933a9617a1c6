"""Figures and headline of `cifar` (Tian 2020, fig. 10)."""

import numpy as np
import xarray as xr

from understudy.lab import layers
from understudy.lab.matrices import matrix_images, measure_modulation
from understudy.papers.specialization.cifar.study import Cifar
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run


def story(study: Cifar, run: Run) -> Story:
    """Correlations by width and layer, the students of every layer, accuracies and losses."""
    rho = run.array("rho_mean", "multiple seed layer epoch").dropna("multiple", how="all")
    if not rho.size:
        return layers.diverged_story(study, run)
    multiples = rho["multiple"].to_numpy()
    titles, names = layers.multiple_titles(multiples), layers.layer_names(rho.sizes["layer"])
    accuracy, teacher = (run.array(name, "multiple seed epoch") for name in ("accuracy", "teacher_accuracy"))
    accuracy = accuracy.sel(multiple=multiples)
    taught = float(np.nanmean(teacher.isel(epoch=-1)))
    end = dict(zip(multiples.tolist(), np.nanmean(accuracy.isel(epoch=-1), axis=1), strict=True))
    matrices = measure_modulation(run, layers.first_network(rho.isel(multiple=-1)), study.source)
    figures = (
        Figure(
            "layer-curves",
            "How well every layer is matched",
            "Mean correlation of the teacher's channels with their best students over training; above each panel the "
            f"students' evaluation accuracy after training (mean over seeds, teacher {taught:.1%}).",
            "S0 fig. 10",
            layers.correlation_curves(rho, "multiple", {k: f"{titles[k]}: {end[k]:.1%}" for k in end}),
        ),
        Figure(
            "layer-widths",
            "Over-realizations compared, layer by layer",
            f"The same curves, one panel per layer{_order(rho)}.",
            "S0 fig. 10",
            layers.multiple_curves(rho, "layer", names, name="mean best correlation", limits=(0.0, 1.02)),
        ),
        *layers.student_figures(run, rho, "multiple", titles=titles, channels=True),
        *layers.rank_figures(run, "multiple seed", "multiple", titles),
        *matrix_images(matrices, [*titles.values()][-1]),
        Figure(
            "accuracy",
            "How accurate students are",
            "Share of evaluation images whose label is the largest output. Students see no labels: they learn the "
            "outputs of the pruned teacher (dashed).",
            "S0 fig. 10",
            layers.multiple_curves(accuracy, name="evaluation accuracy", bound=(taught, f"teacher, {taught:.1%}")),
        ),
        Figure(
            "losses",
            "What that does to the loss",
            "Squared error to the teacher averaged over outputs: on the evaluation images after each epoch, and over "
            "its steps on the training images.",
            "",
            layers.loss_curves(run, "multiple seed", "multiple", titles, "MSE loss"),
        ),
    )
    return Story(_headline(study, run, rho, end, taught), _numbers(run, rho, end, taught), figures)


def _order(rho: xr.DataArray) -> str:
    """States that wider students lead at the end, if they do."""
    last = rho.isel(epoch=-1).median("seed").transpose("multiple", "layer").to_numpy()
    return ": after training, wider students lead in each" if (np.diff(last, axis=0) > 0).all() else ""


def _headline(study: Cifar, run: Run, rho: xr.DataArray, end: dict[float, float], taught: float) -> str:
    right = ", ".join(f"{accuracy:.1%} at {k:g}×" for k, accuracy in end.items())
    match = dict(zip(end, rho.isel(epoch=-1).mean(("seed", "layer")).to_numpy(), strict=True))
    few, many = min(match), max(match)
    spread = f"goes from {match[few]:.2f} at {few:g}× to {match[many]:.2f} at {many:g}×"
    return (
        f"Students of a teacher that classifies {taught:.1%} of {study.evaluation:,} images correctly classify {right} "
        f"correctly; their mean best correlation over all layers {spread if few < many else f'is {match[few]:.2f}'} "
        f"(mean of {counted(study.seeds, 'seed')}).{layers.some_diverged(run)}"
    )


def _numbers(run: Run, rho: xr.DataArray, end: dict[float, float], taught: float) -> tuple[Number, ...]:
    widest = max(end)
    low = rho.sel(multiple=widest).isel(epoch=-1).mean("seed").to_numpy()
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{taught:.1%}", "accuracy of the pruned teacher"),
        Number(f"{end[widest]:.1%}", f"accuracy of students at {widest:g}×"),
        Number(
            f"{low.min():.2f}",
            f"mean best correlation at {widest:g}× in layer {low.argmin() + 1}, the lowest of all layers",
        ),
    )
