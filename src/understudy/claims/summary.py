"""How many claims hold, do not hold and are not decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from understudy.claims.catalogue import Paper, Row
from understudy.store.claims import Claim, together

Found = Sequence[tuple[Row, Sequence[Claim]]]
"""Claims of the catalogue, each with its measurements."""


class Outcomes(NamedTuple):
    """Ids of the claims that hold, that do not hold, and that are not decided."""

    hold: tuple[str, ...]
    fail: tuple[str, ...]
    undecided: tuple[str, ...]


def outcome(measurements: Iterable[Claim]) -> bool | None:
    """Whether a claim holds in every measurement; None if none fails and a part of it is not decided.

    A part that one run decides is decided, even if another run, such as a shorter one, leaves it open.

    Args:
        measurements: All measurements of one claim of the catalogue; without any it is not decided.
    """
    parts: dict[tuple[str, str], list[bool]] = {}
    for claim in measurements:
        decided = parts.setdefault((claim.part, claim.statement), [])
        decided += [] if claim.holds is None else [claim.holds]
    return together(map(together, parts.values()))


def not_run(row: Row, measurements: Sequence[Claim], commands: Iterable[str]) -> list[Claim]:
    """The open parts of a claim whose measurements all hold: one for each run that it needs and that was not made.

    Args:
        row: The claim in the catalogue.
        measurements: Its measurements so far.
        commands: The commands of the runs that made them.
    """
    missing = row.missing_runs(commands) if outcome(measurements) else []
    return [
        Claim(
            id=row.id,
            part="not yet run",
            statement=row.statement,
            paper=row.value,
            measured="not yet measured",
            n=0,
            holds=None,
            would_decide=f"`understudy run {command}`",
        )
        for command in missing
    ]


def outcomes(found: Found) -> Outcomes:
    """Which claims hold, do not hold, and are not decided."""
    ends = [(row.id, outcome(claims)) for row, claims in found]
    return Outcomes(*(tuple(id for id, end in ends if end is wanted) for wanted in (True, False, None)))


def by_paper(found: Found) -> dict[Paper, Found]:
    """The claims of each paper, in the order of the catalogue."""
    papers: dict[Paper, list[tuple[Row, Sequence[Claim]]]] = {}
    for row, claims in found:
        papers.setdefault(row.paper, []).append((row, claims))
    return dict(papers)


def summary_words(found: Found) -> str:
    """The numbers of claims that hold, do not hold and are not decided, in a sentence."""
    hold, fail, undecided = map(len, outcomes(found))
    hold_words, fail_words = f"{hold} hold{'s' * (hold == 1)}", f"{fail} {'does' if fail == 1 else 'do'} not hold"
    open_words = f"{undecided} {'is' if undecided == 1 else 'are'} not decided"
    return f"{len(found)} claim{'s' * (len(found) != 1)}: {hold_words}, {fail_words}, {open_words}."
