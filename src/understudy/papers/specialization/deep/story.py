"""The deep study in words and figures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from understudy.lab.matrices import matrix_images, modulated
from understudy.measures import THRESHOLD
from understudy.papers.specialization.deep.claims import (
    CLOSE,
    PAPERS_MULTIPLE,
    at,
    by_layer,
    epoch_words,
    first_passed,
    multiples,
)
from understudy.report import style
from understudy.report.figures import Curves, Dots, LayerSpecialization, StudentNodes
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.lab.study import Study
    from understudy.papers.specialization.deep.study import Deep, DeepTeachers

LOSSES = {"evaluation": "eval_loss", "training": "train_loss"}
"""Lines of a figure of losses, with the metric of each."""
LOSS_COLOURS = (style.BLUE, style.CONTEXT)
_SLIDER = (0, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000)
"""Epochs between the first and the last at which the page shows the L."""


def story(study: Deep, run: Run) -> Story:
    axis, network = multiples(study, run)
    there = (network >= 0).any(axis=1)
    if not there.any():
        return Story(all_diverged(study, run), (Number(f"{run.networks.num_rows:,}", "networks, all diverged"),), ())
    axis, network = axis[there], network[there]
    rho = at(network, by_layer(study, run))
    shown = int(np.flatnonzero(axis == PAPERS_MULTIPLE)[0]) if PAPERS_MULTIPLE in axis else len(axis) - 1
    first = first_passed(rho[shown], run.epochs)[network[shown] >= 0]
    figures = (
        _curves(study, run, axis, network, rho, first),
        _epochs(study, network[shown][network[shown] >= 0], first, f"{axis[shown]:g}×"),
        *every_student(run, _titles(axis), network, study.teacher_layers, axis, rho),
        *ranks_of_winners(study, run, _titles(axis), network, len(study.teacher_layers)),
        *_matrices(study, run, axis[shown], network[shown]),
        _distance(study, run, axis, network, rho),
        _losses(study, run, axis, network),
    )
    headline = _headline(study, run, axis[shown], first, rho[shown])
    return Story(headline, _numbers(run, axis[shown], network[shown], first, rho[shown]), figures)


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


def _order(first: np.ndarray) -> str:
    """Says that lower layers come first, where it came out so."""
    middle = np.median(first, axis=0)
    steps = np.diff(middle[np.isfinite(middle)])
    return f": the lower a layer, the earlier it passes {THRESHOLD}" if len(steps) and (steps > 0).all() else ""


def _curves(study: Deep, run: Run, axis: np.ndarray, network: np.ndarray, rho: np.ndarray, first: np.ndarray) -> Figure:
    return Figure(
        "layer-curves",
        "Which layer learns first",
        f"How well a layer's teacher nodes are matched, each by its best student, over training{_order(first)}.",
        "S1 fig 4",
        followed(
            study,
            run,
            _titles(axis),
            layer_names(len(study.teacher_layers)),
            network,
            rho,
            name="mean best correlation",
            limits=(0.0, 1.02),
            bound=(THRESHOLD, f"{THRESHOLD}"),
        ),
    )


def _epochs(study: Deep, networks: np.ndarray, first: np.ndarray, multiple: str) -> Figure:
    never = np.isinf(first).sum(axis=0)
    missing = ", ".join(f"layer {i + 1} in {counted(int(n), 'network')}" for i, n in enumerate(never.tolist()) if n)
    return Figure(
        "layer-epochs",
        "When each layer passes the mark",
        f"Epoch at which a layer's mean best correlation first exceeds {THRESHOLD}, a point a network ({multiple})"
        + (f"; never: {missing}." if missing else "."),
        "S1 fig 4, over seeds",
        Dots(
            layer_names(len(study.teacher_layers)),
            np.where(np.isinf(first), np.nan, first).T,
            np.broadcast_to(networks, first.T.shape),
            f"epoch above {THRESHOLD}",
            "hidden layer, the lowest first",
            colours=tuple(style.layer_colours(first.shape[1])),
        ),
    )


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


def _matrices(study: Deep, run: Run, multiple: float, networks: np.ndarray) -> tuple[Figure, ...]:
    found = modulated(run, networks[networks >= 0][:1], lambda: study.source(study.train, fresh=True))
    return matrix_images(found, f"{multiple:g}×")


def _distance(study: Deep, run: Run, axis: np.ndarray, network: np.ndarray, rho: np.ndarray) -> Figure:
    return Figure(
        "layer-distance",
        "How close every layer comes",
        "What is missing to a perfect match, 1 − mean best correlation, over training, on a logarithmic axis: "
        f"dashed is a correlation of {CLOSE}.",
        "S1 fig 12",
        followed(
            study,
            run,
            _titles(axis),
            layer_names(len(study.teacher_layers)),
            network,
            1 - rho,
            name="1 − mean best correlation",
            log_y=True,
            bound=(1 - CLOSE, f"{CLOSE}"),
        ),
    )


def _losses(study: Deep, run: Run, axis: np.ndarray, network: np.ndarray) -> Figure:
    return Figure(
        "losses",
        "What that does to the loss",
        "Squared error averaged over outputs: on the evaluation inputs after each epoch, and over its steps on inputs "
        "drawn anew.",
        "",
        losses(study, run, _titles(axis), network, "MSE loss"),
    )


def losses(study: Study, run: Run, titles: tuple[str, ...], network: np.ndarray, name: str) -> Curves:
    """Training and evaluation loss, a panel a setting of networks [panel, seed]."""
    each = at(network, np.stack([run.series(metric) for metric in LOSSES.values()], axis=1))
    return followed(study, run, titles, tuple(LOSSES), network, each, name=name, log_y=True, colours=LOSS_COLOURS)


def _headline(study: Deep, run: Run, multiple: float, first: np.ndarray, rho: np.ndarray) -> str:
    middle = np.median(first, axis=0)
    passed, never = np.flatnonzero(np.isfinite(middle)), np.flatnonzero(np.isinf(middle))
    students = "as many nodes as the teacher" if multiple == 1 else f"{multiple:g} times the teacher's nodes"
    parts = [f"at {_several('epoch', middle[passed])} in {_several('layer', passed + 1)}"] if len(passed) else []
    parts += [f"never in {_several('layer', never + 1)}"] if len(never) else []
    end = _list([f"{m:.3f}" for m in over_seeds(rho[..., -1], axis=0)[0]])
    return (
        f"With {students} the mean best correlation passed {THRESHOLD} {', and '.join(parts)}; after {study.epochs} "
        f"epochs it is {end}, from the lowest layer up (median of {counted(study.seeds, 'seed')}).{some_diverged(run)}"
    )


def _several(thing: str, which: np.ndarray) -> str:
    return f"{thing}{'s' * (len(which) > 1)} {_list([f'{w:g}' for w in which])}"


def _list(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])


def _numbers(run: Run, multiple: float, network: np.ndarray, first: np.ndarray, rho: np.ndarray) -> tuple[Number, ...]:
    middle = np.median(first, axis=0)
    order = " · ".join(epoch_words(m) for m in middle)
    end = over_seeds(rho[..., -1], axis=0)[0]
    loss = np.median(run.series("eval_loss")[network[network >= 0], -1])
    worst = int(end.argmin())
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(order, f"epochs at which layers 1 to {len(middle)} pass {THRESHOLD} at {multiple:g}×"),
        Number(f"{end[worst]:.3f}", f"mean best correlation at the end in layer {worst + 1}, the least matched"),
        Number(f"{loss:.1e}", f"median evaluation loss at {multiple:g}×"),
    )
