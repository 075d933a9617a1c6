"""Heat maps of H* and β*: learned nodes form a diagonal."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Num
from matplotlib.figure import Figure

from understudy._numbers import number
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree
from understudy.report.story import counted

_MOST_CELLS = 600_000
"""Most cells of all heat maps of a page together, one byte each."""
_PRINTED = 400
"""Most rows and columns of a panel on paper."""


@dataclass(frozen=True, eq=False)
class OrderedMatrix:
    """A matrix whose rows are ordered by the teacher nodes that the students match."""

    values: Num[np.ndarray, "student teacher"]
    """Row j is the student matched to teacher node j; students that match none follow."""
    student: Int[np.ndarray, "student"]
    """The student of each row."""
    diagonal: float
    """Share of all squared entries that lies on the diagonal: `diagonal_mass`."""

    def __post_init__(self) -> None:
        students, teachers = np.shape(self.values)
        agree(self, {"student": (students,)})
        if students < teachers:
            raise ValueError(
                f"OrderedMatrix.values has {students} students for {teachers} teacher nodes: "
                "give one row per teacher node, and the students that match none after them."
            )

    @property
    def largest(self) -> float:
        """Largest absolute value of the rows of matched students."""
        rows = np.asarray(self.values, dtype=float)[: self.values.shape[1]]
        return float(np.abs(rows[np.isfinite(rows)]).max(initial=0.0))

    @property
    def shown(self) -> Num[np.ndarray, "teacher teacher"]:
        """Rows of matched students, relative to the largest entry."""
        return np.asarray(self.values, dtype=float)[: self.values.shape[1]] / (self.largest or 1.0)


@dataclass(frozen=True, eq=False)
class MatrixImages:
    """Reordered matrices of one network, one row of panels per layer: teacher nodes are columns, their students rows.

    Tian et al. 2019, fig. 11. Students that match no teacher node are not shown. Colours show entries relative to the
    largest entry of the same matrix. Where a matrix has more rows or columns than can be shown, a block of entries is
    shown by its largest, so that no diagonal is lost.
    """

    columns: tuple[str, ...]
    """Names of the panels of a row, such as `H* before`, `H* after`."""
    cells: tuple[tuple[OrderedMatrix, ...], ...]
    """Matrices by layer, the lowest first, then by column."""
    network: int = -1

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.cells):
            raise ValueError(f"each row of MatrixImages.cells must have one matrix per column ({len(self.columns)})")
        if any(len({np.shape(cell.values) for cell in row}) > 1 for row in self.cells):
            raise ValueError("all matrices of a row of MatrixImages.cells must have one shape: give one row per layer")

    def paper(self) -> Figure:
        rows, columns = len(self.cells), len(self.columns)
        width = style.NARROW if columns < 3 else style.WIDE
        square = (width - 0.9) / columns
        height = min(square + 0.3, style.HIGHEST / rows)
        with style.paper():
            figure, axes = style.panels(rows, columns, height=height, width=width, sharex=False, sharey=False)
            for i, ax in enumerate(axes):
                row, column = divmod(i, columns)
                matrix = self.cells[row][column]
                teachers = matrix.values.shape[1]
                extent = (-0.5, teachers - 0.5, teachers - 0.5, -0.5)
                image = style.heat_map(ax, _blocks(matrix.shown, _PRINTED), extent=extent)
                head = f"{self.columns[column]}\n" if row == 0 else ""
                ax.set_title(f"{head}diagonal {_percent(matrix.diagonal)}", linespacing=1.25)
                ax.set_xticks(sorted({0, teachers - 1}))
                ax.set_yticks([])
                ax.spines[:].set(visible=True, color=style.CONTEXT, linewidth=0.4)
                if column == 0:
                    ax.set_ylabel(f"layer {row + 1}\n{self._students(row)}", linespacing=1.25, fontsize=style.SMALL)
            figure.supxlabel("teacher node", fontsize=style.NORMAL)
            shrink = min(1.0, 1.6 / (rows * height))
            style.colour_bar(figure, image, axes, "share of the largest entry", aspect=18, shrink=shrink)
            style.key(figure, [], ("; " if width == style.WIDE else "\n").join(self._notes(_PRINTED)))
            return style.finish(figure)

    def page(self) -> pages.JSON:
        columns = len(self.columns)
        flat = [
            (row, name, matrix)
            for row, of in enumerate(self.cells)
            for name, matrix in zip(self.columns, of, strict=True)
        ]
        most = math.isqrt(_MOST_CELLS // len(flat))
        layout = pages.layout(
            [f"{name}, diagonal {_percent(matrix.diagonal)}" for _, name, matrix in flat],
            columns,
            x={"type": "category", "ticks": "", "mirror": True},
            y={"type": "category", "showticklabels": False, "ticks": "", "mirror": True, "autorange": "reversed"},
            x_title="teacher node",
            note="<br>".join(self._notes(most)),
            x_left=True,
            row_height=206,
            column_width=185 if columns > 2 else 240,
            shared=False,
            legend=False,
            below=16 * (len(self._notes(most)) - 1),
        )
        layout["margin"]["r"] = 84
        layout["coloraxis"] = pages.diverging("% of the largest entry", 100)
        layout["coloraxis"]["colorbar"] |= {"lenmode": "pixels", "len": 200, "y": 1, "yanchor": "top"}
        layout["coloraxis"]["colorbar"]["title"]["side"] = "right"
        data: list[pages.JSON] = []
        for i, (row, name, matrix) in enumerate(flat):
            teachers = matrix.values.shape[1]
            percent = np.round(100 * _blocks(matrix.shown, most))
            x, y = _names(np.arange(teachers), most), _names(matrix.student[:teachers], most)
            z = pages.typed(percent, "i1" if np.isfinite(percent).all() else "f4")
            hover = (
                f"layer {row + 1}, {name}<br>student node %{{y}}, <b>teacher node %{{x}}</b><br>"
                f"%{{z}}% of the largest entry, {number(matrix.largest)}<extra></extra>"
            )
            data.append(pages.heat_map(i, z, x, y, hovertemplate=hover, meta={"network": self.network}))
            ends = {"tickvals": [x[0], x[-1]], "ticktext": ["0", str(teachers - 1)], "tickangle": 0}
            pages.axis(layout, "x", i).update(ends)
            if i % columns == 0:
                pages.axis(layout, "y", i)["title"] = pages.title(f"layer {row + 1}<br>{self._students(row)}")
        return {"data": data, "layout": layout}

    def _notes(self, most: int) -> list[str]:
        """Notes beside the heat maps, if at most `most` rows and columns can be shown."""
        notes = ["students in the order of the teacher nodes they match", "diagonal: its share of all squared entries"]
        if any(row[0].values.shape[1] > most for row in self.cells):
            notes.append("neighbouring entries shown by the largest")
        return notes

    def _students(self, layer: int) -> str:
        students, shown = self.cells[layer][0].values.shape
        return counted(students, "student") if shown == students else f"{shown:,} of {counted(students, 'student')}"


def _starts(count: int, most: int) -> Int[np.ndarray, "block"]:
    """First indices of at most `most` blocks of equal size."""
    return np.arange(min(count, most)) * count // min(count, most)


def _blocks(values: Num[np.ndarray, "row column"], most: int) -> Num[np.ndarray, "block across"]:
    """Reduce to at most `most` rows and columns: each block becomes its largest entry, with its sign."""
    for axis in (0, 1):
        starts = _starts(values.shape[axis], most)
        high, low = (extreme.reduceat(values, starts, axis=axis) for extreme in (np.fmax, np.fmin))
        values = np.where(high >= -low, high, low)
    return values


def _names(nodes: Int[np.ndarray, "node"], most: int) -> list[str]:
    """Names of rows or columns: one node each, or the nodes of a block."""
    blocks = np.split(nodes, _starts(len(nodes), most)[1:])
    return [", ".join(map(str, b)) if len(b) < 4 else f"{b[0]} … {b[-1]} ({len(b)})" for b in blocks]


def _percent(share: float) -> str:
    """A share in percent, such as `0.4%` or `12%`."""
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"
