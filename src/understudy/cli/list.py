"""`understudy list`: the studies, and the runs made here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.parsing import emit, parse
from understudy.errors import UserError

if TYPE_CHECKING:
    from understudy.store import Run


@dataclass(frozen=True)
class _List:
    """The studies there are, and the runs made here."""

    out: Path = Path("runs")
    """Folder that holds runs."""
    json: bool = False
    """Print one JSON object and nothing else."""


def finished_runs(out: Path) -> list[Run]:
    """The finished runs of known studies under a folder, oldest first."""
    from understudy.lab.discovery import studies
    from understudy.store import Run

    pages = sorted(out.glob("*/*/report.html"), key=lambda page: page.stat().st_mtime)
    runs = []
    for page in pages:
        try:
            run = Run(page.parent)
            if run.config.get("study") in studies():
                studies()[run.config["study"]].from_config(run.config)
                runs.append(run)
        except UserError as error:
            print(f"understudy: passed over: {error}", file=sys.stderr)
    return runs


def list_command(words: list[str]) -> int:
    options = parse(_List, words, "understudy list")
    from understudy.lab.discovery import studies
    from understudy.report.terminal.tables import output, plain_table

    runs = finished_runs(options.out)
    if options.json:
        shown = [
            {"name": s.name, "summary": s.summary, "figures": s.figures, "claims": s.decides.split()}
            for s in studies().values()
        ]
        emit({"studies": shown, "runs": [{"study": r.config["study"], "run": str(r.folder)} for r in runs]})
        return 0
    table = plain_table("study", "what it shows", "figures", "claims")
    for study in studies().values():
        table.add_row(study.name, study.summary, study.figures, study.decides)
    console = output()
    console.print(table)
    for run in runs:
        console.print(f"{run.config['study']:<14} {run.folder}", soft_wrap=True)
    return 0
