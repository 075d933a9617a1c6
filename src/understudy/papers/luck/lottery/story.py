"""The study of lottery tickets in words and figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure as PaperFigure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from understudy.lab.matrices import matrix_images, modulated
from understudy.papers.luck.lottery.claims import EXACT, Cell, cells
from understudy.papers.luck.lottery.study import TICKETS
from understudy.papers.specialization.deep.claims import at
from understudy.papers.specialization.deep.story import every_student, followed, some_diverged
from understudy.report import style
from understudy.report.figures import LayerCurves, LayerSpecialization
from understudy.report.figures import _plotly as pages
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.lottery.study import LotteryTickets

NAMES = {"reset": "reset", "redrawn": "re-initialised", "full": "full student"}
_COLOURS = {"reset": style.BLUE, "redrawn": style.VERMILLION, "full": style.HAIRLINE}
_ORDER = ("redrawn", "reset", "full")
"""Columns of the figure of pairs, from left to right."""
_REACH = 0.24


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
            Pairs(titles, tuple(found)),
        ),
        Figure(
            "loss-curves",
            "How they get there",
            "Evaluation loss over training, median and quartiles over seeds.",
            "",
            _curves(study, run, found, titles, run.series("eval_loss"), "MSE loss", log_y=True),
        ),
        Figure(
            "recovered",
            "What they find",
            "Share of the teacher's nodes that have a student above 0.95, over training: where one is missing, the "
            "loss stays high.",
            "",
            _curves(
                study, run, found, titles, run.series("recovered", 0), "teacher nodes recovered", limits=(0.0, 1.02)
            ),
        ),
        Figure(
            "layer-curves",
            "How well they match",
            "How well the teacher's nodes are matched, each by its best student, over training.",
            "",
            _curves(study, run, found, titles, run.series("rho_mean", 0), "mean best correlation", limits=(0.0, 1.02)),
        ),
        _every_student(study, run, found),
        *_ranks(study, run, found, titles),
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


def _curves(
    study: LotteryTickets,
    run: Run,
    found: list[Cell],
    titles: tuple[str, ...],
    series: np.ndarray,
    name: str,
    **more: Any,
) -> LayerCurves:
    """A panel a cell, a line a ticket."""
    network = np.stack([cell.network for cell in found])
    values = at(network, series)
    # Of a network only the line of its own ticket is there.
    own = np.full((*values.shape[:3], len(TICKETS), values.shape[3]), np.nan)
    for i in range(len(TICKETS)):
        own[:, i, :, i] = values[:, i]
    return followed(
        study,
        run,
        titles,
        tuple(NAMES[ticket] for ticket in TICKETS),
        network.reshape(len(found), -1),
        own.reshape(len(found), -1, len(TICKETS), values.shape[3]),
        name=name,
        colours=tuple(_COLOURS[ticket] for ticket in TICKETS),
        **more,
    )


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


def _ranks(study: LotteryTickets, run: Run, found: list[Cell], titles: tuple[str, ...]) -> tuple[Figure, ...]:
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
            _curves(study, run, found, titles, rank, "mean rank of final winners", bound=0.5, bound_words="chance"),
        ),
    )


def _matrices(study: LotteryTickets, run: Run, cell: Cell, title: str) -> list[Figure]:
    """Of the first network of reset winners and of the first full student."""
    (need,) = study.needs()
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


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every network's final loss in columns by ticket, the two of a seed joined; a panel a cell."""

    titles: tuple[str, ...]
    cells: tuple[Cell, ...]

    def _bottom(self) -> float:
        """Of the y axis, with the mark of an exact match in sight."""
        return min(EXACT, *(float(np.nanmin(cell.loss)) for cell in self.cells)) - 0.6

    def _seeds(self) -> int:
        return max(len(cell.gain) for cell in self.cells)

    def paper(self) -> PaperFigure:
        rows, columns = style.grid(len(self.cells), 3)
        with style.paper():
            figure, axes = style.panels(rows, columns, height=2.3, count=len(self.cells))
            for ax, title, cell in zip(axes, self.titles, self.cells, strict=True):
                pair = np.stack([cell.of("redrawn"), cell.of("reset")])
                for left, right in pair[:, np.isfinite(pair).all(axis=0)].T:
                    ax.plot([0, 1], [left, right], color=_joined(right - left), linewidth=0.5, alpha=0.55, zorder=1)
                for c, ticket in enumerate(_ORDER):
                    y = cell.of(ticket)[np.isfinite(cell.of(ticket))]
                    ax.scatter(np.full(len(y), c), y, s=11, color=_COLOURS[ticket], alpha=0.8, linewidths=0, zorder=3)
                    if len(y):
                        middle = float(np.median(y))
                        ax.plot([c - _REACH, c + _REACH], [middle, middle], color=style.INK, linewidth=0.9, zorder=4)
                ax.axhline(EXACT, color=style.SOFT, linewidth=0.7, linestyle=(0, (3, 2)), zorder=0)
                ax.set_title(title)
                ax.set_xticks(range(len(_ORDER)), [NAMES[ticket] for ticket in _ORDER])
                ax.set(xlim=(-0.5, len(_ORDER) - 0.5), ylim=(self._bottom(), None))
                ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
                ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: style.signed(y)))
            figure.supylabel("log₁₀ evaluation loss", fontsize=style.NORMAL)
            key: style.Key = (
                ("median", {"color": style.INK, "linewidth": 0.9}),
                ("exact", {"linestyle": (0, (3, 2)), "linewidth": 0.7}),
            )
            style.key(figure, key, f"n = {self._seeds()} seeds")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        _, columns = style.grid(len(self.cells), 3)
        data: list[pages.JSON] = []
        for panel, cell in enumerate(self.cells):
            xaxis, yaxis = pages.axes_of(panel)
            at = {"xaxis": xaxis, "yaxis": yaxis, "showlegend": False}
            data += [line | at for line in _lines(cell)]
            for c, ticket in enumerate(_ORDER):
                data += [points | at for points in _points(cell, c, ticket, self.titles[panel])]
        layout = pages.layout(
            self.titles,
            columns,
            x={
                "tickvals": list(range(len(_ORDER))),
                "ticktext": [NAMES[ticket] for ticket in _ORDER],
                "range": [-0.5, len(_ORDER) - 0.5],
            },
            y={"range": [self._bottom(), max(float(np.nanmax(cell.loss)) for cell in self.cells) + 0.6]},
            x_title="",
            y_title="log₁₀ evaluation loss",
            note=f"stroke: median; dashed: exact; n = {self._seeds()} seeds",
            row_height=320,
            column_width=230,
            legend=False,
        )
        across = {"type": "line", "x0": 0, "x1": 1, "y0": EXACT, "y1": EXACT}
        layout["shapes"] = [
            {
                **across,
                "xref": f"{pages.axes_of(panel)[0]} domain",
                "yref": pages.axes_of(panel)[1],
                "line": {"color": style.HAIRLINE, "width": 1, "dash": "dash"},
            }
            for panel in range(len(self.cells))
        ]
        return {"data": data, "layout": layout}


