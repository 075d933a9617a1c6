"""Progress events for whatever displays a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class GroupState:
    """State of a group of networks: how many have not diverged, median evaluation loss, share of nodes recovered."""

    label: str
    alive: int
    networks: int
    loss: float
    recovered: float


@dataclass(frozen=True)
class Progress:
    """State of a run after an epoch."""

    epoch: int
    epochs: int
    seconds_left: float
    whole: GroupState
    groups: tuple[GroupState, ...]


@runtime_checkable
class Watcher(Protocol):
    """Receiver of the progress of a run."""

    def start(self, folder: Path, epoch: int, epochs: int) -> None: ...

    def epoch(self, progress: Progress) -> None: ...

    def say(self, what: str) -> None: ...


class Silent:
    """Watcher that shows nothing."""

    def start(self, folder: Path, epoch: int, epochs: int) -> None:
        """Ignore the start of a run."""

    def epoch(self, progress: Progress) -> None:
        """Ignore an epoch."""

    def say(self, what: str) -> None:
        """Ignore a message."""
