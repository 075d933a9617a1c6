"""`understudy claims`: the claims of the papers, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy._errors import UserError
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.lab.claims_table import Found


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
        if options.study or options.paper or options.failing:
            raise UserError("--markdown prints the whole record; omit --study, --paper and --failing")
        print(record.as_markdown(), end="")
        return
    found = find_claims(options.out, study=options.study, paper=options.paper, failing=options.failing)
    if options.json:
        listed = [
            {"id": row.id, "statement": row.statement, "value": row.value, "study": row.study}
            | {"measured": [{"from": where} | m.as_dict() for where, m in of_row]}
            for row, of_row in found
        ]
        emit({"summary": _counts(found), "claims": listed})
        return
    _show(found, failing=options.failing)


def _counts(found: Found) -> dict[str, int]:
    """Number of claims, of those that were measured, hold in every measurement, or fail in one."""
    measured = [all(m.claim.holds for _, m in of_row) for _, of_row in found if of_row]
    held = sum(measured)
    return {"claims": len(found), "measured": len(measured), "hold": held, "fail": len(measured) - held}


def _show(found: Found, *, failing: bool) -> None:
    from rich.text import Text

    from understudy._citations import explain_codes
    from understudy.report.terminal.tables import output, plain_table, verdict

    counts = _counts(found)
    failed = [row.id for row, of_row in found if not all(m.claim.holds for _, m in of_row)]
    if failing:
        print(f"{counts['claims']} claims have measurements that do not hold." if found else "No measured claim fails.")
    else:
        print(
            f"{counts['claims']} claims, {counts['measured']} measured: {counts['hold']} hold in every measurement, "
            f"{counts['fail']} fail in at least one" + (f" ({', '.join(failed)})." if failed else ".")
        )
    if not found:
        return
    table = plain_table("claim", "what", "paper", "measured", "n", "holds", "from")
    for row, of_row in found:
        if not of_row:
            table.add_row(row.id, Text(row.statement), row.value, "", "", verdict(None), row.study)
            continue
        held = sum(m.claim.holds for _, m in of_row)
        holding = f"{len(of_row)} not" if failing else f"{held} of {len(of_row)}"
        table.add_row(row.id, Text(row.statement, style="bold"), "", "", "", holding, "")
        for where, m in of_row:
            claim, part = m.claim, Text(f"  {m.claim.part or m.claim.statement}")
            table.add_row("", part, claim.paper, claim.measured, f"{claim.n:,}", verdict(claim.holds), where)
    output().print(table)
    cells = (cell for column in table.columns for cell in column.cells)
    if codes := explain_codes(" ".join(map(str, cells))):
        print(codes)
