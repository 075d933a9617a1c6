"""`understudy reproduce [PAPER …]`: every run that papers need, and one page about what they decide."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from understudy._errors import UserError
from understudy.cli.parsing import emit
from understudy.cli.run import parse_run

if TYPE_CHECKING:
    from rich.console import Group

    from understudy.lab.reproduce import Job, Missing
    from understudy.lab.reproduce.processes import Standing
    from understudy.lab.study import Study

_REFRESH = 0.5
"""Seconds between two updates of the live table."""


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
    from filelock import FileLock, Timeout

    from understudy._atomic import disk_errors
    from understudy.lab.reproduce import plan_jobs, reproduction, run_jobs, verdicts, write_reproduction

    earlier = verdicts(options.against) if options.against else None
    jobs, missing = plan_jobs(options.papers, _study, options.out, quick=options.quick, device=options.device)
    if options.plan and options.json:
        return emit(_plan_for_programs(jobs, missing))
    _show_plan(jobs, missing, sys.stderr if options.json else sys.stdout)
    if options.plan:
        return None
    with disk_errors(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(options.out / ".reproduce.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"{options.out}: another understudy reproduce works in this folder; wait for it, or choose another "
                "--out"
            ) from None
    start = time.monotonic()
    with lock, _Live() as live:
        standings = run_jobs(jobs, lambda job: _words(job, options.out, options.cluster), live)
        found = reproduction(standings, missing, options.papers, earlier, _command(options), time.monotonic() - start)
        page = write_reproduction(found, options.out)
    if options.json:
        emit(found.as_dict() | {"page": str(page)})
    else:
        _show_results(found, page)
    if failed := found.failed:
        names = "; ".join(f"{each.job.label}: {each.line}" for each in failed)
        raise UserError(f"{len(failed)} of {len(jobs)} runs are not there: {names}")
    return None


def _study(name: str, words: Sequence[str]) -> Study:
    """The study of this name with these options."""
    from understudy.lab.discovery import studies

    study: Study = parse_run(studies()[name], list(words), f"understudy run {name}").study
    return study


def _words(job: Job, out: Path, cluster: str) -> list[str]:
    """Arguments of a Python process that makes a run."""
    words = ["-m", "understudy.cli", *job.study.command().split()[1:], "--out", str(out), "--json"]
    return [*words, "--cluster", cluster] if cluster else words


def _command(options: Reproduce) -> str:
    given = [] if options.device == "auto" else ["--device", options.device]
    given += ["--cluster", options.cluster] if options.cluster else []
    return " ".join(["understudy reproduce", *options.papers, *["--quick"] * options.quick, *given])


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

    from understudy.report.terminal.tables import duration, plain_table

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
    from understudy.report.terminal.tables import duration

    seconds = [job.seconds for job in jobs if job.seconds is not None]
    size = sum(job.bytes or 0 for job in jobs) / 1e6
    unknown = f", {len(jobs) - len(seconds)} of unknown duration" if len(seconds) < len(jobs) else ""
    return (
        f"{device}: {len(jobs)} runs, about {duration(math.fsum(seconds))} one after the other{unknown}, {size:,.0f} MB"
    )


def _show_results(found: object, page: Path) -> None:
    from understudy.claims.summary import outcomes, summary_words
    from understudy.lab.reproduce import Reproduction
    from understudy.report.terminal.tables import duration, output, plain_table

    assert isinstance(found, Reproduction)
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
    console.print(f"{len(found.runs)} runs in {duration(found.seconds)}; page: {page}", soft_wrap=True)


class _Live:
    """The state of all jobs on standard error: a live table in a terminal, elsewhere a line when one starts or ends."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._shown: dict[object, str] = {}
        self._at = -math.inf

    def __enter__(self) -> _Live:
        from rich.live import Live

        from understudy._progress import can_animate

        self._live = Live(console=self._console, auto_refresh=False) if can_animate(self._console) else None
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, standings: Sequence[Standing]) -> None:
        if self._live is not None:
            ended = all(each.state not in ("waiting", "running") for each in standings)
            if ended or time.monotonic() - self._at > _REFRESH:
                self._at = time.monotonic()
                self._live.update(_table(standings, self._console.height), refresh=True)
            return
        for each in standings:
            if each.state != self._shown.get(each.job, "waiting"):
                self._shown[each.job] = each.state
                self._console.print(_line(each), soft_wrap=True)


def _line(each: Standing) -> str:
    from understudy.report.terminal.tables import duration

    took = f" in {duration(each.seconds)}" if each.state == "done" and each.seconds else ""
    why = f": {each.line}" if each.state in ("failed", "skipped") else ""
    return f"{each.state}{took}: {each.job.label}{why}"


def _table(standings: Sequence[Standing], height: int) -> Group:
    """Running and failed jobs line by line, and how many there are of each state."""
    from rich.console import Group
    from rich.text import Text

    from understudy.report.terminal.tables import duration, plain_table

    counts = {state: sum(each.state == state for each in standings) for state in ("done", "running", "waiting")}
    lost = [each for each in standings if each.state in ("failed", "skipped")]
    table = plain_table("run", "", "time", "progress")
    shown = [each for each in standings if each.state == "running"] + lost
    for each in shown[: max(1, height - 6)]:
        table.add_row(each.job.label, each.state, duration(each.seconds), each.line)
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    return Group(table, Text(f"{words}, {len(lost)} failed" if lost else words))
