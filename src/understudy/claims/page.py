"""The page of the documentation that shows the record: a summary, then every measurement, paper by paper."""

from __future__ import annotations

import re
from collections.abc import Sequence

from understudy._citations import CODES
from understudy.claims.catalogue import Paper, Row, rows
from understudy.claims.record import RecordedClaim, recorded
from understudy.claims.summary import Found, by_paper, not_run, outcome, outcomes, summary_words
from understudy.store.claims import Claim, holding

_COLUMNS = ("id", "claim", "part", "paper", "measured", "n", "holds", "tuned on", "run")
_HOLDS = {True: "yes", False: "**no**", None: "*not decided*"}
_INTRODUCTION = """\
# Claims

What the papers claim, and what full runs measured. A claim *holds* if each of its measurements holds, and *does not
hold* if one of them does not. It is *not decided* if the runs cannot tell, since they were too short or had too few
seeds, or if a run that it needs is not recorded yet; it does not count as holding. The
[pages of the papers](../papers/index.md) explain how each claim is read and which bounds are ours. `understudy claims
--markdown` generates this page.
"""
_TABLES = """\
In the tables, *paper* is the paper's value or words, and *tuned on* says on which seeds settings and bounds of the
claim were chosen: *none* if none were, empty if it is not stated. A commit with a + had uncommitted changes.
"""


def as_markdown() -> str:
    """The record as a page of the documentation."""
    kept = recorded()
    measured = {row.id: [m for m in kept if m.claim.id == row.id] for row in rows()}
    missing = {row.id: not_run(row, *_claims_and_commands(measured[row.id])) for row in rows()}
    found = [(row, [*(m.claim for m in measured[row.id]), *missing[row.id]]) for row in rows()]
    origins = sorted({_origin(m) for m in kept})
    lines = [_INTRODUCTION, "## Summary", "", summary_words(found), "", *_counts(found)]
    for paper, of_paper in by_paper(found).items():
        lines += ["", f"**{paper.title}**", "", *_most_important(of_paper)]
    lines += ["", "## Measurements", "", _TABLES]
    lines += [f"{code} is {_link(authors)}{'.' if code == max(CODES) else ';'}" for code, authors in CODES.items()]
    for paper, of_paper in by_paper(found).items():
        lines += ["", f"### {paper.title}", "", *_head(_COLUMNS)]
        for row, _ in of_paper:
            of_row = [_measurement(m.claim, str(origins.index(_origin(m)) + 1)) for m in measured[row.id]]
            lines += [*of_row, *(_measurement(claim, "") for claim in missing[row.id])] or [_not_measured(row)]
    lines += ["", "## Runs", "", *_head(("run", "command", "machine", "commit", "training"))]
    for i, (command, machine, commit, seconds) in enumerate(origins, 1):
        lines.append(_line(str(i), f"`{command}`", machine, commit, f"{seconds:,.0f} s"))
    return "\n".join(lines) + "\n"


def _counts(found: Found) -> list[str]:
    """A table of the number of claims by paper and outcome, with the ids of those that do not hold or are open."""
    lines = _head(("paper", "claims", "hold", "do not hold", "not decided"))
    for paper, of_paper in by_paper(found).items():
        hold, *others = outcomes(of_paper)
        named = [f"{len(ids)}: {', '.join(ids)}" if ids else "0" for ids in others]
        lines.append(_line(_title(paper), str(len(of_paper)), str(len(hold)), *named))
    return lines


def _most_important(found: Found) -> list[str]:
    """The claims that have a headline, each with its outcome."""
    return [_headline(row, claims) for row, claims in found if row.headline]


def _headline(row: Row, claims: Sequence[Claim]) -> str:
    end, held = outcome(claims), sum(claim.holds is True for claim in claims)
    some = "" if end else f", {held} of {len(claims)} measurements hold" if claims else ", not yet measured"
    return f"- {row.headline}: **{holding(end)}** ({row.id}{some})."


def _claims_and_commands(measured: Sequence[RecordedClaim]) -> tuple[list[Claim], list[str]]:
    return [m.claim for m in measured], [m.command for m in measured]


def _measurement(claim: Claim, run: str) -> str:
    """A row of a table of measurements."""
    words = "; ".join((claim.measured, *map(str, claim.variants)))
    if claim.holds is None:
        words += f"; what would decide it: {claim.would_decide}"
    tuned_on = {None: "", "": "none"}.get(claim.tuned_on, claim.tuned_on)
    texts = (claim.id, claim.statement, claim.part, claim.paper, words)
    return _line(*texts, f"{claim.n:,}", _HOLDS[claim.holds], tuned_on or "", run)


def _not_measured(row: Row) -> str:
    words = f"not yet measured; what would decide it: `{row.would_decide}`"
    return _line(row.id, row.statement, "", row.value, words, "", _HOLDS[None], "", "")


def _origin(measured: RecordedClaim) -> tuple[str, str, str, float]:
    return measured.command, measured.machine, measured.commit, measured.seconds


def _title(paper: Paper) -> str:
    """Title of a paper, with links to its page and to the bibliography."""
    return f"[{paper.title}](../papers/{paper.folder}.md) ({'; '.join(map(_link, paper.cited))})"


def _link(cited: str) -> str:
    """A link to a paper in the bibliography: `Phuong 2021, ch. 3` links to `Phuong 2021`."""
    authors, comma, chapter = cited.partition(", ch")
    anchor = re.sub("[^a-z0-9]+", "-", authors.lower().replace("&", "and"))
    return f"[{authors}](../bibliography.md#{anchor}){comma}{chapter}"


def _head(columns: Sequence[str]) -> list[str]:
    return [_line(*columns), _line(*["---"] * len(columns))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
