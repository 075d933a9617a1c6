"""The page of `us.folds`: the fold-set, its dependency graph, and the length of every unit's fold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.report.page.document import page
from understudy.report.story import Figure, Number, Story, counted
from understudy.store.environment import environment

if TYPE_CHECKING:
    from understudy.papers.equivalence.fold_sets import Folds

_MOST_EDGES = 2_000
"""Largest fold-set whose dependency graph is drawn."""


def fold_page(folds: Folds) -> bytes:
    """Write the page of a fold-set.

    Args:
        folds: Cells and edges.

    Returns:
        The HTML file.
    """
    hidden = len(folds.network.hidden)
    visible, edges = int(folds.folds_function.sum()), folds.edges
    words = f"The network is affine on {counted(folds.cells, 'cell')} of the window"
    every = "at every edge" if visible == edges else f"at {visible:,} of {edges:,} edges"
    headline = f"{words}, and folds {every} between them"
    numbers = [
        Number(f"{folds.cells:,}", "cells"),
        Number(f"{visible:,} of {edges:,}", "edges at which the function folds"),
        Number(f"{sum(float(part.sum()) for part in folds.lengths):.1f}", "length of all folds"),
    ]
    figures = [
        Figure(
            "folds",
            "Where the network folds",
            "Every line is a fold of one unit, coloured by its layer; drag to zoom, and hover to see the unit. The "
            "greedy assignment gives each fold the lowest layer that the fold-set alone allows.",
            "S3 figs 2.1, 2.3",
            folds.fold_sets(),
        )
    ]
    if hidden > 1 and 0 < visible <= _MOST_EDGES:
        order = folds.surface.order
        numbers.append(Number(f"{order} of {hidden}", "order of the fold-set, and number of hidden layers"))
        figures.append(
            Figure(
                "dependencies",
                "Which fold bends at which",
                "Dependency graph of the fold-set: a segment of a higher layer ends at one of a lower layer, and bends "
                "there (solid) or goes straight on (dashed).",
                "S3 fig 2.4",
                folds.layered_graph(),
            )
        )
    settings: dict[str, object] = {"network": "-".join(map(str, folds.network.sizes))}
    settings |= {f"note {i}": note for i, note in enumerate(folds.notes, start=1)}
    if folds.unresolved:
        settings["not resolved"] = folds.unresolved
    return page(
        title="folds: where a network folds",
        story=Story(headline, tuple(numbers), tuple(figures)),
        table=folds.table("units"),
        table_title="Hidden units",
        table_lead="Every hidden unit, with the length of its fold in the window.",
        claims=None,
        settings=settings,
        environment=environment("cpu"),
        command="us.folds(network, window).report(path)",
        files=[],
    )
