"""One number a network, side by side for a few settings, against a bound."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_REACH = 0.28


@dataclass(frozen=True, eq=False)
class Dots:
    """A point a network in a column a setting, the median as a stroke, and the bound that a claim sets."""

    labels: tuple[str, ...]
    """What the columns are called."""
    values: Num[np.ndarray, "column net"]
    """NaN where there is no network."""
    network: Int[np.ndarray, "column net"]
    name: str
    """What is counted or measured: the y axis."""
    x_name: str = ""
    bound: float | None = None
    bound_words: str = "bound"
    colours: tuple[str, ...] | None = None
    """One a column."""
    floor: float | None = None
    """Makes the y axis logarithmic: what is smaller, 0 too, is drawn there."""
    percent: bool = False

    def __post_init__(self) -> None:
        shape = (len(self.labels), np.shape(self.values)[-1])
        agree(self, {"values": shape, "network": shape})
        if self.colours is not None:
            agree(self, {"colours": (len(self.labels),)})

    def _places(self, column: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, y and network of the points of a column: equal values lie side by side."""
        there = np.flatnonzero(np.isfinite(self.values[column]))
        value = self.values[column, there]
        y = value if self.floor is None else np.maximum(value, self.floor)
        x = np.full(len(y), float(column))
        for level in np.unique(y):
            same = np.flatnonzero(y == level)
            step = min(0.09, 2 * _REACH / max(1, len(same) - 1))
            x[same] += step * (np.arange(len(same)) - (len(same) - 1) / 2)
        return x, y, self.network[column, there]

    def _colours(self) -> list[str]:
        return list(self.colours) if self.colours is not None else [style.BLUE] * len(self.labels)

    def _n(self) -> int:
        return int(np.isfinite(self.values).sum(axis=1).max(initial=0))

    def paper(self) -> Figure:
        with style.paper():
            figure, (ax,) = style.panels(1, 1, height=1.9)
            for c, colour in enumerate(self._colours()):
                x, y, _ = self._places(c)
                if len(y):
                    middle = float(np.median(y))
                    ax.plot([c - _REACH, c + _REACH], [middle, middle], color=style.INK, linewidth=0.9)
                ax.scatter(x, y, s=11, color=colour, alpha=0.75, linewidths=0, clip_on=False, zorder=3)
            if self.bound is not None:
                ax.axhline(self.bound, color=style.SOFT, linewidth=0.7, linestyle=(0, (3, 2)))
            if self.floor is not None:
                ticks = self._decades(self.floor)
                ax.set_yscale("log")
                ax.set_yticks(ticks, [self._tick(tick) for tick in ticks])
                ax.minorticks_off()
                ax.set_ylim(self.floor, 1.3 * ticks[-1])
            elif self.percent:
                ax.yaxis.set_major_formatter(PercentFormatter(1))
            else:
                ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
                ax.set_ylim(0, 1.08 * max(1.0, float(np.nanmax(self.values, initial=0)), self.bound or 0))
            ax.set_xticks(range(len(self.labels)), self.labels)
            ax.set(xlim=(-0.5, len(self.labels) - 0.5), xlabel=self.x_name, ylabel=self.name)
            entries: style.Key = (
                ("a network", {"linestyle": "none", "marker": "o", "color": self._colours()[0]}),
                ("median", {"color": style.INK, "linewidth": 0.9}),
                *([(self.bound_words, {"linestyle": (0, (3, 2)), "linewidth": 0.7})] if self.bound is not None else []),
            )
            style.key(figure, entries, f"n = {self._n()} seeds")
            return style.finish(figure)

    def _decades(self, floor: float) -> list[float]:
        """Powers of ten from the floor to above the largest value."""
        top = float(np.nanmax(self.values, initial=floor * 10))
        return [10.0**e for e in range(round(np.log10(floor)), int(np.ceil(np.log10(top))) + 1)]

    def _tick(self, value: float) -> str:
        below = "≤ " if self.floor is not None and value <= self.floor * 1.001 else ""
        return below + (f"{100 * value:g}%" if self.percent else f"{value:g}")

    def page(self) -> pages.JSON:
        data: list[pages.JSON] = []
        shown = "%{y:.2~%}" if self.percent else "%{y:.3~g}"
        for c, (label, colour) in enumerate(zip(self.labels, self._colours(), strict=True)):
            x, y, network = self._places(c)
            whose = f"network %{{customdata[0]}}, <b>{label}</b><br>{self.name}: {shown}<extra></extra>"
            if len(y):
                middle = float(np.median(y))
                data.append(
                    {
                        "type": "scatter",
                        "mode": "lines",
                        "x": [c - _REACH, c, c + _REACH],
                        "y": [middle] * 3,
                        "line": {"color": style.HAIRLINE, "width": 2},
                        "hovertemplate": f"<b>{label}</b><br>median {shown}<extra></extra>",
                    }
                )
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": pages.numbers(x),
                    "y": pages.numbers(y),
                    "marker": {"size": 8, "color": colour, "opacity": 0.8},
                    "customdata": pages.identity(network, -1, -1) if len(y) else [],
                    "hovertemplate": whose,
                }
            )
        words = f"; dashed: {self.bound_words}" if self.bound is not None else ""
        y_axis: pages.JSON = {"tickformat": ".0%"} if self.percent else {}
        if self.floor is not None:
            ticks = self._decades(self.floor)
            y_axis = {"type": "log", "tickvals": ticks, "ticktext": [self._tick(tick) for tick in ticks]}
        else:
            y_axis["rangemode"] = "tozero"
        layout = pages.layout(
            [""],
            1,
            x={
                "tickvals": list(range(len(self.labels))),
                "ticktext": list(self.labels),
                "range": [-0.5, len(self.labels) - 0.5],
            },
            y=y_axis,
            x_title=self.x_name,
            y_title=self.name,
            note=f"stroke: median, n = {self._n()} seeds{words}",
            x_left=True,
            row_height=260,
            legend=False,
        )
        if self.bound is not None:
            line = {"color": style.HAIRLINE, "width": 1, "dash": "dash"}
            across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": self.bound, "y1": self.bound}
            layout["shapes"] = [{**across, "line": line}]
        return {"data": data, "layout": layout}
