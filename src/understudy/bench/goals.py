"""A goal for the speed, next to what was measured."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from understudy.bench.clock import Repetitions


@dataclass(frozen=True)
class Goal:
    """A bound that must be reached and one to aim for, where they are set; `most` makes them upper bounds."""

    what: str
    unit: str
    measured: Repetitions | None
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
        """Return plain values for JSON."""
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
    "milliseconds": lambda value: f"{value:.1f} ms",
}
