"""What the report of a run is about: the study that made it, or networks that were trained without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.lab.finished_runs import WITHOUT_STUDY, study_of
from understudy.lab.study import ComputedStudy, Study, TrainingStudy
from understudy.lab.undecided_claims import undecided
from understudy.lab.who_learned_whom import who_learned_whom
from understudy.report.page.document import TABLE_LEAD
from understudy.report.story import Story
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.store.tables import Table


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report shows of a run, besides its environment and its files."""

    title: str
    story: Callable[[Run], Story]
    settings: dict[str, Any]
    command: str
    """What makes the same run again."""
    trained: bool = True
    """Whether the run trained networks, which took the seconds that its environment records."""
    table: Callable[[Run], Table] = who_learned_whom
    """Rows to search; a table without columns is not shown."""
    table_words: tuple[str, str] = ("Matched nodes", TABLE_LEAD)
    """Title of the table, and what a row of it is."""
    claims: Callable[[Run], list[Claim]] | None = None
    """The claims that the run decides; None where there is nothing to claim."""
    undecided: Callable[[list[Claim]], str] = lambda claims: ""
    """What would decide the claims that the run leaves open, given the decided ones."""


def subject_of(run: Run, file: Path | None = None) -> Subject:
    """The subject of a run.

    Args:
        run: The run.
        file: The Python file that defines its study, if it is in a user's file.

    Raises:
        UserError: The study is not known.
    """
    name = run.config.get("study")
    if file is None and name in WITHOUT_STUDY:
        subject: Subject = import_module(WITHOUT_STUDY[name]).subject(run)
        return subject
    return study_subject(study_of(run, file))


def study_subject(study: Study) -> Subject:
    """The subject of a run of a study."""
    trained = isinstance(study, TrainingStudy)
    shown: dict[str, Any] = {}
    if isinstance(study, ComputedStudy):
        shown = {"table": study.table, "table_words": (study.table_title, study.table_lead)}
    return Subject(
        title=f"{study.name} — {study.summary}",
        story=study.story,
        settings=study.options(),
        command=study.command(),
        trained=trained,
        **shown,
        claims=study.claims,
        undecided=partial(undecided, study),
    )
