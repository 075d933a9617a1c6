"""Progress bars on standard error: in terminals, and in notebooks that have ipywidgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")


def can_animate(console: Console) -> bool:
    """Whether a console shows something that changes: a terminal, or a notebook with the widgets that rich needs."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def track(items: Iterable[Item], total: int, description: str, show: bool | None = None) -> Iterator[Item]:
    """Yield items with a progress bar and the time left.

    Args:
        items: The items.
        total: Their number.
        description: What is being done, before the bar.
        show: Whether to show the bar. Default: wherever it can be animated.
    """
    from rich.console import Console
    from rich.progress import track as with_bar

    console = Console(stderr=True)
    hidden = not (can_animate(console) if show is None else show)
    yield from with_bar(items, description, total=total, console=console, disable=hidden)
