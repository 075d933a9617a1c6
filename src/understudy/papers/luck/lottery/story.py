"""Figures and headline of `lottery` (Tian et al. 2019, fig. 3)."""

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from understudy.claims import number
from understudy.lab.layers import STUDENTS_CAPTION, first_network, layer_specialization, some_diverged
from understudy.lab.matrices import matrix_images, measure_modulation
from understudy.papers.luck.lottery.claims import EXACT, compared, exact, final_losses, gain, middle
from understudy.papers.luck.lottery.study import TICKETS, LotteryTickets
from understudy.report import style
from understudy.report.figures import Curves, Dots, LayerSpecialization
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

Titles = dict[tuple[float, float], str]
"""Titles of the panels by polarity and multiple, those with networks that converged only."""

NAMES = {"reset": "reset", "redrawn": "re-initialised", "full": "full student"}
_COLOURS = {"reset": style.BLUE, "redrawn": style.VERMILLION, "full": style.HAIRLINE}
_ORDER = ("redrawn", "reset", "full")
"""Columns of the figure of pairs, from left to right."""


def story(study: LotteryTickets, run: Run) -> Story:
    """Final losses of every network, then how they are reached, and which nodes are matched."""
    losses = final_losses(run)
    cells = compared(losses)
    if not cells:
        words = "In every seed reset or re-initialised winners diverged: choose a smaller --lr than "
        count = Number(f"{run.networks.num_rows:,}", "networks")
        return Story(f"{words}{study.lr:g}.{some_diverged(run)}", (count,), ())
    several = len({p for p, _ in cells}) > 1
    titles = {(p, k): f"{k:g}×" + (f", p = {p:g}" if several else "") for p, k in cells}
    figures = (
        Figure(
            "tickets",
            "Winners win because of their initial weights",
            f"Evaluation loss at the end, one point per network: the {study.teacher_nodes} winners with their initial "
            "weights, as many redrawn nodes, and the student that the winners were taken from. A line joins the "
            "networks of a seed, orange where the redrawn nodes ended lower.",
            "S2 fig. 3, measured",
            pairs(losses, titles),
        ),
        Figure(
            "loss-curves",
            "How they get there",
            "Evaluation loss over training, median and quartiles over seeds.",
            "",
            _curves(run, titles, "eval_loss", "MSE loss", log_y=True),
        ),
        Figure(
            "recovered",
            "Which teacher nodes they find",
            "Share of the teacher's nodes that have a student above 0.95, over training: where one is missing, the "
            "loss stays high.",
            "",
            _curves(run, titles, "recovered", "teacher nodes recovered", layer=0, limits=(0.0, 1.02)),
        ),
        Figure(
            "layer-curves",
            "How well they match",
            "Mean correlation of teacher nodes with their best students over training.",
            "",
            _curves(run, titles, "rho_mean", "mean best correlation", layer=0, limits=(0.0, 1.02)),
        ),
        _students(run, titles),
        *([] if "mean_rank" not in run.metric_names else [_ranks(run, titles)]),
        *_matrices(study, run, losses, titles),
    )
    return Story(_headline(study, run, cells, titles), _numbers(run, cells, titles), figures)


def _select(values: xr.DataArray, titles: Titles) -> xr.DataArray:
    """The values of the titled polarities and multiples along one dimension `cell`, with the titles as coordinate."""
    cells = values.stack(cell=("polarity", "multiple")).sel(cell=list(titles))
    return cells.drop_vars(("cell", "polarity", "multiple")).assign_coords(cell=list(titles.values()))


def _curves(run: Run, titles: Titles, metric: str, name: str, layer: int = -1, **more: Any) -> Curves:
    """One panel per polarity and multiple, one line per ticket."""
    values = _select(run.array(metric, "polarity multiple ticket seed epoch", layer=layer), titles)
    colours = [_COLOURS[ticket] for ticket in values["ticket"].to_numpy()]
    return Curves.from_array(values, panel="cell", line="ticket", name=name, labels=NAMES, colours=colours, **more)


def pairs(losses: xr.DataArray, titles: Titles) -> Dots:
    """Final loss of every network: one column per ticket, one panel per title; the tickets of a seed are joined."""
    values = _select(losses.sel(ticket=list(_ORDER)), titles).transpose("cell", "ticket", "seed")
    return Dots(
        tuple(NAMES[ticket] for ticket in _ORDER),
        values.to_numpy(),
        values["network"].transpose("cell", "ticket", "seed").to_numpy(),
        "log₁₀ evaluation loss",
        bound=EXACT,
        bound_words="exact",
        colours=tuple(_COLOURS[ticket] for ticket in _ORDER),
        titles=tuple(titles.values()),
        joined=(0, 1),
    )


