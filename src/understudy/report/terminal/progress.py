"""Where a run stands, for who watches it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Standing:
    """Some networks now: how many have not diverged, their median evaluation loss, the share of nodes recovered."""

    label: str
    alive: int
    networks: int
    loss: float
    recovered: float


@dataclass(frozen=True)
class Progress:
    epoch: int
    epochs: int
    seconds_left: float
    whole: Standing
    groups: tuple[Standing, ...]


@runtime_checkable
class Watcher(Protocol):
    """Who is told while a run goes."""

    def start(self, folder: Path, epoch: int, epochs: int) -> None: ...

    def epoch(self, progress: Progress) -> None: ...

    def say(self, what: str) -> None: ...
