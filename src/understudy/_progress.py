"""Progress bars on standard error: in terminals, and in notebooks that have ipywidgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from understudy._numbers import duration, number

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")

_RATE = 1e10
"""Multiplications a second that any core reaches in long matrix products in float64."""
_LONG = 10.0
"""Seconds of work that is called large beforehand."""


def can_animate(console: Console) -> bool:
    """Whether a console shows something that changes: a terminal, or a notebook with the widgets that rich needs."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


@contextmanager
def steps(
    what: str, total: int | None = None, show: bool | None = None, multiplications: float = 0.0
) -> Iterator[Callable[[], None]]:
    """Show a bar with the time taken and the time left; it disappears at the end.

    Args:
        what: What is being done, before the bar.
        total: Number of steps; None where it is not known.
        show: Whether to show the bar. Default: wherever it can be animated.
        multiplications: About how many it takes. Before work that is large a line says so, also where no bar is shown.

    Yields:
        A function that advances the bar by one step, from any thread.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if multiplications > _LONG * _RATE and show is not False:
        count, time = number(multiplications, ".1g"), duration(multiplications / _RATE)
        words = f"{what}: this is large ({count} multiplications, about {time} on one core)"
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    hidden = not (can_animate(console) if show is None else show)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn()) if total is not None else ()
    with Progress(*columns, *left, console=console, transient=console.is_terminal, disable=hidden) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def track(items: Iterable[Item], total: int, description: str, show: bool | None = None) -> Iterator[Item]:
    """Yield items with a progress bar, as `steps` shows it.

    Args:
        items: The items.
        total: Their number.
        description: What is being done, before the bar.
        show: Whether to show the bar. Default: wherever it can be animated.
    """
    with steps(description, total, show) as step:
        for item in items:
            yield item
            step()
