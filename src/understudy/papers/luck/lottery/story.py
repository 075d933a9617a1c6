"""The study of lottery tickets in words and figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from understudy.lab.matrices import matrix_images, modulated
from understudy.papers.luck.lottery.claims import EXACT, Cell, cells
from understudy.papers.luck.lottery.study import TICKETS
from understudy.papers.specialization.deep.claims import at
from understudy.papers.specialization.deep.story import every_student, some_diverged
from understudy.report import style
from understudy.report.figures import Curves, Dots, LayerSpecialization
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.lottery.study import LotteryTickets

NAMES = {"reset": "reset", "redrawn": "re-initialised", "full": "full student"}
_COLOURS = {"reset": style.BLUE, "redrawn": style.VERMILLION, "full": style.HAIRLINE}
_ORDER = ("redrawn", "reset", "full")
"""Columns of the figure of pairs, from left to right."""


def story(study: LotteryTickets, run: Run) -> Story:
    found = [cell for cell in cells(study, run) if len(cell.gain)]
    if not found:
        words = "In no seed did winners come through both reset and re-initialised: choose a smaller --lr than "
        count = Number(f"{run.networks.num_rows:,}", "networks")
        return Story(f"{words}{study.lr:g}.{some_diverged(run)}", (count,), ())
    titles = tuple(_title(cell, found) for cell in found)
    figures = (
        Figure(
            "tickets",
            "Winners are won by their first weights",
            f"Evaluation loss at the end, a point a network: the {study.teacher_nodes} winners with their first "
            "weights again, as many nodes drawn anew, and the student they were taken from. A line joins the two of "
            "a seed, orange where the new draw ended lower.",
            "S2 fig 3, measured",
            pairs(titles, found),
        ),
        Figure(
            "loss-curves",
            "How they get there",
            "Evaluation loss over training, median and quartiles over seeds.",
            "",
            _curves(run, found, titles, run.series("eval_loss"), "MSE loss", log_y=True),
        ),
        Figure(
            "recovered",
            "What they find",
            "Share of the teacher's nodes that have a student above 0.95, over training: where one is missing, the "
            "loss stays high.",
            "",
            _curves(run, found, titles, run.series("recovered", 0), "teacher nodes recovered", limits=(0.0, 1.02)),
        ),
        Figure(
            "layer-curves",
            "How well they match",
            "How well the teacher's nodes are matched, each by its best student, over training.",
            "",
            _curves(run, found, titles, run.series("rho_mean", 0), "mean best correlation", limits=(0.0, 1.02)),
        ),
        _every_student(study, run, found),
        *_ranks(run, found, titles),
        *_matrices(study, run, found[-1], titles[-1]),
    )
    return Story(_headline(study, run, found), _numbers(run, found), figures)


def _title(cell: Cell, of: list[Cell]) -> str:
    several = len({other.polarity for other in of}) > 1
    return f"{cell.multiple:g}×" + (f", p = {cell.polarity:g}" if several else "")


def won_again(run: Run, cell: Cell) -> np.ndarray:
    """[seed]: share of teacher nodes whose best student at the end is the winner that was kept for it.

    Winners stand in the order of the teacher nodes that they won.
    """
    networks = cell.network[TICKETS.index("reset")]
    best = run.matched("teacher", "student", epoch=int(run.epochs[-1]))[networks[networks >= 0]]
    return (best == np.arange(best.shape[1])).mean(axis=1)


def _curves(run: Run, found: list[Cell], titles: tuple[str, ...], series: np.ndarray, name: str, **more: Any) -> Curves:
    """One panel per cell, one line per ticket."""
    network = np.stack([cell.network for cell in found])
    array = xr.DataArray(
        at(network, series),
        dims=("cell", "ticket", "seed", "epoch"),
        coords={
            "cell": list(titles),
            "ticket": [NAMES[ticket] for ticket in TICKETS],
            "epoch": run.epochs,
            "network": (("cell", "ticket", "seed"), network),
        },
    )
    colours = [_COLOURS[ticket] for ticket in TICKETS]
    return Curves.from_array(array, panel="cell", line="ticket", name=name, colours=colours, **more)


def _every_student(study: LotteryTickets, run: Run, found: list[Cell]) -> Figure:
    """A column a cell, where deeper networks have a layer; at the polarity that the headline ends with, as more cannot
    be read."""
    shown = [cell for cell in found if cell.polarity == found[-1].polarity]
    names = tuple(NAMES[ticket] for ticket in TICKETS)
    rho = run.series("rho_mean", 0)
    figures: list[Figure] = []
    for cell in shown:
        multiples = [cell.multiple if ticket == "full" else 1.0 for ticket in TICKETS]
        each = at(cell.network, rho)[:, :, None]
        figures += every_student(run, names, cell.network, (study.teacher_nodes,), multiples, each)
    kinds = [figure.kind for figure in figures if isinstance(figure.kind, LayerSpecialization)]
    return replace(
        figures[-1],
        title="Who matches, and who counts",
        caption=f"{figures[-1].caption} Reset and re-initialised networks have no node to spare.",
        source="S0 fig 5, S1 fig 3",
        kind=LayerSpecialization(
            names,
            kinds[0].epochs,
            tuple(zip(*([row[0] for row in kind.cells] for kind in kinds), strict=True)),
            np.concatenate([kind.rho_mean for kind in kinds], axis=1),
            layers=tuple(_title(cell, found) for cell in shown),
        ),
    )


def _ranks(run: Run, found: list[Cell], titles: tuple[str, ...]) -> tuple[Figure, ...]:
    """Where the run looked its students' ranks up."""
    rank = run.series("mean_rank", 0)
    if not np.isfinite(rank).any():
        return ()
    return (
        Figure(
            "mean-rank",
            "How early they were ahead",
            "Where the students that match best in the end stood among all students of their network before: 0 is "
            "first, 0.5 (dashed) is chance.",
            "S2 fig 8, of two layers",
            _curves(run, found, titles, rank, "mean rank of final winners", bound=(0.5, "chance")),
        ),
    )