def _students(run: Run, titles: Titles) -> Figure:
    """Every student at the largest polarity: one row per ticket, one column per multiple."""
    polarity, _ = list(titles)[-1]
    rho = run.array("rho_mean", "multiple ticket seed layer epoch", polarity=polarity)
    shown = {k: title for (p, k), title in titles.items() if p == polarity}
    each = [layer_specialization(run, rho.sel(multiple=k), "ticket", NAMES) for k in shown]
    return Figure(
        "layer-specialization",
        "Which students match, and which contribute",
        f"{STUDENTS_CAPTION} Reset and re-initialised networks have no node to spare.",
        "S0 fig. 5, S1 fig. 3",
        LayerSpecialization(
            each[0].groups,
            each[0].epochs,
            tuple(zip(*([row[0] for row in kind.cells] for kind in each), strict=True)),
            np.concatenate([kind.rho_mean for kind in each], axis=1),
            layers=tuple(shown.values()),
        ),
    )


def _ranks(run: Run, titles: Titles) -> Figure:
    return Figure(
        "mean-rank",
        "How early they were ahead",
        "Mean rank, among all students of a network, of the students that match best in the end: 0 is first, 0.5 "
        "(dashed) is chance.",
        "S2 fig. 8, for two layers",
        _curves(run, titles, "mean_rank", "mean rank of final winners", layer=0, bound=(0.5, "chance")),
    )


def _matrices(study: LotteryTickets, run: Run, losses: xr.DataArray, titles: Titles) -> list[Figure]:
    """H* and β* of the first network of reset winners and of the first full student, of the last title."""
    (polarity, multiple), title = list(titles.items())[-1]
    (two_layer,) = study.depends_on()
    figures = []
    for ticket, words in (("reset", "reset winners"), ("full", "full student")):
        network = first_network(losses.sel(polarity=polarity, multiple=multiple, ticket=ticket))
        if len(network):
            found = measure_modulation(run, network, two_layer.source)
            images = matrix_images(found, f"{words}, {title}", f"modulation-{ticket}")
            figures += [replace(figure, title=f"{figure.title}: {words}") for figure in images]
    return figures


def won_again(run: Run, cell: xr.DataArray) -> np.ndarray:
    """Share of teacher nodes, [network], whose best student at the end is the winner that was kept for it.

    Winners are in the order of the teacher nodes that they won.
    """
    networks = cell.sel(ticket="reset")["network"].to_numpy()
    best = run.matched("teacher", "student", epoch=int(run.epochs[-1]))[networks[networks >= 0]]
    again: np.ndarray = (best == np.arange(best.shape[1])).mean(axis=1)
    return again


def _headline(study: LotteryTickets, run: Run, cells: dict[tuple[float, float], xr.DataArray], titles: Titles) -> str:
    def lower(place: tuple[float, float]) -> str:
        ratio, equal = gain(cells[place]), exact(cells[place], "reset")
        words = f"in {(ratio < 0).sum()} of {counted(len(ratio), 'seed')} at {titles[place]}"
        return words + (f", where {equal} reached the teacher exactly" if equal else "")

    last = list(cells)[-1]
    reset, redrawn, full = (number(middle(cells[last], ticket), ".2f") for ticket in TICKETS)
    return (
        f"Reset to their initial weights, the {study.teacher_nodes} winners ended at a lower loss than as many "
        f"re-initialised nodes {', '.join(map(lower, cells))}; median log10 losses at {titles[last]} are {reset} "
        f"reset, {redrawn} re-initialised, {full} for the full student.{some_diverged(run)}"
    )


def _numbers(run: Run, cells: dict[tuple[float, float], xr.DataArray], titles: Titles) -> tuple[Number, ...]:
    place, cell = list(cells.items())[-1]
    again, words, ratio = won_again(run, cell), titles[place], gain(cell)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{(ratio < 0).sum()} of {len(ratio)}", f"seeds in which reset winners end lower, {words}"),
        Number(f"{exact(cell, 'reset')} of {len(again)}", f"reset networks reach the teacher exactly, {words}"),
        Number(f"{again.mean():.0%}", f"of teacher nodes won again by the same winner, {words}"),
    )
