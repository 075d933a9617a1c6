"""What a study hands to the report: a sentence, a few numbers, its figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from matplotlib.figure import Figure as PaperFigure


@runtime_checkable
class Kind(Protocol):
    """A kind of figure, filled with data: drawn for paper by matplotlib, and as plotly's JSON for the page."""

    def paper(self) -> PaperFigure: ...

    def page(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Figure:
    name: str
    """File name without ending, e.g. `recovery-rate`."""
    title: str
    caption: str
    """One line that says what to see in it."""
    source: str
    """The figure it redraws, e.g. `S0 fig 7`."""
    kind: Kind


@dataclass(frozen=True)
class Number:
    value: str
    label: str


@dataclass(frozen=True)
class Story:
    headline: str
    numbers: tuple[Number, ...]
    figures: tuple[Figure, ...]


def counted(n: int, thing: str) -> str:
    """A number of things in words: `1 seed`, `32 seeds`."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + list(words[-1:]))
