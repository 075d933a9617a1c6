"""The state of all jobs on standard error: a live table in a terminal, elsewhere a line when one starts or ends."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from understudy._numbers import duration
from understudy._progress import can_animate
from understudy.lab.reproduce.processes import JobState
from understudy.report.terminal.tables import plain_table

_REFRESH = 0.5
"""Seconds between two updates of the live table."""


class LiveTable:
    """A `JobWatcher` that shows the state of all jobs while its block lasts.

    Args:
        show: Whether to show anything.
    """

    def __init__(self, *, show: bool = True) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False, quiet=not show)
        self._shown: dict[object, str] = {}
        self._at = -math.inf

    def __enter__(self) -> LiveTable:
        self._live = Live(console=self._console, auto_refresh=False) if can_animate(self._console) else None
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, job_states: Sequence[JobState]) -> None:
        """Show the state of all jobs; called several times a second.

        Args:
            job_states: One per job, in the order of the plan.
        """
        if self._live is not None:
            ended = all(each.state not in ("waiting", "running") for each in job_states)
            if ended or time.monotonic() - self._at > _REFRESH:
                self._at = time.monotonic()
                self._live.update(_table(job_states, self._console.height), refresh=True)
            return
        for each in job_states:
            line = "" if each.state == "waiting" and not each.line else _line(each)
            known = line if each.state == "waiting" else each.state
            if known != self._shown.get(each.job, ""):
                self._shown[each.job] = known
                self._console.print(line, soft_wrap=True)


def _line(each: JobState) -> str:
    took = f" in {duration(each.seconds)}" if each.state == "done" and each.seconds else ""
    why = f": {each.line}" if each.state in ("failed", "skipped", "waiting") else ""
    return f"{each.state}{took}: {each.job.label}{why}"


def _table(job_states: Sequence[JobState], height: int) -> Group:
    """Jobs that run, wait for another process or failed, line by line, and how many there are of each state."""
    counts = {state: sum(each.state == state for each in job_states) for state in ("done", "running", "waiting")}
    held = [each for each in job_states if each.state == "waiting" and each.line]
    lost = [each for each in job_states if each.state in ("failed", "skipped")]
    table = plain_table("run", "", "time", "progress")
    shown = [each for each in job_states if each.state == "running"] + held + lost
    for each in shown[: max(1, height - 6)]:
        table.add_row(each.job.label, each.state, duration(each.seconds), each.line)
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    return Group(table, Text(f"{words}, {len(lost)} failed" if lost else words))
