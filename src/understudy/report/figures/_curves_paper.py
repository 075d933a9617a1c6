"""Curves drawn for paper by matplotlib."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from understudy.report import style
from understudy.report.figures.curves import BANDS, Curves, Panel, Series, log_ticks, readable_ticks

_DASHED = (0, (3, 2))
_SHORT = 16
"""Longest label, in letters, that is written at the end of its line."""
_LOWEST = 0.04
"""Lowest position of a label at the end of a line, as a share of the axis: lower ones would touch the tick labels."""


def paper(curves: Curves) -> Figure:
    """Draw a figure of curves."""
    rows, columns = curves.grid()
    colours, at_ends = curves.colours(), _labels_at_ends(curves, columns)
    own = curves.share == "none"
    with style.paper():
        figure, axes = style.panels(
            rows,
            columns,
            height=curves.height or (1.9 if own else 1.75),
            count=len(curves.panels),
            sharex=not own,
            sharey=curves.share == "axes",
        )
        for panel, ax in zip(curves.panels, axes, strict=True):
            _draw(curves, ax, panel, colours)
            ax.set_title(panel.title, linespacing=1.25)
            if own:
                ax.set(xlabel=panel.x_label, ylabel=panel.y_label)
        for panel, ax in zip(curves.panels, axes, strict=True):
            _scale(curves, ax, panel)
            if at_ends:
                _label_ends(ax, panel, colours)
        if not own:
            style.name_axes(figure, curves.panels[0].x_label, curves.panels[0].y_label)
        if curves.ramp is not None and colours:
            _colour_bar(axes[columns - 1], list(colours.values()), curves.ramp)
        style.key(figure, _key(curves, {} if at_ends or curves.ramp else colours), curves.note)
        return style.finish(figure)


def _labels_at_ends(curves: Curves, columns: int) -> bool:
    """Whether labels are written at the ends of their lines; points have no ends."""
    every = [s for panel in curves.panels for s in panel.series]
    readable = all(len(s.label) <= _SHORT and not s.points and not s.part for s in every)
    return readable and curves.ramp is None and columns < (3 if curves.share == "none" else 4)


def _draw(curves: Curves, ax: Axes, panel: Panel, colours: dict[str, str]) -> None:
    """Draw bands below lines, and the first series on top."""
    ax.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
    for series in reversed(panel.series):
        x, _, low, high = panel.shown(series)
        if low is not None and high is not None:
            colour = colours[series.label]
            if series.points or len(x) < 2:
                ax.plot(np.stack([x, x]), np.stack([low, high]), color=colour, linewidth=0.8)
            else:
                ax.fill_between(x, low, high, color=colour, alpha=0.13 if curves.ramp else 0.2, linewidth=0)
    for series in reversed(panel.series):
        x, y, _, _ = panel.shown(series)
        width = 0.9 if curves.ramp else None
        ax.plot(x, y, color=colours[series.label], linewidth=width, **_line_style(curves, panel, series))
    if panel.bound is not None:
        ax.axhline(panel.bound, color=style.SOFT, linewidth=0.7, linestyle=_DASHED, zorder=0)
    if panel.slope is not None:
        ax.plot(*panel.sloping(panel.slope), color=style.SOFT, linewidth=0.9, linestyle=":", zorder=4)


def _line_style(curves: Curves, panel: Panel, series: Series) -> dict[str, Any]:
    open_markers = {"markerfacecolor": "white", "markeredgewidth": 0.7} if series.dashed else {}
    line = "none" if series.points else _DASHED if series.dashed else "-"
    marker = "o" if curves.has_markers(panel, series) else None
    return {"linestyle": line, "marker": marker, "markersize": 2.5, **open_markers}


def _scale(curves: Curves, ax: Axes, panel: Panel) -> None:
    x = curves.x_values()
    if panel.limits is not None:
        ax.set_ylim(*panel.limits)
    if curves.share == "none":
        _set_ticks(ax.xaxis, panel.log_x, ax.get_xlim())
    elif panel.log_x and len(x):
        ax.set_xticks(*readable_ticks(x))
        ax.xaxis.set_minor_locator(NullLocator())
    elif len(x) > 1:
        ax.set_xlim(x[0], x[-1])
        ax.xaxis.set_major_locator(MaxNLocator(5 if curves.grid()[1] < 4 else 3, integer=True, steps=[1, 2, 5, 10]))
    if curves.share == "none" or panel.log_y:
        _set_ticks(ax.yaxis, panel.log_y, ax.get_ylim())
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=3, steps=[1, 2, 2.5, 5, 10]))


def _key(curves: Curves, colours: dict[str, str]) -> style.Key:
    entries: dict[str, dict[str, Any]] = {}
    for panel in curves.panels:
        for series in panel.series:
            if series.label in colours:
                line = {} if series.part else _line_style(curves, panel, series)
                entries.setdefault(series.label, line | {"color": colours[series.label]})
    entries |= {part: {"linestyle": _DASHED if dashed else "-"} for part, dashed in curves.parts().items()}
    if curves.band:
        middle, spread, _ = BANDS[curves.band]
        entries |= {middle: {}, spread: {"linewidth": 5, "alpha": 0.3}}
    for panel in curves.panels:
        if panel.bound is not None:
            entries.setdefault(panel.bound_words, {"linestyle": _DASHED, "linewidth": 0.7})
        if panel.slope is not None:
            entries.setdefault(panel.slope_words, {"linestyle": ":", "linewidth": 0.9})
    return tuple(entries.items())


def _set_ticks(axis: Axis, log: bool, limits: tuple[float, float]) -> None:
    if not log:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_ticks(*log_ticks(*limits))
        axis.set_minor_locator(NullLocator())


def _label_ends(ax: Axes, panel: Panel, colours: dict[str, str]) -> None:
    """Write each label beside the end of its line."""
    ax.get_ylim()  # makes matplotlib compute the limits that the transforms below use
    ends: dict[str, float] = {}
    for series in panel.series:
        x, y, _, _ = panel.shown(series)
        there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if len(there):
            last = there[np.argmax(x[there])]
            place = ax.transAxes.inverted().transform(ax.transData.transform((x[last], y[last])))
            ends[series.label] = float(place[1])
    places = style.spread(np.array(list(ends.values())), 0.085)
    for label, y in zip(ends, places + max(0.0, _LOWEST - places.min(initial=_LOWEST)), strict=True):
        _annotate(ax, label, y, color=colours[label], va="center")


def _colour_bar(ax: Axes, colours: list[str], ends: tuple[str, str]) -> None:
    """Name the first and the last colour beside a panel."""
    bar = ax.inset_axes((1.05, 0.0, 0.045, 1.0))
    bar.imshow(np.array([to_rgb(c) for c in colours])[:, None], aspect="auto", interpolation="nearest")
    bar.set_axis_off()
    for y, words, side in ((1.0, ends[0], "top"), (0.0, ends[1], "bottom")):
        _annotate(bar, words.replace(" ", "\n"), y, va=side, linespacing=1.1)


def _annotate(ax: Axes, words: str, y: float, **how: Any) -> None:
    """Write to the right of a panel, at a height from 0 to 1."""
    offset: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points"}
    ax.annotate(words, (1, y), xycoords="axes fraction", **offset, fontsize=style.SMALL, **how)
