"""Lines and points over any two quantities, a panel each."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Num
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_DASHED = (0, (3, 2))
_FEW = 12
"""A line of no more values shows where they are."""
_SHORT = 16
"""Letters of a name that may stand at the end of its line."""
_FEW_DECADES, _MANY_DECADES = 2, 8
_LETTER, _HANDLE = 0.058, 0.34
"""Inches that a letter of the key takes, and the stroke before a name with the space after it."""


@dataclass(frozen=True, eq=False)
class Series:
    """One named line, or points, with the spread from low to high; NaN leaves a gap."""

    label: str
    x: Num[np.ndarray, "time"]
    y: Num[np.ndarray, "time"]
    low: Num[np.ndarray, "time"] | None = None
    high: Num[np.ndarray, "time"] | None = None
    dashed: bool = False
    points: bool = False
    """Whether values stand by themselves, with a bar from low to high, and not on a line with a band."""
    colour: str | None = None
    """Else the next category: one name has one colour in all panels."""
    network: Int[np.ndarray, "time"] | None = None
    """Whose values they are, for the page to mark them."""

    def __post_init__(self) -> None:
        agree(self, dict.fromkeys(("y", "low", "high", "network"), np.shape(self.x)))


@dataclass(frozen=True, eq=False)
class Panel:
    """Series that share two axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    bound: float | None = None
    """A dashed line across."""
    bound_words: str = "bound"
    slope: float | None = None
    """A dotted line of this slope on logarithmic axes, through the last value of the first series."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Panels of lines, each with axes of its own."""

    panels: tuple[Panel, ...]
    note: str = ""
    """What stands beside the key, such as the number of seeds."""
    columns: int | None = None
    """Panels in a row; else as many as fit, at most three."""

    def __post_init__(self) -> None:
        for panel in self.panels:
            if panel.slope is not None and not (panel.log_x and panel.log_y and panel.series):
                raise ValueError(f"Panel {panel.title!r} has a slope: give it logarithmic axes and a series")

    def _grid(self) -> tuple[int, int]:
        count = len(self.panels)
        if self.columns is None:
            return style.grid(count, 2 if count in (2, 4) else 3)
        return -(-count // self.columns), min(count, self.columns)

    def _colours(self) -> dict[str, str]:
        """One a name."""
        own = {s.label: s.colour for panel in self.panels for s in panel.series if s.colour is not None}
        others = list(dict.fromkeys(s.label for panel in self.panels for s in panel.series if s.label not in own))
        return own | dict(zip(others, style.categories(len(others)), strict=True))

    def _direct(self, columns: int) -> bool:
        """Whether names stand at the ends of their lines; points have no ends."""
        each = [s for panel in self.panels for s in panel.series]
        return columns < 3 and all(len(s.label) <= _SHORT and not s.points for s in each)

    def paper(self) -> Figure:
        rows, columns = self._grid()
        colours, direct = self._colours(), self._direct(columns)
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.9, count=len(self.panels), sharex=False, sharey=False)
            for panel, ax in zip(self.panels, axes, strict=True):
                ax.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
                for series in reversed(panel.series):  # the first lies on top
                    _draw(ax, panel, series, colours[series.label])
                if panel.bound is not None:
                    ax.axhline(panel.bound, color=style.SOFT, linewidth=0.7, linestyle=_DASHED, zorder=0)
                if panel.slope is not None:
                    ax.plot(*_sloping(panel), color=style.SOFT, linewidth=0.9, linestyle=":", zorder=4)
                ax.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
                _ticks(ax.xaxis, panel.log_x, ax.get_xlim())
                _ticks(ax.yaxis, panel.log_y, ax.get_ylim())
            if direct:
                for panel, ax in zip(self.panels, axes, strict=True):
                    _name_ends(ax, panel, colours)
            self._key(figure, {} if direct else colours)
            return style.finish(figure)

    def _key(self, figure: Figure, colours: dict[str, str]) -> None:
        """Above the panels, in as many columns as the figure is wide enough for."""
        looks: dict[str, dict[str, Any]] = {}
        for panel in self.panels:
            for series in panel.series:
                if series.label in colours:
                    looks.setdefault(series.label, _look(series) | {"color": colours[series.label]})
            if panel.bound is not None:
                looks.setdefault(panel.bound_words, {"linestyle": _DASHED, "linewidth": 0.7})
            if panel.slope is not None:
                looks.setdefault(f"slope {style.signed(panel.slope)}", {"linestyle": ":", "linewidth": 0.9})
        handles = [Line2D([], [], **{"color": style.SOFT, **look}, label=label) for label, look in looks.items()]
        if self.note:
            handles.append(Line2D([], [], linestyle="none", label=self.note))
        if not handles:
            return
        widths = [_HANDLE + _LETTER * len(str(handle.get_label())) for handle in handles]
        fits = (n for n in range(len(handles), 1, -1) if _wide(widths, n) <= figure.get_figwidth())
        room = {} if looks else {"handlelength": 0.0, "handletextpad": 0.0}
        legend = figure.legend(handles=handles, loc="outside upper left", ncols=next(fits, 1), **room)
        if self.note:
            legend.get_texts()[-1].set_color(style.SOFT)

    def page(self) -> pages.JSON:
        rows, columns = self._grid()
        colours = self._colours()
        data: list[pages.JSON] = []
        named: set[str] = set()
        ranks = {label: i for i, label in enumerate(dict.fromkeys(s.label for p in self.panels for s in p.series))}
        for p, panel in enumerate(self.panels):
            xaxis, yaxis = pages.axes_of(p)
            at = {"xaxis": xaxis, "yaxis": yaxis}
            for series in reversed(panel.series):
                legend = {"legendrank": ranks[series.label], "showlegend": series.label not in named}
                data += [t | at for t in _traces(panel, series, colours[series.label], legend)]
                named.add(series.label)
            if panel.slope is not None:
                words = f"slope {style.signed(panel.slope)}"
                data.append(_slope_trace(panel, words, words not in named) | at)
                named.add(words)
        layout = pages.layout(
            [panel.title for panel in self.panels],
            columns,
            x={},
            y={},
            x_title="",
            y_title="",
            note=self.note,
            row_height=300,
            column_width=290,
            shared=False,
            below=16 if self.note else 0,
        )
        if self.note:
            layout["annotations"][-1]["yshift"] -= 18  # under the names of the axes
        for p, panel in enumerate(self.panels):
            self._place(layout, p, panel, rows, columns)
        across = [_across(p, panel) for p, panel in enumerate(self.panels) if panel.bound is not None]
        return {"data": data, "layout": layout | ({"shapes": across} if across else {})}

    def _place(self, layout: pages.JSON, p: int, panel: Panel, rows: int, columns: int) -> None:
        """Every panel has names at its own axes: room for them is taken from the panel."""
        suffix = pages.axes_of(p)[0][1:]
        x, y = layout["xaxis" + suffix], layout["yaxis" + suffix]
        x |= _scale(panel.log_x, [s.x for s in panel.series]) | {"title": pages.title(panel.x_label)}
        y |= _scale(panel.log_y, [s.y for s in panel.series]) | {"title": pages.title(panel.y_label)}
        if p % columns:
            x["domain"][0] = round(x["domain"][0] + 0.035, 5)
        if p + columns < len(self.panels):
            y["domain"][0] = round(y["domain"][0] + 30 / layout["height"], 5)


