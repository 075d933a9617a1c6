"""`us.reproduce`: reproduce papers from Python, as `understudy reproduce` does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import split
from typing import Literal

from filelock import FileLock, Timeout

from understudy._atomic import disk_errors
from understudy._errors import UserError
from understudy.lab.reproduce.jobs import Job, Missing, plan_jobs
from understudy.lab.reproduce.live import LiveTable
from understudy.lab.reproduce.processes import JobWatcher, run_jobs
from understudy.lab.reproduce.results import Reproduction, Verdicts, reproduction, verdicts
from understudy.lab.reproduce.write import write_reproduction


def reproduce(
    *papers: str,
    out: str | os.PathLike[str] = "runs",
    quick: bool = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    against: str | os.PathLike[str] = "",
    cluster: str = "",
    progress: bool = True,
) -> Reproduction:
    """Run every study of some papers, with the options that their claims need, and write one page about all of them.

    Example:
        >>> found = us.reproduce("distillation", quick=True)
        >>> found.as_dict()["papers"], found.failed, found.page

    Args:
        *papers: Papers, by the name of their folder (specialization, luck, …). Default: all whose files are here.
        out: Folder that contains the runs; the page `reproduce.html` and `reproduce.json` are written to it too.
        quick: Run each study once, with its small defaults.
        device: Where studies run that gain from a GPU; others run on the CPU.
        against: Compare the verdicts with those of this `reproduce.json`, or with the project's: `record`.
        cluster: Compute on a cluster: `ray` or `ray:ADDRESS`. Default: on this machine.
        progress: Show the progress on standard error.

    Returns:
        The claims of each paper, the runs, and the page. Runs that failed are in `failed`; they do not raise.

    Raises:
        UserError: An unknown paper, a value that is not allowed, or nothing can run.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"must be one of auto, cpu, cuda, got {device!r}", "device")
    prepared = Prepared(papers, Path(out), quick=quick, device=device, against=os.fspath(against), cluster=cluster)
    with LiveTable(show=progress) as table:
        return prepared.run(table)


class Prepared:
    """The runs of a reproduction, before any of them starts.

    Args:
        papers: Names of the papers' folders; empty for all papers.
        out: Folder that contains the runs.
        quick: Whether studies have their small defaults.
        device: auto, cpu or cuda.
        against: Record to compare with, or empty.
        cluster: The cluster that computes, or empty.

    Raises:
        UserError: A value is not allowed, or nothing can run.
    """

    def __init__(
        self, papers: Sequence[str], out: Path, *, quick: bool, device: str, against: str = "", cluster: str = ""
    ) -> None:
        if cluster:
            from understudy.lab.cluster.engine import require_engine

            require_engine(cluster)
        self._papers, self._out, self._cluster = papers, out, cluster
        self._earlier: Verdicts | None = verdicts(against) if against else None
        jobs, missing = plan_jobs(papers, out, quick=quick, device=device)
        self.jobs: Sequence[Job] = jobs
        """The runs, each after those that it starts from."""
        self.missing: Sequence[Missing] = missing
        """Studies whose files are missing."""
        given = [] if device == "auto" else ["--device", device]
        given += ["--cluster", cluster] if cluster else []
        self._command = " ".join(["understudy reproduce", *papers, *["--quick"] * quick, *given])

    def run(self, watcher: JobWatcher) -> Reproduction:
        """Make all runs that are not there yet, and write the page about all of them.

        Args:
            watcher: Receives the state of all runs.

        Raises:
            UserError: Another process reproduces in the same folder, or the page cannot be written.
        """
        start = time.monotonic()
        with _alone(self._out):
            job_states = run_jobs(self.jobs, self._words, watcher)
            seconds, page = time.monotonic() - start, self._out / "reproduce.html"
            found = reproduction(job_states, self.missing, self._papers, self._earlier, self._command, seconds, page)
            write_reproduction(found)
        return found

    def _words(self, job: Job) -> list[str]:
        """Arguments of a Python process that makes a run."""
        words = ["-m", "understudy.cli", *split(job.study.command())[1:], "--out", str(self._out), "--json"]
        return [*words, "--cluster", self._cluster] if self._cluster else words


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep others from reproducing in the same folder."""
    lock = FileLock(out / ".reproduce.lock")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"{out}: another understudy reproduce works in this folder; wait for it, or choose another --out"
            ) from None
    try:
        yield
    finally:
        lock.release()
