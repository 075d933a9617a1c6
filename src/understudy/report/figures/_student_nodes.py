"""Scatter plots of student nodes, fan-out against best correlation: shared by the kinds that draw the L."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_MOST_BYTES = 1_400_000
_POINT_BYTES = 19
"""Bytes of a dot at one epoch on the page: x, y, and the node it belongs to."""
_MANY = 5_000


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


Cells = tuple[tuple[StudentNodes, ...], ...]
"""Panels by row, then by column."""


def refuse(kind: object, cells: Cells, shape: tuple[int, int], times: int) -> None:
    """Raise ValueError if panels are missing or lack epochs."""
    name = type(kind).__name__
    if [len(row) for row in cells] != [shape[1]] * shape[0]:
        raise ValueError(f"{name}.cells must be {shape[0]} rows of {shape[1]} panels: give one per setting.")
    if any(len(c.correlation) != times for row in cells for c in row):
        raise ValueError(f"each panel of {name} needs its nodes at all {times} epochs.")


def seeds_of(cells: Cells) -> Int[np.ndarray, "seed"]:
    return np.unique(np.concatenate([c.seed for row in cells for c in row]))


def capacity(times: int) -> int:
    """Most dots on the page for a number of epochs; with several epochs, those shown first are stored twice."""
    return _MOST_BYTES // (_POINT_BYTES * (times + (times > 1)))


def shuffled(count: int) -> Int[np.ndarray, "node"]:
    """A fixed random order, so that no seed is drawn on top of the others."""
    return np.random.default_rng(0).permutation(count)


def top(panels: Iterable[StudentNodes], times: Sequence[int] | slice = slice(None)) -> float:
    """The largest fan-out of some panels."""
    return max((c.fan_out[times][np.isfinite(c.fan_out[times])].max(initial=0.0) for c in panels), default=0.0)


def left(cells: Cells) -> float:
    """Left end of the axis of correlations: 0, or below the smallest correlation if that is negative."""
    lowest = min(
        (c.correlation[np.isfinite(c.correlation)].min(initial=0.0) for row in cells for c in row), default=0.0
    )
    return math.floor(20 * lowest) / 20


def dots(
    ax: Axes,
    nodes: StudentNodes,
    time: int,
    seeds: Int[np.ndarray, "seed"],
    *,
    left: float,
    many: bool,
    opacity: float,
) -> None:
    """Draw the nodes of a panel on paper, one colour per seed."""
    colours = np.array([to_rgb(c) for c in style.categories(len(seeds))]).reshape(-1, 3)
    order = shuffled(nodes.seed.size)
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
    ax.set(xlim=(left, 1.0), xticks=[0, 0.25, 0.5, 0.75, 1], xticklabels=["0", "", "0.5", "", "1"])


def film(
    cells: Cells,
    kept: Sequence[Int[np.ndarray, "some"]],
    times: Sequence[int],
    epochs: Num[np.ndarray, "time"],
    hovers: Sequence[str],
    layout: pages.JSON,
    opacity: float = 0.75,
) -> pages.JSON:
    """Page JSON with some nodes of each panel at some epochs, and a slider over these that begins at the last.

    `hovers` are the hover texts of each panel after the node's name and correlation: its fan-out and its panel.
    """
    seeds = seeds_of(cells)
    colours = style.categories(len(seeds))
    steps = [[(i + edge) / len(seeds), c] for i, c in enumerate(colours) for edge in (0, 1)]
    fast = sum(map(len, kept)) > _MANY
    data, frames = [], [[] for _ in times]  # type: list[pages.JSON], list[list[pages.JSON]]
    for i, (nodes, some) in enumerate(zip((c for row in cells for c in row), kept, strict=True)):
        xaxis, yaxis = pages.axes_of(i)
        for t, frame in zip(times, frames, strict=True):
            frame.append(
                {
                    "x": pages.numbers(nodes.correlation[t, some]),
                    "y": pages.numbers(nodes.fan_out[t, some]),
                    "customdata": pages.identity(nodes.network[some], nodes.teacher[t, some], nodes.student[some]),
                }
            )
        data.append(
            {
                "type": "scattergl" if fast else "scatter",
                "mode": "markers",
                **frames[-1][-1],
                "marker": {
                    "size": 4,
                    "opacity": opacity,
                    "color": pages.typed(np.searchsorted(seeds, nodes.seed[some]) % 256, "u1"),
                    "colorscale": steps,
                    "cmin": -0.5,
                    "cmax": len(seeds) - 0.5,
                },
                "hovertemplate": "network %{customdata[0]}, <b>student node %{customdata[2]}</b><br>correlation "
                f"%{{x:.3f}} with teacher node %{{customdata[1]}}<br>{hovers[i]}",
                "showlegend": False,
                "xaxis": xaxis,
                "yaxis": yaxis,
            }
        )
    page: pages.JSON = {"data": data, "layout": layout}
    if len(times) > 1:
        names = [f"{e:g}" for e in epochs[list(times)]]
        layout["sliders"] = pages.slider(names, "epoch ")
        page["frames"] = [
            {"name": n, "data": f, "traces": list(range(len(f)))} for n, f in zip(names, frames, strict=True)
        ]
    return page


def level(layout: pages.JSON, together: Iterable[Sequence[int]], cells: Cells, room: float = 1.05) -> None:
    """Give panels in one group the same range of fan-out, wide enough for every epoch, so that the axes stay fixed.

    `room` is the end of the axis divided by the largest fan-out.
    """
    flat = [c for row in cells for c in row]
    for panels in together:
        high = top(flat[i] for i in panels)
        for i in panels:
            axis = layout["yaxis" + pages.axes_of(i)[1][1:]]
            axis.pop("matches", None)
            axis.pop("rangemode", None)
            axis["range"] = [0, float(f"{room * high or 1.0:.4g}")]
            if i != panels[0]:
                axis["matches"] = pages.axes_of(panels[0])[1]
