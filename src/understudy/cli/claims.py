"""`understudy claims`: the claims of the papers, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy._errors import UserError
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.claims.catalogue import Row
    from understudy.lab.claims_table import Found, Measurement
    from understudy.store import Claim


@dataclass(frozen=True)
class Claims:
    """Show the claims of the papers with what was measured: by the project's full runs, and by the runs made here."""

    out: Path = Path("runs")
    """Folder that contains the runs."""
    study: str | None = None
    """Show only the claims that this study decides."""
    paper: str | None = None
    """Show only the claims of this paper, by author and year, as in "Tian 2020", or by the name of its folder
    (specialization, luck, local, …)."""
    failing: bool = False
    """Show only measurements that do not hold."""
    undecided: bool = False
    """Show only measurements that are not decided, and claims that were not yet measured."""
    keep: Path | None = None
    """Folder of a run whose claims to add to the project's record."""
    markdown: bool = False
    """Print the record as a page in Markdown."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_claims(options: Claims) -> None:
    """Print what the papers claim and what was measured, or record a run's claims."""
    from understudy._atomic import disk_errors
    from understudy.claims import record
    from understudy.claims.page import as_markdown
    from understudy.lab.claims_table import find_claims
    from understudy.lab.finished_runs import study_of
    from understudy.store import Run

    if options.keep is not None:
        run = Run(options.keep)
        with disk_errors(record.RECORD, "make it writable"):
            kept = record.keep(run, study_of(run).command())
        print(f"added {kept} claims of {options.keep} to the record {record.RECORD}")
        return
    if options.markdown:
        if options.study or options.paper or options.failing or options.undecided:
            raise UserError("--markdown prints the whole record; omit --study, --paper, --failing and --undecided")
        print(as_markdown(), end="")
        return
    filters = {"failing": options.failing, "undecided": options.undecided}
    found = find_claims(options.out, study=options.study, paper=options.paper, **filters)
    if options.json:
        emit({"summary": _summary(found), "claims": [_plain(*each) for each in found]})
        return
    if any(filters.values()):
        kinds = " or ".join(words for name, words in _FILTERS.items() if filters[name])
        print(f"{len(found)} claims with measurements that {kinds}." if found else f"No measurements that {kinds}.")
    else:
        _show_summary(_claims_of(found))
    if found:
        _show(found, counted=not any(filters.values()))


_FILTERS = {"failing": "do not hold", "undecided": "are not decided"}


def _claims_of(found: Found) -> list[tuple[Row, list[Claim]]]:
    return [(row, [m.claim for _, m in of_row]) for row, of_row in found]


def _summary(found: Found) -> dict[str, Any]:
    """Number of claims, of those that were measured, and of those with each outcome; the latter also by paper."""
    from understudy.claims.summary import by_paper, outcomes

    def counts(claims: Any) -> dict[str, int]:
        hold, fail, undecided = map(len, outcomes(claims))
        return {"claims": len(claims), "hold": hold, "fail": fail, "undecided": undecided}

    claims = _claims_of(found)
    papers = {paper.folder: counts(of_paper) for paper, of_paper in by_paper(claims).items()}
    return counts(claims) | {"measured": sum(bool(of_row) for _, of_row in found), "papers": papers}


def _plain(row: Row, of_row: list[Measurement]) -> dict[str, Any]:
    from understudy.claims.summary import outcome

    about = {name: getattr(row, name) for name in ("id", "headline", "statement", "value", "study")}
    about |= {"of": row.paper.folder, "holds": outcome(m.claim for _, m in of_row)}
    return about | {"measured": [{"from": where} | m.as_dict() for where, m in of_row]}


def _show_summary(claims: list[tuple[Row, list[Claim]]]) -> None:
    from understudy.claims.summary import by_paper, outcomes, summary_words
    from understudy.report.terminal.tables import output, plain_table

    print(summary_words(claims))
    table = plain_table("paper", "claims", "hold", "do not hold", "not decided")
    for paper, of_paper in by_paper(claims).items():
        hold, *others = outcomes(of_paper)
        named = [f"{len(ids)}: {', '.join(ids)}" if ids else "0" for ids in others]
        table.add_row(f"{paper.title} ({paper.cited[0]})", str(len(of_paper)), str(len(hold)), *named)
    output().print(table)


def _show(found: Found, *, counted: bool) -> None:
    """Print a table of measurements, if `counted` with how many of those of a claim hold."""
    from rich.text import Text

    from understudy._citations import explain_codes
    from understudy.report.terminal.tables import measured_words, output, plain_table, verdict

    table = plain_table("claim", "what", "paper", "measured", "n", "holds", "from")
    for row, of_row in found:
        if not of_row:
            words = f"not yet measured; what would decide it: {row.would_decide}"
            table.add_row(row.id, Text(row.statement, style="bold"), row.value, words, "", verdict(None), "")
            continue
        held = f"{sum(m.claim.holds is True for _, m in of_row)} of {len(of_row)}" if counted else ""
        table.add_row(row.id, Text(row.statement, style="bold"), "", "", "", held, "")
        for where, m in of_row:
            claim, part = m.claim, Text(f"  {m.claim.part or m.claim.statement}")
            table.add_row("", part, claim.paper, measured_words(claim), f"{claim.n:,}", verdict(claim.holds), where)
    output().print(table)
    cells = (cell for column in table.columns for cell in column.cells)
    if codes := explain_codes(" ".join(map(str, cells))):
        print(codes)
