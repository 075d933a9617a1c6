"""The L in every hidden layer of deep networks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures import _student_nodes as nodes
from understudy.report.figures._shapes import agree
from understudy.report.story import counted

_MOST_EPOCHS = 12
_MOST_POINTS = 1_500
"""Most points of a panel of the page, at each epoch."""
_MANY = 2_000
_COLUMNS = 5
_ROOM = 1.15
"""End of an axis divided by the largest fan-out: the mean correlation is written above the dots."""
_HEIGHT = "√E β<sub>kk</sub>"
_HIGHEST = 8.3
"""Height of all panels on a page of paper, in inches."""


@dataclass(frozen=True, eq=False)
class LayerSpecialization:
    """√E β_kk against best correlation of every student node, layer by layer, one colour per seed.

    Tian 2019, figs. 4 and 12. √E β_kk is not normalised; panels have ranges of their own, because the more nodes a
    layer has the less each contributes. On paper, a single group is drawn as in the paper, with layers as rows, the
    highest on top, and epochs as columns that share a range; several groups are drawn as one row each, at the last
    epoch. On the page, layers are side by side, and there is a slider.
    """

    groups: tuple[str, ...]
    """Names of the groups of networks, such as `10×`."""
    epochs: Num[np.ndarray, "time"]
    cells: nodes.Cells
    """Panels by group, then by layer, the lowest first."""
    rho_mean: Num[np.ndarray, "group layer time"]
    """Mean best correlation of the teacher nodes, written into the panels."""
    moments: tuple[int, ...] | None = None
    """Indices of the epochs shown on paper; by default a few, closer together at the beginning."""
    layers: tuple[str, ...] = ()
    """Names of the layers; by default their numbers."""

    def __post_init__(self) -> None:
        shape = (len(self.groups), np.shape(self.rho_mean)[1], len(self.epochs))
        agree(self, {"rho_mean": shape})
        nodes.refuse(self, self.cells, shape[:2], shape[2])

    def _moments(self) -> list[int]:
        if self.moments is not None:
            return [m % len(self.epochs) for m in self.moments]
        return _early(self.epochs, _COLUMNS)

    def paper(self) -> Figure:
        groups, layers, _ = self.rho_mean.shape
        moments = self._moments()
        if groups == 1:
            grid = [[(0, layer, t) for t in moments] for layer in reversed(range(layers))]
            rows, columns = self._layers()[::-1], [f"epoch {self.epochs[t]:g}" for t in moments]
        else:
            grid = [[(group, layer, -1) for layer in range(layers)] for group in range(groups)]
            rows, columns = list(self.groups), self._layers()
        seeds, left = nodes.seeds_of(self.cells), nodes.left(self.cells)
        drawn = [self.cells[group][layer].seed.size for row in grid for group, layer, _ in row]
        height = min(1.3 if len(columns) < 4 else 1.1, _HIGHEST / len(rows))
        with style.paper():
            figure, axes = style.panels(len(rows), len(columns), height=height, sharey="row" if groups == 1 else False)
            for i, ax in enumerate(axes):
                row, column = divmod(i, len(columns))
                group, layer, time = grid[row][column]
                opacity, many = _opacity(drawn, 12), sum(drawn) > _MANY
                nodes.dots(ax, self.cells[group][layer], time, seeds, left=left, many=many, opacity=opacity)
                ax.annotate(
                    _rho(self.rho_mean[group, layer, time], r"$\bar{\rho}$"),
                    (0, 1),
                    xycoords="axes fraction",
                    xytext=(3, -1),
                    textcoords="offset points",
                    fontsize=style.SMALL,
                    color=style.SOFT,
                    va="top",
                )
                times = moments if groups == 1 else [-1]
                ax.set_ylim(0, _ROOM * nodes.top([self.cells[group][layer]], times) or 1.0)
                ax.locator_params(axis="y", nbins=3)
                if row == 0:
                    ax.set_title(columns[column])
                if column == 0:
                    ax.set_ylabel(rows[row])
            figure.supylabel(r"$\sqrt{E\,\beta_{kk}}$", fontsize=style.NORMAL)
            figure.supxlabel("max correlation among teachers", fontsize=style.NORMAL)
            when = "" if groups == 1 else f"epoch {self.epochs[-1]:g}, "
            between = "; " if len(columns) > 1 else "\n"
            mean = r"$\bar{\rho}$: mean best correlation of the teacher nodes"
            style.key(figure, [], f"{when}{_n(seeds)}{between}{mean}")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        groups, layers, _ = self.rho_mean.shape
        times = _early(self.epochs, _MOST_EPOCHS)
        flat = [cell for row in self.cells for cell in row]
        most = min(_MOST_POINTS, nodes.capacity(len(times)) // len(flat))
        kept = [nodes.shuffled(cell.seed.size)[:most] for cell in flat]
        panels = [(g, layer) for g in range(groups) for layer in range(layers)]
        names = [(f"{self.groups[g]}, " if groups > 1 else "") + self._layers()[layer] for g, layer in panels]
        moving = len(times) > 1
        layout = pages.layout(
            names,
            layers,
            x={"range": [nodes.left(self.cells), 1.02], "dtick": 0.25, "tickformat": "~g"},
            y={"nticks": 5},
            x_title="max correlation among teachers",
            y_title=_HEIGHT,
            note=f"{_n(nodes.seeds_of(self.cells))}{self._left_out(most)}",
            x_left=True,
            row_height=230,
            column_width=220,
            shared=False,
            legend=False,
            below=80 if moving else 0,
        )
        for upper in range(len(flat) - layers):
            layout["xaxis" + pages.axes_of(upper)[0][1:]]["showticklabels"] = False
        nodes.level(layout, ([panel] for panel in range(len(flat))), self.cells, _ROOM)
        words = [f"{_HEIGHT} %{{y:.3g}}<extra>{name}</extra>" for name in names]
        opacity = _opacity([len(some) for some in kept], 20)
        page = nodes.film(self.cells, kept, times, self.epochs, words, layout, opacity)
        self._write_means(page, panels, times)
        return page

    def _write_means(self, page: pages.JSON, panels: Sequence[tuple[int, int]], times: Sequence[int]) -> None:
        """Write the mean best correlation into a corner of each panel, at the epoch of the slider."""
        for i, (group, layer) in enumerate(panels):
            xaxis, yaxis = pages.axes_of(i)
            words = [{"text": [_rho(self.rho_mean[group, layer, t], "ρ̄")]} for t in times]
            page["data"].append(
                {
                    "type": "scatter",
                    "mode": "text",
                    "x": [nodes.left(self.cells) + 0.02],
                    "y": [page["layout"]["yaxis" + yaxis[1:]]["range"][1]],
                    "textposition": "bottom right",
                    "textfont": {"size": 12, "color": "black"},
                    "hoverinfo": "skip",
                    "showlegend": False,
                    "xaxis": xaxis,
                    "yaxis": yaxis,
                    **words[-1],
                }
            )
            for frame, said in zip(page.get("frames", ()), words, strict=False):
                frame["data"].append(said)
                frame["traces"].append(len(page["data"]) - 1)

    def _layers(self) -> list[str]:
        return list(self.layers) or [f"layer {layer + 1}" for layer in range(self.rho_mean.shape[1])]

    def _left_out(self, most: int) -> str:
        sizes = [cell.seed.size for row in self.cells for cell in row]
        if max(sizes) <= most:
            return ""
        low, high = f"{min(sizes):,}", f"{max(sizes):,}"
        of = high if low == high else f"{low} to {high}"
        return f"<br>at most {most:,} of the {of} nodes of a panel, drawn at random"


def _early(epochs: Num[np.ndarray, "time"], most: int) -> list[int]:
    """At most `most` epochs, as indices, with the first and the last, closer together at the beginning."""
    if len(epochs) <= most:
        return list(range(len(epochs)))
    known = np.log(np.maximum(epochs, epochs[epochs > 0].min()))
    wanted = np.linspace(known[0], known[-1], most - 1)
    return sorted({0, *(np.abs(known[1:, None] - wanted).argmin(axis=0) + 1).tolist()})


def _opacity(drawn: Sequence[int], ink: float) -> float:
    """Opacity of dots: smaller the more dots a panel has."""
    return float(np.clip(ink / np.sqrt(max(drawn)), 0.25, 0.75).round(2))


def _rho(value: float, symbol: str) -> str:
    return f"{symbol} = {value:.3f}" if np.isfinite(value) else ""


def _n(seeds: Int[np.ndarray, "seed"]) -> str:
    return f"n = {counted(len(seeds), 'seed')}" + (" (one colour each)" if len(seeds) > 1 else "")
