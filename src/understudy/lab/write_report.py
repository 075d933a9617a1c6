"""Write what a finished run shows: its claims, its figures, its page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from understudy._atomic import disk_errors, write_bytes, write_json, write_text
from understudy._errors import UserError
from understudy.lab.study import Study
from understudy.lab.subject import Subject, study_subject, subject_of
from understudy.report.page.document import page
from understudy.report.pool import FigurePool, endings
from understudy.report.story import Number, Story
from understudy.store import Claim, Run
from understudy.store.environment import commit
from understudy.store.folder import RunFolder

_OTHER_FILES = ("weights.safetensors", "claims.json", "config.toml")


def report(run: Run, path: str | os.PathLike[str] | None = None, *, study: Path | None = None) -> Path:
    """Write the report of a run: what `Run.report` and `understudy report` do.

    Args:
        run: The run.
        path: File of the page alone. Default: the whole report in the run's folder, with figures for print.
        study: The Python file that defines the study of the run, if it is in a user's file.

    Returns:
        The page.

    Raises:
        UserError: A run in memory without a path, a study that is not known, or a file that cannot be written.
    """
    if path is None and run.in_memory:
        raise UserError(
            "a run in memory needs a path for its report: run.report('run.html'), or run.save(FOLDER) first"
        )
    subject = subject_of(run, study)
    if path is None:
        with disk_errors(run.folder, "make it writable, or copy the run elsewhere"), RunFolder(run.folder).alone():
            _write_folder(subject, run)
        return run.folder / "report.html"
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file, such as {path / 'run.html'}")
    story, claims = subject.story(run), subject.claims and subject.claims(run)
    with disk_errors(path, "choose another file"):
        write_bytes(path, _page(subject, run, story, claims, (), run.environment))
    return path


def write_report(study: Study, run: Run) -> None:
    """Decide the claims of a run of a study, draw its figures and write its page, from its tables alone."""
    _write_folder(study_subject(study), run)


def _write_folder(subject: Subject, run: Run) -> None:
    """Write a report; nothing is written before everything is read and drawn."""
    run.require_sound()
    with FigurePool() as pool:
        story = subject.story(run)
        environment = run.environment | {"report_commit": commit(), "figures": [f.name for f in story.figures]}
        pool.begin([figure.kind for figure in story.figures])
        claims = subject.claims and subject.claims(run)
        figures = [f"figures/{f.name}.{end}" for f in story.figures for end in endings(f.kind)]
        files = [*(f"{name}.parquet" for name in run.tables), *_OTHER_FILES, *figures]
        content = _page(subject, run, story, claims, files, environment)
        drawn = pool.finish()
    write_json(run.folder / "environment.json", environment)
    write_json(run.folder / "claims.json", [claim.as_dict() for claim in claims or ()])
    _write_figures(
        run.folder, {f"{f.name}.{end}": d[end] for f, d in zip(story.figures, drawn, strict=True) for end in d}
    )
    write_text(run.folder / "headline.txt", story.headline + "\n")
    write_bytes(run.folder / "report.html", content)


def _page(
    subject: Subject,
    run: Run,
    story: Story,
    claims: list[Claim] | None,
    files: Sequence[str],
    environment: dict[str, Any],
) -> bytes:
    return page(
        title=subject.title,
        story=Story(story.headline, story.numbers + _numbers(subject.trained, run, claims or []), story.figures),
        table=subject.table(run),
        claims=claims,
        settings=subject.settings,
        environment=environment,
        command=subject.command,
        files=list(files),
        undecided=subject.undecided(claims or []),
        table_title=subject.table_words[0],
        table_lead=subject.table_words[1],
    )


def _write_figures(folder: Path, figures: dict[str, bytes]) -> None:
    """Write files to `figures/`, each complete or not at all."""
    (folder / "figures").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".figures.") as temporary:
        for name, data in figures.items():
            (Path(temporary) / name).write_bytes(data)
        for name in figures:
            (Path(temporary) / name).replace(folder / "figures" / name)


def _numbers(trained: bool, run: Run, claims: list[Claim]) -> tuple[Number, ...]:
    took = [Number(_time(run.environment["seconds"]), "to train")] if trained else []
    held, left = sum(c.holds is True for c in claims), sum(c.holds is None for c in claims)
    tile = Number(f"{held} of {len(claims)}", f"claims hold, {left} not decided" if left else "claims hold")
    return (*took, *([tile] if claims else []))


def _time(seconds: float) -> str:
    """A duration as one number with its unit."""
    unit, name = next((u, n) for u, n in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= u or u == 1)
    return f"{seconds / unit:.{0 if unit == 1 else 1}f}\u00a0{name}"
