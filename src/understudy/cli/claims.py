"""`understudy claims`: what the papers claim, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from understudy.cli.list import finished_runs
from understudy.cli.parsing import emit, parse
from understudy.cli.report import command


@dataclass(frozen=True)
class _Claims:
    """What the papers claim, and what was measured: by the project's full runs, and by the runs made here."""

    out: Path = Path("runs")
    """Folder that holds runs."""
    keep: Path | None = None
    """A run's folder, whose claims go into the project's record."""
    markdown: bool = False
    """Print the record as a page in Markdown."""
    json: bool = False
    """Print one JSON object and nothing else."""


def claims_command(words: list[str]) -> int:
    options = parse(_Claims, words, "understudy claims")
    from rich.text import Text

    from understudy.claims import record
    from understudy.report.terminal.tables import output, plain_table, verdict
    from understudy.store import Run
    from understudy.store.files import disk_errors

    if options.keep is not None:
        run = Run(options.keep)
        with disk_errors(record.RECORD, "make it writable"):
            kept = record.keep(run, command(run))
        print(f"{kept} claims of {options.keep} are in the record {record.RECORD}")
        return 0
    if options.markdown:
        print(record.as_markdown(), end="")
        return 0
    kept_here = [(f"{m.machine}, {m.commit}", m) for m in record.recorded()]
    made_here = [(str(run.folder), m) for run in finished_runs(options.out) for m in record.measured(run, command(run))]
    if options.json:
        entries = [{"from": where} | m.as_dict() for where, m in kept_here + made_here]
        listed = [{"id": r.id, "statement": r.statement, "value": r.value, "study": r.study} for r in record.rows()]
        emit({"claims": [row | {"measured": [e for e in entries if e["id"] == row["id"]]} for row in listed]})
        return 0
    table = plain_table("claim", "what", "paper", "measured", "n", "holds", "from")
    for row in record.rows():
        found = [(where, m.claim) for where, m in kept_here + made_here if m.claim.id == row.id]
        if not found:
            table.add_row(row.id, Text(row.statement), row.value, "", "", verdict(None), row.study)
            continue
        holding = f"{sum(claim.holds for _, claim in found)} of {len(found)}"
        table.add_row(row.id, Text(row.statement, style="bold"), "", "", "", holding, "")
        for where, claim in found:
            part = Text(f"  {claim.part or claim.statement}")
            table.add_row("", part, claim.paper, claim.measured, f"{claim.n:,}", verdict(claim.holds), where)
    output().print(table)
    return 0
