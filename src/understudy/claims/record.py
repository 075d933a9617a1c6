"""The record of what full runs measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy._atomic import write_json
from understudy._errors import UserError
from understudy.claims.catalogue import rows
from understudy.store import Claim, Run

RECORD = Path(__file__).parent / "record.json"
_MADE = ("command", "machine", "commit", "seconds")


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
    """Record a run's claims, replacing those of the same command; return how many there are.

    Raises:
        UserError: A claim that the catalogue does not have, as of a study in a user's file.
    """
    new = measured(run, command)
    ids = [row.id for row in rows()]
    if unknown := sorted({m.claim.id for m in new} - set(ids)):
        raise UserError(
            f"{run.folder}: the catalogue has no claim {', '.join(unknown)}; add it to claims/catalogue.toml first"
        )
    old = [m for m in recorded(path) if not new or m.command != new[0].command]
    entries = sorted(old + new, key=lambda m: ids.index(m.claim.id))
    write_json(path, [m.as_dict() for m in entries])
    return len(new)
