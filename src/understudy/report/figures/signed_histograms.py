"""Histograms of numbers that may be negative or positive."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from understudy._numbers import typeset, typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_BARS = 24
_MOST_COLUMNS = 5
_SIGNS = (("negative", style.BLUE), ("positive", style.ORANGE))


@dataclass(frozen=True, eq=False)
class SignedHistograms:
    """Histogram of each layer's numbers, negative ones in one colour and the others in another.

    BatchNorm shifts (Tian et al. 2019, figs. 6 and 18). Panels have scales of their own; titles give the share of
    negative numbers.
    """

    titles: tuple[str, ...]
    """One title per panel."""
    values: tuple[Float[np.ndarray, "number"], ...]
    """Numbers of each panel, of any length; numbers that are not finite are left out."""
    name: str
    """Name of the x axis."""

    def __post_init__(self) -> None:
        typeset_fields(self, "titles")
        agree(self, {"titles": (len(self.values),)})

    def _grid(self) -> tuple[int, int]:
        return style.grid(len(self.titles), 4 if len(self.titles) < 9 else _MOST_COLUMNS)

    def _numbers(self, panel: int) -> Float[np.ndarray, "number"]:
        flat = np.asarray(self.values[panel], dtype=float).ravel()
        return flat[np.isfinite(flat)]

    def _bars(self, panel: int) -> tuple[np.ndarray, np.ndarray]:
        """Edges of the bars, one of which is zero, and counts; zero counts as positive."""
        numbers = self._numbers(panel)
        low, high = min(numbers.min(initial=0.0), 0.0), max(numbers.max(initial=0.0), 0.0)
        width = (high - low) / _BARS or 1.0
        first, last = int(np.floor(low / width)), int(np.floor(high / width)) + 1
        edges = width * np.arange(first, last + 1)
        counts, _ = np.histogram(numbers, edges)
        return edges, counts

    def _heading(self, panel: int) -> str:
        numbers = self._numbers(panel)
        return f"{(numbers < 0).mean():.0%} negative" if len(numbers) else "none"

    def paper(self) -> Figure:
        rows, columns = self._grid()
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.3, count=len(self.titles), sharex=False, sharey=False)
            for p, ax in enumerate(axes):
                edges, counts = self._bars(p)
                for (_, colour), here in zip(_SIGNS, (edges[:-1] < 0, edges[:-1] >= 0), strict=True):
                    share = counts[here] / max(1, counts.sum())
                    ax.bar(edges[:-1][here], share, np.diff(edges)[here], align="edge", color=colour, linewidth=0)
                ax.axvline(0, color=style.SOFT, linewidth=0.6)
                ax.set_title(f"{self.titles[p]}: {self._heading(p)}", fontsize=style.SMALL)
                ax.xaxis.set_major_locator(MaxNLocator(3))
                ax.yaxis.set_major_locator(MaxNLocator(3))
                ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
                ax.tick_params(labelbottom=True)
            style.name_axes(figure, self.name, "share of nodes")
            entries: style.Key = tuple((name, {"color": colour, "linewidth": 5}) for name, colour in _SIGNS)
            style.key(figure, entries, self._counted())
            return style.finish(figure)

    def _counted(self) -> str:
        return f"n = {sum(len(self._numbers(p)) for p in range(len(self.titles))):,} nodes"

    def page(self) -> pages.JSON:
        _, columns = self._grid()
        data: list[pages.JSON] = []
        for p in range(len(self.titles)):
            edges, counts = self._bars(p)
            for name, colour in _SIGNS:
                here = edges[:-1] < 0 if name == "negative" else edges[:-1] >= 0
                spans = [(a, b) for (a, b), one in zip(pairwise(edges.tolist()), here, strict=True) if one]
                data.append(
                    {
                        "type": "bar",
                        "name": name,
                        "legendgroup": name,
                        "showlegend": p == 0,
                        "x": pages.numbers([(a + b) / 2 for a, b in spans]),
                        "y": pages.numbers(counts[here] / max(1, counts.sum())),
                        "width": float(edges[1] - edges[0]),
                        "marker": {"color": colour, "line": {"width": 0}},
                        "text": [
                            typeset(f"{a:.3g} to {b:.3g}: {n}") for (a, b), n in zip(spans, counts[here], strict=True)
                        ],
                        "textposition": "none",
                        "hovertemplate": f"<b>{self.titles[p]}</b><br>%{{text}} nodes<extra></extra>",
                        **pages.at(p),
                    }
                )
        layout = pages.layout(
            [f"{title}: {self._heading(p)}" for p, title in enumerate(self.titles)],
            columns,
            x={"nticks": 5, "zeroline": True, "zerolinecolor": style.HAIRLINE, "zerolinewidth": 1},
            y={"tickformat": ".0%", "nticks": 4, "rangemode": "tozero"},
            x_title=self.name,
            y_title="share of nodes",
            note=self._counted(),
            row_height=170,
            column_width=200,
            shared=False,
            x_left=True,
        )
        return {"data": data, "layout": layout | {"barmode": "overlay", "bargap": 0}}
