"""How the evaluation loss falls."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree


@dataclass(frozen=True, eq=False)
class LossCurves:
    """Evaluation loss against epoch, a panel a polarity, a line an over-realization. Seed 1 figure 11."""

    polarities: Num[np.ndarray, "panel"]
    multiples: Num[np.ndarray, "multiple"]
    epochs: Num[np.ndarray, "time"]
    loss: Num[np.ndarray, "panel multiple time"]
    """log₁₀ of the evaluation loss, median over seeds."""
    low: Num[np.ndarray, "panel multiple time"]
    high: Num[np.ndarray, "panel multiple time"]
    seeds: int
    network: Int[np.ndarray, "net"] | None = None
    network_panel: Int[np.ndarray, "net"] | None = None
    network_loss: Num[np.ndarray, "net time"] | None = None
    """log₁₀ of each network's own loss, for the page to draw when it is marked."""

    def __post_init__(self) -> None:
        shape = (len(self.polarities), len(self.multiples), len(self.epochs))
        agree(self, dict.fromkeys(("loss", "low", "high"), shape))
        if self.network is not None:
            nets = len(self.network)
            agree(self, {"network_panel": (nets,), "network_loss": (nets, shape[-1])})

    def paper(self) -> Figure:
        count = len(self.polarities)
        rows, columns = style.grid(count, 3)
        marker = "o" if len(self.epochs) == 1 else None
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.55, count=count)
            for p, ax in enumerate(axes):
                for k, multiple in enumerate(self.multiples):
                    colour = style.multiple_colour(multiple)
                    ax.fill_between(self.epochs, self.low[p, k], self.high[p, k], color=colour, alpha=0.2, linewidth=0)
                    ax.plot(self.epochs, self.loss[p, k], color=colour, marker=marker)
                ax.set_title(f"p = {style.signed(self.polarities[p])}")
                ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
                if len(self.epochs) > 1:
                    ax.set_xlim(self.epochs[0], self.epochs[-1])
            low, high = axes[0].get_ylim()
            for p, ax in enumerate(axes):
                ends = self.loss[p, :, -1]
                shown = np.flatnonzero(np.isfinite(ends))
                for k, y in zip(shown.tolist(), style.spread(ends[shown], 0.085 * (high - low)), strict=True):
                    ax.annotate(
                        f"{self.multiples[k]:g}×",
                        (1, y),
                        xycoords=("axes fraction", "data"),
                        xytext=(3, 0),
                        textcoords="offset points",
                        color=style.multiple_colour(self.multiples[k]),
                        fontsize=style.SMALL,
                        va="center",
                    )
            figure.supylabel("log₁₀ evaluation loss", fontsize=style.NORMAL)
            figure.supxlabel("epoch", fontsize=style.NORMAL)
            style.key(
                figure, [("median", {}), ("quartiles", {"linewidth": 5, "alpha": 0.3})], f"n = {self.seeds} seeds"
            )
            return style.finish(figure)

    def page(self) -> pages.JSON:
        _, columns = style.grid(len(self.polarities), 3)
        data: list[pages.JSON] = []
        for p, polarity in enumerate(self.polarities):
            xaxis, yaxis = pages.axes_of(p)
            at = {"xaxis": xaxis, "yaxis": yaxis}
            for k, multiple in enumerate(self.multiples):
                colour = style.multiple_colour(multiple)
                group = {"legendgroup": f"{multiple:g}"}
                data += pages.band(self.epochs, self.low[p, k], self.high[p, k], colour, 0.18, **at, **group)
                hover = (
                    f"<b>{multiple:g}×</b>, p = {style.signed(polarity)}<br>epoch %{{x}}: log₁₀ loss %{{y:.2f}}"
                    f"<br>median of {self.seeds} seeds<extra></extra>"
                )
                data.append(
                    {
                        "type": "scatter",
                        "mode": "lines" if len(self.epochs) > 1 else "markers",
                        "name": f"{multiple:g}×",
                        "showlegend": p == 0,
                        "x": pages.numbers(self.epochs),
                        "y": pages.numbers(self.loss[p, k]),
                        "line": {"color": colour, "width": 1.8},
                        "marker": {"color": colour},
                        "hovertemplate": hover,
                        **at,
                        **group,
                    }
                )
        layout = pages.layout(
            [f"p = {style.signed(p)}" for p in self.polarities],
            columns,
            x={},
            y={},
            x_title="epoch",
            y_title="log₁₀ evaluation loss",
            note=f"median and quartiles, n = {self.seeds} seeds",
            x_left=True,
            column_width=230,
        )
        page = {"data": data, "layout": layout}
        if self.network is not None:
            page["networks"] = pages.own_curves(self.network, self.network_panel, self.epochs, self.network_loss)
        return page
