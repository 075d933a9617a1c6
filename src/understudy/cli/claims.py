"""`understudy claims`: the claims of the papers, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from understudy.cli.list import finished_runs
from understudy.cli.parsing import emit
from understudy.cli.report import study_of


@dataclass(frozen=True)
class Claims:
    """Show the claims of the papers with what was measured: by the project's full runs, and by the runs made here."""

    out: Path = Path("runs")
    """Folder that contains the runs."""
    keep: Path | None = None
    """Folder of a run whose claims to add to the project's record."""
    markdown: bool = False
    """Print the record as a page in Markdown."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_claims(options: Claims) -> None:
    """Print what the papers claim and what was measured, or record a run's claims."""
    from rich.text import Text

    from understudy._atomic import disk_errors
    from understudy.claims import record
    from understudy.report.terminal.tables import output, plain_table, verdict
    from understudy.store import Run

    if options.keep is not None:
        run = Run(options.keep)
        with disk_errors(record.RECORD, "make it writable"):
            kept = record.keep(run, study_of(run).command())
        print(f"added {kept} claims of {options.keep} to the record {record.RECORD}")
        return
    if options.markdown:
        print(record.as_markdown(), end="")
        return
    measured = [(f"{m.machine}, {m.commit}", m) for m in record.recorded()]
    for run in finished_runs(options.out):
        measured += [(str(run.folder), m) for m in record.measured(run, study_of(run).command())]
    if options.json:
        entries = [{"from": where} | m.as_dict() for where, m in measured]
        listed = [{"id": r.id, "statement": r.statement, "value": r.value, "study": r.study} for r in record.rows()]
        emit({"claims": [row | {"measured": [e for e in entries if e["id"] == row["id"]]} for row in listed]})
        return
    table = plain_table("claim", "what", "paper", "measured", "n", "holds", "from")
    for row in record.rows():
        found = [(where, m.claim) for where, m in measured if m.claim.id == row.id]
        if not found:
            table.add_row(row.id, Text(row.statement), row.value, "", "", verdict(None), row.study)
            continue
        holding = f"{sum(claim.holds for _, claim in found)} of {len(found)}"
        table.add_row(row.id, Text(row.statement, style="bold"), "", "", "", holding, "")
        for where, claim in found:
            part = Text(f"  {claim.part or claim.statement}")
            table.add_row("", part, claim.paper, claim.measured, f"{claim.n:,}", verdict(claim.holds), where)
    output().print(table)
