"""Run jobs in processes of their own: one after the other on the GPU, and others on the free cores beside it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from understudy._memory import LIMIT, free_memory
from understudy.lab.reproduce.jobs import Job
from understudy.store.folder import RunFolder

PARENT = "UNDERSTUDY_PARENT"
"""Environment variable with the number of the process that a process is to end with."""
_INTERVAL = 0.1
"""Seconds between two checks of the processes."""
_PATIENCE = 30.0
"""Seconds that interrupted processes have to end by themselves."""
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class JobState:
    """How far a job is: `waiting`, `running`, `done`, `failed`, or `skipped` because one before it failed."""

    job: Job
    state: str = "waiting"
    line: str = ""
    """Its last line of progress, or why it failed."""
    seconds: float = 0.0
    """Time since its start, or that it took; 0 for a run that was there before."""


class JobWatcher(Protocol):
    """Receiver of the state of all jobs."""

    def show(self, job_states: Sequence[JobState]) -> None:
        """Show the state of all jobs; called several times a second.

        Args:
            job_states: One per job, in the order of the plan.
        """


class _Running:
    """A process, the cores it has, and the last line of its standard error."""

    def __init__(self, process: subprocess.Popen[str], cores: frozenset[int]) -> None:
        self.process, self.cores, self.start, self.line = process, cores, time.monotonic(), ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.line = _CONTROL.sub("", line).strip() or self.line

    def finish(self) -> int:
        """Wait for the process and its last line, and return its exit status."""
        status = self.process.wait()
        self._reader.join(1.0)
        return status


def run_jobs(jobs: Sequence[Job], command: Callable[[Job], Sequence[str]], watcher: JobWatcher) -> list[JobState]:
    """Run all jobs, the longest first; one that fails does not stop the others, only those that start from it.

    One job at a time uses the GPU, with a quarter of the cores, which it has before others so that the GPU is never
    idle for want of a core; others have one core each, and more where fewer jobs are left than cores. Each has a share
    of the memory. After Ctrl-C all are interrupted, and save their state.

    Args:
        jobs: The jobs, each after those that it starts from.
        command: The arguments of a Python process that makes a run.
        watcher: Receives the state of all jobs.

    Returns:
        How each job ended.

    Raises:
        KeyboardInterrupt: After Ctrl-C, when all processes have ended.
    """
    job_states = {job: JobState(job, "done" if job.finished else "waiting") for job in jobs}
    order = sorted(jobs, key=lambda job: (not job.gpu, -_critical(job, jobs)))
    free, running = _own_cores(), dict[Job, _Running]()
    whole = len(free)
    memory = free_memory()
    try:
        while True:
            for job in [job for job, one in running.items() if one.process.poll() is not None]:
                free |= running[job].cores
                _end(job_states[job], running.pop(job))
            for job in order:
                _skip(job_states[job], job_states)
            ready = [job for job in order if _ready(job, job_states)]
            for i, job in enumerate(ready):
                if not free or (job.gpu and any(other.gpu for other in running)):
                    continue
                wanted = _share(job, len(ready) - i, len(free), whole)
                cores = frozenset(sorted(free)[:wanted])
                free -= cores
                running[job] = _start(command(job), cores, memory * len(cores) // whole)
                job_states[job].state = "running"
            for job, one in running.items():
                job_states[job].seconds = time.monotonic() - one.start
                job_states[job].line = one.line
            watcher.show(list(job_states.values()))
            if not running and not any(each.state == "waiting" for each in job_states.values()):
                return list(job_states.values())
            time.sleep(_INTERVAL)
    finally:
        _stop(list(running.values()))


def _critical(job: Job, jobs: Sequence[Job]) -> float:
    """Expected seconds of a job and the longest chain of jobs that starts from it; unknown ones count as a minute."""
    later = [_critical(other, jobs) for other in jobs if job in other.after]
    return (60.0 if job.seconds is None else job.seconds) + max(later, default=0.0)


def _ready(job: Job, job_states: dict[Job, JobState]) -> bool:
    """Whether a job can start; one that another process works on is waited for."""
    if job_states[job].state != "waiting" or any(job_states[other].state != "done" for other in job.after):
        return False
    if job.finished:
        job_states[job].state = "done"
    elif RunFolder(job.folder).busy:
        job_states[job].line = "another process is working on it"
    else:
        return True
    return False


def _skip(job_state: JobState, job_states: dict[Job, JobState]) -> None:
    failed = [other for other in job_state.job.after if job_states[other].state in ("failed", "skipped")]
    if job_state.state == "waiting" and failed:
        job_state.state, job_state.line = "skipped", f"starts from {failed[0].label}, which failed"


def _share(job: Job, ready: int, free: int, whole: int) -> int:
    """Number of cores of a job."""
    return max(1, whole // 4) if job.gpu else max(1, free // ready)


def _own_cores() -> set[int]:
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


@contextmanager
def _on_cores(cores: frozenset[int]) -> Iterator[None]:
    """Processes that are started in the block use these cores only, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _start(words: Sequence[str], cores: frozenset[int], memory: int) -> _Running:
    """Start a process in a session of its own, so that Ctrl-C reaches it once, from here."""
    environment = os.environ | {LIMIT: str(memory), PARENT: str(os.getpid()), "COLUMNS": "400"}
    with _on_cores(cores):
        process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env=environment,
        )
    return _Running(process, cores)


def _end(job_state: JobState, running: _Running) -> None:
    """Record how a process ended."""
    job_state.seconds, status = time.monotonic() - running.start, running.finish()
    if status == 0:
        job_state.state, job_state.line = "done", ""
        return
    said = running.line.removeprefix("understudy: ") or f"exit status {status}"
    job_state.state, job_state.line = "failed", f"ended by {signal.Signals(-status).name}" if status < 0 else said


def _stop(running: Sequence[_Running]) -> None:
    """Interrupt processes, which save their state; kill those that have not ended after a while, or after Ctrl-C."""
    for one in running:
        one.process.send_signal(signal.SIGINT)
    try:
        for one in running:
            one.process.wait(_PATIENCE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for one in running:
            one.process.kill()
    for one in running:
        one.finish()
