"""Similarity of every layer of a teacher to every layer of a student, as heat maps."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Num
from matplotlib.figure import Figure

from understudy._numbers import number, typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_MOST_VALUES = 14
"""Columns up to which the values are written into the cells."""
_LONGEST = 18
"""Letters of a layer's name on paper."""


@dataclass(frozen=True, eq=False)
class LayerMatrix:
    """Similarities from 0 to 1 of teacher layers (rows) and student layers (columns), one panel per measure."""

    titles: tuple[str, ...]
    """Names of the measures."""
    teacher: tuple[str, ...]
    student: tuple[str, ...]
    values: Num[np.ndarray, "measure teacher student"]
    note: str = ""

    def __post_init__(self) -> None:
        typeset_fields(self, "titles", "note")
        agree(self, {"values": (len(self.titles), len(self.teacher), len(self.student))})

    def paper(self) -> Figure:
        count = len(self.titles)
        rows, columns = style.grid(count, 2)
        width = style.NARROW if columns == 1 else style.WIDE
        high = float(np.clip(0.16 * len(self.teacher) + 0.9, 1.4, 7.6 / rows))
        with style.paper():
            figure, axes = style.panels(rows, columns, height=high, width=width, count=count, sharex=False)
            for ax, title, values in zip(axes, self.titles, self.values, strict=True):
                image = style.heat_map(ax, values)
                image.set(cmap="viridis", clim=(0, 1))
                ax.set_title(title, loc="left")
                for axis, names, most in ((ax.xaxis, self.student, 10 * width), (ax.yaxis, self.teacher, 8 * high)):
                    shown = style.evenly(len(names), max(1, int(most / (columns if axis is ax.xaxis else 1))))
                    axis.set_ticks(shown, [_short(names[i]) for i in shown])
                ax.tick_params(axis="x", rotation=90)
                ax.spines[:].set_visible(False)
            students = f"layers of the student, n = {len(self.student)}"
            style.name_axes(figure, students, f"layers of the teacher, n = {len(self.teacher)}")
            style.colour_bar(figure, image, axes, "similarity", aspect=25)
            if self.note:
                style.key(figure, [], self.note)
            return style.finish(figure)

    def page(self) -> pages.JSON:
        count = len(self.titles)
        columns = style.grid(count, 2)[1]
        left = 7 * min(_LONGEST, max(map(len, self.teacher))) + 50
        layout = pages.layout(
            self.titles,
            columns,
            x={"type": "category", "showline": False, "ticks": "", "tickangle": -90},
            y={"type": "category", "autorange": "reversed", "showline": False, "ticks": ""},
            y_title="layer of the teacher",
            row_height=max(230, 20 * len(self.teacher)),
            column_width=max(170, 20 * len(self.student)),
            legend=False,
            below=7 * min(_LONGEST, max(map(len, self.student))),
        )
        layout["margin"] |= {"l": left, "r": 84}
        layout["meta"]["minWidth"] += left
        bar = {"title": pages.title("similarity"), "thickness": 10, "outlinewidth": 0, "tickvals": [0, 0.5, 1]}
        layout["coloraxis"] = {"cmin": 0, "cmax": 1, "colorscale": "Viridis", "colorbar": bar}
        data = []
        for i, values in enumerate(self.values):
            hover = f"teacher %{{y}}, student %{{x}}<br>{self.titles[i]} %{{z:.3f}}<extra></extra>"
            trace = pages.heat_map(i, pages.typed(values), list(self.student), list(self.teacher), hovertemplate=hover)
            if len(self.student) <= _MOST_VALUES:
                trace["text"] = [[number(v, ".2f") if np.isfinite(v) else "" for v in row] for row in values]
                trace["texttemplate"] = "%{text}"
            data.append(trace)
            if i + columns >= count:
                pages.axis(layout, "x", i)["title"] = pages.title("layer of the student")
        return {"data": data, "layout": layout}


def _short(name: str) -> str:
    """The end of a long name, which tells layers apart better than its beginning."""
    return name if len(name) <= _LONGEST else f"…{name[-_LONGEST + 1 :]}"
