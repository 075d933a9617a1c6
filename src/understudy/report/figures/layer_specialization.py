"""The L in every hidden layer of deep networks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Num
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree
from understudy.report.figures.specialization import NodeScatter, StudentNodes, capacity, shuffled
from understudy.report.story import counted

_MOST_EPOCHS = 12
_MOST_POINTS = 1_500
"""Most points of a panel of the page, at each epoch."""
_MANY = 2_000
_COLUMNS = 5
_ROOM = 1.15
"""End of an axis divided by the largest fan-out: the mean correlation is written above the dots."""
_HEIGHT = "√E β<sub>kk</sub>"


@dataclass(frozen=True, eq=False)
class LayerSpecialization(NodeScatter):
    """√E β_kk against best correlation of every student node, layer by layer, one colour per seed.

    Tian 2019, figs. 4 and 12. √E β_kk is not normalised; panels have ranges of their own, because the more nodes a
    layer has the less each contributes. On paper, a single group is drawn as in the paper, with layers as rows, the
    highest on top, and a few epochs as columns that share a range; several groups are drawn as one row each, at the
    last epoch. On the page, layers are side by side, and there is a slider.
    """

    groups: tuple[str, ...]
    """Names of the groups of networks, such as `10×`."""
    epochs: Num[np.ndarray, "time"]
    cells: tuple[tuple[StudentNodes, ...], ...]
    """Panels by group, then by layer, the lowest first."""
    rho_mean: Num[np.ndarray, "group layer time"]
    """Mean best correlation of the teacher nodes, written into the panels."""
    layers: tuple[str, ...] = ()
    """Names of the layers; by default their numbers."""

    def __post_init__(self) -> None:
        shape = (len(self.groups), np.shape(self.rho_mean)[1], len(self.epochs))
        agree(self, {"rho_mean": shape})
        self._validate(*shape[:2])

    def paper(self) -> Figure:
        groups, layers, _ = self.rho_mean.shape
        times = _early(self.epochs, _COLUMNS) if groups == 1 else [-1]
        if groups == 1:
            grid = [(0, layer, t) for layer in reversed(range(layers)) for t in times]
            rows, columns = self._layers()[::-1], [f"epoch {self.epochs[t]:g}" for t in times]
        else:
            grid = [(group, layer, -1) for group in range(groups) for layer in range(layers)]
            rows, columns = list(self.groups), self._layers()
        drawn = [self.cells[group][layer].seed.size for group, layer, _ in grid]
        height = min(1.3 if len(columns) < 4 else 1.1, style.HIGHEST / len(rows))
        with style.paper():
            figure, axes = style.panels(len(rows), len(columns), height=height, sharey="row" if groups == 1 else False)
            for i, (ax, (group, layer, time)) in enumerate(zip(axes, grid, strict=True)):
                cell = self.cells[group][layer]
                self._draw(ax, cell, time, many=sum(drawn) > _MANY, opacity=_opacity(drawn, 12))
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
                shown = cell.fan_out[times]
                ax.set_ylim(0, _ROOM * shown[np.isfinite(shown)].max(initial=0.0) or 1.0)
                ax.locator_params(axis="y", nbins=3)
                row, column = divmod(i, len(columns))
                if row == 0:
                    ax.set_title(columns[column])
                if column == 0:
                    ax.set_ylabel(rows[row])
            style.name_axes(figure, "max correlation among teachers", r"$\sqrt{E\,\beta_{kk}}$")
            when = "" if groups == 1 else f"epoch {self.epochs[-1]:g}, "
            between = "; " if len(columns) > 1 else "\n"
            mean = r"$\bar{\rho}$: mean best correlation of the teacher nodes"
            style.key(figure, [], f"{when}{self._n()}{between}{mean}")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        groups, layers, _ = self.rho_mean.shape
        times, flat = _early(self.epochs, _MOST_EPOCHS), self._flat()
        most = min(_MOST_POINTS, capacity(len(times)) // len(flat))
        kept = [shuffled(cell.seed.size)[:most] for cell in flat]
        names = [(f"{group}, " if groups > 1 else "") + layer for group in self.groups for layer in self._layers()]
        page = self._film(
            kept,
            times,
            names,
            [f"{_HEIGHT} %{{y:.3g}}<extra>{name}</extra>" for name in names],
            levels=([panel] for panel in range(len(flat))),
            room=_ROOM,
            opacity=_opacity([len(some) for some in kept], 20),
            y={"nticks": 5},
            y_title=_HEIGHT,
            note=f"{self._n()}{self._left_out(most)}",
            x_left=True,
            row_height=230,
            shared=False,
        )
        for upper in range(len(flat) - layers):
            pages.axis(page["layout"], "x", upper)["showticklabels"] = False
        self._write_means(page, times)
        return page

    def _write_means(self, page: pages.JSON, times: Sequence[int]) -> None:
        """Write the mean best correlation into a corner of each panel, at the epoch of the slider."""
        for i, means in enumerate(self.rho_mean.reshape(-1, len(self.epochs))):
            words = [{"text": [_rho(means[t], "ρ̄")]} for t in times]
            corner = [self._left() + 0.02], [pages.axis(page["layout"], "y", i)["range"][1]]
            look = {"textposition": "bottom right", "textfont": {"size": 12, "color": "black"}, "hoverinfo": "skip"}
            page["data"].append(pages.scatter(i, *corner, "text", showlegend=False) | look | words[0])
            for frame, said in zip(page.get("frames", ()), words, strict=False):
                frame["data"].append(said)
                frame["traces"].append(len(page["data"]) - 1)

    def _layers(self) -> list[str]:
        return list(self.layers) or [f"layer {layer + 1}" for layer in range(self.rho_mean.shape[1])]

    def _n(self) -> str:
        seeds = len(self._seeds())
        return f"n = {counted(seeds, 'seed')}" + (" (one colour each)" if seeds > 1 else "")

    def _left_out(self, most: int) -> str:
        sizes = [cell.seed.size for cell in self._flat()]
        if max(sizes) <= most:
            return ""
        low, high = f"{min(sizes):,}", f"{max(sizes):,}"
        of = high if low == high else f"{low} to {high}"
        return f"<br>at most {most:,} of the {of} nodes of a panel, drawn at random"


def _early(epochs: Num[np.ndarray, "time"], most: int) -> list[int]:
    """Indices of at most `most` epochs, with the first and the last, closer together at the beginning."""
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
