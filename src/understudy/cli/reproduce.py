"""`understudy reproduce [PAPER …]`: every run that papers need, and one page about what they decide."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from understudy._errors import UserError
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.lab.reproduce import Job, Missing, Reproduction


@dataclass(frozen=True)
class Reproduce:
    """Run every study of the papers, with the options that their claims need, and write one page about all of them.

    Each run is a process of its own: one at a time on the GPU, others on the free cores. One that fails does not stop
    the others. The same command resumes all of them.
    """

    papers: tuple[str, ...]
    """Papers, by the name of their folder (specialization, luck, …); by default all whose files are here."""
    out: Path = Path("runs")
    """Folder that contains the runs; the page reproduce.html and reproduce.json are written to it too."""
    quick: bool = False
    """Run each study once, with its small defaults."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where studies run that gain from a GPU; others run on the CPU."""
    against: str = ""
    """Name every verdict that differs from those of this reproduce.json, or from the project's: record."""
    cluster: str = ""
    """Compute on a cluster: ray for the one that is known here, or ray:ADDRESS; by default on this machine."""
    plan: bool = False
    """Only show the runs, with time and disk space."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_reproduce(options: Reproduce) -> None:
    """Run every study of some papers, and write one page about all of them."""
    from understudy.lab.reproduce import LiveTable, Prepared

    prepared = Prepared(
        options.papers,
        options.out,
        quick=options.quick,
        device=options.device,
        against=options.against,
        cluster=options.cluster,
    )
    if options.plan and options.json:
        return emit(_plan_for_programs(prepared.jobs, prepared.missing))
    _show_plan(prepared.jobs, prepared.missing, sys.stderr if options.json else sys.stdout)
    if options.plan:
        return None
    with LiveTable() as table:
        found = prepared.run(table)
    if options.json:
        emit(found.as_dict() | {"page": str(found.page)})
    else:
        _show_results(found)
    if failed := found.failed:
        names = "; ".join(f"{each.job.label}: {each.line}" for each in failed)
        raise UserError(f"{len(failed)} of {len(prepared.jobs)} runs are not there: {names}")
    return None


def _plan_for_programs(jobs: Sequence[Job], missing: Sequence[Missing]) -> dict[str, object]:
    rows = [
        {"paper": job.paper, "run": job.label, "device": job.study.device, "finished": job.finished}
        | {"after": [other.label for other in job.after], "seconds": job.seconds, "bytes": job.bytes}
        for job in jobs
    ]
    return {"runs": rows, "missing": [each._asdict() for each in missing]}


def _show_plan(jobs: Sequence[Job], missing: Sequence[Missing], file: object) -> None:
    """Print the runs with time and disk space, and which files are missing."""
    from rich.console import Console

    from understudy._numbers import duration
    from understudy.report.terminal.tables import plain_table

    console = Console(file=file, highlight=False, markup=False, emoji=False, width=140)  # type: ignore[arg-type]
    table = plain_table("paper", "run", "on", "starts from", "time", "disk")
    for job in jobs:
        took = "done" if job.finished else "?" if job.seconds is None else f"about {duration(job.seconds)}"
        size = "?" if job.bytes is None else f"{job.bytes / 1e6:,.0f} MB"
        after = ", ".join(other.label for other in job.after)
        table.add_row(job.paper, job.label, "GPU" if job.gpu else "CPU", after, took, size)
    console.print(table)
    left = [job for job in jobs if not job.finished]
    for name, of_device in (("GPU", [j for j in left if j.gpu]), ("CPU", [j for j in left if not j.gpu])):
        if of_device:
            console.print(_total(name, of_device))
    for why in dict.fromkeys(each.why for each in missing):
        names = ", ".join(each.study for each in missing if each.why == why)
        console.print(f"left out: {names}: {why}", soft_wrap=True)


def _total(device: str, jobs: Sequence[Job]) -> str:
    from understudy._numbers import duration

    seconds = [job.seconds for job in jobs if job.seconds is not None]
    size = sum(job.bytes or 0 for job in jobs) / 1e6
    known = f", about {duration(math.fsum(seconds))} one after the other, {size:,.0f} MB" if seconds else ""
    unknown = f", {len(jobs) - len(seconds)} of unknown duration" if len(seconds) < len(jobs) else ""
    return f"{device}: {len(jobs)} runs{known}{unknown}"


def _show_results(found: Reproduction) -> None:
    from understudy._numbers import duration
    from understudy.claims.summary import outcomes, summary_words
    from understudy.report.terminal.tables import output, plain_table

    console = output()
    table = plain_table("paper", "hold", "do not hold", "not decided", "time")
    for paper, claims in found.papers.items():
        hold, *others = outcomes(claims)
        named = [f"{len(ids)}: {', '.join(ids)}" if ids else "0" for ids in others]
        table.add_row(paper.title, str(len(hold)), *named, duration(found.seconds_of(paper)))
    console.print(table)
    console.print(summary_words([each for claims in found.papers.values() for each in claims]))
    if found.changes is not None:
        console.print(f"{len(found.changes)} verdicts changed", *map(str, found.changes), sep="\n  ", soft_wrap=True)
    console.print(f"{len(found.runs)} runs in {duration(found.seconds)}; page: {found.page}", soft_wrap=True)
