"""The L: specialised students have fan-out, the others have little."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Num
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from understudy._numbers import number
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_MOST_BYTES = 1_400_000
_POINT_BYTES = 19
"""Bytes of a dot at one epoch on the page: x, y, and the node it belongs to."""
_MANY = 5_000
_MOST_POINTS = 20_000


@dataclass(frozen=True, eq=False)
class StudentNodes:
    """The student nodes of one panel, at each of the figure's epochs."""

    correlation: Num[np.ndarray, "time node"]
    """Correlation with the best teacher node."""
    fan_out: Num[np.ndarray, "time node"]
    teacher: Int[np.ndarray, "time node"]
    """The best teacher node."""
    network: Int[np.ndarray, "node"]
    student: Int[np.ndarray, "node"]
    seed: Int[np.ndarray, "node"]

    def __post_init__(self) -> None:
        times, nodes = np.shape(self.correlation)
        agree(self, dict.fromkeys(("fan_out", "teacher"), (times, nodes)))
        agree(self, dict.fromkeys(("network", "student", "seed"), (nodes,)))


class NodeScatter:
    """Panels of student nodes, fan-out against best correlation, one colour per seed."""

    epochs: Num[np.ndarray, "time"]
    cells: tuple[tuple[StudentNodes, ...], ...]

    def _validate(self, rows: int, columns: int) -> None:
        name, times = type(self).__name__, len(self.epochs)
        if [len(row) for row in self.cells] != [columns] * rows:
            raise ValueError(f"{name}.cells must be {rows} rows of {columns} panels: give one per setting.")
        if any(len(c.correlation) != times for c in self._flat()):
            raise ValueError(f"each panel of {name} needs its nodes at all {times} epochs.")

    def _flat(self) -> list[StudentNodes]:
        return [cell for row in self.cells for cell in row]

    def _seeds(self) -> Int[np.ndarray, "seed"]:
        return np.unique(np.concatenate([c.seed for c in self._flat()]))

    def _left(self) -> float:
        """Left end of the axis of correlations: 0, or below the smallest correlation if that is negative."""
        lowest = min(c.correlation[np.isfinite(c.correlation)].min(initial=0.0) for c in self._flat())
        return math.floor(20 * lowest) / 20

    def _draw(self, ax: Axes, nodes: StudentNodes, time: int, *, many: bool, opacity: float) -> None:
        """Draw the nodes of a panel on paper."""
        seeds, order = self._seeds(), shuffled(nodes.seed.size)
        colours = np.array([to_rgb(c) for c in style.categories(len(seeds))]).reshape(-1, 3)
        ax.scatter(
            nodes.correlation[time, order],
            nodes.fan_out[time, order],
            s=4 if many else 7,
            c=colours[np.searchsorted(seeds, nodes.seed[order])],
            alpha=opacity,
            linewidths=0,
            rasterized=many,
            clip_on=False,
        )
        ax.set(xlim=(self._left(), 1.0), xticks=[0, 0.25, 0.5, 0.75, 1], xticklabels=["0", "", "0.5", "", "1"])

    def _film(
        self,
        kept: Sequence[Int[np.ndarray, "some"]],
        times: Sequence[int],
        titles: Sequence[str],
        hovers: Sequence[str],
        *,
        levels: Iterable[Sequence[int]],
        room: float = 1.05,
        opacity: float = 0.75,
        **layout: Any,
    ) -> pages.JSON:
        """Page JSON with some nodes of each panel at some epochs, and a slider over these that begins at the last.

        `hovers` are the hover texts of each panel after the node's name and correlation: its fan-out and its panel.
        `levels` are groups of panels with the same range of fan-out, wide enough for every epoch, so that the axes stay
        fixed; `room` is the end of the axis divided by the largest fan-out.
        """
        made = pages.layout(
            titles,
            len(self.cells[0]),
            x={"range": [self._left(), 1.02], "dtick": 0.25, "tickformat": "~g"},
            x_title="max correlation among teachers",
            column_width=220,
            legend=False,
            below=80 if len(times) > 1 else 0,
            **layout,
        )
        flat, seeds = self._flat(), self._seeds()
        for group in levels:
            high = max(c.fan_out[np.isfinite(c.fan_out)].max(initial=0.0) for c in (flat[i] for i in group))
            for i in group:
                axis = pages.axis(made, "y", i)
                axis.pop("matches", None)
                axis["range"] = [0, float(f"{room * high or 1.0:.4g}")]
                if i != group[0]:
                    axis["matches"] = pages.axes_of(group[0])[1]
        colours = style.categories(len(seeds))
        steps = [[(i + edge) / len(seeds), c] for i, c in enumerate(colours) for edge in (0, 1)]
        fast = sum(map(len, kept)) > _MANY
        data, frames = [], [[] for _ in times]  # type: list[pages.JSON], list[list[pages.JSON]]
        for i, (nodes, some) in enumerate(zip(flat, kept, strict=True)):
            for t, frame in zip(times, frames, strict=True):
                xy = pages.points(nodes.correlation[t, some], nodes.fan_out[t, some])
                whose = pages.identity(nodes.network[some], nodes.teacher[t, some], nodes.student[some])
                frame.append(xy | {"customdata": whose})
            marker = {
                "size": 4,
                "opacity": opacity,
                "color": pages.typed(np.searchsorted(seeds, nodes.seed[some]) % 256, "u1"),
                "colorscale": steps,
                "cmin": -0.5,
                "cmax": len(seeds) - 0.5,
            }
            data.append(
                {
                    "type": "scattergl" if fast else "scatter",
                    "mode": "markers",
                    **frames[-1][-1],
                    "marker": marker,
                    "hovertemplate": "network %{customdata[0]}, <b>student node %{customdata[2]}</b><br>correlation "
                    f"%{{x:.3f}} with teacher node %{{customdata[1]}}<br>{hovers[i]}",
                    "showlegend": False,
                    **pages.at(i),
                }
            )
        names = [f"{e:g}" for e in self.epochs[list(times)]]
        return pages.animated({"data": data, "layout": made}, names, frames, "epoch ")


