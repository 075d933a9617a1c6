"""Figures and headline of `folds` (Phuong & Lampert 2020, figs 2.1 to 2.4)."""

import numpy as np
import pandas as pd

from understudy.papers.equivalence.fold_film import film
from understudy.papers.equivalence.fold_sets import Folds
from understudy.papers.equivalence.folds import claims
from understudy.papers.equivalence.folds.students import NEAR, VISIBLE
from understudy.papers.equivalence.folds.study import FoldStudy
from understudy.papers.equivalence.folds.trials import transparent_seeds
from understudy.papers.equivalence.theory.relu_network import random_network
from understudy.papers.equivalence.theory.subdivision import subdivide
from understudy.report import style
from understudy.report.figures import Curves, FoldSets, Panel, Series
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

_DRAWN = (2, 4, 3, 2, 1)
"""Units of the network that is drawn: as many as in figs 2.1 to 2.4."""
_CANDIDATES = 40
"""Transparent networks from which it is chosen."""


def story(study: FoldStudy, run: Run) -> Story:
    """Fold-sets by layer, greedily assigned layers, the dependency graph, and folds during training."""
    found = claims.windows(run)
    drawn, ambiguous = _drawn()
    trained = run.select(part="training")
    best = int(np.nanargmin(trained.end("loss")))
    figures = (
        Figure(
            "layers",
            "Folds of one, two and three layers",
            "A random network 2-4-3-2-1: folds of the first layer are lines, those of the second bend at them, those "
            "of the third at both.",
            "S3 fig 2.1",
            _by_layer(drawn),
        ),
        Figure(
            "film",
            "Folds of a student move onto those of its teacher",
            "The student with the smallest loss, during training; the teacher's folds are grey. Folds at which the "
            f"gradient changes by less than {VISIBLE:.0%} of the largest gradient are left out.",
            "",
            _film(run, best),
        ),
        Figure(
            "greedy",
            "Layers that the fold-set alone suggests",
            "The greedy assignment gives each fold the lowest layer that is possible. Where folds of a network hardly "
            "meet, most of them look like those of layer 1.",
            "S3 figs 2.2, 2.3",
            _greedy(drawn, ambiguous),
        ),
        Figure(
            "dependencies",
            "Which fold bends at which",
            "Dependency graph of the same fold-set in canonical form, layers assigned greedily.",
            "S3 fig 2.4",
            drawn.layered_graph(),
        ),
        Figure(
            "training",
            "Losses fall as folds are found",
            "Left: loss of the students as a share of the output variance. Right: share of a student's folds that are "
            f"within {NEAR:g} of one of the teacher, by length and change of the gradient.",
            "",
            _training(run),
        ),
        Figure(
            "regions",
            "Linear regions in ten dimensions",
            "Mean number of linear regions on random lines through [−2, 2]¹⁰, with one standard error, and in random "
            "planes through its middle.",
            "",
            _regions(run.table("slices").to_pandas(), study.lines),
        ),
    )
    identified = found["identified"].sum() / found["pieces"].sum()
    near = float(trained.end("on_teacher")[best])
    headline = (
        f"All {found['cells'].sum():,} cells of {len(found):,} random networks have exact affine maps, with errors up "
        f"to {style.number(found['map_error'].max())}. The fold-set alone identifies the layer of {identified:.0%} of "
        f"its piece-wise hyperplanes; {near:.0%} of the folds of a trained student are on its teacher's."
    )
    numbers = (
        Number(f"{len(found):,}", "random transparent networks"),
        Number(style.number(found["map_error"].max()), "largest relative error of an affine map"),
        Number(f"{identified:.0%}", "piece-wise hyperplanes whose layer is identified"),
        Number(f"{near:.0%}", "of the best student's folds are on its teacher's"),
    )
    return Story(headline, numbers, figures)


def _drawn() -> tuple[Folds, Folds]:
    """A network of three hidden layers with many dependencies, and one with few."""
    made = [Folds(subdivide(random_network(_DRAWN, seed))) for seed in transparent_seeds(_DRAWN, _CANDIDATES)]
    folding = [each for each in made if (each.edges_per_layer > 0).all()]
    rich = max(folding, key=lambda each: (each.surface.order, each.dependencies.bends.sum()))
    # Folds of higher layers that look like those of the first: the greedy layer is lower than the unit's.
    lowered = [(each.panel().layers.sum() - each.surface.segment_layers.sum()) / each.edges for each in folding]
    return rich, folding[int(np.argmax(lowered))]


def _by_layer(drawn: Folds) -> FoldSets:
    whole, plane = drawn.panel(), drawn.subdivision.plane
    panels = []
    for depth in range(1, len(drawn.network.hidden) + 1):
        part = whole.up_to(depth)
        panels.append(part.named("layer 1" if depth == 1 else f"layers 1 to {depth}"))
    return FoldSets(tuple(panels), plane.lower, plane.upper, f"n = {drawn.cells} cells")


def _greedy(drawn: Folds, ambiguous: Folds) -> FoldSets:
    plane = drawn.subdivision.plane
    panels = [
        each.panel(f"{name}, {layers}", greedy=greedy)
        for each, name in ((drawn, "as above"), (ambiguous, "few crossings"))
        for layers, greedy in (("units", False), ("greedy", True))
    ]
    return FoldSets(tuple(panels), plane.lower, plane.upper, f"n = {drawn.cells} and {ambiguous.cells} cells")


def _film(run: Run, best: int) -> FoldSets:
    epochs = _epochs(run)
    networks = [run.weights(epoch)[0][best] for epoch in epochs]
    return film(networks, epochs, teacher=run.weights("teacher")[0][best], least=VISIBLE)


def _epochs(run: Run) -> list[int]:
    return sorted(set(run.select(part="training").array("loss", "seed epoch")["epoch"].to_numpy().tolist()))


def _training(run: Run) -> Curves:
    some = run.select(part="training")
    panels = []
    for metric, name, log in (("loss", "loss", True), ("on_teacher", "share of folds on the teacher's", False)):
        found = some.array(metric, "seed epoch")
        epochs, network = found["epoch"].to_numpy(), found["network"].to_numpy().astype(int)
        values = found.to_numpy()
        series = Series("median", epochs, np.median(values, 0), values.min(0), values.max(0))
        if network.shape == values.shape:
            series = Series(
                "median", epochs, np.median(values, 0), values.min(0), values.max(0), network=network, network_y=values
            )
        panels.append(Panel("", "epoch", name, (series,), log_y=log, limits=None if log else (0, 1)))
    return Curves(tuple(panels), f"n = {len(values)} students", band="range")


def _regions(found: pd.DataFrame, lines: int) -> Curves:
    panels = []
    for column, title in (("on_lines", "random lines"), ("in_slices", "random planes")):
        series = []
        for depth, rows in found.groupby("depth"):
            y, error = rows[column].to_numpy(float), rows["lines_error"].to_numpy(float)
            band = {"low": y - error, "high": y + error} if column == "on_lines" else {}
            name = f"{depth} hidden layer{'s' if depth > 1 else ''}"
            series.append(Series(name, rows["width"].to_numpy(), y, **band))
        panels.append(Panel(title, "units of each layer", "linear regions", tuple(series), log_x=True, log_y=True))
    return Curves(tuple(panels), f"n = {lines} lines, 5 planes")