def _joined(change: float) -> str:
    """The colour of a pair's line: what ended higher stands out."""
    return style.CONTEXT if change < 0 else style.ORANGE


def _lines(cell: Cell) -> list[pages.JSON]:
    """The pairs of all seeds, two traces of lines with gaps."""
    pair = np.stack([cell.of("redrawn"), cell.of("reset")])
    pair = pair[:, np.isfinite(pair).all(axis=0)]
    traces = []
    for lower in (True, False):
        some = pair[:, (pair[1] < pair[0]) == lower].T
        if len(some):
            y = np.concatenate([some, np.full((len(some), 1), np.nan)], axis=1).ravel()
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": pages.numbers(np.tile([0.0, 1.0, np.nan], len(some))),
                    "y": pages.numbers(y),
                    "line": {"color": _joined(-1.0 if lower else 1.0), "width": 1},
                    "opacity": 0.6,
                    "hoverinfo": "skip",
                }
            )
    return traces


def _points(cell: Cell, column: int, ticket: str, title: str) -> list[pages.JSON]:
    """A ticket's networks, and a stroke at their median."""
    which = TICKETS.index(ticket)
    there = np.isfinite(cell.loss[which])
    if not there.any():
        return []
    y, words = cell.loss[which, there], f"<b>{NAMES[ticket]}</b>, {title}"
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [column - _REACH, column, column + _REACH],
            "y": [float(np.median(y))] * 3,
            "line": {"color": style.HAIRLINE, "width": 2},
            "hovertemplate": f"{words}<br>median %{{y:.2f}}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "x": pages.numbers(np.full(len(y), float(column))),
            "y": pages.numbers(y),
            "marker": {"size": 8, "color": _COLOURS[ticket], "opacity": 0.8},
            "customdata": pages.identity(cell.network[which, there], -1, -1),
            "hovertemplate": f"network %{{customdata[0]}}, {words}<br>log₁₀ loss %{{y:.2f}}<extra></extra>",
        },
    ]
