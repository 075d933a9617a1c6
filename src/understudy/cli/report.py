"""`understudy report RUN`: decide a run's claims and draw its figures and page again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.parsing import parse
from understudy.cli.run import show
from understudy.errors import UserError

if TYPE_CHECKING:
    from understudy.lab import Study
    from understudy.store import Run


@dataclass(frozen=True)
class _Report:
    """Decide a run's claims and draw its figures and page again, from its tables."""

    run: Path
    """The run's folder, as `understudy run` printed it."""
    json: bool = False
    """Print one JSON object and nothing else."""


def report_command(words: list[str]) -> int:
    options = parse(_Report, words, "understudy report")
    from understudy.lab.write_report import write_report
    from understudy.store import Run
    from understudy.store.files import disk_errors
    from understudy.store.folder import RunFolder

    run = Run(options.run)
    kind = known_study(run)
    with disk_errors(run.folder, "make it writable, or copy the run elsewhere"), RunFolder(run.folder).alone():
        write_report(kind.from_config(run.config), run)
    show(Run(options.run), options.json)
    return 0


def known_study(run: Run) -> type[Study]:
    from understudy.lab.discovery import studies

    kind = studies().get(run.config.get("study", ""))
    if kind is None:
        raise UserError(
            f"{run.folder}: is of study {run.config.get('study')}, which is not one of {', '.join(studies())}"
        )
    return kind


def command(run: Run) -> str:
    """What to type to make a run again."""
    return known_study(run).from_config(run.config).command()
