"""Wide students of trained teachers on CIFAR-10 in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.lab.images import all_diverged, percent
from understudy.lab.matrices import matrix_images, modulated
from understudy.papers.luck.cifar_luck.claims import KINDS, NORMS, Cells
from understudy.papers.specialization.deep.story import (
    every_student,
    followed,
    layer_names,
    losses,
    ranks_of_winners,
    some_diverged,
)
from understudy.report import style
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.cifar_luck.study import CifarLuck


def _alive(cells: Cells, kind: str) -> list[int]:
    """Settings of a kind with a network that did not diverge."""
    return [i for i, (k, _) in enumerate(cells.settings) if k == kind and (cells.network[i] >= 0).any()]


def _students(study: CifarLuck, run: Run, cells: Cells, kind: str) -> tuple[Figure, ...]:
    which, layers = _alive(cells, kind), study.layers(kind)
    return every_student(
        run,
        tuple(NORMS[cells.settings[i][1]] for i in which),
        cells.network[which],
        layers,
        [study.over_realization] * len(which),
        cells.rho[which][:, :, : len(layers)],
        f", {KINDS[kind]}",
        f"layer-specialization-{kind}",
        kind == "cnn",
    )


def _matrices(study: CifarLuck, run: Run, cells: Cells, kind: str) -> tuple[Figure, ...]:
    """Of the first network of a kind."""
    first = _alive(cells, kind)[0]
    networks = cells.network[first]
    found = modulated(run, networks[networks >= 0][:1], study.source)
    return matrix_images(found, cells.titles[first], f"modulation-{kind}")


def story(study: CifarLuck, run: Run) -> Story:
    cells = Cells.of(study, run)
    if (cells.network < 0).all():
        return all_diverged(run, "--lr", study.lr)
    kinds = [kind for kind in study.networks if _alive(cells, kind)]
    columns = len(study.norm)
    figures = (
        Figure(
            "layer-curves",
            "How well every layer is matched",
            "How well a layer's teacher nodes are matched, each by its best student, over training.",
            "S2 fig 9",
            followed(
                study,
                run,
                cells.titles,
                layer_names(study.depth),
                cells.network,
                cells.rho,
                name="mean best correlation",
                limits=(0.0, 1.02),
                columns=columns,
            ),
        ),
        *(figure for kind in kinds for figure in _students(study, run, cells, kind)),
        *ranks_of_winners(study, run, cells.titles, cells.network, study.depth, columns=columns),
        *(figure for kind in kinds for figure in _matrices(study, run, cells, kind)),
        Figure(
            "accuracy",
            "And how well the labels are known",
            "Share of evaluation images whose label is the largest output. Students never see a label: they learn the "
            "outputs of their teacher (grey).",
            "S2 sec 5.2",
            followed(
                study,
                run,
                cells.titles,
                ("student", "teacher"),
                cells.network,
                np.stack([cells.accuracy, cells.teacher], axis=2),
                name="evaluation accuracy",
                colours=(style.BLUE, style.CONTEXT),
                columns=columns,
            ),
        ),
        Figure(
            "losses",
            "What that does to the loss",
            "Squared error against the teacher, averaged over outputs: on the evaluation images after each epoch, and "
            "over its steps on training images.",
            "S2 fig 19",
            losses(study, run, cells.titles, cells.network, "MSE loss"),
        ),
    )
    return Story(_headline(study, run, cells), _numbers(run, cells), figures)


def _ahead(cells: Cells) -> np.ndarray:
    """[setting]: accuracy of students beyond their teacher's as training ended, mean over seeds that are left."""
    last = (cells.accuracy - cells.teacher)[..., -1]
    return np.array([np.nanmean(row) if np.isfinite(row).any() else np.nan for row in last])


def _headline(study: CifarLuck, run: Run, cells: Cells) -> str:
    ahead, there = _ahead(cells), (cells.network >= 0).any(axis=1)
    parts = {
        points: f"{100 * points:+.1f} ({title})".replace("-", "−")
        for title, points in zip(cells.titles, ahead, strict=True)
        if np.isfinite(points)
    }
    between = " to ".join(dict.fromkeys((parts[min(parts)], parts[max(parts)])))
    grown = int((np.diff(_middle(cells.rho)[there][:, [0, -1]], axis=1) > 0).sum())
    rank = _middle(cells.rank)[there].mean(axis=0)
    return (
        f"Students of {study.over_realization:g} times the teacher's nodes end {between} points of accuracy from "
        f"their teacher; mean best correlations grow in {grown} of {counted(there.sum(), 'setting')}, and the final "
        f"winners' mean rank goes from {rank[0]:.2f} to {rank[1]:.2f} in the first epoch (mean of "
        f"{counted(study.seeds, 'seed')}).{some_diverged(run)}"
    )


def _middle(values: np.ndarray) -> np.ndarray:
    """[setting, epoch]: mean over the networks and layers that there are."""
    found = np.isfinite(values)
    return np.where(found, values, 0).sum(axis=(1, 2)) / np.maximum(found.sum(axis=(1, 2)), 1)


def _numbers(run: Run, cells: Cells) -> tuple[Number, ...]:
    numbers = [Number(f"{run.networks.num_rows:,}", "networks")]
    for i, (kind, norm) in enumerate(cells.settings):
        if (cells.network[i] >= 0).any() and norm == cells.settings[0][1]:
            numbers.append(
                Number(percent(float(np.nanmean(cells.teacher[i]))), f"accuracy of the {KINDS[kind]} teacher")
            )
    best = int(np.nanargmax(_ahead(cells)))
    numbers.append(Number(f"{100 * _ahead(cells)[best]:+.1f}", f"points of accuracy beyond it, {cells.titles[best]}"))
    return tuple(numbers)
