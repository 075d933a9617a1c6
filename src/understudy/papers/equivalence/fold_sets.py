"""`us.folds`: where a ReLU network folds, exactly, in two dimensions or on a plane through its inputs."""

from __future__ import annotations

import warnings
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int

from understudy._atomic import disk_errors, write_bytes
from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets.given_networks import Network
from understudy.papers.equivalence.theory.dependency import DependencyGraph, dependency_graph
from understudy.papers.equivalence.theory.planar_map import NEAR
from understudy.papers.equivalence.theory.plane import Points, Window, as_plane
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, as_relu_network
from understudy.papers.equivalence.theory.subdivision import Subdivision, subdivide
from understudy.papers.equivalence.theory.surface import Segments, Surface, canonical_representation, segments_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from understudy.report.figures import FoldPanel, FoldSets, LayeredGraph

VISIBLE = 1e-9
"""Least jump of the gradient of the output at a fold of the function, as a share of the largest gradient."""
_FORMATS = (".pdf", ".svg", ".png")
_PAGES = (".html", ".htm")


class Folds:
    """Cells, edges and vertices of a window, on each cell of which a network is affine.

    Layers are counted from 1 and units from 0, as in the tables.
    """

    def __init__(self, subdivision: Subdivision, notes: tuple[str, ...] = ()) -> None:
        self.subdivision = subdivision
        self.notes = notes

    @property
    def network(self) -> ReluNetwork:
        """The network, in float64."""
        return self.subdivision.network

    @property
    def cells(self) -> int:
        """Number of cells: sets of inputs with one activation pattern."""
        return self.subdivision.cells

    @property
    def edges(self) -> int:
        """Number of edges between two cells."""
        return int(self.subdivision.inside.sum())

    @property
    def vertices(self) -> int:
        """Number of vertices, with those on the border of the window."""
        return len(self.subdivision.points)

    @property
    def areas(self) -> Float[np.ndarray, "cell"]:
        """Area of each cell."""
        return self.subdivision.areas

    @property
    def is_transparent(self) -> bool:
        """Whether every hidden layer has an active unit at every input of the window (Phuong & Lampert 2020, sec. 2.2).

        The lemmas about fold-sets are stated for these networks.
        """
        return self.subdivision.is_transparent

    @property
    def unresolved(self) -> str:
        """What is left out because the window is too large to resolve it, in words; empty if there is nothing."""
        found = self.subdivision
        parts = []
        if found.merged:
            parts.append(f"{found.merged:,} times a fold is not told apart from one beside it")
        if found.undecided:
            parts.append(f"{found.undecided:,} times a cell is not divided by a fold")
        if not parts:
            return ""
        nearest = number(NEAR * float(found.plane.half.max()), ".1g")
        return (
            f"cells may be missing: {' and '.join(parts)}, because folds nearer to each other than about {nearest} are "
            "not resolved in this window; choose a smaller one"
        )

    @cached_property
    def folds_function(self) -> Bool[np.ndarray, "edge"]:
        """Whether the function folds at each edge of the subdivision: whether the gradient of the output jumps there.

        Where all units of a higher layer are inactive on both sides, a unit changes sign and the function does not fold
        (for general transparent networks all edges are folds: Phuong & Lampert 2020, lemma 2.1).
        """
        return self.visible()

    @cached_property
    def lengths(self) -> list[Float[np.ndarray, "unit"]]:
        """Length of the fold of every unit in the window, for each hidden layer."""
        found = self.subdivision
        return [
            np.bincount(found.units[here, 1], found.lengths[here], width)
            for layer, width in enumerate(self.network.hidden, start=1)
            for here in [found.units[:, 0] == layer]
        ]

    @cached_property
    def edges_per_layer(self) -> Int[np.ndarray, "layer"]:
        """Number of edges at which each hidden layer folds."""
        return np.bincount(self.subdivision.units[:, 0], minlength=len(self.network.hidden) + 1)[1:]

    @cached_property
    def surface(self) -> Surface:
        """Canonical representation of the fold-set of the function, from the set alone (fig. 2.3)."""
        return canonical_representation(self._segments[0])

    @cached_property
    def dependencies(self) -> DependencyGraph:
        """Dependency graph of the fold-set (fig. 2.4)."""
        return dependency_graph(self._segments[0], self.surface)

    @cached_property
    def _segments(self) -> tuple[Segments, Int[np.ndarray, "segment"]]:
        return segments_of(self.subdivision, self.folds_function)

    def affine_map(self, cell: int) -> tuple[Float[np.ndarray, "out in"], Float[np.ndarray, "out"]]:
        """Weights and biases of the network on one cell: h(x) = W x + b at all inputs of its activation pattern.

        Args:
            cell: Number of the cell.

        Returns:
            W and b.

        Raises:
            UserError: There is no such cell.
        """
        if not 0 <= cell < self.cells:
            raise UserError(f"must be from 0 to {self.cells - 1}, got {cell}", "cell")
        x = self.subdivision.plane.inputs_at(self.subdivision.centres[cell : cell + 1])
        weight, bias = self.network.weights[0], self.network.biases[0]
        above = zip(self.network.weights[1:], self.network.biases[1:], strict=True)
        for (weights, biases), values in zip(above, self.network.preactivations(x)[:-1], strict=True):
            active = np.where(values[0] > 0, 1.0, self.network.slope)
            weight, bias = weights @ (active[:, None] * weight), weights @ (active * bias) + biases
        return weight, bias

    def to_pandas(self, table: str = "units") -> DataFrame:
        """Return a table as a data frame.

        Args:
            table: `units` has one row per hidden unit, with the length of its fold; `cells` one per cell, with its
                area, number of corners, centre and affine map in coordinates of the window; `edges` one per edge with
                its ends, unit, length, jump of the gradient and both cells.

        Returns:
            The data frame.

        Raises:
            UserError: There is no such table.
        """
        return self.table(table).to_pandas()

    def table(self, table: str = "units") -> pa.Table:
        """One of the tables that `to_pandas` names."""
        tables = {"units": self._unit_table, "cells": self._cell_table, "edges": self._edge_table}
        if table not in tables:
            raise UserError(f"must be one of {', '.join(tables)}, got {table!r}", "table")
        return pa.table(tables[table]())

    def _unit_table(self) -> dict[str, np.ndarray]:
        found, hidden = self.subdivision, self.network.hidden
        layer = np.repeat(np.arange(1, len(hidden) + 1), hidden)
        starts = np.cumsum([0, *hidden])
        here = found.inside
        name = starts[found.units[here, 0] - 1] + found.units[here, 1]
        visible = self.folds_function[here]
        return {
            "layer": layer,
            "unit": np.concatenate([np.arange(width) for width in hidden]),
            "length": np.concatenate(self.lengths),
            "visible_length": np.bincount(name[visible], found.lengths[here][visible], sum(hidden)),
            "edges": np.bincount(name, minlength=sum(hidden)),
        }

    def _cell_table(self) -> dict[str, np.ndarray]:
        found = self.subdivision
        columns = {"cell": np.arange(self.cells), "area": found.areas, "corners": np.diff(found.offsets)}
        columns |= {"centre_u": found.centres[:, 0], "centre_v": found.centres[:, 1]}
        for k in range(self.network.sizes[-1]):
            for i, factor in enumerate(("u", "v", "constant")):
                columns[f"output_{k}_{factor}"] = found.pieces.maps[:, k, i]
        return columns

    def _edge_table(self) -> dict[str, np.ndarray]:
        found, here = self.subdivision, self.subdivision.inside
        ends = found.points[found.edges[here]].reshape(-1, 4)
        columns = {"layer": found.units[here, 0], "unit": found.units[here, 1], "length": found.lengths[here]}
        columns |= {"jump": found.jumps[here], "folds_function": self.folds_function[here]}
        columns |= {"left": found.beside[here, 0], "right": found.beside[here, 1]}
        return columns | dict(zip(("u_0", "v_0", "u_1", "v_1"), ends.T, strict=True))

    def __repr__(self) -> str:
        sizes = "-".join(map(str, self.network.sizes))
        counts = ", ".join(f"{n:,}" for n in self.edges_per_layer)
        lines = [
            f"Folds of a network {sizes}: {self.cells:,} cells, {self.edges:,} edges ({counts} by layer), "
            f"{self.vertices:,} vertices",
            f"window of {self._window_words()}; the smallest cell has "
            f"{number(self.areas.min() / self.subdivision.plane.area, '.1e')} of its area",
        ]
        if hidden := self.edges - int(self.folds_function.sum()):
            lines.append(f"{hidden:,} edges at which a unit changes sign and the function does not fold")
        if self.unresolved:
            lines.append(self.unresolved)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    def _window_words(self) -> str:
        plane = self.subdivision.plane
        ends = zip(plane.lower.tolist(), plane.upper.tolist(), strict=True)
        return " × ".join(f"[{number(low, '.4g')}, {number(high, '.4g')}]" for low, high in ends)

    def visible(self, least: float = VISIBLE) -> Bool[np.ndarray, "edge"]:
        """Which edges of the subdivision fold the output by at least this share of its largest gradient."""
        found = self.subdivision
        steepest = float(np.abs(found.pieces.maps[:, :, :2]).max(initial=0.0))
        chosen: np.ndarray = found.inside & (found.jumps > least * steepest)
        return chosen

    def panel(self, title: str = "", *, greedy: bool = False, least: float | None = None) -> FoldPanel:
        """The fold-set as a panel of a figure, coloured by layer.

        Args:
            title: Title of the panel.
            greedy: Whether layers are those of the greedy assignment (fig. 2.3), and not those of the units.
            least: Least jump of the gradient at the edges that are shown, as a share of the largest gradient.

        Returns:
            The panel. Where `least` is not given it has all edges, or where layers are assigned greedily those at which
            the function folds.
        """
        from understudy.report.figures import FoldPanel

        found = self.subdivision
        edges = self._segments[1] if greedy else np.flatnonzero(found.inside if least is None else self.visible(least))
        layers = self.surface.segment_layers if greedy else found.units[edges, 0]
        return FoldPanel(title, found.points[found.edges[edges]], layers, found.units[edges, 1])

    def fold_sets(self) -> FoldSets:
        """The fold-set as a figure, with the greedy assignment of layers beside it where that is not too large."""
        from understudy.report.figures import FoldSets

        panels = [self.panel("layers of the units")]
        if len(self.network.hidden) > 1 and self.edges <= 5_000:
            panels.append(self.panel("greedy assignment", greedy=True))
        plane = self.subdivision.plane
        note = f"n = {self.cells:,} cells"
        return FoldSets(tuple(panels), plane.lower, plane.upper, note, axes=self._axes())

    def layered_graph(self) -> LayeredGraph:
        """The dependency graph as a figure."""
        from understudy.report.figures import LayeredGraph

        graph = self.dependencies
        return LayeredGraph(graph.layers, graph.edges, ~graph.bends, graph.longest_bending)

    def _axes(self) -> tuple[str, str]:
        plane = self.subdivision.plane
        plain = plane.inputs == 2 and (plane.axes == np.eye(2)).all() and not plane.origin.any()
        return ("x_1", "x_2") if plain else ("u", "v")

    def figure(self, path: str | Path) -> Path:
        """Draw the fold-set for paper.

        Args:
            path: File to write: .pdf, .svg or .png.

        Returns:
            The file.

        Raises:
            UserError: Another kind of file, or one that cannot be written.
        """
        import io

        from understudy.report import style

        path = Path(path)
        if path.suffix not in _FORMATS:
            raise UserError(f"must end in {', '.join(_FORMATS)}, got {path.name!r}", "path")
        figure = self.fold_sets().paper()
        if path.suffix == ".png":
            content = io.BytesIO()
            with style.paper():
                figure.savefig(content, format="png", dpi=200)
            written = content.getvalue()
        else:
            written = style.files(figure)[path.suffix[1:]]
        with disk_errors(path, "choose another file"):
            write_bytes(path, written)
        return path

    def report(self, path: str | Path) -> Path:
        """Write a page with the fold-set, which can be zoomed, and the length of every unit's fold.

        Args:
            path: File to write, which ends in .html, such as `folds.html`.

        Returns:
            The file.

        Raises:
            UserError: Another ending, or the file cannot be written.
        """
        from understudy.papers.equivalence.fold_page import fold_page

        path = Path(path)
        if path.suffix not in _PAGES:
            raise UserError(f"must end in {', '.join(_PAGES)}, got {path.name!r}", "path")
        content = fold_page(self)
        with disk_errors(path, "choose another file"):
            write_bytes(path, content)
        return path