def _positive(values: np.ndarray, log: bool) -> np.ndarray:
    """What a logarithmic axis has no place for is left out."""
    values = np.asarray(values, dtype=float)
    return np.where(values > 0, values, np.nan) if log else values


def _shown(panel: Panel, series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    x, y = _positive(series.x, panel.log_x), _positive(series.y, panel.log_y)
    low, high = (None if v is None else _positive(v, panel.log_y) for v in (series.low, series.high))
    return x, y, low, high


def _look(series: Series) -> dict[str, Any]:
    """How a series is drawn on paper."""
    if series.points:
        return {"linestyle": "none", "marker": "o", "markersize": 2.5}
    few = np.isfinite(series.y).sum() <= _FEW and not series.dashed
    return {"linestyle": _DASHED if series.dashed else "-", "marker": "o" if few else None, "markersize": 2.5}


def _draw(ax: Axes, panel: Panel, series: Series, colour: str) -> None:
    x, y, low, high = _shown(panel, series)
    if low is not None and high is not None:
        if series.points or len(x) < 2:
            ax.plot(np.stack([x, x]), np.stack([low, high]), color=colour, linewidth=0.8)
        else:
            ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, y, color=colour, **_look(series))


def _ticks(axis: Axis, log: bool, limits: tuple[float, float]) -> None:
    if not log:
        axis.set_major_locator(MaxNLocator(5))
    elif _decades(*limits) < _FEW_DECADES:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if _decades(*limits) > 0.7 else (1, 2, 3, 4, 5, 6, 8)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: style.signed(value)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())


