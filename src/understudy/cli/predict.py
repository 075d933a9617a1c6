"""`understudy predict`: classes of images by the best exit that fits a time budget, or by one exit after the other."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from understudy._errors import UserError
from understudy._numbers import number
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from rich.table import Table

    from understudy.lab.predict import Prediction, Predictions
    from understudy.nets.multi_exit.files import SavedExits

_MOST = 40
"""Number of rows that are printed."""


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Predict the classes of images with a network that has several exits, within a time budget (Phuong 2021, ch. 6).

    The time of each exit is measured on this machine. Images must have the size and the channels that the network
    takes.
    """

    network: Path
    """File of the network: safetensors, written by understudy.nets.multi_exit.save_exits."""
    images: tuple[Path, ...]
    """Images: an array (.npy, .npz, .safetensors, .pt) of uint8 from 0 to 255 or of normalised floating point, images ×
    rows × columns × channels or images × channels × rows × columns; or PNG and JPEG files, or a folder of them."""
    budget_ms: float | None = None
    """Time for one image in ms. The exit with the best validation accuracy among those that fit is used. By default
    there is no limit."""
    anytime: bool = False
    """Compute one exit after the other and predict by the mean of their probabilities, until --budget-ms or the last
    exit."""
    repeats: int = 20
    """Number of runs by which the time of each exit is measured."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device. auto: a CUDA GPU if there is one."""
    model: str = ""
    """Function that makes the network of a file that contains only weights, FILE.py:NAME or PACKAGE.MODULE:NAME; it
    returns what us.exits returns. Its code is executed."""
    model_args: str = ""
    """Arguments of the model, as in "10 width=3"."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_predict(options: Predict) -> None:
    """Predict classes of images, and print them with the exit and the time."""
    from understudy.lab.predict import predict, predict_in_turn

    if not options.images:
        raise UserError("IMAGES are missing; give an array, PNG or JPEG files, or a folder of them")
    saved = _load(options)
    call = predict_in_turn if options.anytime else predict
    found = call(saved, options.images, budget_ms=options.budget_ms, repeats=options.repeats, device=options.device)
    if options.json:
        emit(found.as_dict())
    else:
        _show(options, found)


def _load(options: Predict) -> SavedExits:
    from understudy.nets.files.model_files import build_module
    from understudy.nets.multi_exit.files import load_exits

    if not options.model:
        if options.model_args:
            raise UserError("--model-args are for --model, which is missing; give both or neither")
        return load_exits(options.network)
    return load_exits(options.network, build_module(options.model, shlex.split(options.model_args)))


def _show(options: Predict, found: Predictions) -> None:
    from understudy.report.terminal.tables import output, plain_table

    for line in (_summary(options, found), *(f"note: {note}" for note in found.notes)):
        print(line)
    if found.times:
        output().print(_exit_table(found))
    table = plain_table("image", "exit", "class", "confidence", "ms")
    several = found.steps if options.anytime else tuple((row,) for row in found.rows)
    rows = [(name, step) for name, steps in zip(found.images, several, strict=True) for step in steps]
    for name, row in rows[:_MOST]:
        table.add_row(name, *_cells(found, row))
    for column in table.columns[3:]:
        column.justify = "right"
    output().print(table)
    if len(rows) > _MOST:
        print(f"and {len(rows) - _MOST:,} more rows: see --json")


def _exit_table(found: Predictions) -> Table:
    """Measured time and validation accuracy of each exit."""
    from understudy.report.terminal.tables import plain_table

    table = plain_table("exit", "ms, median", "mean ± sd", "validation accuracy")
    for m, (name, time) in enumerate(zip(found.exit_names, found.times, strict=True)):
        accuracy = number(found.validation[m], ".1%") if found.validation else "not known"
        table.add_row(
            f"{m + 1} ({name})", number(time.median), f"{number(time.mean)} ± {number(time.std, '.2g')}", accuracy
        )
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _cells(found: Predictions, row: Prediction) -> tuple[str, ...]:
    name = f" {found.class_names[row.label]}" if found.class_names else ""
    exit = f"{row.exit} ({found.exit_names[row.exit - 1]})"
    return exit, f"{row.label}{name}", number(row.confidence, ".1%"), number(row.ms)


def _summary(options: Predict, found: Predictions) -> str:
    exits, budget = len(found.exit_names), options.budget_ms
    limit = "" if budget is None else f" within {number(budget, 'g')} ms"
    if options.anytime:
        return f"Running mean of up to {exits} exits{limit}, on {found.device}."
    exit = found.rows[0].exit
    time = f", {number(found.times[exit - 1].median)} ms an image" if found.times else ""
    accuracy = f", validation accuracy {found.validation[exit - 1]:.1%}" if found.validation else ""
    return f"Exit {exit} of {exits} ({found.exit_names[exit - 1]}){limit}, on {found.device}{time}{accuracy}."
