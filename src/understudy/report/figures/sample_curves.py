"""Loss against the number of samples, for several ways to make them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree


@dataclass(frozen=True, eq=False)
class SampleCurves:
    """Training (dashed) and evaluation loss (solid) against the number of samples, a colour a data set.

    Seed 0 figure 9. Median over seeds, with the spread from low to high.
    """

    titles: tuple[str, ...]
    labels: tuple[str, ...]
    """What the data sets are called, e.g. `teacher-aware`, `teacher-agnostic`."""
    samples: Num[np.ndarray, "size"]
    training: Num[np.ndarray, "panel label size"]
    training_low: Num[np.ndarray, "panel label size"]
    training_high: Num[np.ndarray, "panel label size"]
    evaluation: Num[np.ndarray, "panel label size"]
    evaluation_low: Num[np.ndarray, "panel label size"]
    evaluation_high: Num[np.ndarray, "panel label size"]
    seeds: int
    network: Int[np.ndarray, "panel label size net"] | None = None
    """Single networks, which the page draws as faint points to hover and to mark; −1 where there is none."""
    network_evaluation: Num[np.ndarray, "panel label size net"] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.titles), len(self.labels), len(self.samples))
        names = [f"{part}{end}" for part in ("training", "evaluation") for end in ("", "_low", "_high")]
        agree(self, dict.fromkeys(names, shape))
        if self.network is not None:
            agree(self, dict.fromkeys(("network", "network_evaluation"), (*shape, np.shape(self.network)[-1])))

    def _parts(self) -> tuple[tuple[str, str, np.ndarray, np.ndarray, np.ndarray], ...]:
        return (
            ("training", "--", self.training, self.training_low, self.training_high),
            ("evaluation", "-", self.evaluation, self.evaluation_low, self.evaluation_high),
        )

    def paper(self) -> Figure:
        count = len(self.titles)
        rows, columns = style.grid(count, 3)
        colours = style.categories(len(self.labels))
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.9, count=count)
            for p, ax in enumerate(axes):
                ax.set(xscale="log", yscale="log")
                for _, line, middle, low, high in self._parts():
                    for s, colour in enumerate(colours):
                        ax.fill_between(self.samples, low[p, s], high[p, s], color=colour, alpha=0.15, linewidth=0)
                        ax.plot(
                            self.samples,
                            middle[p, s],
                            color=colour,
                            linestyle=line,
                            marker="o",
                            markersize=2.5,
                            markerfacecolor=colour if line == "-" else "white",
                            markeredgewidth=0.7,
                        )
                ax.set_title(self.titles[p])
                ax.set_xticks(*_readable(self.samples))
                ax.minorticks_off()
            for ax in axes[::columns]:
                ax.set_ylabel("MSE loss")
            figure.supxlabel("number of samples", fontsize=style.NORMAL)
            lines: style.Key = (
                *((label, {"color": c}) for label, c in zip(self.labels, colours, strict=True)),
                ("evaluation", {}),
                ("training", {"linestyle": "--"}),
            )
            style.key(figure, lines, f"n = {self.seeds} seeds")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        _, columns = style.grid(len(self.titles), 3)
        colours = style.categories(len(self.labels))
        data: list[pages.JSON] = []
        for p, title in enumerate(self.titles):
            xaxis, yaxis = pages.axes_of(p)
            at = {"xaxis": xaxis, "yaxis": yaxis}
            data += [point | at for s, colour in enumerate(colours) for point in self._own(p, s, colour)]
            for part, line, middle, low, high in self._parts():
                for s, label in enumerate(self.labels):
                    group = {"legendgroup": label}
                    data += pages.band(self.samples, low[p, s], high[p, s], colours[s], 0.14, **at, **group)
                    hover = (
                        f"<b>{label}</b>, {part}, {title}<br>%{{x}} samples: loss %{{y:.3g}}"
                        f"<br>median of {self.seeds} seeds<extra></extra>"
                    )
                    data.append(
                        {
                            "type": "scatter",
                            "mode": "lines+markers",
                            "name": label,
                            "showlegend": p == 0 and part == "evaluation",
                            "x": pages.numbers(self.samples),
                            "y": pages.numbers(middle[p, s]),
                            "line": {"color": colours[s], "width": 1.8, "dash": "dash" if line == "--" else "solid"},
                            "marker": {"size": 5, "symbol": "circle-open" if line == "--" else "circle"},
                            "hovertemplate": hover,
                            **at,
                            **group,
                        }
                    )
        ticks, words = _readable(self.samples)
        layout = pages.layout(
            self.titles,
            columns,
            x={"type": "log", "tickvals": ticks, "ticktext": words},
            y={"type": "log", "dtick": 1, "exponentformat": "power"},
            x_title="number of samples",
            y_title="MSE loss",
            note=f"solid: evaluation, dashed: training; n = {self.seeds} seeds",
            x_left=True,
            column_width=260,
            row_height=280,
        )
        return {"data": data, "layout": layout}

    def _own(self, panel: int, label: int, colour: str) -> list[pages.JSON]:
        """The networks of a panel and a data set, a faint point each where they are given."""
        if self.network is None or self.network_evaluation is None:
            return []
        network, loss = self.network[panel, label], self.network_evaluation[panel, label]
        there = network >= 0
        where = f"<b>{self.labels[label]}</b>, {self.titles[panel]}"
        return [
            {
                "type": "scatter",
                "mode": "markers",
                "showlegend": False,
                "legendgroup": self.labels[label],
                "x": pages.numbers(self.samples[np.nonzero(there)[0]]),
                "y": pages.numbers(loss[there]),
                "marker": {"size": 4, "color": colour, "opacity": 0.35},
                "customdata": pages.identity(network[there], -1, -1),
                "hovertemplate": f"network %{{customdata[0]}}, {where}<br>%{{x}} samples: evaluation loss %{{y:.3g}}"
                "<extra></extra>",
            }
        ]


def _readable(samples: Num[np.ndarray, "size"]) -> tuple[list[float], list[str]]:
    """The sample sizes to write under a logarithmic axis: as many as do not touch."""
    width = np.log(samples.max() / samples.min()) if len(samples) > 1 else 1.0
    ticks: list[float] = []
    for size in sorted(float(s) for s in samples):
        if not ticks or np.log(size / ticks[-1]) > 0.17 * width:
            ticks.append(size)
    return ticks, [f"{t:,.0f}" for t in ticks]