def folds(
    network: Network | ReluNetwork,
    window: Window | None = None,
    *,
    through: Points | None = None,
    which: int = 0,
    most_cells: int | None = None,
) -> Folds:
    """Find where a ReLU network folds, exactly (Phuong & Lampert 2020, sec. 2.3).

    Example:
        >>> found = us.folds(network, window=(-2, 2))
        >>> found.cells, found.areas, found.to_pandas("units")
        >>> found.report("folds.html")

    Args:
        network: A network with ReLU or leaky ReLU: a population, a module of PyTorch, or a network file.
        window: For two inputs: lower and upper end for both, or ((x0, x1), (y0, y1)). Default: [−2, 2]².
        through: Three inputs, whose plane is divided; the window contains them and is a quarter larger on every side.
        which: Index of the network in a population.
        most_cells: Largest number of cells. Default: 2 million, or as many as take 4 GiB.

    Returns:
        Cells with their affine maps, edges with the unit that folds there, and vertices. A warning and `unresolved`
        state where the window is so large that neighbouring folds cannot be distinguished.

    Raises:
        UserError: Another activation, a window of zero area, that is not bounded or so far from zero that its
            coordinates are rounded, three points on one line, or too many cells.
    """
    found, notes = as_relu_network("network", network, which)
    plane = as_plane(window, through, found.sizes[0])
    divided = Folds(subdivide(found, plane, most_cells), notes)
    if divided.unresolved:
        warnings.warn(f"folds: {divided.unresolved}", stacklevel=2)
    return divided
