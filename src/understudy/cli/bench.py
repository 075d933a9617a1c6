"""The command `understudy bench`: how fast this machine trains, against what it can do."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy.cli.parsing import emit, parse
from understudy.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress

    from understudy.bench import Bench as Result


_ALONE = 0.05
"""What other programs may take of the cores without a word about it."""


@dataclass(frozen=True)
class Bench:
    """How fast this machine trains, against one large matrix product and against a plain loop: a minute or two."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: auto takes a CUDA card where there is one."""
    sweep: bool = False
    """Also run the whole two-layer study, which takes a minute on a large card and hours on two cores."""
    draw: tuple[Path, ...] = ()
    """Measure nothing: draw the picture of these files, each a bench.json, side by side, into OUT."""
    out: Path = Path("runs/bench")
    """Folder that holds benches; this one goes to OUT/<time>-<device>."""
    json: bool = False
    """Print one JSON object on standard output, and nothing else there."""


def bench_command(words: list[str]) -> int:
    """`understudy bench`."""
    options = parse(Bench, words, "understudy bench")
    _check_out(options.out)
    if options.draw:
        return _draw(options)
    from understudy.bench import Sizes, measure
    from understudy.bench.sweep import sweep
    from understudy.lab.study import Study

    device = Study(device=options.device).resolved().device
    sizes = Sizes.of(device)
    folder = options.out / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{device}"
    try:
        with _Steps(sizes.calls) as steps:
            result = measure(device, steps, sizes)
        if options.sweep:
            _keep(folder, [result.as_dict()])  # should the study fail, this much is there
            print("the whole two-layer study", file=sys.stderr)
            result = replace(result, swept=sweep(folder, device))
    except KeyboardInterrupt:
        print("\nunderstudy: interrupted; the same command measures anew", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as error:
        raise UserError(
            f"--sweep: the study ended with status {error.returncode}, for the reason above; "
            f"what was measured before is in {folder / 'bench.json'}"
        ) from error
    told = result.as_dict() | {"kept": str(folder / "bench.json")}
    _keep(folder, [told])
    if options.json:
        emit(told)
    else:
        _print(result, told["kept"])
    return 0


def _check_out(out: Path) -> None:
    """Before anything is measured: the folder can be made and written to."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"--out: {out} was given; {existing} is a file, and allowed is a folder")
    if not os.access(existing, os.W_OK):
        raise UserError(f"--out: {out} was given; {existing} is read-only, choose another folder")


def _keep(folder: Path, benches: list[dict[str, Any]], name: str | None = "bench.json") -> None:
    """Write what a bench told, where it has a name, and the picture of it or of several."""
    from understudy._atomic import write_json
    from understudy.bench.picture import CostByPopulation, cost_by_population
    from understudy.report.style import save
    from understudy.store.files import disk_errors

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if name is not None:
            write_json(folder / name, benches[0])
        save(cost_by_population([CostByPopulation.of(told) for told in benches]), folder / "cost-by-population")


def _draw(options: Bench) -> int:
    from understudy.bench.picture import read

    _keep(options.out, [read(path) for path in options.draw], name=None)
    picture = str(options.out / "cost-by-population.svg")
    if options.json:
        emit({"picture": picture})
    else:
        print(f"picture: {picture}")
    return 0


class _Steps:
    """Shows on standard error what was done: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, total: int) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)
        self.total, self.done = total, 0
        self.bar: Progress | None = None

    def __enter__(self) -> _Steps:
        if self.console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            shown = (BarColumn(30), TextColumn("{task.description}"))
            # Drawn when there is something new, and by no thread of its own, which would take from what is timed.
            self.bar = Progress(*shown, console=self.console, transient=True, auto_refresh=False)
            self.bar.add_task("warming up", total=self.total)
            self.bar.start()
        else:
            self.console.print("warming up", soft_wrap=True)
        return self

    def __call__(self, what: str) -> None:
        self.done += 1
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, description=what, refresh=True)
        else:
            self.console.print(f"{self.done:>3}/{self.total}   {what}", soft_wrap=True)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _print(result: Result, kept: str) -> None:
    from rich.text import Text

    from understudy.report.terminal.tables import output, plain_table

    styles = {"aim": "green", "must": "green", "neither": "bold red"}
    table = plain_table("what", "measured", "between", "must", "aim", "reached")
    for goal in result.goals():
        reached = Text(goal.reached or "", style=styles.get(goal.reached or "", ""))
        table.add_row(*goal.words(), reached)
    sizes = plain_table("networks", "µs a network-step", "between", "peak memory")
    for cost, seconds in zip(result.costs, result.cost.values(), strict=True):
        low, high = (f"{1e6 * value:.3g}" for value in seconds.spread)
        sizes.add_row(
            f"{cost.networks:,}", f"{1e6 * seconds.median:.3g}", f"{low} to {high}", f"{cost.peak_bytes / 1e6:,.0f} MB"
        )
    for column in (*table.columns[1:5], *sizes.columns):
        column.justify = "right"
    made, engines = result.environment, sorted({rate.engine for rate in result.rates.values()})
    console = output()
    console.print(table)
    console.print(sizes)
    if result.swept is not None:
        parts = "   ".join(f"{name} {seconds:.1f} s" for name, seconds in result.swept.parts.items())
        console.print(f"{result.swept.networks:,} networks: {parts}\n", soft_wrap=True)
    console.print(f"{result.headline()}\n", soft_wrap=True)
    console.print(
        f"peak {result.peak / 1e9:,.0f} GFLOP/s   float32   engine {', '.join(engines)}   "
        f"torch {made['packages']['torch']}   commit {made['commit'] or 'none'}",
        soft_wrap=True,
    )
    if result.others is not None and result.others > _ALONE:
        busy = f"Other programs kept the cores {result.others:.0%} busy meanwhile"
        console.print(f"{busy}: on an idle machine these numbers are steadier.", soft_wrap=True)
    console.print(f"kept: {kept}", soft_wrap=True)
