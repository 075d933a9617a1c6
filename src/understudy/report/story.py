"""The story of a run, which a study passes to the report: a headline, a few numbers, and figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from matplotlib.figure import Figure as PaperFigure

from understudy._numbers import typeset_fields


@runtime_checkable
class Kind(Protocol):
    """A figure with its data, which can be drawn for paper and for the page."""

    def paper(self) -> PaperFigure:
        """Draw the figure with matplotlib."""
        ...

    def page(self) -> dict[str, Any]:
        """Return plotly's JSON."""
        ...


@dataclass(frozen=True)
class Figure:
    """A figure of a story, with its caption."""

    name: str
    """File name without extension, such as `recovery-rate`."""
    title: str
    caption: str
    """What the figure shows, in one or two sentences."""
    source: str
    """The figure of a paper that it reproduces, such as `S0 fig 7`; empty if there is none."""
    kind: Kind

    def __post_init__(self) -> None:
        typeset_fields(self, "title", "caption")


@dataclass(frozen=True)
class Number:
    """A number of a story, formatted, with its meaning."""

    value: str
    label: str

    def __post_init__(self) -> None:
        typeset_fields(self, "value", "label")


@dataclass(frozen=True)
class Story:
    """What a run shows: a headline in one sentence, a few numbers, and figures."""

    headline: str
    numbers: tuple[Number, ...]
    figures: tuple[Figure, ...]

    def __post_init__(self) -> None:
        typeset_fields(self, "headline")


def counted(n: int, thing: str) -> str:
    """A number of things, such as `1 seed` or `32 seeds`."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + list(words[-1:]))
