"""Fold-sets in two dimensions, coloured by layer, side by side or as a film."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from understudy._numbers import number, typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_MOST_SEGMENTS = 6_000
"""Most segments of one trace on the page."""
_MOST_ON_PAGE = 24_000
"""Most segments of all panels on the page, and of all frames of a film; the longest are shown."""
_MOST_NAMED = 4_000
"""Most segments whose units are named on the page."""
_MOST_FRAMES = 40
_BEHIND = "teacher"


@dataclass(frozen=True, eq=False)
class FoldPanel:
    """The folds of one network in a window.

    Attributes:
        title: Title of the panel; the time in a film.
        segments: Both ends of each segment.
        layers: Layer of each segment, counted from 1; 0 is drawn grey.
        units: Index of the unit that folds at each segment; −1 where there is none.
    """

    title: str
    segments: Num[np.ndarray, "segment 2 2"]
    layers: Num[np.ndarray, "segment"]
    units: Num[np.ndarray, "segment"]

    def __post_init__(self) -> None:
        typeset_fields(self, "title")
        count = len(self.layers)
        agree(self, {"segments": (count, 2, 2), "units": (count,)})

    def named(self, title: str) -> "FoldPanel":
        """The panel with another title."""
        return FoldPanel(title, self.segments, self.layers, self.units)

    def up_to(self, layer: int) -> "FoldPanel":
        """The panel with the segments of the layers up to this one."""
        kept = self.layers <= layer
        return FoldPanel(self.title, self.segments[kept], self.layers[kept], self.units[kept])

    def longest(self, most: int) -> "FoldPanel":
        """The panel with at most this many segments, the longest ones, in their order."""
        if len(self.layers) <= most:
            return self
        lengths = np.linalg.norm(self.segments[:, 0] - self.segments[:, 1], axis=1)
        kept = np.sort(np.argsort(-np.nan_to_num(lengths), kind="stable")[:most])
        return FoldPanel(self.title, self.segments[kept], self.layers[kept], self.units[kept])


@dataclass(frozen=True, eq=False)
class FoldSets:
    """Fold-sets coloured by layer, as in Phuong & Lampert 2020, figs 2.1 to 2.3.

    A film shows its panels one after the other on the page, and up to four of them on paper.
    """

    panels: tuple[FoldPanel, ...]
    lower: Num[np.ndarray, "2"]
    upper: Num[np.ndarray, "2"]
    note: str = ""
    behind: Num[np.ndarray, "segment 2 2"] | None = None
    """Folds of the teacher, drawn grey behind those of every panel."""
    time_name: str = ""
    """What the titles of a film's panels are, such as `epoch`; empty for panels side by side."""
    axes: tuple[str, str] = ("x_1", "x_2")
    """Names of the axes, a letter and an index."""

    def __post_init__(self) -> None:
        typeset_fields(self, "note")
        agree(self, {"lower": (2,), "upper": (2,)})

    @property
    def depth(self) -> int:
        """Number of layers that have a colour."""
        return max(1, *(int(panel.layers.max(initial=1)) for panel in self.panels))

    def _note(self) -> str:
        if self.note:
            return self.note
        counts = [len(panel.layers) for panel in self.panels]
        return f"n = {counts[0]:,}{f' to {counts[-1]:,}' if len(counts) > 1 else ''} segments"

    def paper(self) -> Figure:
        shown = [self.panels[i] for i in style.evenly(len(self.panels), 4)] if self.time_name else list(self.panels)
        rows, columns = style.grid(len(shown), 4)
        with style.paper():
            width = style.NARROW if columns < 3 else style.WIDE
            wide, high = self.upper - self.lower
            height = min((width / columns - 0.35) * min(1.5, float(high / wide)), 3.4) + 0.4
            figure, axes = style.panels(rows, columns, height=height, width=width, count=len(shown))
            for i, (panel, ax) in enumerate(zip(shown, axes, strict=True)):
                self._draw(ax, panel)
                ax.set_title(f"{self.time_name} {panel.title}".strip())
                if i + columns >= len(shown):
                    ax.set_xlabel(f"${self.axes[0]}$")
                if i % columns == 0:
                    ax.set_ylabel(f"${self.axes[1]}$")
            entries: list[tuple[str, dict[str, Any]]] = [
                (f"layer {i}", {"color": colour}) for i, colour in enumerate(style.categories(self.depth), start=1)
            ]
            if self.behind is not None:
                entries.append((_BEHIND, {"color": style.CONTEXT, "linewidth": 2.5}))
            style.key(figure, entries, self._note())
            return style.finish(figure)

    def _draw(self, ax: Axes, panel: FoldPanel) -> None:
        many = len(panel.layers) > 1000
        if self.behind is not None:
            ax.add_collection(
                LineCollection(list(_finite(self.behind)), colors=style.CONTEXT, linewidths=2.5, zorder=1)
            )
        for layer, colour in _colours(self.depth):
            here = list(_finite(panel.segments[panel.layers == layer]))
            lines = LineCollection(here, colors=colour, linewidths=0.4 if many else 1.0, zorder=2 + self.depth - layer)
            ax.add_collection(lines)
        ticks = [_ticks(low, high) for low, high in zip(self.lower.tolist(), self.upper.tolist(), strict=True)]
        ax.set(xlim=(self.lower[0], self.upper[0]), ylim=(self.lower[1], self.upper[1]), aspect="equal")
        ax.set_xticks(ticks[0], [number(tick, "g") for tick in ticks[0]])
        ax.set_yticks(ticks[1], [number(tick, "g") for tick in ticks[1]])

    def page(self) -> pages.JSON:
        every = list(self.panels)
        if self.time_name:
            every = [every[i] for i in style.evenly(len(every), _MOST_FRAMES)]
        most = max(1, _MOST_ON_PAGE // len(every))
        shown = [panel.longest(most) for panel in every]
        panels = shown[-1:] if self.time_name else shown
        columns = style.grid(len(panels), 3)[1]
        note = self._note()
        if any(len(panel.layers) > most for panel in every):
            note += f", the longest {most:,} shown"
        layout = self._layout(["" if self.time_name else panel.title for panel in panels], columns, note, len(shown))
        behind: list[pages.JSON] = []
        if self.behind is not None:
            line = {"color": style.HAIRLINE, "width": 5}
            for p in range(len(panels)):
                x, y = _gapped(_finite(self.behind)[: _MOST_ON_PAGE // 4]).T
                legend: pages.JSON = {"name": _BEHIND, "legendgroup": _BEHIND, "showlegend": p == 0}
                behind.append(pages.scatter(p, x, y, line=line, hoverinfo="skip", opacity=0.45, **legend))
        named = sum(len(panel.layers) for panel in shown) <= _MOST_NAMED
        page: pages.JSON = {
            "data": behind + [t for p, panel in enumerate(panels) for t in self._traces(p, panel, named)],
            "layout": layout,
        }
        if not self.time_name:
            return page
        frames = [self._frame(panel, named) for panel in shown]
        return pages.animated(page, [panel.title for panel in shown], frames, f"{self.time_name} ", first=len(behind))

    def _traces(self, p: int, panel: FoldPanel, named: bool) -> list[pages.JSON]:
        """Traces of a panel, one for each layer; more where a layer has too many segments for one."""
        traces = []
        # The first panel with segments of a layer has its entry in the legend; of a film there is one panel.
        first: dict[int, int] = {}
        for i, each in enumerate(self.panels):
            for present in np.unique(each.layers).tolist():
                first.setdefault(int(present), 0 if self.time_name else i)
        for layer, colour in _colours(self.depth):
            chosen = np.flatnonzero(panel.layers == layer)
            if layer == 0 and not len(chosen) and not self.time_name:
                continue
            name = f"layer {layer}" if layer else "no layer"
            limit = len(chosen) if self.time_name else _MOST_SEGMENTS
            for part in range(0, max(1, len(chosen)), max(1, limit)):
                few = self._moved(panel, chosen[part : part + limit], named)
                line = {"color": colour, "width": 1.5 if len(panel.layers) < 1000 else 0.8}
                hover = f"<b>{name}</b>{', unit %{text}' if named else ''}<br>(%{{x:.4~g}}, %{{y:.4~g}})<extra></extra>"
                legend = {
                    "name": name,
                    "legendgroup": name,
                    "showlegend": p == first.get(layer, -1) and part == 0,
                }
                traces.append(
                    {"type": "scatter", "mode": "lines", **pages.at(p), **few, **legend, "line": line}
                    | {"hovertemplate": hover}
                )
        return traces

    def _frame(self, panel: FoldPanel, named: bool) -> list[pages.JSON]:
        return [
            self._moved(panel, np.flatnonzero(panel.layers == layer)[:_MOST_SEGMENTS], named)
            for layer, _ in _colours(self.depth)
        ]

    @staticmethod
    def _moved(panel: FoldPanel, chosen: np.ndarray, named: bool) -> pages.JSON:
        """Places of segments, separated by gaps, and the units that fold there."""
        places = pages.points(*_gapped(panel.segments[chosen]).T)
        return places | ({"text": np.repeat(panel.units[chosen], 3).tolist()} if named else {})

    def _layout(self, titles: list[str], columns: int, note: str, frames: int) -> pages.JSON:
        moves = bool(self.time_name) and frames > 1
        layout = pages.layout(
            titles,
            columns,
            x={"constrain": "domain", "range": self._range(0)},
            y={"constrain": "domain", "range": self._range(1)},
            note=note,
            row_height=460 if len(titles) == 1 else 330,
            column_width=230,
            shared=False,
            below=100 if moves else 0,
        )
        for p in range(len(titles)):
            x, y = (pages.axis(layout, letter, p) for letter in "xy")
            y["scaleanchor"] = pages.axes_of(p)[0]
            if p + columns >= len(titles):
                x["title"] = pages.title(_plain(self.axes[0]))
            if p:
                x["matches"], y["matches"] = "x", "y"
            if p % columns == 0:
                y["title"] = pages.title(_plain(self.axes[1]))
        return layout

    def _range(self, axis: int) -> list[float]:
        return [float(self.lower[axis]), float(self.upper[axis])]


def _colours(depth: int) -> list[tuple[int, str]]:
    """Layers with their colours; layer 0 is grey."""
    return [(0, style.HAIRLINE), *enumerate(style.categories(depth), start=1)]


def _finite(segments: np.ndarray) -> np.ndarray:
    return segments[np.isfinite(segments).all(axis=(1, 2))]


def _gapped(segments: np.ndarray) -> np.ndarray:
    """Ends of segments one after the other, with a gap after each segment."""
    return np.concatenate([segments, np.full((len(segments), 1, 2), np.nan)], axis=1).reshape(-1, 2)


def _ticks(low: float, high: float) -> list[float]:
    """A few round numbers in an interval."""
    return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]


def _plain(name: str) -> str:
    """Name of an axis for the page: x_1 as x₁."""
    letter, _, index = name.partition("_")
    return letter + index.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
