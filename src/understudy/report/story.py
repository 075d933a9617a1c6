"""The story of a run, which a study passes to the report: a headline, a few numbers, and figures."""

import re
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


_LEAST, _MOST = 50, 146
"""Letters of a headline: at most two lines of a page on a laptop."""
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z0-9−])")


def split_headline(text: str) -> tuple[str, str]:
    """Divide what was found into a headline of at most two lines, and the details.

    The headline is the first sentence; the first clauses of it where it is longer; or the first phrases of these, with
    an ellipsis.

    Args:
        text: What was found, in one or more sentences.

    Returns:
        The headline, and the rest, which may be empty.
    """
    whole = text.strip()
    if found := _SENTENCE.search(whole):
        if found.start() <= _MOST:
            return whole[: found.start()], whole[found.end() :]
    elif len(whole) <= _MOST:
        return whole, ""
    if (end := _last("; ", whole)) >= 0:
        return f"{whole[:end]}.", whole[end + 2].upper() + whole[end + 3 :]
    end = next((end for words in (", ", ": ", " and ", " ") if (end := _last(words, whole)) >= _LEAST), _MOST)
    return f"{whole[:end]} …", f"… {whole[end:].lstrip(',: ')}"


def _last(words: str, text: str) -> int:
    """The last place of these words, outside of brackets, at which a headline can end; −1 if there is none."""
    found = [m.start() for m in re.finditer(re.escape(words), text[: _MOST + len(words)])]
    return next((end for end in reversed(found) if text.count("(", 0, end) == text.count(")", 0, end)), -1)


def counted(n: int, thing: str) -> str:
    """A number of things, such as `1 seed` or `32 seeds`."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + list(words[-1:]))
