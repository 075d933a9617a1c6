"""Goals for the speed, next to what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from understudy.bench.clock import Measured

if TYPE_CHECKING:
    from understudy.bench.result import Bench


@dataclass(frozen=True)
class Goal:
    """A bound that must be reached and one to aim for, where they are set; `most` makes them upper bounds."""

    what: str
    unit: str
    measured: Measured | None
    must: float | None = None
    aim: float | None = None
    most: bool = field(default=False, kw_only=True)

    @property
    def reached(self) -> str | None:
        """`aim`, `must` or `neither`; None if no bound is set or nothing was measured."""
        if self.measured is None or self.must is None:
            return None
        value = self.measured.median
        for name, bound in (("aim", self.aim), ("must", self.must)):
            if bound is not None and (value <= bound if self.most else value >= bound):
                return name
        return "neither"

    def cells(self) -> tuple[str, ...]:
        """Cells of a table row: description, measured value, range, must and aim."""
        write, sign = _UNITS[self.unit], "≤ " if self.most else "≥ "
        bounds = ("–" if bound is None else sign + write(bound) for bound in (self.must, self.aim))
        if self.measured is None:
            return (self.what, "not measured", "", *bounds)
        several = len(self.measured.values) > 1
        spread = " to ".join(map(write, self.measured.spread)) if several else ""
        return (self.what, write(self.measured.median), spread, *bounds)

    def as_dict(self) -> dict[str, Any]:
        known = self.measured
        return {
            "what": self.what,
            "unit": self.unit,
            "measured": None if known is None else known.median,
            "spread": None if known is None else list(known.spread),
            "must": self.must,
            "aim": self.aim,
            "most": self.most,
            "reached": self.reached,
        }


_UNITS: dict[str, Callable[[float], str]] = {
    "share": lambda value: f"{value:.1%}",
    "times": lambda value: f"{value:.2f}×" if value < 10 else f"{value:.1f}×",
    "seconds": lambda value: f"{value:.1f} s",
}
_SHARES: dict[int, tuple[float, float]] = {20: (0.3, 0.5), 200: (0.6, 0.8)}


def _bounds(asked: bool, *bounds: float) -> tuple[float, ...]:
    return bounds if asked else ()


def goals(bench: Bench) -> list[Goal]:
    """All goals in the order in which they are shown; most are set for the CPU alone, the sweep's for the GPU.

    Batching small problems must gain a factor of ten on one core: a step of one problem alone is about 20 calls of
    Python, torch and numpy, each of a microsecond or more, around some 17,000 operations (13 × 13 pairs of 100).
    """
    cpu = bench.device == "cpu"
    networks = [cost.networks for cost in bench.costs]
    m, r, d = bench.sizes.exact
    count, *small = bench.sizes.small
    large = f"a step on the exact loss, m = {m:,}, r = {r}, d = {d}, over its matrix products alone"
    many = "{:,} problems of m = {}, r = {}, d = {} on the exact loss, batched against one by one".format(count, *small)
    cheapest = f"dearest network-step of {min(networks):,} to {max(networks):,} networks"
    swept = None if bench.swept is None else Measured((bench.swept.seconds,))
    by_n = bench.rates.items()
    return [
        *(
            Goal(
                f"steps at n = {n}, share of the peak", "share", rates.share_of_peak, *_bounds(cpu, *_SHARES.get(n, ()))
            )
            for n, rates in by_n
        ),
        *(
            Goal(f"steps at n = {n}, against the plain loop", "times", rates.against_plain, *_bounds(cpu, 20.0, 50.0))
            for n, rates in by_n
        ),
        Goal("probing, share of the whole", "share", bench.probing.share, 0.2, 0.1, most=True),
        Goal(cheapest, "times", Measured((bench.flatness,)), 1.3, most=True),
        Goal(large, "times", bench.exact.ratio, *_bounds(cpu, 2.0), most=True),
        Goal(many, "times", bench.small.gain, *_bounds(cpu, 10.0, 20.0)),
        Goal("the whole two-layer study (--sweep)", "seconds", swept, *_bounds(not cpu, 60.0, 15.0), most=True),
    ]
