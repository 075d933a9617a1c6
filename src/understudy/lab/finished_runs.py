"""Finished runs in a folder, and the study of a run."""

from __future__ import annotations

import sys
from pathlib import Path

from understudy._errors import UserError
from understudy.lab.discovery import load_file, studies
from understudy.lab.study import Study
from understudy.store import Run

WITHOUT_STUDY = {"train": "understudy.lab.train_report", "watch": "understudy.lab.watch.story"}
"""Modules with the function `subject(run)` of runs that no study made, by the name that their configuration has."""


def finished_runs(out: Path) -> list[Run]:
    """Finished runs in a folder, of known studies or without a study, oldest first."""
    pages = sorted((*out.glob("*/report.html"), *out.glob("*/*/report.html")), key=lambda page: page.stat().st_mtime)
    runs = []
    for page in pages:
        try:
            run = Run(page.parent)
            run.require_sound()
            if run.config.get("study") in studies():
                studies()[run.config["study"]].from_config(run.config)
                runs.append(run)
            elif run.config.get("study") in WITHOUT_STUDY:
                runs.append(run)
        except UserError as error:
            print(f"understudy: skipped a run: {error}", file=sys.stderr)
    return runs


def study_of(run: Run, file: Path | None = None) -> Study:
    """The study of a run, with the options of the run; it is one of the papers' unless a file defines it."""
    if file is None:
        known = studies()
    else:
        study = load_file(file)
        known = {study.name: study}
    name = run.config.get("study")
    if name not in known:
        raise UserError(
            f"{run.folder} is a run of unknown study {name!r}; known studies: {', '.join(known)}; for a study of your "
            "own, give its file with --study"
        )
    return known[name].from_config(run.config)
