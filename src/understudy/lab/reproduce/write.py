"""Write what a reproduction found: `reproduce.json` and the page `reproduce.html`, beside the folders of the runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from understudy._atomic import disk_errors, write_bytes, write_json
from understudy._numbers import duration
from understudy.claims.catalogue import Paper
from understudy.claims.summary import Found, outcome, outcomes, summary_words
from understudy.lab.reproduce.results import Reproduction
from understudy.report.page.reproduction import Picture, ShownClaim, ShownPaper, ShownRun, reproduction_page
from understudy.store import Run

_MOST_PICTURES = 6


def write_reproduction(found: Reproduction) -> None:
    """Write the page, and `reproduce.json` beside it, into the folder of the runs.

    Raises:
        UserError: The folder cannot be written.
    """
    out = found.page.parent
    lines = [] if found.changes is None else [f"{len(found.changes)} verdicts differ from the earlier record."]
    if found.missing:
        lines.append(f"Not run, for want of files: {', '.join(each.study for each in found.missing)}.")
    content = reproduction_page(
        eyebrow=f"{len(found.runs)} runs in {duration(found.seconds)}",
        headline=summary_words([each for claims in found.papers.values() for each in claims]),
        lines=lines,
        papers=[_shown(found, paper, claims, out) for paper, claims in found.papers.items()],
        problems=[(each.study, each.why) for each in found.missing] + [(s.job.label, s.line) for s in found.failed],
        changes=None if found.changes is None else [str(change) for change in found.changes],
        command=found.command,
        environment=found.environment,
    )
    with disk_errors(found.page):
        write_json(found.page.with_suffix(".json"), found.as_dict())
        write_bytes(found.page, content)


def _shown(found: Reproduction, paper: Paper, claims: Found, out: Path) -> ShownPaper:
    runs = found.runs_of(paper)
    return ShownPaper(
        folder=paper.folder,
        title=paper.title,
        cited="; ".join(paper.cited),
        time=duration(found.seconds_of(paper)),
        counts=[len(ids) for ids in outcomes(claims)],
        claims=[
            ShownClaim(row.id, row.headline or row.statement, outcome(parts), row.would_decide, parts)
            for row, parts in claims
        ],
        pictures=_pictures(runs.values(), {name for row, _ in claims if row.headline for name in row.commands}, out),
        runs=[ShownRun(job.label, _headline(run), _path(run, "report.html", out)) for job, run in runs.items()],
    )


def _pictures(runs: Iterable[Run], important: set[str], out: Path) -> list[Picture]:
    """The first figure of one run of each study, first of those that decide the most important claims."""
    first: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.config["study"] not in important):
        first.setdefault(run.config["study"], run)
    found = []
    for name, run in list(first.items())[:_MOST_PICTURES]:
        figures = [f"figures/{figure}.svg" for figure in run.environment.get("figures", ())]
        if kept := [figure for figure in figures if (run.folder / figure).is_file()]:
            found.append(Picture(f"{name}: {_headline(run)}", _path(run, kept[0], out), _path(run, "report.html", out)))
    return found


def _headline(run: Run) -> str:
    path = run.folder / "headline.txt"
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def _path(run: Run, file: str, out: Path) -> str:
    return (run.folder / file).relative_to(out).as_posix()
