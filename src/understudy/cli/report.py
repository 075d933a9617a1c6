"""`understudy report RUN`: decide a run's claims and draw its figures and page again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.lab.subject import Subject
    from understudy.store import Run


@dataclass(frozen=True)
class Report:
    """Decide a run's claims and draw its figures and page again, from its tables."""

    run: Path
    """Folder of the run, as printed by `understudy run`."""
    study: Path | None = None
    """File that defines the study, for a run of `understudy run FILE.py`."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_report(options: Report) -> None:
    """Decide a run's claims and draw its figures and page again."""
    from understudy.lab.subject import subject_of
    from understudy.lab.write_report import report
    from understudy.store import Run

    report(Run(options.run), study=options.study)
    run = Run(options.run)
    show_run(run, subject_of(run, options.study), options.json)


def show_run(run: Run, subject: Subject, as_json: bool) -> None:
    """Print the results of a finished run."""
    from understudy.lab.summary import summarise
    from understudy.report.terminal.tables import claims_table, output, summary_table

    headline = (run.folder / "headline.txt").read_text(encoding="utf-8").strip()
    page = run.folder / "report.html"
    undecided = subject.undecided(run.claims)
    if as_json:
        claims = [claim.as_dict() for claim in run.claims]
        found = {"run": str(run.folder), "headline": headline, "claims": claims, "report": str(page)}
        emit(found | {"undecided": undecided, "assumed": run.environment.get("assumed", {})})
        return
    console = output()
    if settings := summarise(run):
        console.print(summary_table(settings))
    console.print(f"{headline}\n", soft_wrap=True)
    if run.claims:
        console.print(claims_table(run.claims))
    if undecided:
        console.print(f"{undecided}\n", soft_wrap=True)
    console.print(f"report: {page}", soft_wrap=True)
