"""Specialized students have weight, the others have none: the L."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _pages as pages
from understudy.report.figures._shapes import agree

_MOST_POINTS = 20_000
_MOST_BYTES = 1_400_000
_MANY = 5_000


@dataclass(frozen=True, eq=False)
class StudentNodes:
    """The student nodes of one panel, at each of the figure's epochs."""

    correlation: Num[np.ndarray, "time node"]
    """To the best teacher node."""
    fan_out: Num[np.ndarray, "time node"]
    teacher: Int[np.ndarray, "time node"]
    """The best teacher node."""
    network: Int[np.ndarray, "node"]
    student: Int[np.ndarray, "node"]
    seed: Int[np.ndarray, "node"]

    def __post_init__(self) -> None:
        times, nodes = np.shape(self.correlation)
        agree(self, dict.fromkeys(("fan_out", "teacher"), (times, nodes)))
        agree(self, dict.fromkeys(("network", "student", "seed"), (nodes,)))


@dataclass(frozen=True, eq=False)
class Specialization:
    """Fan-out norm against best correlation of every student node: rows are polarities, columns over-realizations.

    Seed 0 figure 5, seed 1 figure 3. A colour a seed. On paper it is the last epoch; on the page there is a slider.
    """

    polarities: Num[np.ndarray, "row"]
    multiples: Num[np.ndarray, "column"]
    epochs: Num[np.ndarray, "time"]
    cells: tuple[tuple[StudentNodes, ...], ...]
    """By row, then by column."""
    losses: Num[np.ndarray, "row column"]
    """Median evaluation loss at the last epoch."""

    def __post_init__(self) -> None:
        shape = len(self.polarities), len(self.multiples)
        agree(self, {"losses": shape})
        if [len(row) for row in self.cells] != [shape[1]] * shape[0]:
            raise ValueError(f"Specialization.cells must be {shape[0]} rows of {shape[1]} panels: give one a setting.")
        if any(len(c.correlation) != len(self.epochs) for row in self.cells for c in row):
            raise ValueError(f"each panel of Specialization needs its nodes at all {len(self.epochs)} epochs.")

    def _seeds(self) -> np.ndarray:
        return np.unique(np.concatenate([c.seed for row in self.cells for c in row]))

    def shown_seeds(self) -> np.ndarray:
        """The seeds that the page shows: all of them, or evenly as many as it can carry."""
        seeds = self._seeds()
        points = sum(c.seed.size for row in self.cells for c in row)
        room = min(_MOST_POINTS, _MOST_BYTES // (19 * (len(self.epochs) + (len(self.epochs) > 1))))
        if points <= room:
            return seeds
        kept = max(1, int(len(seeds) * room / points))
        return seeds[np.unique(np.linspace(0, len(seeds) - 1, kept).round().astype(int))]

    def paper(self) -> Figure:
        rows, columns = self.losses.shape
        seeds = self._seeds()
        colours = np.array([to_rgb(c) for c in style.categories(len(seeds))]).reshape(-1, 3)
        many = sum(c.seed.size for row in self.cells for c in row) > 2_000
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.3, sharey="row")
            for i, ax in enumerate(axes):
                row, column = divmod(i, columns)
                nodes = self.cells[row][column]
                ax.scatter(
                    nodes.correlation[-1],
                    nodes.fan_out[-1],
                    s=4 if many else 7,
                    c=colours[np.searchsorted(seeds, nodes.seed)],
                    alpha=0.7,
                    linewidths=0,
                    rasterized=many,
                    clip_on=False,
                )
                ax.set_title(f"{self.multiples[column]:g}×, loss = {style.number(self.losses[row, column])}")
                ax.set(xlim=(0, 1.0), xticks=[0, 0.25, 0.5, 0.75, 1], xticklabels=["0", "", "0.5", "", "1"])
                if column == 0:
                    ax.set_ylabel(f"p = {style.signed(self.polarities[row])}")
            for ax in axes:
                ax.set_ylim(bottom=0)
            figure.supylabel("fan-out norm ‖v‖", fontsize=style.NORMAL)
            figure.supxlabel("max correlation among teachers", fontsize=style.NORMAL)
            style.key(figure, [], f"epoch {self.epochs[-1]:g}, n = {len(seeds)} seeds (a colour each)")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        rows, columns = self.losses.shape
        seeds, shown = self._seeds(), self.shown_seeds()
        points = sum(int(np.isin(c.seed, shown).sum()) for row in self.cells for c in row)
        colours = style.categories(len(seeds))
        steps = [[(i + edge) / len(seeds), c] for i, c in enumerate(colours) for edge in (0, 1)]
        data, frames = [], [[] for _ in self.epochs]  # type: list[pages.JSON], list[list[pages.JSON]]
        for i in range(rows * columns):
            row, column = divmod(i, columns)
            nodes = self.cells[row][column]
            kept = np.flatnonzero(np.isin(nodes.seed, shown))[:_MOST_POINTS]
            xaxis, yaxis = pages.axes_of(i)
            for t, frame in enumerate(frames):
                frame.append(
                    {
                        "x": pages.numbers(nodes.correlation[t, kept]),
                        "y": pages.numbers(nodes.fan_out[t, kept]),
                        "customdata": pages.identity(nodes.network[kept], nodes.teacher[t, kept], nodes.student[kept]),
                    }
                )
            hover = (
                "network %{customdata[0]}, <b>student node %{customdata[2]}</b><br>correlation %{x:.3f} with teacher "
                "node %{customdata[1]}<br>fan-out norm %{y:.3g}"
                f"<extra>p = {style.signed(self.polarities[row])}, {self.multiples[column]:g}×</extra>"
            )
            data.append(
                {
                    "type": "scattergl" if points > _MANY else "scatter",
                    "mode": "markers",
                    **frames[-1][-1],
                    "marker": {
                        "size": 4,
                        "opacity": 0.75,
                        "color": pages.typed(np.searchsorted(seeds, nodes.seed[kept]) % 256, "u1"),
                        "colorscale": steps,
                        "cmin": -0.5,
                        "cmax": len(seeds) - 0.5,
                    },
                    "hovertemplate": hover,
                    "showlegend": False,
                    "xaxis": xaxis,
                    "yaxis": yaxis,
                }
            )
        moving = len(self.epochs) > 1
        final = "final loss" if moving else "loss ="
        layout = pages.layout(
            [
                f"p = {style.signed(p)}, {m:g}×, {final} {style.number(self.losses[r, c])}"
                for r, p in enumerate(self.polarities)
                for c, m in enumerate(self.multiples)
            ],
            columns,
            x={"range": [0, 1.02], "dtick": 0.25},
            y={"rangemode": "tozero"},
            x_title="max correlation among teachers",
            y_title="fan-out norm ‖v‖",
            note=f"n = {len(seeds)} seeds" + ("" if len(shown) == len(seeds) else f", {len(shown)} shown"),
            row_height=190,
            column_width=220,
            legend=False,
            below=80 if moving else 0,
        )
        self._share_rows(layout, frames)
        page: pages.JSON = {"data": data, "layout": layout}
        if moving:
            names = [f"{e:g}" for e in self.epochs]
            layout["sliders"] = pages.slider(names, "epoch ")
            page["frames"] = [
                {"name": n, "data": f, "traces": list(range(len(f)))} for n, f in zip(names, frames, strict=True)
            ]
        return page

    def _share_rows(self, layout: pages.JSON, frames: list[list[pages.JSON]]) -> None:
        """One range of fan-out a row, wide enough for every epoch, so that nothing jumps as time moves."""
        rows, columns = self.losses.shape
        for row in range(rows):
            tops = [c.fan_out[np.isfinite(c.fan_out)].max(initial=0.0) for c in self.cells[row]]
            for column in range(columns):
                axis = layout["yaxis" + pages.axes_of(row * columns + column)[1][1:]]
                axis.pop("matches", None)
                axis.pop("rangemode", None)
                axis["range"] = [0, float(f"{1.05 * max(tops) or 1.0:.4g}")]
                if column:
                    axis["matches"] = pages.axes_of(row * columns)[1]
