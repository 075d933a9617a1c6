"""A claim of a paper, and what a run has measured of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One decided claim. `part` tells apart several measurements of one row (a panel, a variant)."""

    id: str
    statement: str
    paper: str
    measured: str
    n: int
    holds: bool
    part: str = ""
    values: tuple[float, ...] = field(default=())
    """The quantity that was decided on, once a network or cell: what `low` and `high` bound."""
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"values": list(self.values)}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Claim:
        return cls(**(row | {"values": tuple(row.get("values", ()))}))
