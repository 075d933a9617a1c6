"""Figure of cost against population size, for one machine or several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from understudy._errors import UserError
from understudy._numbers import number
from understudy.report import style

FLAT = 1.3
"""Largest allowed ratio of the dearest network-step to the cheapest."""


class CostCurve(NamedTuple):
    """Microseconds per network-step with their range, and peak memory in MB, by population size."""

    machine: str
    repetitions: int
    networks: Num[np.ndarray, "size"]
    cost: Num[np.ndarray, "size"]
    low: Num[np.ndarray, "size"]
    high: Num[np.ndarray, "size"]
    memory: Num[np.ndarray, "size"]


def cost_curve(bench: dict[str, Any]) -> CostCurve:
    """Read the curve of one machine from the contents of a bench.json."""
    sizes = sorted(bench["cost_by_population"], key=int)

    def column(values: dict[str, Any], scale: float) -> np.ndarray:
        return scale * np.array([values[size] for size in sizes], dtype=float)

    low, high = column(bench["spread"]["cost_by_population"], 1e6).T
    return CostCurve(
        bench["device"],
        bench["sizes"]["population_repetitions"],
        np.array(sizes, int),
        column(bench["cost_by_population"], 1e6),
        low,
        high,
        column(bench["peak_memory_by_population"], 1e-6),
    )


def read(path: Path) -> CostCurve:
    """Read the curve of one machine from a bench.json."""
    try:
        return cost_curve(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"--draw: {path} is not a bench.json written by `understudy bench` ({error})") from error


def cost_by_population(curves: Sequence[CostCurve]) -> Figure:
    """Draw the cost of a network-step (left), flat where batching costs nothing, and the memory (right)."""
    colours = style.categories(len(curves))
    with style.paper():
        figure, (cost, memory) = style.panels(1, 2, height=1.9, sharey=False)
        for curve, colour in zip(curves, colours, strict=True):
            cheapest = curve.cost.min()
            cost.axhspan(cheapest, FLAT * cheapest, color=colour, alpha=0.1, linewidth=0)
            errors = (curve.cost - curve.low, curve.high - curve.cost)
            cost.errorbar(curve.networks, curve.cost, errors, color=colour, marker="o", elinewidth=0.8)
            memory.plot(curve.networks, curve.memory, color=colour, marker="o")
        cost.set_ylim(0.5 * min(c.low.min() for c in curves), 2 * max(c.high.max() for c in curves))
        memory.set_ylim(0.5 * min(c.memory.min() for c in curves), 2 * max(c.memory.max() for c in curves))
        _axis(cost, "µs per network-step")
        _axis(memory, "peak memory, MB")
        figure.supxlabel("networks trained together", fontsize=style.NORMAL)
        lines: style.Key = [(curve.machine, {"color": c}) for curve, c in zip(curves, colours, strict=True)]
        band = (f"within {FLAT:g}× of the cheapest", {"linewidth": 5, "alpha": 0.3})
        style.key(figure, [*lines, band], f"median and range of {curves[0].repetitions}")
        return style.finish(figure)


def _axis(ax: Axes, label: str) -> None:
    ax.set(xscale="log", yscale="log", ylabel=label)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, ",g" if value < 1e6 else ".0e")))
        axis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
