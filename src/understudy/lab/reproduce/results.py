"""What a reproduction found: the claims of each paper, its runs, and the verdicts that changed since a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from understudy._errors import UserError
from understudy._reading import read_json
from understudy.claims.catalogue import Paper, rows
from understudy.claims.record import RECORD
from understudy.claims.summary import Found, by_paper, not_run, outcomes, summary_words
from understudy.lab.reproduce.jobs import Job, Missing
from understudy.lab.reproduce.processes import JobState
from understudy.store import Claim, Run
from understudy.store.claims import holding, together
from understudy.store.environment import environment

OF_PROJECT = "record"
"""What stands for the project's record where a file is asked for."""


Verdicts = Mapping[tuple[str, str, str], bool | None]
"""Verdicts by id, part and statement of the claim; None is not decided."""


class Change(NamedTuple):
    """A verdict that differs from an earlier one; None is not decided."""

    id: str
    part: str
    statement: str
    before: bool | None
    now: bool | None

    def __str__(self) -> str:
        what = f"{self.id} ({self.part or self.statement})"
        return f"{what}: {holding(self.before)} before, {holding(self.now)} now"


@dataclass(frozen=True, repr=False)
class Reproduction:
    """What a reproduction found.

    Attributes:
        page: The page about all runs.
        job_states: How each run ended.
        missing: Studies whose files are missing.
        runs: The finished runs, by folder.
        papers: The claims of each paper, each with its measurements by these runs.
        changes: Verdicts that differ from an earlier record; None if they were not compared.
        environment: Versions and hardware.
        command: The command that makes it again.
        seconds: Time that the command took.
    """

    page: Path
    job_states: Sequence[JobState]
    missing: Sequence[Missing]
    runs: Mapping[Path, Run]
    papers: Mapping[Paper, Found]
    changes: Sequence[Change] | None
    environment: Mapping[str, Any]
    command: str
    seconds: float

    def __repr__(self) -> str:
        lost = f" {len(self.failed)} of {len(self.job_states)} runs are not there." if self.failed else ""
        return f"{summary_words([each for claims in self.papers.values() for each in claims])}{lost} Page: {self.page}"

    @property
    def failed(self) -> list[JobState]:
        """Runs that failed, or could not start because another failed."""
        return [each for each in self.job_states if each.state in ("failed", "skipped")]

    def seconds_of(self, paper: Paper) -> float:
        """Time that the runs of a paper took to train or compute, those made earlier included."""
        return sum(map(_seconds, self.runs_of(paper).values()))

    def runs_of(self, paper: Paper) -> dict[Job, Run]:
        """The finished runs of a paper."""
        jobs = [each.job for each in self.job_states if each.job.paper == paper.folder]
        return {job: self.runs[job.folder] for job in jobs if job.folder in self.runs}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for `reproduce.json`."""
        papers: dict[str, dict[str, float]] = {}
        for paper, claims in self.papers.items():
            holds, fails, undecided = map(len, outcomes(claims))
            papers[paper.folder] = {"holds": holds, "fails": fails, "undecided": undecided}
            papers[paper.folder] |= {"seconds": round(self.seconds_of(paper), 1)}
        shown: dict[str, Any] = {"papers": papers, "runs": [self._run(each) for each in self.job_states]}
        shown["missing"] = [each._asdict() for each in self.missing]
        if self.changes is not None:
            shown["changed"] = [each._asdict() for each in self.changes]
        return shown | {
            "command": self.command,
            "seconds": round(self.seconds, 1),
            "environment": dict(self.environment),
        }

    def _run(self, each: JobState) -> dict[str, Any]:
        about: dict[str, Any] = {"paper": each.job.paper, "run": each.job.label, "state": each.state}
        run = self.runs.get(each.job.folder)
        if run is None:
            return about | {"why": each.line}
        return about | {
            "folder": str(run.folder),
            "seconds": round(_seconds(run), 1),
            "bytes": sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file()),
            "claims": [
                {"id": claim.id, "part": claim.part, "statement": claim.statement, "holds": claim.holds}
                for claim in run.claims
            ],
        }


def reproduction(
    job_states: Sequence[JobState],
    missing: Sequence[Missing],
    papers: Sequence[str],
    earlier: Verdicts | None,
    command: str,
    seconds: float,
    page: Path,
) -> Reproduction:
    """Read the finished runs, and count what they decide.

    Args:
        job_states: How each run ended.
        missing: Studies whose files are missing.
        papers: Names of the papers' folders; empty for all papers.
        earlier: Verdicts to compare with, as from `verdicts`; None to compare with none.
        command: The command that makes it again.
        seconds: Time that the command took.
        page: The page about all runs.
    """
    runs = {}
    for each in job_states:
        if each.state == "done":
            try:
                runs[each.job.folder] = run = Run(each.job.folder)
                run.require_sound()
            except UserError as error:
                each.state, each.line = "failed", str(error)
                runs.pop(each.job.folder, None)
    # Where studies have small defaults, their run stands for the one that a claim names.
    labels = {each.job.folder: each.job.label.removesuffix(" --quick") for each in job_states}
    measured = [(claim, labels[folder]) for folder, run in runs.items() for claim in run.claims]
    found = []
    for row in rows():
        claims, made = [c for c, _ in measured if c.id == row.id], [words for c, words in measured if c.id == row.id]
        found.append((row, claims + not_run(row, claims, made)))
    kept = {paper: each for paper, each in by_paper(found).items() if not papers or paper.folder in papers}
    changes = None if earlier is None else _changes([claim for claim, _ in measured], earlier)
    return Reproduction(page, job_states, missing, runs, kept, changes, environment("cpu"), command, seconds)


def verdicts(record: str) -> Verdicts:
    """Verdicts of a record, by id, part and statement of the claim.

    Args:
        record: `record` for the project's own, or the path of a `reproduce.json` or `record.json`.

    Raises:
        UserError: The file cannot be read, or is neither.
    """
    path = RECORD if record == OF_PROJECT else Path(record)
    kept = read_json(path, "give a reproduce.json, or the word record")
    entries = kept if isinstance(kept, list) else _claims_of(kept)
    try:
        return _verdicts(((each["id"], each.get("part", ""), each["statement"]), each["holds"]) for each in entries)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"must be a reproduce.json, or the word {OF_PROJECT}, got {record}, which has other contents", "against"
        ) from error


def _claims_of(kept: Any) -> list[Any]:
    runs = kept.get("runs", ()) if isinstance(kept, dict) else ()
    return [claim for run in runs for claim in run.get("claims", ())] or [None]


def _changes(measured: Sequence[Claim], earlier: Verdicts) -> list[Change]:
    now = _verdicts(((claim.id, claim.part, claim.statement), claim.holds) for claim in measured)
    return [Change(*key, earlier[key], holds) for key, holds in now.items() if earlier.get(key, holds) != holds]


def _verdicts(measured: Iterable[tuple[tuple[str, str, str], bool | None]]) -> Verdicts:
    """One verdict where several runs decide the same part, as `claims.summary.outcome` decides it."""
    decided: dict[tuple[str, str, str], list[bool]] = {}
    for key, holds in measured:
        decided.setdefault(key, []).extend([] if holds is None else [holds])
    return {key: together(all_) for key, all_ in decided.items()}


def _seconds(run: Run) -> float:
    return float(run.environment["seconds"])
