"""Figures and headline of `prune-and-connect` (Tian 2020, theorem 2, app. E, fig. 13)."""

from collections import Counter

import numpy as np

from understudy.claims import number
from understudy.lab.layers import some_diverged
from understudy.papers.specialization.prune_and_connect.claims import APART, Cell, cells
from understudy.papers.specialization.prune_and_connect.study import PruneAndConnect
from understudy.report import style
from understudy.report.figures import Curves, Dots, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_LOSS = "loss / output variance"


def story(study: PruneAndConnect, run: Run) -> Story:
    """Losses along paths, their ratio to those on straight lines, and the cost of removing nodes."""
    every = cells(run)
    found = {_title(cell, every): cell for cell in every if cell.path}
    if not found:
        words = f"No two students learned enough to be connected: try more --epochs, or a --below under {study.below:g}"
        return Story(f"{words}.{some_diverged(run)}", (Number(f"{run.networks.num_rows:,}", "networks"),), ())
    first = next(iter(found.values()))
    figures = (
        Figure(
            "path",
            "A path of low loss",
            "Loss between two students of one teacher: each segment of the path moves only fan-outs, or weights of "
            "nodes without fan-out; median and quartiles over pairs.",
            "S0 fig. 13, measured",
            _paths(found),
        ),
        Figure(
            "ratios",
            "How much lower it is",
            "Largest loss on the straight line, divided by the largest on the path, one point per pair of students.",
            "S0 app. E, in numbers",
            Dots.from_columns(
                {title: (np.log10(cell.apart), cell.network) for title, cell in found.items()},
                "log₁₀ of line over path",
                "over-realization",
                bound=np.log10(APART),
                bound_words=f"{APART:g} times",
            ),
        ),
        Figure(
            "pruned",
            f"What nodes below {study.below:g} are worth",
            "Loss on held-out inputs, one point per student: without its unspecialised nodes, and with output weights "
            "fitted again to the kept nodes, against that of the whole student.",
            "S0 theorem 2, in numbers",
            Curves(
                tuple(_costs(title, cell) for title, cell in found.items()),
                note=f"n = {counted(first.cost.size, 'student')}",
            ),
        ),
    )
    title, widest = list(found.items())[-1]
    return Story(_headline(study, every, title, widest), _numbers(study, run, title, widest), figures)


def _title(cell: Cell, every: list[Cell]) -> str:
    several = len({other.polarity for other in every}) > 1
    return f"{cell.multiple:g}×" + (f", p = {cell.polarity:g}" if several else "")


def _paths(found: dict[str, Cell]) -> Curves:
    """Losses along paths and lines, interpolated to the points of the longest, as paths differ in their segments."""
    import xarray as xr

    curves = [(cell.path, cell.line) for cell in found.values()]
    pairs = max(len(path) for path, _ in curves)
    x = np.linspace(0, 1, max(len(losses) for path, _ in curves for losses in path))
    values = np.full((len(found), 2, pairs, len(x)), np.nan)
    for place in np.ndindex(values.shape[:3]):
        cell, curve, pair = place
        if pair < len(losses := curves[cell][curve]):
            values[place] = np.interp(x, np.linspace(0, 1, len(losses[pair])), losses[pair])
    axes = {"students": list(found), "curve": ["path", "straight line"], "fraction": x}
    return Curves.from_array(
        xr.DataArray(values, axes, ("students", "curve", "pair", "fraction")),
        name=_LOSS,
        x="fraction",
        panel="students",
        line="curve",
        over="pair",
        x_name="fraction of the path",
        colours=(style.BLUE, style.VERMILLION),
        log_y=True,
    )


def _costs(title: str, cell: Cell) -> Panel:
    before, after, refitted = (losses.ravel() for losses in cell.losses)
    ends = np.array([before.min() / 1.5, before.max() * 1.5])
    series = (
        Series("pruned", before, after, points=True, colour=style.VERMILLION),
        Series("refitted", before, refitted, points=True, colour=style.GREEN),
        Series("unchanged", ends, ends, dashed=True, colour=style.SOFT),
    )
    return Panel(title, "loss of the whole student", _LOSS, series, log_x=True, log_y=True)


def _headline(study: PruneAndConnect, every: list[Cell], title: str, cell: Cell) -> str:
    """Medians of the widest students, and how many pairs were left out."""
    path, line = np.median(cell.largest, axis=1)
    before, after, refitted = (number(loss, ".1e") for loss in np.median(cell.losses, axis=(1, 2)))
    reasons = Counter(why for other in every for why in other.left_out)
    pairs = reasons.total() + sum(len(other.path) for other in every)
    lost = "".join(
        f" {reasons.total():,} of {counted(pairs, 'pair')} are left out: {why}." for why, _ in reasons.most_common(1)
    )
    return (
        f"At {title} the median loss is {before} of the output variance, {after} without nodes below {study.below:g} "
        f"and {refitted} refitted, and at most {number(path, '.1e')} on the path to another solution where the "
        f"straight line reaches {line:.2f}.{lost}"
    )


def _numbers(study: PruneAndConnect, run: Run, title: str, cell: Cell) -> tuple[Number, ...]:
    nodes = round(cell.multiple * study.teacher_nodes)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{cell.apart.min():,.0f} times", f"lower on the path than on the line, at least, {title}"),
        Number(number(np.median(cell.cost), ".0e"), f"growth of the loss without these nodes, median, {title}"),
        Number(f"{np.mean(nodes - cell.kept):.1f} of {nodes}", f"nodes are removed on average, {title}"),
    )
