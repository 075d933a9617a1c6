"""The picture of cost against population size, of one machine or several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from understudy.errors import UserError
from understudy.report import style

FLAT = 1.3
"""How many times the cheapest a network-step may cost."""


@dataclass(frozen=True, eq=False)
class CostByPopulation:
    """One machine's line: microseconds a network-step, between which values it lies, and peak memory in MB."""

    machine: str
    networks: Num[np.ndarray, "size"]
    cost: Num[np.ndarray, "size"]
    low: Num[np.ndarray, "size"]
    high: Num[np.ndarray, "size"]
    memory: Num[np.ndarray, "size"]
    repetitions: int

    @classmethod
    def of(cls, told: dict[str, Any]) -> CostByPopulation:
        """From what a bench told."""
        sizes = sorted(told["cost_by_population"], key=int)
        spread = told["spread"]["cost_by_population"]

        def column(values: dict[str, Any], scale: float) -> np.ndarray:
            return scale * np.array([values[size] for size in sizes], dtype=float)

        low, high = column(spread, 1e6).T
        return cls(
            told["device"],
            np.array([int(size) for size in sizes]),
            column(told["cost_by_population"], 1e6),
            low,
            high,
            column(told["peak_memory_by_population"], 1e-6),
            told["sizes"]["population_repetitions"],
        )


def read(path: Path) -> dict[str, Any]:
    """What a bench kept."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        CostByPopulation.of(told)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(
            f"{path}: is not what a bench kept ({error}); give a bench.json, as `bench` prints it"
        ) from error
    return told


def cost_by_population(machines: Sequence[CostByPopulation]) -> Figure:
    """Left what a network-step costs, flat where it costs the same in any company; right the memory that it takes."""
    colours = style.categories(len(machines))
    with style.paper():
        figure, (cost, memory) = style.panels(1, 2, height=1.9, sharey=False)
        for machine, colour in zip(machines, colours, strict=True):
            cheapest = machine.cost.min()
            cost.axhspan(cheapest, FLAT * cheapest, color=colour, alpha=0.1, linewidth=0)
            errors = (machine.cost - machine.low, machine.high - machine.cost)
            cost.errorbar(
                machine.networks, machine.cost, errors, color=colour, marker="o", elinewidth=0.8, label=machine.machine
            )
            memory.plot(machine.networks, machine.memory, color=colour, marker="o")
        cost.set_ylim(0.5 * min(m.low.min() for m in machines), 2 * max(m.high.max() for m in machines))
        memory.set_ylim(0.5 * min(m.memory.min() for m in machines), 2 * max(m.memory.max() for m in machines))
        _axis(cost, "µs a network-step")
        _axis(memory, "peak memory, MB")
        figure.supxlabel("networks trained together", fontsize=style.NORMAL)
        lines: style.Key = [(m.machine, {"color": colour}) for m, colour in zip(machines, colours, strict=True)]
        band = (f"within {FLAT:g}× of the cheapest", {"linewidth": 5, "alpha": 0.3})
        style.key(figure, [*lines, band], f"median and range of {machines[0].repetitions}")
        return style.finish(figure)


def _axis(ax: Axes, label: str) -> None:
    ax.set(xscale="log", yscale="log", ylabel=label)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e6 else f"{value:.0e}"))
        axis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
