"""Table of the claims of the papers, with what was measured by the project's full runs and by the runs made here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from understudy._errors import UserError
from understudy.claims import record
from understudy.claims.catalogue import Row, rows
from understudy.claims.summary import not_run
from understudy.lab.discovery import studies_by_paper
from understudy.lab.finished_runs import finished_runs, study_of


class Measurement(NamedTuple):
    """A decided claim, and where it comes from: a machine and commit, or a run folder."""

    origin: str
    measured: record.RecordedClaim


Found = list[tuple[Row, list[Measurement]]]
"""Claims of the catalogue, each with its measurements."""


def claims(
    out: str | os.PathLike[str] = "runs",
    *,
    study: str | None = None,
    paper: str | None = None,
    failing: bool = False,
    undecided: bool = False,
) -> pa.Table:
    """List the claims of the papers with what was measured, by the project's full runs and by the runs made here.

    Args:
        out: Folder that contains the runs made here.
        study: Only the claims that this study decides.
        paper: Only the claims of this paper, by author and year (Tian 2020, Zhou, Ge and Jin 2021, …) or by the name of
            its folder (specialization, luck, local, …).
        failing: Only measurements that do not hold.
        undecided: Only measurements that are not decided, and claims that were not measured; with `failing`, also
            measurements that do not hold.

    Returns:
        One row per claim and measurement, and one without a measurement for each claim that was not measured: `id`,
        `study`, `statement`, `part`, `paper` (the value that counts), `measured`, `n`, `holds` (null: not decided),
        `would_decide` (what would decide it), `tuned_on` (on which seeds settings and bounds were chosen; null: not
        stated), `origin`.

    Raises:
        UserError: There is no such study or paper, or the study is not of the paper.
    """
    listed = []
    for row, measurements in find_claims(out, study=study, paper=paper, failing=failing, undecided=undecided):
        same = {"id": row.id, "study": row.study}
        if not measurements:
            listed.append(same | {"statement": row.statement, "paper": row.value, "would_decide": row.would_decide})
        for origin, measured in measurements:
            known = {name: value for name, value in vars(measured.claim).items() if name in _SCHEMA.names}
            listed.append(same | known | {"origin": origin})
    return pa.Table.from_pylist(listed, _SCHEMA)


_SCHEMA = pa.schema(
    {name: pa.string() for name in ("id", "study", "statement", "part", "paper", "measured")}
    | {"n": pa.int64(), "holds": pa.bool_()}
    | {name: pa.string() for name in ("would_decide", "tuned_on", "origin")}
)


def find_claims(
    out: str | os.PathLike[str],
    *,
    study: str | None = None,
    paper: str | None = None,
    failing: bool = False,
    undecided: bool = False,
) -> Found:
    """The claims that `claims` lists, as they are recorded."""
    wanted = _wanted(study, paper)
    every = [Measurement(f"{m.machine}, {m.commit}", m) for m in record.recorded()]
    for run in (run for run in finished_runs(Path(out)) if run.claims):
        every += [Measurement(str(run.folder), m) for m in record.measured(run, study_of(run).command())]
    found: Found = []
    shown = [False] * failing + [None] * undecided or [True, False, None]
    for row in rows():
        if wanted is None or wanted.intersection(row.commands):
            of_row = [each for each in every if each.measured.claim.id == row.id]
            for claim in not_run(row, [m.claim for _, m in of_row], [m.command for _, m in of_row]):
                of_row.append(Measurement("", record.RecordedClaim(claim, claim.would_decide, "", "", 0.0)))
            some = [each for each in of_row if each.measured.claim.holds in shown]
            if some or (not of_row and None in shown):
                found.append((row, some))
    return found


def _wanted(study: str | None, paper: str | None) -> set[str] | None:
    """Names of the studies whose claims are listed, or None for all claims."""
    if study is None and paper is None:
        return None
    papers = {name.rpartition(".")[2]: {each.name for each in all_} for name, all_ in studies_by_paper().items()}
    known = set().union(*papers.values())
    folders = [] if paper is None else _folders(paper, papers)
    if study is not None and study not in known:
        raise UserError(f"must be one of {', '.join(sorted(known))}, got {study}", "study")
    wanted = known if paper is None else set().union(*(papers[folder] for folder in folders))
    if study is not None and study not in wanted:
        raise UserError(
            f"must be a study of {paper} ({', '.join(sorted(wanted))}), got {study}: no claim matches", "study"
        )
    return wanted if study is None else {study}


def _folders(paper: str, known: Iterable[str]) -> list[str]:
    """Names of the folders of a paper, given as one of them or as author and year."""
    if paper in known:
        return [paper]
    cited: dict[str, list[str]] = {}
    for each in dict.fromkeys(row.paper for row in rows()):
        for words in each.cited:
            cited.setdefault(words.partition(", ch")[0], []).append(each.folder)
    found = [folder for words, folders in cited.items() if _plain(words) == _plain(paper) for folder in folders]
    if not found:
        raise UserError(f"must be one of {', '.join(known)}, or of {'; '.join(cited)}, got {paper}", "paper")
    return found


def _plain(citation: str) -> str:
    """A citation without what different spellings differ in."""
    return " ".join(
        citation.lower().replace("&", " and ").replace(",", " ").replace("(", " ").replace(")", " ").split()
    )
