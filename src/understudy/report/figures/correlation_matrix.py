"""Correlations of student nodes with teacher nodes as heat maps."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.figure import Figure

from understudy._numbers import typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages

_MOST_NAMED_CELLS = 40_000


@dataclass(frozen=True, eq=False)
class CorrelationMatrix:
    """Correlations of one network's students (columns) with teacher nodes (rows), one panel per layer.

    Students are ordered by the teacher node they match best, the better ones first: learned nodes form a staircase.
    """

    titles: tuple[str, ...]
    correlation: tuple[Num[np.ndarray, "teacher student"], ...]
    network: int = -1
    nodes: tuple[tuple[Int[np.ndarray, "teacher"], Int[np.ndarray, "student"]], ...] | None = None
    """Numbers of the teacher nodes and students of each panel, where not all of a layer are shown."""

    def __post_init__(self) -> None:
        typeset_fields(self, "titles")
        if len(self.titles) != len(self.correlation):
            raise ValueError(
                f"CorrelationMatrix must have one title per layer ({len(self.correlation)}), got {len(self.titles)}"
            )

    def paper(self) -> Figure:
        count = len(self.correlation)
        widest = max(c.shape[1] for c in self.correlation)
        heights = [float(np.clip(0.05 * c.shape[0], 0.7, 1.7)) for c in self.correlation]
        width = style.NARROW if widest <= 40 else style.WIDE
        with style.paper():
            figure, axes = style.panels(
                count, 1, height=0.5, width=width, sharex=False, sharey=False, height_ratios=heights
            )
            figure.set_figheight(sum(heights) + 0.5 * count)
            for ax, heading, values in zip(axes, self._headings(), self.correlation, strict=True):
                image = style.heat_map(ax, np.asarray(values, dtype=float)[:, match_order(values)])
                ax.set_title(heading, loc="left")
                ax.set_ylabel("teacher")
                ax.set_yticks(sorted({0, values.shape[0] // 2, values.shape[0] - 1}))
                ax.set_xticks([])
                ax.spines[:].set_visible(False)
            axes[-1].set_xlabel("students, ordered by the teacher node they match")
            style.colour_bar(figure, image, axes, "correlation", aspect=25)
            return style.finish(figure)

    def page(self) -> pages.JSON:
        data: list[pages.JSON] = []
        for i, values in enumerate(self.correlation):
            order = match_order(values)
            teachers, students = values.shape
            hover = (
                f"{self.titles[i]}<br>teacher node %{{y}}, student node %{{x}}<br>correlation %{{z:.3f}}<extra></extra>"
            )
            rows, columns = self.nodes[i] if self.nodes else (np.arange(teachers), np.arange(students))
            x, y = [str(s) for s in columns[order]], [str(t) for t in rows]
            trace = pages.heat_map(i, pages.typed(values[:, order]), x, y, hovertemplate=hover)
            if self.network >= 0 and values.size <= _MOST_NAMED_CELLS:
                grid = np.meshgrid(rows, columns[order], indexing="ij")
                whose = np.stack([np.full(values.shape, self.network), *grid], axis=-1)
                trace["customdata"] = pages.typed(whose, "i2" if whose.max() < 2**15 else "i4")
            data.append(trace)
        layout = pages.layout(
            self._headings(),
            1,
            x={"type": "category", "showticklabels": False, "ticks": "", "showline": False},
            y={"autorange": "reversed", "showline": False},
            x_title="students, ordered by the teacher node they match",
            y_title="teacher node",
            row_height=230,
            shared=False,
            legend=False,
        )
        layout["margin"]["r"] = 80
        layout["coloraxis"] = pages.diverging("correlation")
        return {"data": data, "layout": layout}

    def _headings(self) -> list[str]:
        shapes = [values.shape for values in self.correlation]
        return [f"{t}: {m} teacher nodes, {n} students" for t, (m, n) in zip(self.titles, shapes, strict=True)]


def match_order(correlation: Num[np.ndarray, "teacher student"]) -> Int[np.ndarray, "student"]:
    """Order of students by the teacher node they correlate best with, then by decreasing correlation."""
    known = np.nan_to_num(np.asarray(correlation, dtype=float), nan=-2.0)
    return np.lexsort((-known.max(axis=0), known.argmax(axis=0)))
