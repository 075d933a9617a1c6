"""Claims of a study that a run leaves undecided, with the settings and commands that decide them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from understudy.claims import Claims
from understudy.claims.catalogue import rows
from understudy.lab.options import option, typed
from understudy.lab.study import Study, sibling
from understudy.report.story import listed
from understudy.store import Claim


def undecided(study: Study, claims: Sequence[Claim]) -> str:
    """Say which claims of a study its run leaves open, the settings that they need, and the commands that decide them.

    Args:
        study: The study that was run.
        claims: The claims that the run decided.

    Returns:
        One or more sentences; empty where nothing is open.
    """
    decided = {claim.id for claim in claims}
    left = [id for id in study.decides.split() if id not in decided]
    if not left:
        return ""
    commands = {row.id: f"understudy run {row.commands[study.name]}" for row in rows() if study.name in row.commands}
    by_command: dict[str, list[str]] = {}
    for id in left:
        by_command.setdefault(commands.get(id, type(study)().command()), []).append(id)
    needs = _needs(study)
    words = [
        f"{listed(ids)} {'needs' if len(ids) == 1 else 'need'} {needs}: run {command}."
        if needs
        else f"{listed(ids)} {'is' if len(ids) == 1 else 'are'} decided by other settings: run {command}."
        for command, ids in by_command.items()
    ]
    return " ".join(words)


def _needs(study: Study) -> str:
    """The settings of the paper in which a study differs, in words."""
    lacking: dict[str, Any] = {}
    with suppress(TypeError):  # a study may decide its claims without a table of them
        decide = sibling(study, "claims").claims
        lacking = decide.lacks(study) if isinstance(decide, Claims) else {}
    if study.seeds < (usual := type(study)().seeds):
        lacking = {"seeds": usual} | lacking
    return listed([_setting(name, value) for name, value in lacking.items()])


def _setting(name: str, value: Any) -> str:
    if isinstance(value, int) and name.endswith("s"):
        return f"{value:,} {name.replace('_', ' ')}"
    return f"{option(name)} {' '.join(map(typed, value)) if isinstance(value, tuple) else typed(value)}"
