"""The page about all runs of `understudy reproduce`: for each paper its claims, main figures, and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from understudy.report.page.data import flat
from understudy.report.page.templates import asset, render
from understudy.store.claims import Claim, holding


@dataclass(frozen=True)
class ShownClaim:
    """A claim of the catalogue with its measurements."""

    id: str
    words: str
    holds: bool | None
    would_decide: str
    parts: Sequence[Claim]


@dataclass(frozen=True)
class ShownRun:
    """A run, with the path of its report as seen from the page."""

    name: str
    headline: str
    report: str


@dataclass(frozen=True)
class Picture:
    """A figure of a run, with the paths of its file and of the report as seen from the page."""

    caption: str
    file: str
    report: str


@dataclass(frozen=True)
class ShownPaper:
    """What the page shows of a paper; `counts` are its claims that hold, do not hold and are not decided."""

    folder: str
    title: str
    cited: str
    time: str
    counts: Sequence[int]
    claims: Sequence[ShownClaim]
    pictures: Sequence[Picture]
    runs: Sequence[ShownRun]


def reproduction_page(
    *,
    eyebrow: str,
    headline: str,
    lines: Sequence[str],
    papers: Sequence[ShownPaper],
    problems: Sequence[tuple[str, str]],
    changes: Sequence[str] | None,
    command: str,
    environment: Mapping[str, object],
) -> bytes:
    """Write the page; figures and reports are linked, not contained.

    Args:
        eyebrow: What the page is about.
        headline: What was found, in one sentence.
        lines: Further sentences.
        papers: The papers.
        problems: Runs that are not there, each with the reason.
        changes: Verdicts that changed; None if they were not compared.
        command: Command line that repeats it.
        environment: Versions and hardware.

    Returns:
        The HTML file.
    """
    return render(
        "reproduction.html",
        eyebrow=eyebrow,
        headline=headline,
        lines=lines,
        papers=papers,
        problems=problems,
        changes=changes,
        command=command,
        environment=list(flat(dict(environment))),
        holding=holding,
        css=asset("page.css") + asset("check.css") + asset("reproduction.css"),
    )
