"""`understudy list`: the studies, grouped by paper, and the runs made here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from understudy._errors import UserError
from understudy._papers import papers
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.lab import Study
    from understudy.store import Run


@dataclass(frozen=True)
class List:
    """List the studies, grouped by paper, and the runs made here."""

    out: Path = Path("runs")
    """Folder that contains the runs."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_list(options: List) -> None:
    """Print the studies and the runs made here."""
    runs = finished_runs(options.out)
    if options.json:
        shown = [
            {"name": s.name, "paper": paper.rpartition(".")[2], "summary": s.summary, "figures": s.figures}
            | {"claims": s.decides.split()}
            for paper, studies in studies_by_paper().items()
            for s in studies
        ]
        emit({"studies": shown, "runs": [{"study": r.config["study"], "run": str(r.folder)} for r in runs]})
        return
    from understudy.report.terminal.tables import output, plain_table

    console = output()
    width = max(len(study.name) for studies in studies_by_paper().values() for study in studies)
    for paper, studies in studies_by_paper().items():
        table = plain_table("study", "what it shows", "figures", "claims", title="\n".join(heading(paper)))
        table.columns[0].width, table.columns[1].ratio, table.expand = width, 1, True
        table.columns[2].width = table.columns[3].width = 30
        for study in studies:
            table.add_row(study.name, study.summary, study.figures, study.decides)
        console.print(table)
    for run in runs:
        console.print(f"{run.config['study']:<{width}} {run.folder}", soft_wrap=True)


def studies_by_paper() -> dict[str, list[type[Study]]]:
    """All studies by the import name of their paper."""
    from understudy.lab.discovery import studies

    found = studies().values()
    return {paper: [study for study in found if study.__module__.startswith(f"{paper}.")] for paper in papers()}


def heading(paper: str) -> list[str]:
    """Title and citation of a paper: the first two paragraphs of the docstring of its package."""
    paragraphs = (import_module(paper).__doc__ or paper).split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs[:2]]


def finished_runs(out: Path) -> list[Run]:
    """Finished runs of known studies in a folder, oldest first."""
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
            print(f"understudy: skipped a run: {error}", file=sys.stderr)
    return runs