def _name_ends(ax: Axes, panel: Panel, colours: dict[str, str]) -> None:
    """Each line's name beside where it ends."""
    ends: list[tuple[str, float]] = []
    for series in panel.series:
        x, y, _, _ = _shown(panel, series)
        there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if len(there):
            last = there[np.argmax(x[there])]
            place = ax.transAxes.inverted().transform(ax.transData.transform((x[last], y[last])))
            ends.append((series.label, float(place[1])))
    for (label, _), y in zip(ends, style.spread(np.array([end for _, end in ends]), 0.085), strict=True):
        ax.annotate(
            label,
            (1, y),
            xycoords="axes fraction",
            xytext=(3, 0),
            textcoords="offset points",
            color=colours[label],
            fontsize=style.SMALL,
            va="center",
        )


def _wide(widths: list[float], columns: int) -> float:
    """Inches that a key takes: it is filled column by column, and a column is as wide as its widest name."""
    rows = math.ceil(len(widths) / columns)
    return sum(max(widths[i : i + rows]) for i in range(0, len(widths), rows))


def _sloping(panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Two points of a power law through the last value of the first series, from its first x to its last."""
    assert panel.slope is not None
    x, y, _, _ = _shown(panel, panel.series[0])
    there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if not len(there):
        return np.zeros(0), np.zeros(0)
    last = there[np.argmax(x[there])]
    ends = np.array([x[there].min(), x[last]])
    return ends, y[last] * (ends / x[last]) ** panel.slope


def _traces(panel: Panel, series: Series, colour: str, legend: pages.JSON) -> list[pages.JSON]:
    x, y, low, high = _shown(panel, series)
    group = {"legendgroup": series.label}
    traces: list[pages.JSON] = []
    spread = low is not None and high is not None
    if spread and not series.points:
        traces += pages.band(x, low, high, colour, 0.18, **group)
    look = _look(series)
    trace: pages.JSON = {
        "type": "scatter",
        "mode": "markers" if series.points else "lines+markers" if look["marker"] else "lines",
        "name": series.label,
        **legend,
        "x": pages.numbers(x),
        "y": pages.numbers(y),
        "line": {"color": colour, "width": 1.8, "dash": "dash" if series.dashed else "solid"},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": f"<b>{series.label}</b>{f', {panel.title}' if panel.title else ''}"
        f"<br>{panel.x_label} %{{x:.4~g}}<br>{panel.y_label} %{{y:.4~g}}<extra></extra>",
        **group,
    }
    if series.points and low is not None and high is not None:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": pages.numbers(high - y),
            "arrayminus": pages.numbers(y - low),
            "color": colour,
            "thickness": 1,
            "width": 0,
        }
    if series.network is not None:
        trace["customdata"] = pages.identity(series.network, -1, -1) if len(x) else []
        trace["hovertemplate"] = "network %{customdata[0]}, " + trace["hovertemplate"]
    return [*traces, trace]


def _slope_trace(panel: Panel, words: str, named: bool) -> pages.JSON:
    x, y = _sloping(panel)
    line = {"color": style.HAIRLINE, "width": 1.5, "dash": "dot"}
    shown: pages.JSON = {"name": words, "hoverinfo": "skip", "showlegend": named, "line": line}
    return {"type": "scatter", "mode": "lines", "x": pages.numbers(x), "y": pages.numbers(y), **shown}


def _scale(log: bool, values: list[np.ndarray]) -> pages.JSON:
    if not log:
        return {}
    kept = np.concatenate([np.zeros(0), *(_positive(v, True).ravel() for v in values)])
    kept = kept[np.isfinite(kept)]
    decades = _decades(kept.min(), kept.max()) if len(kept) else 0.0
    step = {} if decades > _MANY_DECADES else {"dtick": 1 if decades >= _FEW_DECADES else "D2"}
    return {"type": "log", "exponentformat": "power", **step}


def _across(panel: int, of: Panel) -> pages.JSON:
    xaxis, yaxis = pages.axes_of(panel)
    line = {"color": style.HAIRLINE, "width": 1, "dash": "dash"}
    ends = {"xref": f"{xaxis} domain", "yref": yaxis, "x0": 0, "x1": 1, "y0": of.bound, "y1": of.bound}
    words = {"text": of.bound_words, "textposition": "end", "font": {"size": 11}, "yanchor": "bottom"}
    return {"type": "line", **ends, "line": line, "label": words}


def _decades(low: float, high: float) -> float:
    return float(np.log10(high / low)) if 0 < low < high else 0.0
