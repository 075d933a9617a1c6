"""Panels of lines and points over any two quantities: the one kind of figure for curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Int, Num
from matplotlib.figure import Figure

from understudy._numbers import number, typeset_fields
from understudy.report import style
from understudy.report.figures import _curves_array as arrays
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

if TYPE_CHECKING:
    import xarray as xr

BANDS = {
    "quartiles": ("median", "quartiles", "median and quartiles"),
    "range": ("median", "smallest to largest", "median, smallest and largest"),
    "deviation": ("mean", "± 1 standard deviation", "mean ± 1 standard deviation"),
}
"""What lines and bands show: the line, the band, and both in one note."""
_FEW_DECADES, _NARROW = 2, 0.7
"""Decades below which logarithmic axes need more ticks than powers of ten, and more than 1, 2 and 5 of each."""
_MOST_TICKS = 7
_FEW_VALUES = 12
"""Lines with at most this many values have markers, in panels with axes of their own."""
_MOST_COLUMNS = 5


@dataclass(frozen=True, eq=False)
class Series:
    """One line, or a set of points, with an optional band from `low` to `high`; NaN leaves a gap."""

    label: str
    x: Num[np.ndarray, "time"]
    y: Num[np.ndarray, "time"]
    low: Num[np.ndarray, "time"] | None = None
    high: Num[np.ndarray, "time"] | None = None
    dashed: bool = False
    points: bool = False
    """Draw separate points with error bars from `low` to `high` instead of a line with a band."""
    colour: str | None = None
    """Line colour; by default the next palette colour. Series with one label share a colour in all panels."""
    network: Int[np.ndarray, "*net time"] | None = None
    """The network of each value of `y`, or of `network_y` where that is given; −1 where there is none."""
    network_y: Num[np.ndarray, "net time"] | None = None
    """Values of single networks. The page draws them as curves when a network is marked, or, where the networks differ
    from one x to the next, as faint points."""
    part: str = ""
    """What the line's dashes stand for, for example `training`: named in the key beside the labels."""

    def __post_init__(self) -> None:
        typeset_fields(self, "label", "part")
        times = np.shape(self.x)
        agree(self, dict.fromkeys(("y", "low", "high"), times))
        nets = () if self.network_y is None else np.shape(self.network_y)[:1]
        agree(self, dict.fromkeys(("network", "network_y") if nets else ("network",), (*nets, *times)))


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
    """Height of a dashed horizontal line."""
    bound_words: str = "bound"
    slope: float | None = None
    """Slope of a dotted line on logarithmic axes, through the last value of the first series."""
    limits: tuple[float, float] | None = None
    """Ends of the y axis."""

    def __post_init__(self) -> None:
        typeset_fields(self, "title", "x_label", "y_label", "bound_words")

    def shown(self, series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
        """x, y, low and high of a series, as far as the axes can show them."""
        x, y = _positive(series.x, self.log_x), _positive(series.y, self.log_y)
        low, high = (None if v is None else _positive(v, self.log_y) for v in (series.low, series.high))
        return x, y, low, high

    def sloping(self, slope: float) -> tuple[np.ndarray, np.ndarray]:
        """Two points of a power law through the last value of the first series, from its first x to its last."""
        x, y, _, _ = self.shown(self.series[0])
        there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if not len(there):
            return np.zeros(0), np.zeros(0)
        last = there[np.argmax(x[there])]
        ends = np.array([x[there].min(), x[last]])
        return ends, y[last] * (ends / x[last]) ** slope

    @property
    def slope_words(self) -> str:
        """Name of the sloping line in the key; empty if there is none."""
        return "" if self.slope is None else f"slope {number(self.slope, 'g')}"


@dataclass(frozen=True, eq=False)
class Curves:
    """Panels of curves, with axes of their own or in common.

    Args:
        panels: The panels, row by row.
        note: Text beside the key, such as the number of seeds.
        columns: Panels in a row. By default as many as are readable.
        share: `none`: every panel has its own axes and names them. `names`: the axis names, those of the first panel,
            are written once. `axes`: the scales are the same, too.
        band: What lines and bands show: quartiles around the median, the range around the median, or one standard
            deviation around the mean. Named in the key and in the note of the page; empty where series differ.
        ramp: Names of the first and the last line, for lines in an order that are too many to name each (teacher
            nodes, from strong to weak): a colour bar replaces the key.
        height: Inches per row of panels on paper.
    """

    panels: tuple[Panel, ...]
    note: str = ""
    columns: int | None = None
    share: Literal["none", "names", "axes"] = "none"
    band: Literal["", "quartiles", "range", "deviation"] = ""
    ramp: tuple[str, str] | None = None
    height: float | None = None

    def __post_init__(self) -> None:
        for panel in self.panels:
            if panel.slope is not None and not (panel.log_x and panel.log_y and panel.series):
                raise ValueError(f"Panel {panel.title!r} has a slope: give it logarithmic axes and a series")

    @classmethod
    def from_array(
        cls,
        array: xr.DataArray,
        *,
        name: str,
        x: str = "epoch",
        panel: arrays.Dimensions = None,
        line: arrays.Dimensions = None,
        style: arrays.Dimensions = None,
        over: arrays.Dimensions = "seed",
        band: Literal["quartiles", "range", "deviation", "mean"] | None = "quartiles",
        titles: Mapping[Any, str] | None = None,
        labels: Mapping[Any, str] | None = None,
        x_name: str | None = None,
        colours: arrays.Colours = "layers",
        bound: tuple[float, str] | None = None,
        limits: tuple[float, float] | None = None,
        log_x: bool = False,
        log_y: bool = False,
        own_scales: bool = False,
        note: str | None = None,
        columns: int | None = None,
        ramp: tuple[str, str] | None = None,
        height: float | None = None,
    ) -> Curves:
        """Summarise a labelled array over networks and arrange it in panels and lines.

        Values that are NaN are ignored; panels and lines without any value are left out. Where the array has a
        coordinate `network`, the page can mark single networks.

        Args:
            array: Values of single networks, with one dimension for every role below.
            name: What is measured: the name of the y axis.
            x: Dimension along the x axis.
            panel: Dimension, or dimensions, with one panel per value.
            line: Dimension, or dimensions, with one line per value.
            style: Dimension with two values, the first drawn solid and the second dashed.
            over: Dimension, or dimensions, to summarise over; None if the values are summaries already.
            band: Spread to show, or None for the median alone, or `mean` for the mean alone, such as a share of
                networks. On a logarithmic axis a deviation is that of the logarithm.
            titles: Words for values of `panel`: for a whole tuple, or for each of its values.
            labels: Words for values of `line` and `style`.
            x_name: Name of the x axis; by default `x`.
            colours: One colour per line, or a rule: `layers` (ordered, dark to light), `categories`, or `multiples`
                (the colour of an over-realization; values of `line` are numbers).
            bound: Height of a dashed line across every panel, and its name.
            limits: Ends of the y axis.
            log_x: Whether the x axis is logarithmic.
            log_y: Whether the y axis is logarithmic.
            own_scales: Whether each panel has its own y axis.
            note: Text beside the key; by default the number of networks summarised.
            columns: Panels in a row.
            ramp: Names of the first and the last line, instead of a name for each.
            height: Inches per row of panels on paper.

        Returns:
            The figure, with axis names written once.

        Raises:
            ValueError: If the array has a dimension without a role, or lacks one that is named.
        """
        roles = tuple(arrays.names(role) for role in (panel, line, style, over, x))
        values, network = arrays.stack(array, roles)
        there = np.isfinite(values).any(axis=(0, 1, 2, 3))
        values, along = values[..., there], arrays.coordinate(array, x)[there]
        middle, low, high = arrays.summaries(values, band if over else None, log=log_y)
        panels_at, lines_at, styles_at = (arrays.coordinates(array, dims) for dims in roles[:3])
        shades = arrays.line_colours(colours, lines_at)
        bound_at, bound_words = bound or (None, "bound")
        panels = []
        for p, title in enumerate(panels_at):
            series = tuple(
                Series(
                    arrays.words(labels or {}, label),
                    along,
                    middle[p, i, s],
                    None if low is None else low[p, i, s],
                    None if high is None else high[p, i, s],
                    dashed=s > 0,
                    colour=shades[i],
                    part=arrays.words(labels or {}, part),
                    network=None if network is None else network[p, i, s][:, there],
                    network_y=None if network is None else values[p, i, s],
                )
                for s, part in enumerate(styles_at)
                for i, label in enumerate(lines_at)
                if np.isfinite(middle[p, i, s]).any()
            )
            words = arrays.words(titles or {}, title)
            axes: dict[str, Any] = {"log_x": log_x, "log_y": log_y, "limits": limits}
            panels.append(Panel(words, x_name or x, name, series, bound=bound_at, bound_words=bound_words, **axes))
        return cls(
            tuple(panel for panel in panels if panel.series) or tuple(panels),
            note=arrays.count(array, roles[3]) if note is None else note,
            columns=columns,
            share="names" if own_scales else "axes",
            band="" if not over or band is None or band == "mean" else band,
            ramp=ramp,
            height=height,
        )

    def grid(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        count = len(self.panels)
        if self.columns is not None and (self.share == "none" or self.columns <= _MOST_COLUMNS + 1):
            return -(-count // self.columns), min(count, self.columns)
        if self.share == "none":
            return style.grid(count, 2 if count in (2, 4) else 3)
        return style.grid(count, 3 if count < 7 else _MOST_COLUMNS)

    def colours(self) -> dict[str, str]:
        """Colour of each label."""
        own = {s.label: s.colour for panel in self.panels for s in panel.series if s.colour is not None}
        others = list(dict.fromkeys(s.label for panel in self.panels for s in panel.series if s.label not in own))
        return own | dict(zip(others, style.categories(len(others)), strict=True))

    def parts(self) -> dict[str, bool]:
        """Parts that series name, and whether each is dashed."""
        return {s.part: s.dashed for panel in self.panels for s in panel.series if s.part}

    def has_markers(self, panel: Panel, series: Series) -> bool:
        """Whether values are marked: points, single values, and lines of few values except dashed lines of theory."""
        if self.share == "none":
            return series.points or (np.isfinite(series.y).sum() <= _FEW_VALUES and not series.dashed)
        return series.points or panel.log_x or len(series.x) == 1

    def x_values(self) -> np.ndarray:
        """All values of x that a panel has, in order."""
        every = [np.asarray(s.x, dtype=float) for panel in self.panels for s in panel.series]
        return np.unique(np.concatenate([np.zeros(0), *every]))

    def paper(self) -> Figure:
        """Draw the figure for paper."""
        from understudy.report.figures._curves_paper import paper

        return paper(self)

    def page(self) -> pages.JSON:
        """Traces and layout for the page."""
        from understudy.report.figures._curves_page import page

        return page(self)


def _positive(values: np.ndarray, log: bool) -> np.ndarray:
    """Values that a logarithmic axis can show, NaN for the others."""
    values = np.asarray(values, dtype=float)
    return np.where(values > 0, values, np.nan) if log else values


def readable_ticks(values: Num[np.ndarray, "size"]) -> tuple[list[float], list[str]]:
    """Values to write under a logarithmic axis: as many as do not touch."""
    width = np.log(values.max() / values.min()) if len(values) > 1 else 1.0
    ticks: list[float] = []
    for value in sorted(float(v) for v in values):
        if not ticks or np.log(value / ticks[-1]) > 0.17 * width:
            ticks.append(value)
    return ticks, [f"{t:,.0f}" if t.is_integer() else number(t, "g") for t in ticks]


def log_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Ticks of a logarithmic axis between two positive numbers, labelled alike.

    They are powers of ten (10⁻³, 10⁻²), some of them where there are many; and simple multiples of these on axes of
    less than two decades.
    """
    first, last = np.floor(np.log10(low)), np.ceil(np.log10(high))
    powers = 10.0 ** np.arange(first, last + 1)
    wide = float(np.log10(high / low))
    if wide >= _FEW_DECADES:
        ticks, spec = powers[:: -(-len(powers) // _MOST_TICKS)], ".0e"
    else:
        digits = (1, 2, 5) if wide > _NARROW else (1, 2, 3, 4, 5, 6, 8)
        ticks = np.multiply.outer(powers, digits).ravel()
        spec = "g" if low >= 1e-3 and high <= 1e5 else ".0e"
    kept = [float(t) for t in ticks if low * 0.999 <= t <= high * 1.001]
    if len(kept) < 2:
        kept, spec = [low, high], ".3g"
    return kept, [number(t, spec) for t in kept]
