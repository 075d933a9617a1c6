"""Claims Y4, Y5 and P2: the cost of removing nodes, and low-loss paths (Tian 2020, theorem 2, app. E)."""

from collections import Counter
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from understudy.claims import Claims, Verdict, every, mean_above, number
from understudy.papers.specialization.prune_and_connect.study import DRAWS, PruneAndConnect
from understudy.papers.specialization.theory.pruning import SHARE, STRENGTHS
from understudy.store import Run
from understudy.store.units import read_units

COST = 1e-4
"""Share of the output variance by which the loss may grow when nodes are removed (Y4)."""
TIMES = 2.0
"""Largest loss after refitting, relative to that of the whole student (Y4)."""
APART = 100.0
"""Least ratio of the largest loss on the straight line to that on the path (Y5)."""


class Cell(NamedTuple):
    """Pairs of students of one polarity and over-realization; pairs that were left out have only a reason."""

    polarity: float
    multiple: float
    network: np.ndarray
    """The first student, [pair]."""
    losses: np.ndarray
    """Shares of the output variance, [before, after and refitted; draw, pair]."""
    kept: np.ndarray
    """Number of nodes that are kept, [draw, pair]."""
    path: tuple[np.ndarray, ...]
    line: tuple[np.ndarray, ...]
    """Losses at evenly spaced points, [pair][point]."""
    left_out: tuple[str, ...]
    """Why each of the other pairs was not pruned and connected."""
    cost: np.ndarray
    """Growth of the loss when nodes are removed, [draw, pair]."""
    times: np.ndarray
    """Loss after refitting, relative to that of the whole student, [draw, pair]."""
    largest: np.ndarray
    """Largest losses, [path and line, pair]."""
    apart: np.ndarray
    """Largest loss on the line, relative to that on the path, [pair]."""


def cells(run: Run) -> list[Cell]:
    """Pairs by polarity, then by over-realization, both from small to large."""
    pairs = read_units(run, "pairs", curves=("path_loss", "line_loss"), draw=DRAWS[0]).to_pylist()
    axes = (sorted({pair[name] for pair in pairs}) for name in ("polarity", "multiple"))
    return [_cell(run, pairs, polarity, multiple) for polarity, multiple in product(*axes)]


def _cell(run: Run, pairs: list[dict[str, Any]], polarity: float, multiple: float) -> Cell:
    own = [pair for pair in pairs if (pair["polarity"], pair["multiple"]) == (polarity, multiple)]
    measured = [pair for pair in own if (pair.get("segments") or 0) > 0]
    left_out = [pair.get("left_out") or "the run does not record why" for pair in own if pair not in measured]
    seeds = [pair["seed"] for pair in measured]
    students = run.select(polarity=polarity, multiple=multiple, seed=seeds)

    def read(metric: str) -> np.ndarray:
        return students.array(metric, "draw seed").to_numpy() if seeds else np.zeros((len(DRAWS), 0))

    path, line = (tuple(np.array(pair[name]) for pair in measured) for name in ("path_loss", "line_loss"))
    before, after, refitted = losses = np.stack([read(metric) for metric in ("before", "after", "refitted")])
    largest = np.array([[each.max() for each in curves] for curves in (path, line)])
    return Cell(
        polarity,
        multiple,
        students.select(draw=DRAWS[0]).index,
        losses,
        kept=read("kept"),
        path=path,
        line=line,
        left_out=tuple(left_out),
        cost=after - before,
        times=refitted / before,
        largest=largest,
        apart=largest[1] / largest[0],
    )


claims = Claims(
    fixed="teacher_nodes below epochs steps batch lr dim outputs train evaluation input_std",
    tuned_on="seeds 1 to 3, which decide it, had been seen when the readings were fixed",
)


def _papers_cells(study: PruneAndConnect, run: Run) -> list[dict[str, Cell]]:
    return [{"cell": cell} for cell in cells(run) if cell.polarity == 1 and cell.multiple in (5, 10)]


