"""A claim of a paper, and what a run has measured of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """The same, measured where the paper does not claim it."""

    where: str
    measured: str
    holds: bool

    def __str__(self) -> str:
        return f"{self.where}: {self.measured} ({'holds' if self.holds else 'does not hold'})"


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
    beside: tuple[Variant, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        plain = asdict(self) | {"values": list(self.values), "beside": [asdict(other) for other in self.beside]}
        return plain if self.beside else {name: value for name, value in plain.items() if name != "beside"}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Claim:
        beside = tuple(Variant(**other) for other in row.get("beside", ()))
        return cls(**(row | {"values": tuple(row.get("values", ())), "beside": beside}))
