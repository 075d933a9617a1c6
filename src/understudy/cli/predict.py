"""`understudy predict`: classes of images within a time budget, or sentences that a model encodes and decodes."""

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

    from understudy.lab.predict_classes import Prediction, Predictions
    from understudy.lab.predict_sentences import DecodedSentence, DecodedSentences
    from understudy.nets.latent.files import SavedCodes
    from understudy.nets.multi_exit.files import SavedExits

_MOST = 40
"""Number of rows that are printed."""


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Predict with a saved model: the classes of images by a network with several exits, within a time budget (Phuong
    2021, ch. 6), or sentences from their codes by a model of sentences (Phuong 2021, ch. 4).

    The time of each exit is measured on this machine. Images must have the size and the channels that the network
    takes, and sentences the words that the model knows.
    """

    network: Path
    """File of the model: safetensors, written by understudy.nets.multi_exit.save_exits or
    understudy.nets.latent.save_codes."""
    inputs: tuple[str, ...]
    """Images: an array (.npy, .npz, .safetensors, .pt) of uint8 from 0 to 255 or of normalised floating point, images ×
    rows × columns × channels or images × channels × rows × columns; or PNG and JPEG files, or a folder of them. Or
    sentences, each in quotes."""
    budget_ms: float | None = None
    """Images: time for one image in ms. The exit with the best validation accuracy among those that fit is used. By
    default there is no limit."""
    anytime: bool = False
    """Images: compute one exit after the other and predict by the mean of their probabilities, until --budget-ms or the
    last exit."""
    repeats: int = 20
    """Images: number of runs by which the time of each exit is measured."""
    model: str = ""
    """Images: function that makes the network of a file that contains only weights, FILE.py:NAME or
    PACKAGE.MODULE:NAME; it returns what us.exits returns. Its code is executed."""
    model_args: str = ""
    """Images: arguments of the model, as in "10 width=3"."""
    sample: int | None = None
    """Sentences: number of codes that are drawn from the encoder's distribution q(z|x) and decoded for each sentence.
    By default the mean of this distribution is decoded."""
    interpolate: int | None = None
    """Sentences: number of equal steps from the code of the first of two sentences to that of the second, at each of
    which a sentence is decoded, and at both ends."""
    prior: int | None = None
    """Sentences: number of codes that are drawn from the prior and decoded, without any INPUTS."""
    draw_words: bool = False
    """Sentences: draw each word by its probability, instead of taking the most probable one."""
    seed: int = 0
    """Sentences: seed of what is drawn."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device. auto: a CUDA GPU if there is one."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_predict(options: Predict) -> None:
    """Predict with a saved model, and print classes with the exit and the time, or sentences."""
    from understudy.lab.predict import EXIT_OPTIONS, SENTENCE_OPTIONS, require_fitting
    from understudy.lab.predict_classes import predict_classes, predict_in_turn
    from understudy.lab.predict_sentences import predict_sentences
    from understudy.nets.latent.files import SavedCodes

    saved = _load(options)
    given = {name: getattr(options, name) for name in (*EXIT_OPTIONS, *SENTENCE_OPTIONS)}
    require_fitting(saved, given)
    if isinstance(saved, SavedCodes):
        chosen = {name: given[name] for name in SENTENCE_OPTIONS}
        decoded = predict_sentences(saved, options.inputs, **chosen, device=options.device)
        if options.json:
            emit(decoded.as_dict())
        else:
            _show_sentences(decoded, options.sample or 1)
        return
    call = predict_in_turn if options.anytime else predict_classes
    found = call(saved, options.inputs, budget_ms=options.budget_ms, repeats=options.repeats, device=options.device)
    if options.json:
        emit(found.as_dict())
    else:
        _show_classes(options, found)


def _load(options: Predict) -> SavedExits | SavedCodes:
    from understudy.lab.predict import load_predictor
    from understudy.nets.files.model_files import build_module

    if not options.model:
        if options.model_args:
            raise UserError("--model-args are for --model, which is missing; give both or neither")
        return load_predictor(options.network)
    return load_predictor(options.network, build_module(options.model, shlex.split(options.model_args)))


def _show_sentences(found: DecodedSentences, codes: int) -> None:
    """Print a table with some rows, as many as codes, for each sentence."""
    from rich.text import Text

    from understudy.report.terminal.tables import output, plain_table

    facts = ", ".join(f"{name} {_fact(value)}" for name, value in found.facts.items())
    for line in (f"{found.how} On {found.device}.", f"Model: {facts}." if facts else "", *_noted(found.notes)):
        if line:
            print(line)
    first = found.rows[0]
    columns = ("sentence", "KL, nats", "words in place") if first.given is not None else ()
    table = plain_table(*(columns or (() if first.share is None else ("share",))), "decoded")
    for i, row in enumerate(found.rows[:_MOST]):
        cells = (*_sentence_cells(row, i % codes == 0), row.decoded or "(no words)")
        table.add_row(*map(Text, cells))
    output().print(table)
    _print_rest(len(found.rows))


def _sentence_cells(row: DecodedSentence, first: bool) -> tuple[str, ...]:
    """First cells of a row; the given sentence is in the first of its rows only."""
    if row.given is not None and row.kl is not None:
        shown = (row.given, number(row.kl, ".2f")) if first else ("", "")
        return *shown, f"{row.matching} of {row.words}"
    return () if row.share is None else (number(row.share, ".2f"),)


def _fact(value: object) -> str:
    """A statement of a file about its model: numbers without unnecessary digits, and texts in quotes."""
    if isinstance(value, float):
        return number(value, "g")
    return f"“{value}”" if isinstance(value, str) else str(value)


def _print_rest(count: int) -> None:
    if count > _MOST:
        print(f"and {count - _MOST:,} more rows: see --json")


def _noted(notes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"note: {note}" for note in notes)


def _show_classes(options: Predict, found: Predictions) -> None:
    from understudy.report.terminal.tables import output, plain_table

    for line in (_summary(options, found), *_noted(found.notes)):
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
    _print_rest(len(rows))


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