def capacity(times: int) -> int:
    """Most dots on the page for a number of epochs; with several epochs, those shown first are stored twice."""
    return _MOST_BYTES // (_POINT_BYTES * (times + (times > 1)))


def shuffled(count: int) -> Int[np.ndarray, "node"]:
    """A fixed random order, so that no seed is drawn on top of the others."""
    return np.random.default_rng(0).permutation(count)


@dataclass(frozen=True, eq=False)
class Specialization(NodeScatter):
    """Fan-out norm against best correlation of every student node: rows are polarities, columns over-realizations.

    Tian 2020, fig. 5, and Tian 2019, fig. 3. One colour per seed. Paper shows the last epoch; the page has a slider.
    """

    polarities: Num[np.ndarray, "row"]
    multiples: Num[np.ndarray, "column"]
    epochs: Num[np.ndarray, "time"]
    cells: tuple[tuple[StudentNodes, ...], ...]
    """Panels by row, then by column."""
    losses: Num[np.ndarray, "row column"]
    """Median evaluation loss at the last epoch."""

    def __post_init__(self) -> None:
        shape = len(self.polarities), len(self.multiples)
        agree(self, {"losses": shape})
        self._validate(*shape)

    def shown_seeds(self) -> np.ndarray:
        """Seeds on the page: all, or as many as it has room for, evenly chosen."""
        seeds = self._seeds()
        points = sum(c.seed.size for c in self._flat())
        room = min(_MOST_POINTS, capacity(len(self.epochs)))
        return seeds if points <= room else seeds[style.evenly(len(seeds), max(1, int(len(seeds) * room / points)))]

    def paper(self) -> Figure:
        rows, columns = self.losses.shape
        many = sum(c.seed.size for c in self._flat()) > 2_000
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.3, sharey="row")
            for i, (ax, cell) in enumerate(zip(axes, self._flat(), strict=True)):
                row, column = divmod(i, columns)
                self._draw(ax, cell, -1, many=many, opacity=0.7)
                ax.set_title(f"{self.multiples[column]:g}×, loss = {style.number(self.losses[row, column])}")
                if column == 0:
                    ax.set_ylabel(f"p = {number(self.polarities[row], 'g')}")
            for ax in axes:
                ax.set_ylim(bottom=0)
            style.name_axes(figure, "max correlation among teachers", "fan-out norm ‖v‖")
            style.key(figure, [], f"epoch {self.epochs[-1]:g}, n = {len(self._seeds())} seeds (one colour each)")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        rows, columns = self.losses.shape
        seeds, shown = self._seeds(), self.shown_seeds()
        names = [f"p = {number(p, 'g')}, {m:g}×" for p in self.polarities for m in self.multiples]
        final = "final loss" if len(self.epochs) > 1 else "loss ="
        return self._film(
            [np.flatnonzero(np.isin(cell.seed, shown))[:_MOST_POINTS] for cell in self._flat()],
            range(len(self.epochs)),
            [f"{n}, {final} {style.number(loss)}" for n, loss in zip(names, self.losses.flat, strict=True)],
            [f"fan-out norm %{{y:.3g}}<extra>{name}</extra>" for name in names],
            levels=(range(r * columns, (r + 1) * columns) for r in range(rows)),
            y_title="fan-out norm ‖v‖",
            note=f"n = {len(seeds)} seeds" + ("" if len(shown) == len(seeds) else f", {len(shown)} shown"),
            row_height=190,
        )
