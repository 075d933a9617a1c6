"""Directed graphs whose vertices are in layers, such as dependency graphs of fold-sets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Num
from matplotlib.figure import Figure

from understudy._numbers import typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_MOST_NAMED = 14
"""Most vertices of a layer that are named on paper."""
_MOST_EDGES = 6_000
"""Most edges on the page."""
_SWEEPS = 8
"""How often the vertices of each layer are put into the order of their neighbours."""


@dataclass(frozen=True, eq=False)
class LayeredGraph:
    """A dependency graph drawn in layers, the lowest at the top, as in Phuong & Lampert 2020, fig. 2.4.

    Attributes:
        layers: Layer of each vertex, counted from 1.
        edges: Pairs of vertices (lower, upper).
        dashed: Whether each edge is drawn dashed.
        values: A number that belongs to each vertex, such as the longest path from it.
        value_name: What these numbers are.
        solid_name: What the solid edges are.
        dashed_name: What the dashed edges are.
        note: A note, such as the number of vertices.
    """

    layers: Num[np.ndarray, "vertex"]
    edges: Num[np.ndarray, "edge 2"]
    dashed: Num[np.ndarray, "edge"]
    values: Num[np.ndarray, "vertex"]
    value_name: str = "longest path"
    solid_name: str = "bends at"
    dashed_name: str = "crosses straight"
    note: str = ""

    def __post_init__(self) -> None:
        typeset_fields(self, "value_name", "solid_name", "dashed_name", "note")
        agree(self, {"edges": (len(self.dashed), 2), "values": (len(self.layers),)})

    def _note(self) -> str:
        return self.note or f"n = {len(self.layers):,} piece-wise hyperplanes"

    def places(self) -> Num[np.ndarray, "vertex 2"]:
        """Position of each vertex: from 0 to 1 within its layer, and minus the layer.

        The order in a layer follows the mean position of the neighbours, from layer to layer and back.
        """
        x = np.zeros(len(self.layers))
        order = {layer: np.flatnonzero(self.layers == layer) for layer in np.unique(self.layers)}
        for _ in range(_SWEEPS):
            for layer, own in order.items():
                pull, count = np.zeros(len(x)), np.zeros(len(x))
                for one, other in (self.edges.T, self.edges.T[::-1]):
                    near = self.layers[one] == layer
                    np.add.at(pull, one[near], x[other[near]])
                    np.add.at(count, one[near], 1)
                wanted = np.where(count[own] > 0, pull[own] / np.maximum(count[own], 1), x[own])
                order[layer] = own = own[np.argsort(wanted, kind="stable")]
                x[own] = (np.arange(len(own)) + 0.5) / len(own)
        return np.stack([x, -self.layers.astype(float)], axis=1)

    def names(self) -> list[str]:
        """H with the layer above and the number in the layer below, in mathematical type."""
        counts: dict[int, int] = {}
        found = []
        for layer in self.layers.tolist():
            counts[layer] = counts.get(layer, 0) + 1
            found.append(f"$H^{{{layer}}}_{{{counts[layer]}}}$")
        return found

    def paper(self) -> Figure:
        places, colours = self.places(), style.categories(int(self.layers.max(initial=1)))
        widest = int(np.bincount(self.layers.astype(int)).max(initial=1))
        depth = len(np.unique(self.layers))
        with style.paper():
            width = style.NARROW if widest <= 8 else style.WIDE
            figure, (ax,) = style.panels(1, 1, height=0.75 * max(2, depth), width=width)
            for (lower, upper), dashed in zip(self.edges.tolist(), self.dashed.tolist(), strict=True):
                how: dict[str, Any] = {"linestyle": (0, (3, 2)) if dashed else "-", "linewidth": 0.6}
                ax.plot(*places[[lower, upper]].T, color=style.CONTEXT if dashed else style.SOFT, zorder=1, **how)
            named = widest <= _MOST_NAMED
            for layer in np.unique(self.layers):
                here = self.layers == layer
                colour = colours[int(layer) - 1]
                size = 15 if named else 4
                ax.plot(*places[here].T, "o", color="white", markeredgecolor=colour, markersize=size, zorder=2)
            if named:
                for name, (x, y) in zip(self.names(), places, strict=True):
                    ax.text(x, y, name, ha="center", va="center", fontsize=style.SMALL, zorder=3)
            present = np.unique(self.layers)
            ax.set_yticks(-present.astype(float), [f"layer {int(layer)}" for layer in present])
            ax.set(xlim=(0, 1), ylim=(-present.max(initial=1) - 0.5, -0.5), xticks=[])
            ax.tick_params(length=0)
            for spine in ax.spines.values():
                spine.set_visible(False)
            entries: list[tuple[str, dict[str, Any]]] = [(self.solid_name, {"color": style.SOFT})]
            if self.dashed.any():
                entries.append((self.dashed_name, {"color": style.CONTEXT, "linestyle": (0, (3, 2))}))
            style.key(figure, entries, self._note())
            return style.finish(figure)

    def page(self) -> pages.JSON:
        places, present = self.places(), np.unique(self.layers)
        colours = style.categories(int(self.layers.max(initial=1)))
        data: list[pages.JSON] = []
        for dashed, name in ((False, self.solid_name), (True, self.dashed_name)):
            edges = self.edges[self.dashed == dashed][:_MOST_EDGES]
            if not len(edges):
                continue
            ends = np.concatenate([places[edges], np.full((len(edges), 1, 2), np.nan)], axis=1).reshape(-1, 2)
            line = {"color": style.HAIRLINE, "width": 1, "dash": "dash" if dashed else "solid"}
            x, y = ends.T
            data.append(pages.scatter(0, x, y, name=name, line=line, hoverinfo="skip", opacity=0.7))
        for layer in present:
            here = np.flatnonzero(self.layers == layer)
            numbers = [f"{i}, {self.value_name} {self.values[v]:g}" for i, v in enumerate(here, start=1)]
            hover = f"<b>layer {int(layer)}</b>, number %{{text}}<extra></extra>"
            marker = {"color": colours[int(layer) - 1], "size": 11 if len(here) < 60 else 6}
            named: pages.JSON = {
                "name": f"layer {int(layer)}",
                "marker": marker,
                "text": numbers,
                "hovertemplate": hover,
            }
            x, y = places[here].T
            data.append(pages.scatter(0, x, y, "markers", **named))
        layout = pages.layout([""], 1, note=self._note(), row_height=max(240, 110 * len(present)))
        layout["xaxis"] |= {"range": [0, 1], "showticklabels": False, "ticks": "", "showline": False}
        layout["yaxis"] |= {
            "range": [-float(present.max(initial=1)) - 0.5, -0.5],
            "tickvals": (-present).tolist(),
            "ticktext": [f"layer {int(layer)}" for layer in present],
            "ticks": "",
            "showline": False,
        }
        layout["margin"]["l"] = 70
        return {"data": data, "layout": layout}
