"""Terminal output: a live table during a run (plain lines outside a terminal), and tables at its end."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from understudy._citations import cite
from understudy._numbers import duration, number
from understudy._progress import can_animate
from understudy.report.terminal.progress import Progress
from understudy.store import Claim


class LiveDisplay:
    """Display of a run on standard error: a live table and a bar in a terminal, one line per epoch elsewhere."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.live: Live | None = None
        self.shown_at = -math.inf

    def __enter__(self) -> LiveDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def start(self, folder: Path, epoch: int, epochs: int) -> None:
        resumed = f", resumed after epoch {epoch} of {epochs}" if epoch else ""
        self._line(f"{self.title}: in {folder}{resumed}")
        if can_animate(self.console):
            self.live = Live(Text(f"epoch {epoch}/{epochs}"), console=self.console, auto_refresh=False)
            self.live.start()

    def epoch(self, progress: Progress) -> None:
        if self.live is not None:
            now = time.monotonic()
            if progress.epoch == progress.epochs or now - self.shown_at > _BLINK:
                self.shown_at = now
                self.live.update(_live_table(progress), refresh=True)
            return
        whole = progress.whole
        shown = (
            f"networks {whole.alive:,}/{whole.networks:,}   loss {number(whole.loss, '.2e')}   "
            f"recovered {whole.recovered:.1%}   left {duration(progress.seconds_left)}"
            if whole.alive
            else "every network has diverged"
        )
        self._line(f"epoch {progress.epoch:>4}/{progress.epochs}   {shown}")

    def say(self, what: str) -> None:
        self._stop()
        self._line(what)

    def _stop(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _line(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


_BLINK = 0.1
"""Seconds between two updates of the live table: faster ones cannot be read, and take time to draw."""
_MOST_GROUPS = 12
"""Most groups that the live table shows one by one."""


def _live_table(progress: Progress) -> Group:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("networks")
    for column in ("alive", "median loss", "nodes recovered"):
        table.add_column(column, justify="right")
    several = 1 < len(progress.groups) <= _MOST_GROUPS
    for group in (*progress.groups, progress.whole) if several else (progress.whole,):
        measured = (number(group.loss, ".2e"), f"{group.recovered:.1%}") if group.alive else ("diverged", "")
        table.add_row(group.label, f"{group.alive:,}/{group.networks:,}", *measured)
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        f"epoch {progress.epoch}/{progress.epochs}",
        ProgressBar(total=progress.epochs, completed=progress.epoch, width=30),
        f"{duration(progress.seconds_left)} left",
    )
    return Group(table, bar)


_MOST_SETTINGS = 30
"""Most settings with one row each: a longer table does not fit on a screen."""


def summary_table(settings: Sequence[Any]) -> Table:
    """Final results of each setting; where there are many, those that differ in the last parameter only share a row."""
    swept = list(settings[0].parameters)
    if len(settings) > _MOST_SETTINGS and len(swept) > 1:
        return _folded(settings, swept)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in (*swept, "networks", "diverged", "median loss", "nodes recovered"):
        table.add_column(column, justify="right")
    for setting in settings:
        values = map(_short, setting.parameters.values())
        known = setting.loss == setting.loss
        ended = (number(setting.loss, ".2e"), f"{setting.recovered:.1%}") if known else ("–", "–")
        table.add_row(*values, f"{setting.networks:,}", f"{setting.diverged:,}", *ended)
    return table


def _folded(settings: Sequence[Any], swept: list[str]) -> Table:
    *rows, across = swept
    values = sorted({setting.parameters[across] for setting in settings})
    lost = sum(setting.diverged for setting in settings)
    title = f"median loss, nodes recovered (of {sum(setting.networks for setting in settings):,} networks"
    title += f", {lost:,} of which diverged)" if lost else ")"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="dim")
    for column in (*rows, *(f"{across}\n{_short(value)}" for value in values)):
        table.add_column(column, justify="right")
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for setting in settings:
        line = lines.setdefault(tuple(setting.parameters[name] for name in rows), {})
        known = setting.loss == setting.loss
        shown = f"{number(setting.loss, '.0e')}  {setting.recovered:>4.0%}"
        unknown = "diverged" if setting.diverged == setting.networks else "–"
        line[setting.parameters[across]] = shown if known else unknown
    for names, line in lines.items():
        table.add_row(*map(_short, names), *(line.get(value, "") for value in values))
    return table


def _short(value: Any) -> str:
    return number(value, "g") if isinstance(value, float) else cite(str(value))


def claims_table(claims: Sequence[Claim]) -> Table:
    table = plain_table("claim", "", "what", "paper", "here", "n", "holds")
    for claim in claims:
        table.add_row(
            claim.id,
            *map(cite, (claim.part, claim.statement, claim.paper, measured_words(claim))),
            f"{claim.n:,}",
            verdict(claim.holds),
        )
    return table


def measured_words(claim: Claim) -> str:
    """What was measured, what would decide the claim if it is not decided, and on which seeds it was tuned."""
    words = claim.measured
    if claim.holds is None:
        words += f"; what would decide it: {claim.would_decide}"
    return f"{words}; tuned on {claim.tuned_on}" if claim.tuned_on else words


def plain_table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("claim", "n", "holds"))
    return table


def verdict(holds: bool | None) -> Text:
    if holds is None:
        return Text("not decided", style="yellow")
    return Text("yes", style="green") if holds else Text("NO", style="bold red")


def output() -> Console:
    """Console for standard output, wide enough for the tables where it is not a terminal."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 140)


_SHADES = " ░▒▓█"
_MOST = 60
"""Most rows and columns of a heat map in a terminal."""
_MOST_NODES = 500
"""Most teacher nodes of a layer whose best students are listed in a terminal."""


def print_alignment(console: Console, layers: Sequence[Any]) -> None:
    """Print each layer's best students as a table, and its correlations as a heat map of five shades."""
    for i, layer in enumerate(layers):
        m = len(layer.correlation)
        table = plain_table(
            "teacher node", "student node", "correlation", "sin angle", "bias gap", title=f"layer {i + 1}"
        )
        for j in range(min(m, _MOST_NODES)):
            numbers = (layer.best_correlation[j], layer.sin_angle[j], layer.bias_gap[j])
            shown = [number(v, ".4f") if v == v else "–" for v in numbers]
            table.add_row(str(j), str(int(layer.best[j])), *shown)
        console.print(table)
        if m > _MOST_NODES:
            console.print(f"{_MOST_NODES} of {m:,} teacher nodes are listed; --json lists all\n")
        console.print(_heat_map(layer.correlation, layer.best))
        whole = f"; up to a linear map (SVCCA): {number(layer.svcca, '.4f')}" if layer.svcca == layer.svcca else ""
        console.print(f"recovered: {layer.recovered} of {m} teacher nodes above 0.95{whole}\n")


def _heat_map(correlation: Any, best: Any) -> Text:
    """Heat map with teacher nodes as rows and students as columns, each row's best student first."""
    teachers, students = correlation.shape
    order = list(dict.fromkeys([*best.tolist(), *range(students)]))[:_MOST]
    shown = correlation[:_MOST, order].tolist()
    rows = ("".join(_SHADES[min(4, int(5 * max(0.0, value)))] * 2 for value in row) for row in shown)
    lines = [f"{j:>4} {row}" for j, row in enumerate(rows)]
    nodes = {"teacher": teachers, "student": students}
    cut = [f"{_MOST} of {n:,} {kind} nodes" for kind, n in nodes.items() if n > _MOST]
    if cut:
        lines.append(f"     {' and '.join(cut)} are shown; --figure draws all")
    return Text("\n".join(lines))
