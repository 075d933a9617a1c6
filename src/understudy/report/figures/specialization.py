"""The L: specialised students have fan-out, the others have little."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Num
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures import _student_nodes as nodes
from understudy.report.figures._shapes import agree
from understudy.report.figures._student_nodes import StudentNodes as StudentNodes

_MOST_POINTS = 20_000


@dataclass(frozen=True, eq=False)
class Specialization:
    """Fan-out norm against best correlation of every student node: rows are polarities, columns over-realizations.

    Tian 2020, fig. 5, and Tian 2019, fig. 3. One colour per seed. Paper shows the last epoch; the page has a slider.
    """

    polarities: Num[np.ndarray, "row"]
    multiples: Num[np.ndarray, "column"]
    epochs: Num[np.ndarray, "time"]
    cells: tuple[tuple[StudentNodes, ...], ...]
    """Panels by row, then by column."""
    losses: Num[np.ndarray, "row column"]
    """Median evaluation loss at the last epoch."""

    def __post_init__(self) -> None:
        shape = len(self.polarities), len(self.multiples)
        agree(self, {"losses": shape})
        nodes.refuse(self, self.cells, shape, len(self.epochs))

    def shown_seeds(self) -> np.ndarray:
        """Seeds on the page: all, or as many as it has room for, evenly chosen."""
        seeds = nodes.seeds_of(self.cells)
        points = sum(c.seed.size for row in self.cells for c in row)
        room = min(_MOST_POINTS, nodes.capacity(len(self.epochs)))
        if points <= room:
            return seeds
        kept = max(1, int(len(seeds) * room / points))
        return seeds[np.unique(np.linspace(0, len(seeds) - 1, kept).round().astype(int))]

    def paper(self) -> Figure:
        rows, columns = self.losses.shape
        seeds, left = nodes.seeds_of(self.cells), nodes.left(self.cells)
        many = sum(c.seed.size for row in self.cells for c in row) > 2_000
        with style.paper():
            figure, axes = style.panels(rows, columns, height=1.3, sharey="row")
            for i, ax in enumerate(axes):
                row, column = divmod(i, columns)
                nodes.dots(ax, self.cells[row][column], -1, seeds, left=left, many=many, opacity=0.7)
                ax.set_title(f"{self.multiples[column]:g}×, loss = {style.number(self.losses[row, column])}")
                if column == 0:
                    ax.set_ylabel(f"p = {style.signed(self.polarities[row])}")
            for ax in axes:
                ax.set_ylim(bottom=0)
            figure.supylabel("fan-out norm ‖v‖", fontsize=style.NORMAL)
            figure.supxlabel("max correlation among teachers", fontsize=style.NORMAL)
            style.key(figure, [], f"epoch {self.epochs[-1]:g}, n = {len(seeds)} seeds (one colour each)")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        rows, columns = self.losses.shape
        seeds, shown = nodes.seeds_of(self.cells), self.shown_seeds()
        panels = [
            (p, m, self.losses[r, c]) for r, p in enumerate(self.polarities) for c, m in enumerate(self.multiples)
        ]
        kept = [np.flatnonzero(np.isin(cell.seed, shown))[:_MOST_POINTS] for row in self.cells for cell in row]
        moving = len(self.epochs) > 1
        final = "final loss" if moving else "loss ="
        layout = pages.layout(
            [f"p = {style.signed(p)}, {m:g}×, {final} {style.number(loss)}" for p, m, loss in panels],
            columns,
            x={"range": [nodes.left(self.cells), 1.02], "dtick": 0.25},
            y={"rangemode": "tozero"},
            x_title="max correlation among teachers",
            y_title="fan-out norm ‖v‖",
            note=f"n = {len(seeds)} seeds" + ("" if len(shown) == len(seeds) else f", {len(shown)} shown"),
            row_height=190,
            column_width=220,
            legend=False,
            below=80 if moving else 0,
        )
        nodes.level(layout, (range(r * columns, (r + 1) * columns) for r in range(rows)), self.cells)
        words = [f"fan-out norm %{{y:.3g}}<extra>p = {style.signed(p)}, {m:g}×</extra>" for p, m, _ in panels]
        return nodes.film(self.cells, kept, range(len(self.epochs)), self.epochs, words, layout)
