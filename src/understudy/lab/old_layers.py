"""To be removed: what stories used before labelled arrays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from understudy.measures import THRESHOLD
from understudy.report import style
from understudy.report.figures import Curves, LayerSpecialization, StudentNodes
from understudy.report.story import Figure, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.lab.study import Study
    from understudy.papers.specialization.deep.study import Deep, DeepTeachers


def laid_out(run: Run, axes: dict[str, np.ndarray]) -> np.ndarray:
    """Networks by the columns that the axes name; −1 where there is none, or where it diverged."""
    alive = np.flatnonzero(run.networks["diverged_at"].is_null().to_numpy())
    known = [{value: i for i, value in enumerate(axis.tolist())} for axis in axes.values()]
    places = [
        [place[value] for value in run.column(name)[alive].tolist()] for name, place in zip(axes, known, strict=True)
    ]
    network = np.full([len(axis) for axis in axes.values()], -1)
    network[tuple(places)] = alive
    return network


def at(network: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[network, …] laid out as the networks are, NaN where there is none."""
    laid = values[network].astype(float)
    laid[network < 0] = np.nan
    return laid


def by_layer(study: DeepTeachers, run: Run, metric: str = "rho_mean") -> np.ndarray:
    """[network, layer, epoch] of a metric of layers."""
    return np.stack([run.series(metric, layer) for layer in range(len(study.teacher_layers))], axis=1)


def multiples(study: Deep, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The over-realizations in their order, and the networks [multiple, seed]."""
    axis = np.array(sorted(float(k) for k in study.multiple))
    return axis, laid_out(run, {"multiple": axis, "seed": np.array(study.seed_names)})


def first_passed(rho: np.ndarray, epochs: np.ndarray, bound: float = THRESHOLD) -> np.ndarray:
    """[…]: the first epoch at which […, epoch] exceeds the bound, infinite if it never does."""
    return np.where(rho > bound, epochs, np.inf).min(axis=-1)


def epoch_words(epoch: float) -> str:
    return f"{epoch:g}" if np.isfinite(epoch) else "never"


LOSSES = {"evaluation": "eval_loss", "training": "train_loss"}


LOSS_COLOURS = (style.BLUE, style.CONTEXT)


_SLIDER = (0, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000)


def all_diverged(study: DeepTeachers, run: Run) -> str:
    first, total = run.networks["diverged_at"].drop_null().to_numpy().min(), run.networks.num_rows
    return f"All {total:,} networks diverged, the first at step {first:,}: choose a smaller --lr than {study.lr:g}."


def some_diverged(run: Run) -> str:
    lost, total = len(run.networks["diverged_at"].drop_null()), run.networks.num_rows
    return f" {lost:,} of {total:,} networks diverged." if lost else ""


def layer_names(count: int) -> tuple[str, ...]:
    return tuple(f"layer {i + 1}" for i in range(count))


def over_seeds(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median and quartiles over the networks that are left; NaN where none is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a setting in which every network diverged
        low, middle, high = np.nanpercentile(values, (25, 50, 75), axis=axis)
    return middle, low, high


def followed(
    study: Study,
    run: Run,
    titles: tuple[str, ...],
    labels: tuple[str, ...],
    network: np.ndarray,
    values: np.ndarray,
    **more: Any,
) -> Curves:
    """Curves of networks [panel, seed] from values [panel, seed, line, epoch], over the epochs that have any."""
    array = xr.DataArray(
        values,
        dims=("panel", "seed", "line", "epoch"),
        coords={
            "panel": list(titles),
            "line": list(labels),
            "epoch": run.epochs,
            "network": (("panel", "seed"), network),
        },
    )
    return Curves.from_array(array, panel="panel", line="line", note=f"n = {counted(study.seeds, 'seed')}", **more)


def _titles(axis: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{k:g}×" for k in axis)


def every_student(
    run: Run,
    titles: tuple[str, ...],
    network: np.ndarray,
    layers: Sequence[int],
    multiples: Sequence[float] | np.ndarray,
    rho: np.ndarray,
    of: str = "",
    name: str = "layer-specialization",
    channels: bool = False,
) -> tuple[Figure, ...]:
    """The L of networks [group, seed], each group so many times as wide as its teachers' layers, with mean best
    correlations [group, seed, layer, epoch].

    None of channels in runs of earlier formats, which measured something else of them.
    """
    if channels and run.config.get("format", 3) < 3:
        return ()
    widths = [[round(k * nodes) for nodes in layers] for k in multiples]
    return (
        Figure(
            name,
            f"Every student of every layer{of}",
            "Every student: how well it matches its best teacher node, and how much it moves the output (√E β_kk). "
            "Where students specialise, those that match nobody (left) count for little (bottom): the L.",
            "S1 figs 4, 12",
            _layers_of_students(run, titles, network, widths, rho),
        ),
    )


def _layers_of_students(
    run: Run, titles: tuple[str, ...], network: np.ndarray, widths: Sequence[Sequence[int]], rho: np.ndarray
) -> LayerSpecialization:
    last = int(run.epochs[-1])
    epochs = np.array(sorted({e for e in _SLIDER if e < last} | {last}))
    seeds = run.column("seed")

    def cell(networks: np.ndarray, students: int, layer: int) -> StudentNodes:
        correlation, fan, teacher = (
            np.stack([run.matched("student", name, layer, int(e))[networks, :students].ravel() for e in epochs])
            for name in ("correlation", "fanout", "teacher")
        )
        return StudentNodes(
            correlation,
            fan,
            teacher.astype(int),
            np.repeat(networks, students),
            np.tile(np.arange(students), len(networks)),
            np.repeat(seeds[networks], students),
        )

    cells = tuple(
        tuple(cell(each[each >= 0], students, layer) for layer, students in enumerate(nodes))
        for each, nodes in zip(network, widths, strict=True)
    )
    middle, _, _ = over_seeds(rho[..., np.searchsorted(run.epochs, epochs)], axis=1)
    return LayerSpecialization(titles, epochs, cells, middle)


def ranks_of_winners(
    study: Study, run: Run, titles: tuple[str, ...], network: np.ndarray, layers: int, **more: Any
) -> tuple[Figure, ...]:
    """Of networks [panel, seed], where the run looked their students' ranks up."""
    rank = at(network, np.stack([run.series("mean_rank", layer) for layer in range(layers)], axis=1))
    if not np.isfinite(rank).any():
        return ()
    return (
        Figure(
            "mean-rank",
            "How early the winners were ahead",
            "Where the students that match best in the end stood among all students before: 0 is first, 0.5 (dashed) "
            "is chance.",
            "S2 figs 8, 9",
            followed(
                study,
                run,
                titles,
                layer_names(layers),
                network,
                rank,
                name="mean rank of winners",
                bound=(0.5, "chance"),
                **more,
            ),
        ),
    )


def losses(study: Study, run: Run, titles: tuple[str, ...], network: np.ndarray, name: str) -> Curves:
    """Training and evaluation loss, a panel a setting of networks [panel, seed]."""
    each = at(network, np.stack([run.series(metric) for metric in LOSSES.values()], axis=1))
    return followed(study, run, titles, tuple(LOSSES), network, each, name=name, log_y=True, colours=LOSS_COLOURS)
