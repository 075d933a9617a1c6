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
            for ax, title, values in zip(axes, self.titles, self.correlation, strict=True):
                image = ax.imshow(
                    np.asarray(values, dtype=float)[:, match_order(values)],
                    cmap="RdBu",
                    vmin=-1,
                    vmax=1,
                    aspect="auto",
                    interpolation="nearest",
                )
                ax.set_title(f"{title}: {values.shape[0]} teacher nodes, {values.shape[1]} students", loc="left")
                ax.set_ylabel("teacher")
                ax.set_yticks(_ends(values.shape[0]))
                ax.set_xticks([])
                for side in ax.spines.values():
                    side.set_visible(False)
            axes[-1].set_xlabel("students, ordered by the teacher node they match")
            bar = figure.colorbar(image, ax=axes, ticks=[-1, 0, 1], fraction=0.03, pad=0.01, aspect=25)
            bar.outline.set_visible(False)
            bar.set_label("correlation", size=style.NORMAL)
            return style.finish(figure)

    def page(self) -> pages.JSON:
        data: list[pages.JSON] = []
        for i, values in enumerate(self.correlation):
            order = match_order(values)
            teachers, students = values.shape
            xaxis, yaxis = pages.axes_of(i)
            trace: pages.JSON = {
                "type": "heatmap",
                "z": pages.typed(values[:, order]),
                "x": [str(s) for s in order],
                "y": list(range(teachers)),
                "zmin": -1,
                "zmax": 1,
                "coloraxis": "coloraxis",
                "hovertemplate": f"{self.titles[i]}<br>teacher node %{{y}}, student node %{{x}}"
                "<br>correlation %{z:.3f}<extra></extra>",
                "xaxis": xaxis,
                "yaxis": yaxis,
            }
            if values.size <= _MOST_NAMED_CELLS:
                grid = np.meshgrid(np.arange(teachers), order, indexing="ij")
                whose = np.stack([np.full(values.shape, self.network), *grid], axis=-1)
                trace["customdata"] = pages.typed(whose, "i2" if max(self.network, students) < 2**15 else "i4")
            data.append(trace)
        layout = pages.layout(
            [f"{t}: {c.shape[0]} teacher nodes, {c.shape[1]} students" for t, c in self._layers()],
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

    def _layers(self) -> list[tuple[str, np.ndarray]]:
        return list(zip(self.titles, self.correlation, strict=True))


def match_order(correlation: Num[np.ndarray, "teacher student"]) -> Int[np.ndarray, "student"]:
    """Order of students by the teacher node they correlate best with, then by decreasing correlation."""
    known = np.nan_to_num(np.asarray(correlation, dtype=float), nan=-2.0)
    return np.lexsort((-known.max(axis=0), known.argmax(axis=0)))


def _ends(count: int) -> list[int]:
    return sorted({0, count // 2, count - 1})
