"""Pruned and joined students in words and figures; and the second students."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.specialization.deep.story import over_seeds, some_diverged
from understudy.papers.specialization.prune_and_connect.claims import APART, Cell, cells
from understudy.report import style
from understudy.report.figures import Curves, Dots, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.prune_and_connect.study import PruneAndConnect

_LOSS = "loss / output variance"


def story(study: PruneAndConnect, run: Run) -> Story:
    every = cells(study, run)
    found = [cell for cell in every if cell.path]
    out = Counter(why for cell in every for why in cell.left_out)
    if not found:
        words = f"No two students learned enough to be joined: try more --epochs, or a --below under {study.below:g}"
        return Story(f"{words}.{some_diverged(run)}", (Number(f"{run.networks.num_rows:,}", "networks"),), ())
    figures = (
        Figure(
            "path",
            "A path of low loss",
            "Loss on the way from one student to another of the same teacher: on the path every segment moves fan-outs "
            "alone, or weights of nodes without fan-out; median and quartiles over pairs.",
            "S0 fig 13, measured",
            Curves(tuple(_along(cell, found) for cell in found), note=f"n = {counted(len(found[0].path), 'pair')}"),
        ),
        Figure(
            "ratios",
            "How much lower it is",
            "Largest loss on the straight line over the largest on the path, a point a pair of students.",
            "S0 app E, in numbers",
            Dots(
                tuple(_title(cell, found) for cell in found),
                *_columns([np.log10(cell.apart) for cell in found], [cell.network[0] for cell in found]),
                "log₁₀ of line over path",
                "over-realization",
                bound=np.log10(APART),
                bound_words=f"{APART:g} times",
            ),
        ),
        Figure(
            "pruned",
            f"What students below {study.below:g} cost",
            "Loss on inputs that nothing was fitted on, a point a student: without its unspecialised nodes, and with "
            "output weights fitted again to the nodes that are left, against that of the whole student.",
            "S0 theorem 2, in numbers",
            Curves(tuple(_costs(cell, found) for cell in found), note=f"n = {counted(found[0].cost.size, 'student')}"),
        ),
    )
    return Story(_headline(study, run, found, out), _numbers(study, run, found), figures)


def _title(cell: Cell, of: list[Cell]) -> str:
    several = len({other.polarity for other in of}) > 1
    return f"{cell.multiple:g}×" + (f", p = {cell.polarity:g}" if several else "")


def _along(cell: Cell, of: list[Cell]) -> Panel:
    # Paths may differ in their segments: all on the way of the longest.
    way = np.linspace(0, 1, max(len(each) for each in cell.path))

    def series(label: str, curves: tuple[np.ndarray, ...], dashed: bool, colour: str) -> Series:
        laid = np.stack([np.interp(way, np.linspace(0, 1, len(each)), each) for each in curves])
        return Series(label, way, *over_seeds(laid, axis=0), dashed=dashed, colour=colour)

    both = series("path", cell.path, False, style.BLUE), series("straight line", cell.line, True, style.VERMILLION)
    return Panel(_title(cell, of), "way from one student to the other", _LOSS, both, log_y=True)


def _costs(cell: Cell, of: list[Cell]) -> Panel:
    before, after, refitted = (losses.ravel() for losses in cell.losses)
    ends = np.array([before.min() / 1.5, before.max() * 1.5])
    series = (
        Series("pruned", before, after, points=True, colour=style.VERMILLION),
        Series("refitted", before, refitted, points=True, colour=style.GREEN),
        Series("as before", ends, ends, dashed=True, colour=style.SOFT),
    )
    return Panel(_title(cell, of), "loss of the whole student", _LOSS, series, log_x=True, log_y=True)


def _columns(values: list[np.ndarray], network: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Columns of one length: NaN where there is no network."""
    laid = np.full((len(values), max(map(len, values))), np.nan)
    whose = np.full(laid.shape, -1)
    for column, (numbers, those) in enumerate(zip(values, network, strict=True)):
        laid[column, : len(numbers)], whose[column, : len(those)] = numbers, those
    return laid, whose


def _headline(study: PruneAndConnect, run: Run, found: list[Cell], out: Counter[str]) -> str:
    """Of the widest students."""
    cell, pairs = found[-1], run.networks.num_rows // 2
    path, line = np.median(cell.largest, axis=1)
    before, after, refitted = np.median(cell.losses, axis=(1, 2))
    why = "".join(f": {words}" for words, _ in out.most_common(1))
    lost = f" {out.total():,} of {counted(pairs, 'pair')} are left out{why}." if out else ""
    return (
        f"At {_title(cell, found)} the median loss is {before:.1e} of the output variance, {after:.1e} without nodes "
        f"below {study.below:g} and {refitted:.1e} refitted, and at most {path:.1e} on the path to another solution "
        f"where the straight line reaches {line:.2f}.{lost}"
    )


def _numbers(study: PruneAndConnect, run: Run, found: list[Cell]) -> tuple[Number, ...]:
    last = found[-1]
    title, nodes = _title(last, found), round(last.multiple * study.teacher_nodes)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{last.apart.min():,.0f} times", f"lower on the path than on the line, at least, {title}"),
        Number(f"{np.median(last.cost):.0e}", f"of the output variance is what dropping costs, median, {title}"),
        Number(f"{np.mean(nodes - last.kept):.1f} of {nodes}", f"nodes go on average, {title}"),
    )
