"""`understudy bench`: how fast this machine trains, compared with what it can do."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy._errors import UserError
from understudy._numbers import number
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.bench import Bench as Result
    from understudy.bench.picture import CostCurve
    from understudy.bench.setting import Report

_ALONE = 0.05
"""Share of the cores that other programs may use without a remark."""


@dataclass(frozen=True)
class Bench:
    """Measure how fast this machine trains, compared with one large matrix product and with a plain PyTorch loop.

    Takes a few minutes.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto uses a CUDA GPU if there is one."""
    sweep: bool = False
    """Also run the whole two-layer study, which takes a minute on a large GPU and hours on two cores."""
    draw: tuple[Path, ...] = ()
    """Measure nothing: draw the figure of these bench.json files together, into OUT."""
    out: Path = Path("runs/bench")
    """Folder that contains the benchmarks; this one is written to OUT/<time>-<device>."""
    json: bool = False
    """Print one JSON object on standard output and nothing else."""


def run_bench(options: Bench) -> None:
    """Measure how fast this machine trains, and print the results next to the goals."""
    _validate_out(options.out)
    if options.draw:
        return _draw(options)
    from understudy.bench import Sizes, measure
    from understudy.bench.sweep import sweep
    from understudy.lab.study import Study

    device = Study(device=options.device).resolved().device
    sizes = Sizes.of(device)
    folder = options.out / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{device}"
    file = folder / "bench.json"
    result = measure(device, _progress(sizes.reports), sizes)
    if options.sweep:
        _write(file, result.as_dict())  # in case the study fails
        print("the whole two-layer study", file=sys.stderr)
        try:
            result = replace(result, swept=sweep(folder, device))
        except subprocess.CalledProcessError as error:
            raise UserError(
                f"--sweep: the study ended with status {error.returncode}, for the reason above; "
                f"the other measurements are in {file}"
            ) from error
    contents = result.as_dict() | {"kept": str(file)}
    _write(file, contents)
    if options.json:
        emit(contents)
    else:
        _print(result, file)
    return None


def _validate_out(out: Path) -> None:
    """Raise a UserError before anything is measured if the folder cannot be made and written to."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"--out must be a folder, got {out}: {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise UserError(f"--out must be writable, got {out}: {existing} is read-only; choose another folder")


def _progress(total: int) -> Report:
    """Report progress on standard error: one line that is overwritten on a terminal, plain lines elsewhere."""
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    done = count()

    def report(what: str) -> None:
        print(f"{start}{next(done):>3}/{total}   {what}", end=end, file=sys.stderr, flush=True)

    report("warming up")
    return report


def _write(file: Path, contents: dict[str, Any]) -> None:
    from understudy._atomic import disk_errors, write_json
    from understudy.bench.picture import cost_curve

    with disk_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, contents)
    _write_figure(file.parent, [cost_curve(contents)])


def _write_figure(folder: Path, curves: list[CostCurve]) -> None:
    from understudy._atomic import disk_errors
    from understudy.bench.picture import cost_by_population
    from understudy.report.style import save

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save(cost_by_population(curves), folder / "cost-by-population")


def _draw(options: Bench) -> None:
    from understudy.bench.picture import read

    _write_figure(options.out, [read(path) for path in options.draw])
    picture = str(options.out / "cost-by-population.svg")
    if options.json:
        emit({"picture": picture})
    else:
        print(f"picture: {picture}")


def _print(result: Result, file: Path) -> None:
    from rich.text import Text

    from understudy.report.terminal.tables import output, plain_table

    styles = {"aim": "green", "must": "green", "neither": "bold red"}
    table = plain_table("what", "measured", "between", "must", "aim", "reached")
    for goal in result.goals():
        reached = goal.reached or ""
        table.add_row(*goal.cells(), Text(reached, style=styles.get(reached, "")))
    sizes = plain_table("networks", "µs per network-step", "between", "peak memory")
    for cost, seconds in zip(result.costs, result.cost.values(), strict=True):
        middle, low, high = (number(1e6 * value) for value in (seconds.median, *seconds.spread))
        sizes.add_row(f"{cost.networks:,}", middle, f"{low} to {high}", f"{cost.peak_bytes / 1e6:,.0f} MB")
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
    if result.others > _ALONE:
        busy = f"Other programs used {result.others:.0%} of the cores during the measurement"
        console.print(f"{busy}; the numbers are more precise on an idle machine.", soft_wrap=True)
    console.print(f"written to {file}", soft_wrap=True)
