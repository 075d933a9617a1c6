"""What was asked of the speed, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from understudy.bench.clock import Measured


@dataclass(frozen=True)
class Goal:
    """A number that must be reached and one to aim for, where there are such; `most`: not to be exceeded."""

    what: str
    unit: str
    measured: Measured | None
    must: float | None = None
    aim: float | None = None
    most: bool = False

    @property
    def reached(self) -> str | None:
        """`aim`, `must` or `neither`; none where nothing is asked, or nothing was measured."""
        if self.measured is None or self.must is None:
            return None
        value = self.measured.median
        for name, bound in (("aim", self.aim), ("must", self.must)):
            if bound is not None and (value <= bound if self.most else value >= bound):
                return name
        return "neither"

    def words(self) -> tuple[str, ...]:
        """What, measured, between which values, must and aim."""
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


def share_of_peak(n: int, measured: Measured, device: str) -> Goal:
    """Asked of processors, at n = 20 and n = 200."""
    asked = _SHARES.get(n, (None, None)) if device == "cpu" else (None, None)
    return Goal(f"steps at n = {n}, share of the peak", "share", measured, *asked)


def against_plain_loop(n: int, measured: Measured, device: str) -> Goal:
    """Asked of processors, at every n."""
    asked = (20.0, 50.0) if device == "cpu" else (None, None)
    return Goal(f"steps at n = {n}, against the plain loop", "times", measured, *asked)


def probe_share(measured: Measured) -> Goal:
    return Goal("probing, share of the whole", "share", measured, 0.2, 0.1, most=True)


def flatness(measured: Measured, least: int, most: int) -> Goal:
    return Goal(f"dearest network-step of {least:,} to {most:,} networks", "times", measured, 1.3, most=True)


def exact_step(measured: Measured, sizes: tuple[int, int, int], device: str) -> Goal:
    """Asked of processors."""
    m, r, d = sizes
    what = f"a step on the exact loss, m = {m:,}, r = {r}, d = {d}, over its matrix products alone"
    return Goal(what, "times", measured, 2.0 if device == "cpu" else None, most=True)


def small_problems(measured: Measured, sizes: tuple[int, int, int, int], device: str) -> Goal:
    """Asked of processors. A step of one such problem is about 20 calls of Python, torch and numpy, of a microsecond or
    more each, around some 17,000 operations (13 × 13 pairs of 100), which take a few: what is batched pays for no
    calls, so that ten times is what one core must gain, and two cores share the rest."""
    count, m, r, d = sizes
    what = f"{count:,} problems of m = {m}, r = {r}, d = {d} on the exact loss, batched against one by one"
    return Goal(what, "times", measured, *((10.0, 20.0) if device == "cpu" else (None, None)))


def sweep(measured: Measured | None, device: str) -> Goal:
    """Asked of a card."""
    must, aim = (60.0, 15.0) if device == "cuda" else (None, None)
    return Goal("the whole two-layer study (--sweep)", "seconds", measured, must, aim, most=True)
