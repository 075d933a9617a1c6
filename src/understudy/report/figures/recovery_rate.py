"""How often each teacher node is recovered, by its index, at an early and a late epoch."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Num
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree


@dataclass(frozen=True, eq=False)
class RecoveryRate:
    """Success rate of recovery against teacher index, a panel a polarity, a line an over-realization.

    Seed 0 figure 7, seed 1 figure 5: dotted after a few epochs, solid at the end.
    """

    polarities: Num[np.ndarray, "panel"]
    multiples: Num[np.ndarray, "multiple"]
    early: Num[np.ndarray, "panel multiple teacher"]
    late: Num[np.ndarray, "panel multiple teacher"]
    early_epoch: float
    late_epoch: float
    seeds: int

    def __post_init__(self) -> None:
        shape = (len(self.polarities), len(self.multiples), np.shape(self.late)[-1])
        agree(self, {"early": shape, "late": shape})

    def _times(self) -> tuple[tuple[float, np.ndarray, str], ...]:
        return (self.early_epoch, self.early, "dot"), (self.late_epoch, self.late, "solid")

    def paper(self) -> Figure:
        rows, columns = style.grid(len(self.polarities), 6)
        index = np.arange(self.late.shape[-1])
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.35, count=len(self.polarities))
            for p, ax in enumerate(axes):
                for k, multiple in enumerate(self.multiples):
                    colour = style.multiple_colour(multiple)
                    ax.plot(index, self.early[p, k], color=colour, linestyle=(0, (1, 1.6)), linewidth=1.0)
                    ax.plot(index, self.late[p, k], color=colour)
                ax.set_title(f"p = {style.signed(self.polarities[p])}")
                ax.set(xlim=(-0.4, len(index) - 0.6), ylim=(-0.03, 1.03), yticks=[0, 0.25, 0.5, 0.75, 1])
                ax.set_xticks(index[:: max(1, len(index) // 5)])
            for ax in axes[::columns]:
                ax.set_ylabel("success rate")
            figure.supxlabel("teacher index", fontsize=style.NORMAL)
            lines: style.Key = (
                *((f"{m:g}×", {"color": style.multiple_colour(m)}) for m in self.multiples),
                (f"epoch {self.early_epoch:g}", {"linestyle": (0, (1, 1.6))}),
                (f"epoch {self.late_epoch:g}", {}),
            )
            style.key(figure, lines, f"n = {self.seeds} seeds")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        _, columns = style.grid(len(self.polarities), 6)
        index = np.arange(self.late.shape[-1])
        data = []
        for p, polarity in enumerate(self.polarities):
            xaxis, yaxis = pages.axes_of(p)
            for epoch, rates, dash in self._times():
                for k, multiple in enumerate(self.multiples):
                    hover = (
                        f"<b>{multiple:g}×</b>, p = {style.signed(polarity)}, epoch {epoch:g}<br>"
                        f"teacher node %{{x}}: recovered in %{{y:.0%}} of {self.seeds} seeds<extra></extra>"
                    )
                    data.append(
                        {
                            "type": "scatter",
                            "mode": "lines" if dash == "dot" else "lines+markers",
                            "name": f"{multiple:g}×",
                            "legendgroup": f"{multiple:g}",
                            "showlegend": p == 0 and dash == "solid",
                            "x": index.tolist(),
                            "y": pages.numbers(rates[p, k]),
                            "xaxis": xaxis,
                            "yaxis": yaxis,
                            "line": {"color": style.multiple_colour(multiple), "width": 1.8, "dash": dash},
                            "marker": {"size": 4},
                            "customdata": pages.identity(-1, index, -1),
                            "hovertemplate": hover,
                        }
                    )
        layout = pages.layout(
            [f"p = {style.signed(p)}" for p in self.polarities],
            columns,
            x={"range": [-0.6, len(index) - 0.4], "dtick": max(1, len(index) // 5)},
            y={"range": [-0.03, 1.04], "dtick": 0.25, "tickformat": ".0%"},
            x_title="teacher index",
            y_title="success rate",
            note=f"dotted: epoch {self.early_epoch:g}, solid: epoch {self.late_epoch:g}; n = {self.seeds} seeds",
            x_left=True,
        )
        return {"data": data, "layout": layout}