def _decide(cell: Cell, values: np.ndarray, say: str, **bound: float) -> Verdict:
    """Decide on every value, with as many values for each pair that was left out, which count as failing."""
    lost, pairs = len(cell.left_out), len(cell.path) + len(cell.left_out)
    each = every(values, n=len(np.atleast_2d(values)) * pairs, say=say if cell.path else "", **bound)
    if not lost:
        return each
    ((why, _),) = Counter(cell.left_out).most_common(1)
    return each & Verdict(False, f"{lost} of {pairs} pairs left out, which counts as failing: {why}", lost)


@claims.claim(
    "Y4",
    "cost, {cell.multiple:g}×",
    statement="students without their nodes below correlation 0.8: the loss on held-out inputs grows by less than "
    f"{COST:g} of the output variance, in every network",
    paper="under 10⁻⁴ of the output variance",
    values_are="growth of the loss, per network",
    cases=_papers_cells,
)
def removal_costs_little(study: PruneAndConnect, run: Run, cell: Cell) -> Verdict:
    nodes = round(cell.multiple * study.teacher_nodes)
    removed = np.mean(nodes - cell.kept) if cell.path else 0
    words = f"median {{median:.1e}}, largest {{most:.1e}}; {removed:.1f} of {nodes} nodes are removed on average"
    return _decide(cell, cell.cost, words, below=COST)


@claims.claim(
    "Y4",
    "refitted, {cell.multiple:g}×",
    statement="with output weights fitted again by least squares, the loss is at most "
    f"{TIMES:g} times that of the whole student, in every network",
    paper="within 2×",
    values_are="ratio of the losses, per network",
    cases=_papers_cells,
)
def refitting_restores_the_loss(study: PruneAndConnect, run: Run, cell: Cell) -> Verdict:
    return _decide(cell, cell.times, "median {median:.2f}, largest {most:.2f}", at_most=TIMES)


@claims.claim(
    "Y5",
    "{cell.multiple:g}×",
    statement=f"the largest loss on a path of line segments is at least {APART:g} times below that on the straight "
    "line, for every two students of one teacher",
    paper="at least 100× below",
    values_are="ratio of the largest losses, per pair",
    cases=_papers_cells,
    tuned_on="",
)
def path_of_low_loss(study: PruneAndConnect, run: Run, cell: Cell) -> Verdict:
    path, line = np.median(cell.largest, axis=1) if cell.path else (0, 0)
    largest = f"median largest losses {number(path, '.1e')} and {line:.2f} of the output variance"
    return _decide(cell, cell.apart, f"median {{median:,.0f}}, least {{least:,.0f}}; {largest}", at_least=APART)


@claims.claim(
    "P2",
    "two layers, {cell.multiple:g}×",
    statement=f"without the {SHARE:.0%} of the nodes that are weakest by modulation, the loss on held-out inputs is no "
    "higher than without those that are weakest by weight norm (mean over teachers, two standard errors allowed)",
    paper="prune by modulation instead of weight norm",
    values_are="log10 of the loss by weight norm over that by modulation, mean of two students, per teacher",
    cases=_papers_cells,
    tuned_on="seeds 101 and 102",
)
def modulation_is_no_worse(study: PruneAndConnect, run: Run, cell: Cell) -> Verdict | None:
    if not (cell.path and set(STRENGTHS) <= run.metric_names):
        return None
    students = run.select(polarity=cell.polarity, multiple=cell.multiple)
    modulation, norm = (students.array(by, "draw seed").to_numpy() for by in STRENGTHS)
    words = f"losses {np.nanmedian(modulation):.1e} and {np.nanmedian(norm):.1e} (medians); mean {{mean:.3f}}"
    # Two students of one teacher are not independent.
    return mean_above(np.log10(norm / modulation).mean(axis=0), errors=-2, say=words)
