"""How well the best student matches each teacher node, over time."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree


@dataclass(frozen=True, eq=False)
class BestCorrelation:
    """Best student correlation to each teacher node against epoch, a panel a polarity, strong dark and weak light.

    Seed 0 figure 8, seed 1 figure 7. Teacher 0 is the strongest.
    """

    polarities: Num[np.ndarray, "panel"]
    epochs: Num[np.ndarray, "time"]
    correlation: Num[np.ndarray, "panel teacher time"]
    """Median over seeds."""
    low: Num[np.ndarray, "panel teacher time"]
    high: Num[np.ndarray, "panel teacher time"]
    notes: tuple[str, ...]
    """What stands over each panel after its polarity, e.g. `log10 loss −6.45`."""
    seeds: int
    network: Int[np.ndarray, "net"] | None = None
    network_panel: Int[np.ndarray, "net"] | None = None
    network_correlation: Num[np.ndarray, "net teacher time"] | None = None
    """Each network's own curves, for the page to draw when it is marked."""

    def __post_init__(self) -> None:
        shape = (len(self.polarities), np.shape(self.correlation)[1], len(self.epochs))
        agree(self, dict.fromkeys(("correlation", "low", "high"), shape) | {"notes": shape[:1]})
        if self.network is not None:
            nets = len(self.network)
            agree(self, {"network_panel": (nets,), "network_correlation": (nets, *shape[1:])})

    def paper(self) -> Figure:
        count, teachers, _ = self.correlation.shape
        rows, columns = style.grid(count, 5)
        colours = style.ramp(teachers)
        marker = "o" if len(self.epochs) == 1 else None
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.5, count=count)
            for p, ax in enumerate(axes):
                for t in reversed(range(teachers)):
                    ax.fill_between(
                        self.epochs, self.low[p, t], self.high[p, t], color=colours[t], alpha=0.13, linewidth=0
                    )
                for t in reversed(range(teachers)):
                    ax.plot(self.epochs, self.correlation[p, t], color=colours[t], linewidth=0.9, marker=marker)
                ax.set_title(f"p = {style.signed(self.polarities[p])}\n{self.notes[p]}".strip(), linespacing=1.25)
                ax.set(ylim=(0, 1.02), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
                if len(self.epochs) > 1:
                    ax.set_xlim(self.epochs[0], self.epochs[-1])
            for ax in axes[::columns]:
                ax.set_ylabel("best correlation")
            figure.supxlabel("epoch", fontsize=style.NORMAL)
            _strengths(axes[min(columns, count) - 1], teachers)
            style.key(
                figure, [("median", {}), ("quartiles", {"linewidth": 5, "alpha": 0.3})], f"n = {self.seeds} seeds"
            )
            return style.finish(figure)

    def page(self) -> pages.JSON:
        count, teachers, _ = self.correlation.shape
        _, columns = style.grid(count, 5)
        colours = style.ramp(teachers)
        data: list[pages.JSON] = []
        for p, polarity in enumerate(self.polarities):
            xaxis, yaxis = pages.axes_of(p)
            at = {"xaxis": xaxis, "yaxis": yaxis}
            for t in reversed(range(teachers)):
                data += pages.band(self.epochs, self.low[p, t], self.high[p, t], colours[t], 0.1, **at)
            for t in reversed(range(teachers)):
                hover = (
                    f"<b>teacher node {t}</b>, p = {style.signed(polarity)}<br>epoch %{{x}}: best student correlates "
                    f"%{{y:.3f}}<br>median of {self.seeds} seeds<extra></extra>"
                )
                data.append(
                    {
                        "type": "scatter",
                        "mode": "lines" if len(self.epochs) > 1 else "markers",
                        "name": {0: "strong teacher", teachers - 1: "weak teacher"}.get(t, f"teacher {t}"),
                        "legendgroup": f"teacher {t}",
                        "legendrank": t,
                        "showlegend": p == 0 and t in (0, teachers - 1),
                        "x": pages.numbers(self.epochs),
                        "y": pages.numbers(self.correlation[p, t]),
                        "line": {"color": colours[t], "width": 1.5},
                        "marker": {"color": colours[t]},
                        "customdata": pages.identity(-1, t, np.full(len(self.epochs), -1)),
                        "hovertemplate": hover,
                        **at,
                    }
                )
        layout = pages.layout(
            [
                f"p = {style.signed(p)}<br>{note}" if note else f"p = {style.signed(p)}"
                for p, note in zip(self.polarities, self.notes, strict=True)
            ],
            columns,
            x={},
            y={"range": [0, 1.03], "dtick": 0.2},
            x_title="epoch",
            y_title="best correlation",
            note=f"median and quartiles, n = {self.seeds} seeds",
            x_left=True,
            column_width=190,
            row_height=260,
        )
        layout["margin"]["t"] += 14
        page = {"data": data, "layout": layout}
        if self.network is not None:
            page["networks"] = pages.own_curves(self.network, self.network_panel, self.epochs, self.network_correlation)
        return page


def _strengths(ax: Axes, teachers: int) -> None:
    """Beside a panel, what its colours stand for."""
    bar = ax.inset_axes((1.05, 0.0, 0.045, 1.0))
    bar.imshow(np.array([to_rgb(c) for c in style.ramp(teachers)])[:, None], aspect="auto", interpolation="nearest")
    bar.set_axis_off()
    for y, words, side in ((1.0, "strong\nteacher", "top"), (0.0, "weak\nteacher", "bottom")):
        bar.annotate(
            words,
            (1, y),
            xycoords="axes fraction",
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=style.SMALL,
            va=side,
            linespacing=1.1,
        )
