"""What pruned and joined students decide: Y4, Y5."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.specialization.deep.claims import at, laid_out
from understudy.papers.specialization.prune_and_connect.study import DRAWS
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.specialization.prune_and_connect.study import PruneAndConnect

COST, TIMES, APART = 1e-4, 2.0, 100.0
"""Y4: share of the output variance that dropping may cost, and times the unpruned loss that refitting may leave; Y5:
how many times lower the largest loss on the path is."""
_PAPERS_POLARITY = 1.0
LOSSES = ("before", "after", "refitted")


class Cell(NamedTuple):
    """Pairs of students of one polarity and over-realization that were pruned and joined."""

    polarity: float
    multiple: float
    network: np.ndarray
    """[draw, pair]."""
    losses: np.ndarray
    """[before, after and refitted; draw, pair]: shares of the output variance."""
    kept: np.ndarray
    """[draw, pair]: nodes that stay."""
    path: tuple[np.ndarray, ...]
    line: tuple[np.ndarray, ...]
    """[pair][point]: losses at evenly spaced points."""
    left_out: tuple[str, ...] = ()
    """Of each pair that was not pruned and joined, why."""

    @property
    def cost(self) -> np.ndarray:
        """[draw, pair]: by how much dropping raises the loss."""
        return self.losses[1] - self.losses[0]

    @property
    def times(self) -> np.ndarray:
        """[draw, pair]: the loss after refitting, in unpruned losses."""
        return self.losses[2] / self.losses[0]

    @property
    def largest(self) -> np.ndarray:
        """[path and line, pair]."""
        return np.array([[each.max() for each in losses] for losses in (self.path, self.line)])

    @property
    def apart(self) -> np.ndarray:
        """[pair]: the largest loss on the line, in largest losses on the path."""
        path, line = self.largest
        return line / path


def cells(study: PruneAndConnect, run: Run) -> list[Cell]:
    """By polarity, then by over-realization, from small to large, with no pairs where all were left out."""
    polarities, multiples = (sorted(map(float, values)) for values in (study.polarity, study.multiple))
    axes = {
        "polarity": np.array(polarities),
        "multiple": np.array(multiples),
        "draw": np.array(DRAWS),
        "seed": np.arange(1, study.seeds + 1),
    }
    network = laid_out(run, axes)
    ended = np.flatnonzero(run.epochs == study.epochs)

    def last(metric: str, which: np.ndarray) -> np.ndarray:
        return at(which, run.series(metric)[:, ended]).sum(axis=-1)

    def curves(metric: str, which: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(row[np.isfinite(row)] for row in run.series(metric)[which])

    found = []
    for i, polarity in enumerate(polarities):
        for j, multiple in enumerate(multiples):
            those = network[i, j]
            found_there = (those >= 0).all(axis=0) & (last("segments", those[0]) > 0)
            those = those[:, found_there]
            out = _left_out(run, (polarity, multiple, DRAWS[0]), those[0])
            losses = np.stack([last(metric, those) for metric in LOSSES])
            path, line = (curves(metric, those[0]) for metric in ("path_loss", "line_loss"))
            found.append(Cell(polarity, multiple, those, losses, last("kept", those), path, line, out))
    return found


def _left_out(run: Run, of: tuple[float, float, int], there: np.ndarray) -> tuple[str, ...]:
    """Why each first student of a cell that is not there was left out."""
    names = run.networks.column_names
    why = run.networks["left_out"].to_pylist() if "left_out" in names else [None] * run.networks.num_rows
    rows = zip(*(run.networks[name].to_pylist() for name in ("polarity", "multiple", "draw")), strict=True)
    lost = [n for n, row in enumerate(rows) if row == of and n not in there]
    return tuple(why[n] or "the run does not say why" for n in lost)


def claims(study: PruneAndConnect, run: Run) -> list[Claim]:
    """Decided on p = 1 and students of 5 and 10 times the nodes; each must hold of every network, or pair.

    Pairs that were left out count as ones of which it does not hold.
    """
    if not _papers_settings(study):
        return []
    decided = []
    for cell in cells(study, run):
        if cell.polarity == _PAPERS_POLARITY and cell.multiple in (5.0, 10.0):
            decided += [_cost(study, cell), _refit(cell), _path(cell)]
    return sorted(decided, key=lambda claim: claim.id)


def _measured(cell: Cell, words: Callable[[], str]) -> str:
    """What was measured where there is something, and how many pairs were left out, with the reason most have."""
    out = Counter(cell.left_out).most_common(1)
    pairs = len(cell.path) + len(cell.left_out)
    parts = [words()] if cell.path else []
    parts += [f"{len(cell.left_out)} of {pairs} pairs left out, which counts as failing: {why}" for why, _ in out]
    return "; ".join(parts)


def _papers_settings(study: PruneAndConnect) -> bool:
    training = (study.epochs, study.steps, study.batch, study.lr)
    data = (study.dim, study.outputs, study.train, study.evaluation, study.input_std)
    settings = (study.teacher_nodes, study.below)
    return settings == (20, 0.8) and training == (100, 1_000, 16, 0.01) and data == (100, 50, 10_000, 10_000, 1.5)


def _cost(study: PruneAndConnect, cell: Cell) -> Claim:
    cost = cell.cost.ravel()
    nodes = round(cell.multiple * study.teacher_nodes)
    return Claim(
        id="Y4",
        statement=f"students below 0.8 can go: the loss on other inputs grows by under {COST:g} of the output variance in every "
        "network (below: by how much in each)",
        paper="under 1e−4 of the output variance",
        measured=_measured(
            cell,
            lambda: (
                f"median {np.median(cost):.1e}, largest {cost.max():.1e}; {np.mean(nodes - cell.kept):.1f} of {nodes} "
                "nodes go on average"
            ),
        ),
        n=len(cost) + len(DRAWS) * len(cell.left_out),
        holds=bool((cost < COST).all()) and not cell.left_out,
        part=f"cost, {cell.multiple:g}×",
        values=tuple(cost.tolist()),
        low=None,
        high=COST,
    )


def _refit(cell: Cell) -> Claim:
    times = cell.times.ravel()
    return Claim(
        id="Y4",
        statement=f"with output weights fitted again by least squares the loss is within {TIMES:g} times that of the whole "
        "student in every network (below: their ratio)",
        paper="within 2×",
        measured=_measured(cell, lambda: f"median {np.median(times):.2f}, largest {times.max():.2f}"),
        n=len(times) + len(DRAWS) * len(cell.left_out),
        holds=bool((times <= TIMES).all()) and not cell.left_out,
        part=f"refitted, {cell.multiple:g}×",
        values=tuple(times.tolist()),
        low=None,
        high=TIMES,
    )


def _path(cell: Cell) -> Claim:
    apart, (path, line) = cell.apart, cell.largest
    return Claim(
        id="Y5",
        statement=f"the largest loss on a path of line segments is at least {APART:g} times below that on the straight line, for "
        "every two students of one teacher (below: how many times)",
        paper="at least 100× below",
        measured=_measured(
            cell,
            lambda: (
                f"median {np.median(apart):,.0f}, least {apart.min():,.0f}; median largest losses "
                f"{np.median(path):.1e} and {np.median(line):.2f} of the output variance"
            ),
        ),
        n=len(apart) + len(cell.left_out),
        holds=bool((apart >= APART).all()) and not cell.left_out,
        part=f"{cell.multiple:g}×",
        values=tuple(apart.tolist()),
        low=APART,
    )
