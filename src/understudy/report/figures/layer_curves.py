"""One quantity of every layer over epochs, or against anything else that was varied."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree
from understudy.report.figures.sample_curves import _readable

_LABELLED = 3
"""Panels in a row that leave room for a label at the end of each line."""
_LOWEST = 0.04
"""Of labels, as a share of an axis."""
_MOST_COLUMNS = 5
_MOST_BYTES = 750_000
_FEW_DECADES = 2
"""Of a logarithmic axis, on which powers of ten alone would be too few to read."""
_DASHED = (0, (3, 2))


def layer_colours(count: int) -> list[str]:
    """One a layer, from dark for the lowest; the lightest of the ramp, in which no word can be read, is left out."""
    return style.ramp(count + 1)[:count]


@dataclass(frozen=True, eq=False)
class LayerCurves:
    """A line a layer, from dark (lowest) to light, a panel a group; median and quartiles over seeds.

    Mean best correlation of each layer over epochs (seed 1 figure 4, seed 2 figure 8) or against the number of samples
    (seed 0 figure 6), mean rank, losses.
    """

    titles: tuple[str, ...]
    """One a panel."""
    labels: tuple[str, ...]
    """What the lines are called, e.g. `layer 1`, `layer 2`."""
    x: Num[np.ndarray, "time"]
    values: Num[np.ndarray, "panel line time"]
    low: Num[np.ndarray, "panel line time"]
    high: Num[np.ndarray, "panel line time"]
    name: str
    """What is measured: the y axis."""
    seeds: int
    x_name: str = "epoch"
    log_x: bool = False
    log_y: bool = False
    limits: tuple[float, float] | None = None
    """Of the y axis."""
    bound: float | None = None
    """A dashed line across."""
    bound_words: str = "bound"
    own_scales: bool = False
    """Whether each panel has a y axis of its own: what it measures cannot be compared."""
    colours: tuple[str, ...] | None = None
    """One a line, where lines are no layers."""
    columns: int | None = None
    """Panels in a row, where they have an order in two directions."""
    network: Int[np.ndarray, "panel net time"] | None = None
    """Who stands at each x: one network all along, or another at each; −1 where there is none."""
    network_values: Num[np.ndarray, "panel net line time"] | None = None

    def __post_init__(self) -> None:
        panels, lines, times = shape = (len(self.titles), len(self.labels), len(self.x))
        agree(self, dict.fromkeys(("values", "low", "high"), shape))
        if self.colours is not None:
            agree(self, {"colours": (lines,)})
        if self.network is not None:
            nets = np.shape(self.network)[1]
            agree(self, {"network": (panels, nets, times), "network_values": (panels, nets, lines, times)})

    def _colours(self) -> list[str]:
        return list(self.colours) if self.colours is not None else layer_colours(len(self.labels))

    def _grid(self) -> tuple[int, int]:
        count = len(self.titles)
        if self.columns is not None and self.columns <= _MOST_COLUMNS:
            return -(-count // self.columns), min(count, self.columns)
        return style.grid(count, 3 if count < 7 else _MOST_COLUMNS)

    def paper(self) -> Figure:
        count, lines, times = self.values.shape
        rows, columns = self._grid()
        colours, labelled = self._colours(), columns <= _LABELLED
        marker = "o" if times == 1 or self.log_x else None
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.75, count=count, sharey=not self.own_scales)
            for p, ax in enumerate(axes):
                ax.set(xscale="log" if self.log_x else "linear", yscale="log" if self.log_y else "linear")
                for i in reversed(range(lines)):  # the lowest layer lies on top
                    ax.fill_between(self.x, self.low[p, i], self.high[p, i], color=colours[i], alpha=0.2, linewidth=0)
                    ax.plot(self.x, self.values[p, i], color=colours[i], marker=marker, markersize=2.5)
                if self.bound is not None:
                    ax.axhline(self.bound, color=style.SOFT, linewidth=0.7, linestyle=_DASHED, zorder=0)
                ax.set_title(self.titles[p])
                self._scale(ax)
            if labelled:
                for p, ax in enumerate(axes):
                    self._label(ax, p, colours)
            figure.supylabel(self.name, fontsize=style.NORMAL)
            figure.supxlabel(self.x_name, fontsize=style.NORMAL)
            style.key(figure, self._key([] if labelled else colours), f"n = {self.seeds} seeds")
            return style.finish(figure)

    def _scale(self, ax: Axes) -> None:
        if self.log_x:
            ax.set_xticks(*_readable(self.x))
            ax.xaxis.set_minor_locator(NullLocator())
        elif len(self.x) > 1:
            ax.set_xlim(self.x[0], self.x[-1])
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if self.limits is not None:
            ax.set_ylim(*self.limits)
        if self.log_y and _decades(*ax.get_ylim()) < _FEW_DECADES:
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            ax.yaxis.set_minor_locator(NullLocator())

    def _label(self, ax: Axes, panel: int, colours: list[str]) -> None:
        """Each line's name where it ends."""
        ends: dict[int, float] = {}
        for i, line in enumerate(self.values[panel]):
            there = np.flatnonzero(np.isfinite(line))
            if len(there):
                at = ax.transData.transform((self.x[there[-1]], line[there[-1]]))
                ends[i] = float(ax.transAxes.inverted().transform(at)[1])
        places = style.spread(np.array(list(ends.values())), 0.085)
        # None so low that it would run into the numbers under the axis.
        for i, y in zip(ends, places + max(0.0, _LOWEST - places.min(initial=_LOWEST)), strict=True):
            ax.annotate(
                self.labels[i],
                (1, y),
                xycoords="axes fraction",
                xytext=(3, 0),
                textcoords="offset points",
                color=colours[i],
                fontsize=style.SMALL,
                va="center",
            )

    def _key(self, colours: list[str]) -> style.Key:
        bound: style.Key = () if self.bound is None else ((self.bound_words, {"linestyle": _DASHED, "linewidth": 0.7}),)
        return (
            *((label, {"color": colour}) for label, colour in zip(self.labels, colours, strict=False)),
            ("median", {}),
            ("quartiles", {"linewidth": 5, "alpha": 0.3}),
            *bound,
        )

    def page(self) -> pages.JSON:
        count, lines, times = self.values.shape
        _, columns = self._grid()
        colours = self._colours()
        data: list[pages.JSON] = []
        for p in range(count):
            xaxis, yaxis = pages.axes_of(p)
            at = {"xaxis": xaxis, "yaxis": yaxis}
            data += [point | at for i in range(lines) for point in self._points(p, i, colours[i])]
            for i in reversed(range(lines)):
                group = {"legendgroup": self.labels[i]}
                data += pages.band(self.x, self.low[p, i], self.high[p, i], colours[i], 0.18, **at, **group)
                data.append(
                    {
                        "type": "scatter",
                        "mode": "lines+markers" if self.log_x else "lines" if times > 1 else "markers",
                        "name": self.labels[i],
                        "legendrank": i,
                        "showlegend": p == 0,
                        "x": pages.numbers(self.x),
                        "y": pages.numbers(self.values[p, i]),
                        "line": {"color": colours[i], "width": 1.8},
                        "marker": {"color": colours[i], "size": 5},
                        "hovertemplate": f"<b>{self._whose(p, i)}</b><br>{self._where()}"
                        f"<br>median of {self.seeds} seeds<extra></extra>",
                        **at,
                        **group,
                    }
                )
        dashed = f"; dashed: {self.bound_words}" if self.bound is not None else ""
        layout = pages.layout(
            self.titles,
            columns,
            x=self._x_axis(),
            y=self._y_axis(),
            x_title=self.x_name,
            y_title=self.name,
            note=f"median and quartiles, n = {self.seeds} seeds{dashed}",
            x_left=True,
            row_height=260,
            column_width=230 if columns <= _LABELLED else 190,
            shared=not self.own_scales,
        )
        if self.bound is not None:
            layout["shapes"] = [_across(p, self.bound) for p in range(count)]
        if self.log_y:
            for p in range(count):
                shown = self.values[p if self.own_scales else slice(None)]
                shown = shown[np.isfinite(shown) & (shown > 0)]
                if shown.size and _decades(shown.min(), shown.max()) < _FEW_DECADES:
                    layout["yaxis" + pages.axes_of(p)[1][1:]]["dtick"] = "D2"
        page = {"data": data, "layout": layout}
        if self._followed():
            page["networks"] = self._own_curves()
        return page

    def _x_axis(self) -> pages.JSON:
        if not self.log_x:
            return {}
        ticks, words = _readable(self.x)
        return {"type": "log", "tickvals": ticks, "ticktext": words}

    def _y_axis(self) -> pages.JSON:
        if self.log_y:
            return {"type": "log", "exponentformat": "power", "dtick": 1}
        return {} if self.limits is None else {"range": list(self.limits)}

    def _whose(self, panel: int, line: int) -> str:
        return f"{self.labels[line]}</b>, {self.titles[panel]}<b>" if self.titles[panel] else self.labels[line]

    def _where(self) -> str:
        x = "%{x:,} samples" if self.log_x else f"{self.x_name} %{{x}}"
        return f"{x}: {self.name} %{{y:.4~g}}"

    def _followed(self) -> bool:
        """Whether networks have curves of their own: each is the same all along."""
        if self.network is None or len(self.x) < 2:
            return False
        return bool((self.network == self.network[..., :1]).all())

    def _points(self, panel: int, line: int, colour: str) -> list[pages.JSON]:
        """Networks that stand at one x, a faint point each to hover and to mark."""
        if self.network is None or self.network_values is None or self._followed():
            return []
        network, values = self.network[panel], self.network_values[panel, :, line]
        net, at = np.nonzero((network >= 0) & np.isfinite(values))
        return [
            {
                "type": "scatter",
                "mode": "markers",
                "showlegend": False,
                "legendgroup": self.labels[line],
                "x": pages.numbers(self.x[at]),
                "y": pages.numbers(values[net, at]),
                "marker": {"size": 4, "color": colour, "opacity": 0.35},
                "customdata": pages.identity(network[net, at], -1, -1) if len(net) else [],
                "hovertemplate": f"network %{{customdata[0]}}, <b>{self._whose(panel, line)}</b><br>{self._where()}"
                "<extra></extra>",
            }
        ]

    def _own_curves(self) -> pages.JSON:
        """A network's lines one after the other as one curve with gaps: the page takes a second axis for nodes."""
        assert self.network is not None
        assert self.network_values is not None
        panel, net = np.nonzero(self.network[..., 0] >= 0)
        curves = self.network_values[panel, net]
        most = max(2, _MOST_BYTES // max(1, 4 * curves[..., 0].size) - 1)
        kept = np.unique(np.linspace(0, len(self.x) - 1, min(len(self.x), most)).round().astype(int))
        gap = np.full((*curves.shape[:-1], 1), np.nan)
        y = np.concatenate([curves[..., kept], gap], axis=-1).reshape(len(curves), -1)
        x = np.tile(np.append(self.x[kept], self.x[-1]), len(self.labels))
        return pages.own_curves(self.network[panel, net, 0], panel, x, y, limit=2 * _MOST_BYTES)


def _across(panel: int, y: float) -> pages.JSON:
    xaxis, yaxis = pages.axes_of(panel)
    line: dict[str, Any] = {"color": style.HAIRLINE, "width": 1, "dash": "dash"}
    return {"type": "line", "xref": f"{xaxis} domain", "yref": yaxis, "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def _decades(low: float, high: float) -> float:
    return float(np.log10(high / low)) if 0 < low < high else 0.0
