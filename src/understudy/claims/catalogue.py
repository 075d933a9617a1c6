"""The catalogue of the papers' claims: what is claimed, and the studies that decide it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "catalogue.toml"


@dataclass(frozen=True)
class Paper:
    """A body of work that one folder of `papers/` reproduces."""

    folder: str
    title: str
    cited: tuple[str, ...]
    """Author, year and perhaps chapter, as in `Phuong 2021, ch. 3`."""


@dataclass(frozen=True)
class Row:
    """A claim of the catalogue: what is claimed, the value that counts, and the studies that decide it."""

    paper: Paper
    id: str
    statement: str
    value: str
    study: str
    headline: str = ""
    """The claim in a few words, if it is one of the most important of its paper."""

    @property
    def commands(self) -> dict[str, str]:
        """What decides the claim: by the name of a study, the first words of its command after `understudy run`."""
        named = [words for words in self.study.split(" | ") if not words.startswith("--")]
        return {words.split()[0]: words for words in named}

    @property
    def runs(self) -> tuple[str, ...]:
        """The commands after `understudy run` of all runs that the claim is measured on."""
        found: list[str] = []
        for words in self.study.split(" | "):
            found.append(f"{found[-1].split()[0]} {words}" if words.startswith("--") else words)
        return tuple(found)

    def missing_runs(self, commands: Iterable[str]) -> list[str]:
        """The runs that the claim is measured on and that were not made.

        Args:
            commands: Commands that were run, with or without `understudy run`, on any device and in any precision.
        """
        made = set(map(_choices, commands))
        return [words for words in self.runs if _choices(words) not in made]

    @property
    def would_decide(self) -> str:
        """The commands that decide the claim, in words."""
        return " and ".join(f"understudy run {words}" for words in self.commands.values())


def _choices(command: str) -> frozenset[tuple[str, ...]]:
    """What a command chooses: the study, and each option with its values, without device and precision."""
    study, *options = command.removeprefix("understudy run ").split(" --")
    words = [tuple(option.split()) for option in options]
    return frozenset([(study,), *(each for each in words if each[0] not in ("device", "dtype"))])


@cache
def rows() -> tuple[Row, ...]:
    """All claims of the catalogue, in order: paper by paper."""
    sections = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    found = []
    for folder, section in sections.items():
        paper = Paper(folder, section.pop("title"), tuple(section.pop("cited")))
        found += [Row(paper, id, *words) for id, words in section.items()]
    return tuple(found)
