"""One value per network, side by side for a few settings, compared with a bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from understudy._numbers import number, typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree
from understudy.report.story import counted

_REACH = 0.28
_DASHED = (0, (3, 2))


@dataclass(frozen=True, eq=False)
class Dots:
    """One point per network in one column per setting, with the median as a stroke and an optional bound."""

    labels: tuple[str, ...]
    """Names of the columns."""
    values: Num[np.ndarray, "*panel column net"]
    """NaN where there is no network."""
    network: Int[np.ndarray, "*panel column net"]
    name: str
    """What is counted or measured: the name of the y axis."""
    x_name: str = ""
    bound: float | None = None
    bound_words: str = "bound"
    colours: tuple[str, ...] | None = None
    """One colour per column."""
    floor: float | None = None
    """Makes the y axis logarithmic; smaller values, 0 included, are drawn here."""
    percent: bool = False
    titles: tuple[str, ...] = ("",)
    """Titles of the panels, where values have a leading panel axis."""
    joined: tuple[int, int] | None = None
    """Two columns whose points belong together in pairs: a line joins each pair, orange where the second is higher."""

    def __post_init__(self) -> None:
        typeset_fields(self, "labels", "name", "x_name", "bound_words", "titles")
        panels = (len(self.titles),) if np.ndim(self.values) > 2 else ()
        shape = (*panels, len(self.labels), np.shape(self.values)[-1])
        agree(self, {"values": shape, "network": shape})
        if self.colours is not None:
            agree(self, {"colours": (len(self.labels),)})

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, tuple[np.ndarray, np.ndarray]], name: str, x_name: str = "", **more: Any
    ) -> Dots:
        """Columns of different lengths.

        Args:
            columns: Values and networks of each column, by its name.
            name: What is counted or measured: the name of the y axis.
            x_name: Name of the x axis.
            **more: Other fields.

        Returns:
            The figure, with shorter columns filled up with NaN.
        """
        most = max((len(values) for values, _ in columns.values()), default=0)
        values, network = np.full((len(columns), max(1, most)), np.nan), np.full((len(columns), max(1, most)), -1)
        for row, (own, numbers) in enumerate(columns.values()):
            values[row, : len(own)], network[row, : len(own)] = own, numbers
        return cls(tuple(columns), values, network, name, x_name, **more)

    def _panels(self) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """Title, values and networks [column, net] of each panel."""
        shape = (len(self.titles), len(self.labels), -1)
        return list(zip(self.titles, self.values.reshape(shape), self.network.reshape(shape), strict=True))

    def _places(self, values: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x and y of the points of a column, and which networks they are: equal values lie side by side."""
        there = np.flatnonzero(np.isfinite(values[column]))
        value = values[column, there]
        y = value if self.floor is None else np.maximum(value, self.floor)
        x = np.full(len(y), float(column))
        for level in np.unique(y) if self.joined is None else ():
            same = np.flatnonzero(y == level)
            step = min(0.09, 2 * _REACH / max(1, len(same) - 1))
            x[same] += step * (np.arange(len(same)) - (len(same) - 1) / 2)
        return x, y, there

    def _pairs(self, values: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """Colour and ends [pair, 2] of the lines that fall, then of those that rise."""
        if self.joined is None:
            return []
        both = values[list(self.joined)]
        both = both[:, np.isfinite(both).all(axis=0)].T
        falls = both[:, 1] < both[:, 0]
        return [
            (colour, ends) for colour, ends in ((style.CONTEXT, both[falls]), (style.ORANGE, both[~falls])) if len(ends)
        ]

    def _colours(self) -> list[str]:
        return list(self.colours) if self.colours is not None else [style.BLUE] * len(self.labels)

    def _note(self) -> str:
        return f"n = {counted(int(np.isfinite(self.values).sum(axis=-1).max(initial=0)), 'seed')}"

    def _limits(self) -> tuple[float, float]:
        """Ends of a linear axis: from 0, or from below the least value where that is negative."""
        known = np.append(self.values[np.isfinite(self.values)], 0.0 if self.bound is None else self.bound)
        low, high = float(known.min()), float(known.max())
        if low >= 0:
            return 0.0, 1.08 * max(1.0, high)
        return low - 0.06 * (high - low), high + 0.06 * (high - low)

    def paper(self) -> Figure:
        """Draw the figure for paper."""
        rows, columns = style.grid(len(self.titles), 3)
        with style.paper():
            height = 1.9 if self.joined is None else 2.3
            figure, axes = style.panels(rows, columns, height=height, count=len(self.titles))
            for ax, (title, values, _) in zip(axes, self._panels(), strict=True):
                self._draw(ax, values)
                ax.set_title(title)
                ax.set_xticks(range(len(self.labels)), self.labels)
                ax.set(xlim=(-0.5, len(self.labels) - 0.5), xlabel=self.x_name)
            if len(axes) == 1:
                axes[0].set_ylabel(self.name)
            else:
                figure.supylabel(self.name, fontsize=style.NORMAL)
            entries: style.Key = (
                ("a network", {"linestyle": "none", "marker": "o", "color": self._colours()[0]}),
                ("median", {"color": style.INK, "linewidth": 0.9}),
                *([(self.bound_words, {"linestyle": _DASHED, "linewidth": 0.7})] if self.bound is not None else []),
            )
            style.key(figure, entries, self._note())
            return style.finish(figure)

    def _draw(self, ax: Axes, values: np.ndarray) -> None:
        for colour, pairs in self._pairs(values):
            ax.plot(list(self.joined or ()), pairs.T, color=colour, linewidth=0.5, alpha=0.55, zorder=1)
        for c, colour in enumerate(self._colours()):
            x, y, _ = self._places(values, c)
            if len(y):
                middle = float(np.median(y))
                ax.plot([c - _REACH, c + _REACH], [middle, middle], color=style.INK, linewidth=0.9)
            ax.scatter(x, y, s=11, color=colour, alpha=0.75, linewidths=0, clip_on=False, zorder=3)
        if self.bound is not None:
            ax.axhline(self.bound, color=style.SOFT, linewidth=0.7, linestyle=_DASHED)
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
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: number(y, "g")))
            ax.set_ylim(*self._limits())

    def _decades(self, floor: float) -> list[float]:
        """Powers of ten from the floor to above the largest value."""
        top = float(np.nanmax(self.values, initial=floor * 10))
        return [10.0**e for e in range(round(np.log10(floor)), int(np.ceil(np.log10(top))) + 1)]

    def _tick(self, value: float) -> str:
        below = "≤ " if self.floor is not None and value <= self.floor * 1.001 else ""
        return below + (number(100 * value, ".0e") + "%" if self.percent else number(value, ".0e"))

    def page(self) -> pages.JSON:
        """Traces and layout for the page."""
        data: list[pages.JSON] = []
        for p, panel in enumerate(self._panels()):
            data += self._traces(p, *panel)
        bound = f"; dashed: {self.bound_words}" if self.bound is not None else ""
        layout = pages.layout(
            self.titles,
            style.grid(len(self.titles), 3)[1],
            x={
                "tickvals": list(range(len(self.labels))),
                "ticktext": list(self.labels),
                "range": [-0.5, len(self.labels) - 0.5],
            },
            y=self._y_axis(),
            x_title=self.x_name,
            y_title=self.name,
            note=f"stroke: median, {self._note()}{bound}",
            x_left=True,
            row_height=260 if self.joined is None else 320,
            column_width=170 if self.joined is None else 230,
            legend=False,
        )
        if self.bound is not None:
            layout["shapes"] = [pages.across(p, self.bound) for p in range(len(self.titles))]
        return {"data": data, "layout": layout}

    def _traces(self, p: int, title: str, values: np.ndarray, network: np.ndarray) -> list[pages.JSON]:
        data: list[pages.JSON] = []
        value = "%{y:.2~%}" if self.percent else "%{y:.3~g}"
        for colour, pairs in self._pairs(values):
            x = np.tile([*(self.joined or ()), np.nan], len(pairs))
            y = np.column_stack([pairs, np.full(len(pairs), np.nan)]).ravel()
            data.append(pages.scatter(p, x, y, line={"color": colour, "width": 1}, opacity=0.6, hoverinfo="skip"))
        for c, (label, colour) in enumerate(zip(self.labels, self._colours(), strict=True)):
            x, y, there = self._places(values, c)
            setting = f"<b>{label}</b>" + (f", {title}" if title else "")
            if len(y):
                line = {"color": style.HAIRLINE, "width": 2}
                hover = f"{setting}<br>median {value}<extra></extra>"
                stroke = [c - _REACH, c, c + _REACH], [float(np.median(y))] * 3
                data.append(pages.scatter(p, *stroke, line=line, hovertemplate=hover))
            data.append(
                pages.scatter(
                    p,
                    x,
                    y,
                    "markers",
                    marker={"size": 8, "color": colour, "opacity": 0.8},
                    customdata=pages.identity(network[c, there], -1, -1) if len(y) else [],
                    hovertemplate=f"network %{{customdata[0]}}, {setting}<br>{self.name}: {value}<extra></extra>",
                )
            )
        return data

    def _y_axis(self) -> pages.JSON:
        if self.floor is not None:
            ticks = self._decades(self.floor)
            return {"type": "log", "tickvals": ticks, "ticktext": [self._tick(tick) for tick in ticks]}
        if self.percent:
            return {"tickformat": ".0%", "rangemode": "tozero"}
        return {"range": list(self._limits())} if self._limits()[0] < 0 else {"rangemode": "tozero"}
