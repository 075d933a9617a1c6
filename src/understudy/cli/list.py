"""`understudy list`: the studies, grouped by paper, and the runs made here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from understudy.cli.parsing import emit


@dataclass(frozen=True)
class List:
    """List the studies, grouped by paper, and the runs made here."""

    out: Path = Path("runs")
    """Folder that contains the runs."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_list(options: List) -> None:
    """Print the studies and the runs made here."""
    from understudy.lab.discovery import studies_by_paper
    from understudy.lab.finished_runs import finished_runs

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
    from understudy._citations import cite
    from understudy.report.terminal.tables import output, plain_table

    console = output()
    width = max(len(study.name) for studies in studies_by_paper().values() for study in studies)
    for paper, studies in studies_by_paper().items():
        table = plain_table("study", "what it shows", "figures", "claims", title="\n".join(heading(paper)))
        table.columns[0].width, table.columns[1].ratio, table.expand = width, 1, True
        table.columns[2].width = table.columns[3].width = 30
        for study in studies:
            table.add_row(study.name, study.summary, cite(study.figures), study.decides)
        console.print(table)
    for run in runs:
        console.print(f"{run.config['study']:<{width}} {run.folder}", soft_wrap=True)


def heading(paper: str) -> list[str]:
    """Title and citation of a paper: the first two paragraphs of the docstring of its package."""
    paragraphs = (import_module(paper).__doc__ or paper).split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs[:2]]