def _matrices(study: LotteryTickets, run: Run, cell: Cell, title: str) -> list[Figure]:
    """Of the first network of reset winners and of the first full student."""
    (need,) = study.depends_on()
    figures = []
    for ticket, words in (("reset", "reset winners"), ("full", "full student")):
        networks = cell.network[TICKETS.index(ticket)]
        if (networks >= 0).any():
            found = modulated(run, networks[networks >= 0][:1], need.source)
            drawn = matrix_images(found, f"{words}, {title}", f"modulation-{ticket}")
            figures += [replace(figure, title=f"{figure.title}: {words}") for figure in drawn]
    return figures


def _headline(study: LotteryTickets, run: Run, found: list[Cell]) -> str:
    def lower(cell: Cell) -> str:
        exact = cell.exact["reset"]
        words = f"in {(cell.gain < 0).sum()} of {counted(len(cell.gain), 'seed')} at {_title(cell, found)}"
        return words + (f", where {exact} reached the teacher exactly" if exact else "")

    widest = found[-1]
    reset, redrawn, full = (style.signed(round(widest.median(t), 2)) for t in TICKETS)
    return (
        f"Reset to their first weights, the {study.teacher_nodes} winners ended below as many re-initialised nodes "
        f"{', '.join(map(lower, found))}; median log10 losses at {_title(widest, found)} are {reset} reset, {redrawn} "
        f"re-initialised, {full} for the full student.{some_diverged(run)}"
    )


def _numbers(run: Run, found: list[Cell]) -> tuple[Number, ...]:
    last = found[-1]
    again, words = won_again(run, last), _title(last, found)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{(last.gain < 0).sum()} of {len(last.gain)}", f"seeds in which reset winners end lower, {words}"),
        Number(f"{last.exact['reset']} of {len(again)}", f"reset networks reach the teacher exactly, {words}"),
        Number(f"{again.mean():.0%}", f"of teacher nodes won again by the same winner, {words}"),
    )


def pairs(titles: tuple[str, ...], found: list[Cell]) -> Dots:
    """Final loss of every network, one column per ticket and one panel per cell; tickets of a seed are joined."""
    columns = [TICKETS.index(ticket) for ticket in _ORDER]
    return Dots(
        tuple(NAMES[ticket] for ticket in _ORDER),
        np.stack([cell.loss[columns] for cell in found]),
        np.stack([cell.network[columns] for cell in found]),
        "log₁₀ evaluation loss",
        bound=EXACT,
        bound_words="exact",
        colours=tuple(_COLOURS[ticket] for ticket in _ORDER),
        titles=titles,
        joined=(0, 1),
    )
