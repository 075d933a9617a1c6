"""Epoch at which each teacher node is first recovered."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Num
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from understudy._numbers import number
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._curves_array import quantiles
from understudy.report.figures._shapes import agree

_MANY = 5_000


@dataclass(frozen=True, eq=False)
class RecoveryTime:
    """First epoch at which each teacher node is recovered, by its index: one point per network, one panel per polarity.

    Tian 2020, fig. 8, and Tian 2019, fig. 7, state in words that strong teacher nodes come first. Nodes that are never
    recovered are grey, on top.
    """

    polarities: Num[np.ndarray, "panel"]
    first: Num[np.ndarray, "panel net teacher"]
    """Epoch of first recovery; infinite where a node is never recovered, NaN where there is no network."""
    network: Int[np.ndarray, "panel net"]
    last_epoch: float
    notes: tuple[str, ...] = ()
    """Text in the title of each panel after its polarity, such as `rank correlation −0.96`."""

    def __post_init__(self) -> None:
        panels, nets, _ = np.shape(self.first)
        agree(self, {"polarities": (panels,), "network": (panels, nets)})
        if self.notes:
            agree(self, {"notes": (panels,)})

    def _never(self) -> float:
        """Position of `never` on the logarithmic axis of epochs."""
        return self.last_epoch * 1.6

    def _floor(self) -> float:
        """The smallest epoch on the axis; recovery at epoch 0 is drawn there."""
        known = self.first[np.isfinite(self.first) & (self.first > 0)]
        return float(known.min(initial=self.last_epoch))

    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions of networks and of their median on the axis of epochs (`never` if half of them never recover)."""
        y = np.where(np.isposinf(self.first), self._never(), np.maximum(self.first, self._floor()))
        (middle,) = quantiles(y, (0.5,), axis=1)
        return y, np.where(middle > self.last_epoch, self._never(), middle)

    def _titles(self) -> list[str]:
        notes = [f"\n{note}" for note in self.notes] or [""] * len(self.polarities)
        return [f"p = {number(p, 'g')}{note}" for p, note in zip(self.polarities, notes, strict=True)]

    def _across(self) -> np.ndarray:
        """Positions of points along the axis of teacher nodes, [net, teacher]."""
        _, nets, teachers = self.first.shape
        return np.arange(teachers) + (np.linspace(-0.28, 0.28, nets)[:, None] if nets > 1 else np.zeros((1, 1)))

    def _ticks(self) -> tuple[list[float], list[str]]:
        """Epochs 1, 2, 5, 10, …, only powers of ten where there would be many, and `never`."""
        steps = [m * 10.0**e for e in range(-4, 8) for m in (1, 2, 5)]
        ticks = [s for s in steps if self._floor() * 0.999 <= s <= self.last_epoch * 1.001]
        ticks = ticks if len(ticks) <= 8 else [t for t in ticks if f"{t:e}"[0] == "1"]
        return [*ticks, self._never()], [*(f"{t:g}" for t in ticks), "never"]

    def _n(self) -> int:
        return int((~np.isnan(self.first)).any(axis=2).sum(axis=1).max(initial=0))

    def paper(self) -> Figure:
        count, nets, teachers = self.first.shape
        rows, columns = style.grid(count, 5)
        colours = style.ramp(teachers)
        ramp = np.array([to_rgb(c) for c in colours])
        y, middle = self._points()
        x, across = np.arange(teachers), self._across()
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.5, count=count)
            for p, (ax, title) in enumerate(zip(axes, self._titles(), strict=True)):
                ax.set_yscale("log")
                never = y[p] > self.last_epoch
                look: dict[str, Any] = {"s": 3, "linewidths": 0, "rasterized": y.size > _MANY, "clip_on": False}
                ax.scatter(across[never], y[p][never], color=style.CONTEXT, alpha=0.6, **look)
                shade = np.broadcast_to(ramp, (nets, teachers, 3))[~never]
                ax.scatter(across[~never], y[p][~never], c=shade, alpha=0.45, **look)
                inside = middle[p] <= self.last_epoch
                ax.plot(x[inside], middle[p, inside], color=style.INK, linewidth=0.9, marker="o", markersize=2.2)
                ax.plot(x[~inside], middle[p, ~inside], "o", color=style.CONTEXT, markersize=2.2)
                ax.set_title(title, linespacing=1.25)
                ax.set_ylim(self._floor() * 0.85, self._never() * 1.05)
                ax.set_yticks(*self._ticks())
                ax.minorticks_off()
                ax.axhline(self.last_epoch * 1.25, color=style.CONTEXT, linewidth=0.5, linestyle=(0, (1, 2)))
                ax.set_xticks(x[:: max(1, teachers // 5)])
            for ax in axes[::columns]:
                ax.set_ylabel("epoch of recovery")
            figure.supxlabel("teacher index", fontsize=style.NORMAL)
            entries: style.Key = (
                ("median", {"color": style.INK, "marker": "o", "markersize": 2.2}),
                ("a network", {"linestyle": "none", "marker": "o", "markersize": 1.8, "color": colours[0]}),
            )
            style.key(figure, entries, f"n = {self._n()} seeds")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        count, nets, teachers = self.first.shape
        _, columns = style.grid(count, 5)
        colours = style.ramp(teachers)
        y, middle = self._points()
        x, across = np.arange(teachers), self._across()
        kind = "scattergl" if y.size > _MANY else "scatter"
        data: list[pages.JSON] = []
        for p, polarity in enumerate(self.polarities):
            panel = f"<extra>p = {number(polarity, 'g')}</extra>"
            node = np.broadcast_to(x, (nets, teachers))
            whose = np.broadcast_to(self.network[p][:, None], (nets, teachers))
            for late in (True, False):
                part = ~np.isnan(y[p]) & ((y[p] > self.last_epoch) == late)
                when = "never recovered" if late else "first recovered at epoch %{y:.3~g}"
                hover = f"network %{{customdata[0]}}, <b>teacher node %{{customdata[1]}}</b><br>{when}"
                scale = [[i / max(1, teachers - 1), c] for i, c in enumerate(colours)]
                marker: pages.JSON = {"size": 4, "opacity": 0.6, "color": style.CONTEXT}
                if not late:
                    scale = scale if teachers > 1 else [[0, colours[0]], [1, colours[0]]]
                    marker.update(color=pages.numbers(node[part]), colorscale=scale, cmin=0, cmax=max(1, teachers - 1))
                data.append(
                    pages.scatter(
                        p,
                        across[part],
                        y[p][part],
                        "markers",
                        type=kind,
                        marker=marker,
                        customdata=pages.identity(whose[part], node[part], -1),
                        hovertemplate=hover + panel,
                        showlegend=False,
                    )
                )
            inside = middle[p] <= self.last_epoch
            data.append(
                pages.scatter(
                    p,
                    x[inside],
                    middle[p, inside],
                    "lines+markers",
                    line={"color": style.HAIRLINE, "width": 1.5},
                    marker={"size": 5, "color": style.HAIRLINE},
                    customdata=pages.identity(-1, np.flatnonzero(inside), -1) if inside.any() else [],
                    hovertemplate="<b>teacher node %{customdata[1]}</b><br>median epoch of recovery %{y:.3~g}" + panel,
                    showlegend=False,
                )
            )
        ticks, words = self._ticks()
        low, high = np.log10(self._floor() * 0.85), np.log10(self._never() * 1.08)
        layout = pages.layout(
            [title.replace("\n", "<br>") for title in self._titles()],
            columns,
            x={"range": [-0.8, teachers - 0.2], "dtick": max(1, teachers // 5)},
            y={
                "type": "log",
                "range": [round(float(low), 4), round(float(high), 4)],
                "tickvals": ticks,
                "ticktext": words,
            },
            x_title="teacher index",
            y_title="epoch of recovery",
            note=f"line: median, n = {self._n()} seeds",
            row_height=250,
            column_width=190,
            legend=False,
        )
        layout["margin"]["t"] += 14 if self.notes else 0
        return {"data": data, "layout": layout}
