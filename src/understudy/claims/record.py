"""The catalogue of the papers' claims, and the record of what full runs measured."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy._atomic import write_json
from understudy._citations import CODES
from understudy.store import Claim, Run

_HERE = Path(__file__).parent
RECORD = _HERE / "record.json"
_MADE = ("command", "machine", "commit", "seconds")
_COLUMNS = ("id", "claim", "part", "paper", "measured", "n", "holds", "run")


@dataclass(frozen=True)
class Row:
    """A claim of the catalogue: what is claimed, the value that counts, and the study that decides it."""

    id: str
    section: str
    statement: str
    value: str
    study: str

    @property
    def commands(self) -> dict[str, str]:
        """What decides the claim: by the name of a study, the first words of its command after `understudy run`."""
        named = [words for words in self.study.split(" | ") if not words.startswith("--")]
        return {words.split()[0]: words for words in named}


@dataclass(frozen=True)
class RecordedClaim:
    """A decided claim with its origin: command, machine, commit and seconds of training."""

    claim: Claim
    command: str
    machine: str
    commit: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        made = {name: getattr(self, name) for name in _MADE}
        return {k: v for k, v in self.claim.as_dict().items() if k != "values"} | made


def rows() -> list[Row]:
    """All claims of the catalogue, in order."""
    sections = tomllib.loads((_HERE / "catalogue.toml").read_text(encoding="utf-8"))
    return [
        Row(id, section["title"], *words)
        for section in sections.values()
        for id, words in section.items()
        if id != "title"
    ]


def recorded(path: Path = RECORD) -> list[RecordedClaim]:
    """The claims that full runs decided, as recorded in the project."""
    entries = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    made = [[entry.pop(name) for name in _MADE] for entry in entries]
    return [RecordedClaim(Claim.from_dict(entry), *each) for entry, each in zip(entries, made, strict=True)]


def measured(run: Run, command: str) -> list[RecordedClaim]:
    """The claims that a run has decided, with the command that makes it again."""
    made = run.environment
    machine = made["device"] if made["device"] != "cpu" else f"{made['cores']} cores, {made['processor']}"
    trained, reported = made.get("commit") or "unknown", made.get("report_commit") or made.get("told_at") or "unknown"
    commit = trained if trained == reported else f"{trained}, claims decided at {reported}"
    return [RecordedClaim(claim, command, machine, commit, made["seconds"]) for claim in run.claims]


def keep(run: Run, command: str, path: Path = RECORD) -> int:
    """Record a run's claims, replacing those of the same command; return how many there are."""
    new = measured(run, command)
    ids = [row.id for row in rows()]
    old = [m for m in recorded(path) if not new or m.command != new[0].command]
    entries = sorted(old + new, key=lambda m: ids.index(m.claim.id))
    write_json(path, [m.as_dict() for m in entries])
    return len(new)


def as_markdown() -> str:
    """The record as a page of the documentation."""
    lines = [
        "# Claims",
        "",
        "What the papers claim, the value that counts, and what full runs measured; a claim that does not hold is",
        "marked **no**. The [pages of the papers](../papers/index.md) explain how each claim is read and which bounds",
        "are ours. A commit with a + had uncommitted changes. `understudy claims --markdown` generates this page.",
        "",
        *(f"{code} is {_link(authors)}{'.' if code == max(CODES) else ';'}" for code, authors in CODES.items()),
    ]
    kept = recorded()
    runs = sorted({(m.command, m.machine, m.commit, m.seconds) for m in kept})
    section = ""
    for row in rows():
        if row.section != section:
            section = row.section
            lines += ["", f"## {section}", "", _line(*_COLUMNS), _line(*["---"] * len(_COLUMNS))]
        found = [m for m in kept if m.claim.id == row.id]
        for m in found:
            claim, run = m.claim, runs.index((m.command, m.machine, m.commit, m.seconds)) + 1
            holds, here = "yes" if claim.holds else "**no**", "; ".join((claim.measured, *map(str, claim.variants)))
            words = (row.id, claim.statement, claim.part, claim.paper, here)
            lines.append(_line(*words, f"{claim.n:,}", holds, str(run)))
        if not found:
            lines.append(_line(row.id, row.statement, "", row.value, "not yet measured", "", "", ""))
    lines += ["", "## Runs", "", "| run | command | machine | commit | training |", "| --- | --- | --- | --- | --- |"]
    for i, (command, machine, commit, seconds) in enumerate(runs, 1):
        lines.append(f"| {i} | `{command}` | {machine} | {commit} | {seconds:,.0f} s |")
    return "\n".join(lines) + "\n"


def _link(authors: str) -> str:
    """A link to a paper in the bibliography."""
    return f"[{authors}](../bibliography.md#{re.sub('[^a-z0-9]+', '-', authors.lower().replace('&', 'and'))})"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
