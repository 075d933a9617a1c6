"""Areas over one axis for several values of a parameter, such as densities that become narrower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from understudy._numbers import typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_ONE_COLUMN = 6
"""Most rows in one column on paper."""
_HIGHEST = 0.95
_OPACITY = 0.25
_FEW, _WIDTH, _WIDE = 6, 280, 420
"""Areas whose names fit above a figure of the width of a telephone, this width in pixels, and the width for more."""


@dataclass(frozen=True, eq=False)
class Areas:
    """Areas under curves, or stacked, in one row for each value of a parameter; the page has a slider over the rows.

    Phuong 2021, fig. 4.3: densities p(x|z) of several codes, or probabilities of labels along the code.

    Args:
        titles: Title of each row, such as `M = 0.6`.
        x: Values along the x axis.
        values: Values of each area; NaN where there are none.
        labels: Name of each area.
        x_label: Name of the x axis.
        y_label: Name of the values.
        stacked: Whether areas are stacked, such as shares of a whole; otherwise they overlap.
        outline: A curve that is drawn grey in every row.
        outline_label: Its name.
        note: Text beside the key.
        colours: Colour of each area. By default categories where areas are stacked, and otherwise an order.
    """

    titles: tuple[str, ...]
    x: Num[np.ndarray, "point"]
    values: Num[np.ndarray, "row area point"]
    labels: tuple[str, ...]
    x_label: str
    y_label: str
    stacked: bool = False
    outline: Num[np.ndarray, "point"] | None = None
    outline_label: str = ""
    note: str = ""
    colours: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        typeset_fields(self, "titles", "labels", "x_label", "y_label", "outline_label", "note")
        shape = len(self.titles), len(self.labels), len(self.x)
        agree(self, {"values": shape, "outline": shape[2:], "colours": shape[1:2]})

    def _colours(self) -> list[str]:
        count = len(self.labels)
        if self.colours is not None:
            return list(self.colours)
        return style.categories(count) if self.stacked else style.layer_colours(count)

    def highest(self) -> float:
        """Upper end of the y axis that all rows can share."""
        tall = self.values.sum(1) if self.stacked else self.values
        both = np.concatenate([tall.ravel(), np.zeros(0) if self.outline is None else self.outline])
        return float(both[np.isfinite(both)].max(initial=0.0)) or 1.0

    def paper(self) -> Figure:
        count = len(self.titles)
        rows, columns = style.grid(count, 1 if count <= _ONE_COLUMN else 2)
        with style.paper():
            height = min(_HIGHEST, style.HIGHEST / rows - 0.1)
            figure, axes = style.panels(rows, columns, height=height, count=count, sharey=self.stacked)
            for row, ax in enumerate(axes):
                self._draw(ax, row)
                ax.set_title(self.titles[row], loc="left", fontsize=style.SMALL)
                ax.set(xlim=(self.x[0], self.x[-1]) if len(self.x) > 1 else None, yticks=[])
                ax.spines["left"].set_visible(False)
            figure.supxlabel(self.x_label, fontsize=style.NORMAL)
            areas: list[tuple[str, dict[str, Any]]] = [
                (label, {"color": colour, "linewidth": 5 if self.stacked else 1.2})
                for label, colour in zip(self.labels, self._colours(), strict=True)
            ]
            if self.outline is not None:
                areas.append((self.outline_label, {"color": style.CONTEXT}))
            style.key(figure, areas, self.note)
            return style.finish(figure)

    def _draw(self, ax: Axes, row: int) -> None:
        base = np.zeros(len(self.x))
        if self.outline is not None:
            ax.plot(self.x, self.outline, color=style.CONTEXT, zorder=1)
        for values, colour in zip(self.values[row], self._colours(), strict=True):
            if self.stacked:
                top = base + np.nan_to_num(values)
                ax.fill_between(self.x, base, top, color=colour, linewidth=0)
                base = top
            else:
                ax.fill_between(self.x, 0, values, color=colour, alpha=_OPACITY, linewidth=0)
                ax.plot(self.x, values, color=colour)
        ax.set_ylim(0, self.highest() if self.stacked else None)

    def page(self) -> pages.JSON:
        data: list[pages.JSON] = []
        if self.outline is not None:
            line, words = {"color": style.HAIRLINE, "width": 1.5}, {"name": self.outline_label, "hoverinfo": "skip"}
            data.append(pages.scatter(0, self.x, self.outline, line=line, **words))
        first = len(data)
        for i, (label, colour) in enumerate(zip(self.labels, self._colours(), strict=True)):
            how: pages.JSON = {"fill": "tozeroy", "fillcolor": pages.faded(colour, _OPACITY)}
            if self.stacked:
                how = {"stackgroup": "whole", "fillcolor": colour}
            hover = f"<b>{label}</b><br>{self.x_label} %{{x:.3~g}}: {self.y_label} %{{y:.3~g}}<extra></extra>"
            line = {"color": colour, "width": 0 if self.stacked else 1.8}
            data.append(pages.scatter(0, self.x, self.values[0, i], line=line, name=label, hovertemplate=hover) | how)
        layout = pages.layout(
            [""],
            1,
            y={"range": [0, self.highest() * (1 if self.stacked else 1.04)]},
            x_title=self.x_label,
            y_title=self.y_label,
            note="; ".join(words for words in (self.titles[0] if len(self.titles) == 1 else "", self.note) if words),
            row_height=320,
            column_width=_WIDTH if len(self.labels) <= _FEW else _WIDE,
            x_left=True,
            below=80 if len(self.titles) > 1 else 0,
        )
        layout["legend"]["traceorder"] = "normal"
        frames = [[{"y": pages.numbers(values)} for values in row] for row in self.values]
        return pages.animated({"data": data, "layout": layout}, self.titles, frames, "", first=first)
