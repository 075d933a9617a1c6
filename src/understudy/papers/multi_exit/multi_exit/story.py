"""Figures and headline of `multi-exit` (Phuong & Lampert 2019b; Phuong 2021, ch. 6)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from understudy._numbers import number
from understudy.papers.multi_exit.multi_exit.results import (
    MODES,
    Accuracies,
    Mode,
    accuracies,
    curves,
    published,
)
from understudy.papers.multi_exit.multi_exit.study import ANNEALED, ExitSetting, MultiExitStudy
from understudy.papers.multi_exit.published import (
    CIFAR_TIMES,
    DISTILLATION,
    EXIT_WISE,
    IMAGENET_TIMES,
    SEMI_SUPERVISED,
)
from understudy.report import style
from understudy.report.figures import CorrelationMatrix, Curves, Panel, Pictures, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_COLOURS = {EXIT_WISE: style.BLUE, DISTILLATION: style.GREEN, SEMI_SUPERVISED: style.VERMILLION}
"""The thesis' colours of the losses."""
_THESIS = "thesis"
_TRAINED_ON = {"cifar": "CIFAR-100", "made": "made images", "imagenet": "ImageNet"}
_MODE_TITLES = {"budget": "known budget", "anytime": "anytime (ensembles)"}
_SPREAD = "mean ± 1.96 standard errors"
_SAMPLES = 8
"""Test images that are shown of each deciding exit."""


def story(study: MultiExitStudy, run: Run) -> Story:
    """Accuracies beside the thesis', then temperatures, teachers, times, deciding exits, and matched channels."""
    figures = (
        _by_loss(study, run, "budget", "budget", "Accuracy within a known budget", "S3 fig. 6.3"),
        _by_loss(study, run, "anytime", "ensembles", "Accuracy at any time", "S3 fig. 6.5"),
        *_during_training(study, run),
        *_confidence(study, run),
        *_compared(study, run, "temperatures", "Annealing and constant temperatures", "S3 fig. 6.7"),
        *_compared(study, run, "teachers", "Choice of teachers", "S3 fig. E.1"),
        *_deciding(study, run),
        *_channels(study, run),
        _times(study, run),
    )
    return Story(_headline(study, run), _numbers(study, run), figures)


def _headline(study: MultiExitStudy, run: Run) -> str:
    images = study.images[0]
    all_losses: tuple[str, ...] = study.losses
    found = {loss: accuracies(run, images, _label(study, loss), "budget", study.top) for loss in all_losses}
    found = {loss: each for loss, each in found.items() if each.networks}
    if not found:
        return "All networks diverged; lower --rate."
    first = {loss: _percent(each.mean[0]) for loss, each in found.items()}
    kind = "made images of forms and patterns" if study.on_made else "images"
    where = f"With {images} {kind} per class, 50 of them for model selection,"
    trained = f"{counted(study.seeds, 'seed')} and {study.epochs} epochs."
    if {EXIT_WISE, DISTILLATION} <= set(found):
        gain = found[DISTILLATION].minus(found[EXIT_WISE])
        change = f"the top-{study.top} accuracy of exit 1 from {first[EXIT_WISE]} to {first[DISTILLATION]}"
        rest = f"That of exit {len(gain.mean)} changes by {_points(gain, -1)}. {where} {trained}"
        if abs(gain.mean[0]) <= gain.spread[0]:
            return f"Distillation changes {change}, by {_points(gain, 0)}: no more than seeds differ. {rest}"
        return f"Distillation {'raises' if gain.mean[0] > 0 else 'lowers'} {change}, by {_points(gain, 0)}. {rest}"
    listed = ", ".join(f"{loss} {accuracy}" for loss, accuracy in first.items())
    return f"Top-{study.top} accuracy of exit 1: {listed}. {where} {trained}"


def _points(gain: Accuracies, exit: int) -> str:
    """Mean difference at an exit with 1.96 standard errors, if there are several seeds."""
    spread = f" ± {number(gain.spread[exit], '.1f')}" if np.isfinite(gain.spread[exit]) else ""
    return f"{number(gain.mean[exit], '+.1f')}{spread} points"


def _numbers(study: MultiExitStudy, run: Run) -> tuple[Number, ...]:
    networks = run.networks.num_rows
    numbers = [Number(f"{networks:,}", "networks")]
    if lost := int(run.networks["diverged_at"].is_valid().to_numpy().sum()):
        numbers.append(Number(f"{lost} of {networks}", "diverged"))
    for loss in study.losses:
        found = accuracies(run, study.images[0], _label(study, loss), "budget", study.top)
        if found.networks:
            ends = f"{_percent(found.mean[0])} → {_percent(found.mean[-1])}"
            numbers.append(Number(ends, f"top-{study.top} of exits 1 and {len(found.mean)}, {loss}"))
    return tuple(numbers)


def _percent(value: float) -> str:
    return f"{number(value, '.1f')}%"


def _label(study: MultiExitStudy, loss: str) -> str:
    """Label of the networks of a loss with the first temperature and choice of teachers."""
    return (
        ExitSetting(loss) if loss == EXIT_WISE else ExitSetting(loss, study.temperatures[0], study.teachers[0])
    ).label


def _series(label: str, found: Accuracies, colour: str | None) -> Series:
    exits = np.arange(1, len(found.mean) + 1)
    low, high = found.mean - found.spread, found.mean + found.spread
    network = np.repeat(found.network[:, None], len(exits), 1)
    return Series(label, exits, found.mean, low, high, colour=colour, network=network, network_y=found.values)


def _by_loss(study: MultiExitStudy, run: Run, mode: Mode, name: str, title: str, source: str) -> Figure:
    panels, known = [], False
    for images in study.images:
        series = []
        for loss in study.losses:
            label = _label(study, loss)
            found = accuracies(run, images, label, mode, study.top)
            if not found.networks:
                continue
            series.append(_series(loss, found, _COLOURS[loss]))
            if study.architecture_of_the_paper and (theirs := published(images, label, mode)):
                exits, values = np.arange(1, len(theirs) + 1), np.array([each.value for each in theirs])
                series.append(Series(loss, exits, values, dashed=True, colour=_COLOURS[loss], part=_THESIS))
                known = True
        panels.append(Panel(study.images_name(images), _x_name(mode), f"top-{study.top} accuracy, %", tuple(series)))
    words = (
        "the best of the exits that fit the budget, by validation accuracy"
        if mode == "budget"
        else ("the ensemble of the first exits, whose probabilities are averaged")
    )
    caption = f"Test accuracy of {words}: {_SPREAD} of {counted(study.seeds, 'seed')}"
    caption += "; dashed: the thesis." if known else "."
    return Figure(name, title, caption, source, Curves(tuple(panels), note=_seeds(study), share="names"))


def _x_name(mode: Mode) -> str:
    return "exits that fit the budget" if mode == "budget" else "exits in the ensemble"


def _seeds(study: MultiExitStudy) -> str:
    return f"n = {counted(study.seeds, 'seed')}"


def _compared(study: MultiExitStudy, run: Run, option: str, title: str, source: str) -> tuple[Figure, ...]:
    """Distillation with several temperatures, or choices of teachers, in both modes."""
    several = getattr(study, option)
    if len(several) < 2:
        return ()
    panels = []
    for images in study.images:
        for mode in MODES:
            series = []
            for value in several:
                temperature, teachers = (
                    (value, study.teachers[0]) if option == "temperatures" else (study.temperatures[0], value)
                )
                found = accuracies(run, images, ExitSetting(DISTILLATION, temperature, teachers).label, mode, study.top)
                if found.networks:
                    series.append(_series(_value_words(option, value), found, None))
            head = f"{study.images_name(images)}, {_MODE_TITLES[mode]}"
            panels.append(Panel(head, "exits", f"top-{study.top} accuracy, %", tuple(series)))
    what = "temperature" if option == "temperatures" else "choice of teachers"
    caption = f"Networks trained by distillation, one line per {what}: {_SPREAD}."
    kind = Curves(tuple(panels), note=_seeds(study), share="names", columns=2)
    return (Figure(option, title, caption, source, kind),)


def _value_words(option: str, value: str) -> str:
    if option == "teachers":
        return "all later exits" if value == "later" else "last exit"
    return value if value == ANNEALED else f"T = {float(value):g}"


def _during_training(study: MultiExitStudy, run: Run) -> tuple[Figure, ...]:
    """Validation accuracy of the first and the last exit."""
    images, networks = study.images[0], run.networks.to_pandas()
    found = run.table("exits").to_pandas()
    found = found[(found["set"] == "validation")]
    last = len(study.exits)
    panels = []
    for exit in dict.fromkeys((1, last)):
        series = []
        for loss in study.losses:
            chosen = networks[(networks["images"] == images) & (networks["setting"] == _label(study, loss))]["network"]
            rows = found[found["network"].isin(chosen) & (found["exit"] == exit)]
            if len(rows):
                table = 100 * rows.pivot(index="epoch", columns="network", values=f"top{study.top}")
                series.append(_range(loss, table.index.to_numpy(float), table.to_numpy(float), _COLOURS[loss]))
        panels.append(Panel(f"exit {exit}", "epoch", f"top-{study.top} accuracy, %", tuple(series)))
    caption = (
        f"Accuracy on the images for model selection, {study.images_name(images)}: median and range over seeds. The "
        f"learning rate is divided by 10 after {_epochs(study)}."
    )
    kind = Curves(tuple(panels), note=_seeds(study), share="names", band="range")
    return (Figure("validation", "Accuracy over training", caption, "", kind),)


def _epochs(study: MultiExitStudy) -> str:
    drops = [str(drop) for drop in study.drops if drop < study.epochs]
    return f"epochs {' and '.join(drops)}" if drops else "no epoch"


def _range(label: str, x: np.ndarray, values: np.ndarray, colour: str) -> Series:
    """Median and range over the networks of the columns."""
    summary = np.full((3, len(x)), np.nan)
    for at, row in enumerate(values):
        if len(there := row[np.isfinite(row)]):
            summary[:, at] = there.min(), np.median(there), there.max()
    low, middle, high = summary
    return Series(label, x, middle, low, high, colour=colour)


def _confidence(study: MultiExitStudy, run: Run) -> tuple[Figure, ...]:
    """The teacher's confidence and the temperature, with annealing."""
    losses = [loss for loss in study.losses if loss != EXIT_WISE]
    if not losses or study.temperatures[0] != ANNEALED:
        return ()
    images, loss = study.images[0], losses[0]
    networks = accuracies(run, images, _label(study, loss), "budget").network.tolist()
    names = {"confidence": ("T = 1", style.BLUE), "adjusted": ("annealed", style.GREEN)}
    series = []
    for metric, (label, colour) in names.items():
        table = curves(run, metric, networks)
        series.append(_range(label, table.index.to_numpy(float), table.to_numpy(float), colour))
    heat = curves(run, "temperature", networks)
    temperature = _range("temperature", heat.index.to_numpy(float), heat.to_numpy(float), style.PURPLE)
    panels = (
        Panel(
            "confidence of the teacher",
            "epoch",
            "confidence",
            tuple(series),
            bound=study.confidence,
            bound_words="limit",
        ),
        Panel("temperature", "epoch", "temperature", (temperature,)),
    )
    caption = (
        f"Mean largest class probability of the last exit in each epoch, at temperature 1 and at the annealed one: "
        f"median and range over seeds, {study.images_name(images)}, {loss}. The temperature rises by "
        f"{100 * (study.factor - 1):.3g}% after every batch whose confidence exceeds the limit."
    )
    kind = Curves(panels, note=_seeds(study), band="range", columns=2)
    return (Figure("confidence", "Confidence and temperature of the teacher", caption, "S3 fig. 6.6", kind),)


def _deciding(study: MultiExitStudy, run: Run) -> tuple[Figure, ...]:
    """Share of test images that each exit decides, their accuracy, and examples."""
    if "decisions" not in run.tables:
        return ()
    rows, networks = run.table("decisions").to_pandas(), run.networks.to_pandas()
    exits = np.arange(1, len(study.exits) + 1)
    panels = []
    measures: tuple[tuple[str, str, Callable[..., np.ndarray]], ...] = (
        ("images decided", "share of test images, %", _shares),
        ("and how many of them rightly", "accuracy, %", _rightness),
    )
    rows["right"] = rows["decided"] == rows["label"]
    for title, name, measure in measures:
        series = []
        for loss in study.losses:
            chosen = networks[(networks["images"] == study.images[0]) & (networks["setting"] == _label(study, loss))]
            values = [
                measure(rows[rows["network"] == i], exits) for i in chosen["network"] if (rows["network"] == i).any()
            ]
            if values:
                series.append(_range(loss, exits.astype(float), np.stack(values, 1), _COLOURS[loss]))
        panels.append(Panel(title, "deciding exit", name, tuple(series)))
    caption = (
        "The deciding exit of an image is the first from which on the class of the ensemble stays the same: stopped "
        "there or later, anytime prediction gives the same class. Median and range over seeds, "
        f"{study.images_name(study.images[0])}."
    )
    kind = Curves(tuple(panels), note=_seeds(study), band="range", columns=2)
    return (Figure("deciding", "Which exit decides", caption, "", kind), *_examples(study, run))


def _shares(rows: pd.DataFrame, exits: np.ndarray) -> np.ndarray:
    decided = rows["exit"].to_numpy()
    return np.array([100 * (decided == exit).mean() for exit in exits])


def _rightness(rows: pd.DataFrame, exits: np.ndarray) -> np.ndarray:
    decided, right = rows["exit"].to_numpy(), rows["right"].to_numpy()
    return np.array([100 * right[decided == exit].mean() if (decided == exit).any() else np.nan for exit in exits])


def _examples(study: MultiExitStudy, run: Run) -> tuple[Figure, ...]:
    """Images that each exit decides rightly, of the first network that has any."""
    rows = run.table("examples").to_pandas()
    if not len(rows):
        return ()
    network = _representative(study, run, set(rows["network"]))
    rows = rows[rows["network"] == network]
    size = study.grid.image
    labels, images = [], []
    for exit, group in rows.groupby("exit"):
        labels.append(f"exit {exit}")
        shape = (study.grid.colours, size, size)
        images.append([np.frombuffer(pixels, np.uint8).reshape(shape) for pixels in group["pixels"][:_SAMPLES]])
    caption = f"The first test images that each exit decides rightly, network {network} ({_setting(run, network)})."
    kind = Pictures(tuple(labels), tuple(tuple(row) for row in images))
    return (Figure("examples", "Images that early and late exits decide", caption, "", kind),)


def _representative(study: MultiExitStudy, run: Run, among: set[int]) -> int:
    """The first network of the last loss that learns from later exits, if there is one."""
    networks = run.networks.to_pandas()
    for loss in (DISTILLATION, *study.losses):
        rows = networks[(networks["setting"] == _label(study, loss)) & networks["network"].isin(among)]
        if len(rows):
            return int(rows["network"].iloc[0])
    return min(among)


def _setting(run: Run, network: int) -> str:
    return str(run.networks["setting"][network].as_py())


def _channels(study: MultiExitStudy, run: Run) -> tuple[Figure, ...]:
    """Which channels of early exits' features match those of the last exit."""
    metrics, networks = run.metrics.to_pandas(), run.networks.to_pandas()
    rows = metrics[metrics["metric"] == "rho_mean"]
    panels = []
    for loss in study.losses:
        chosen = networks[(networks["images"] == study.images[0]) & (networks["setting"] == _label(study, loss))]
        some = rows[rows["network"].isin(chosen["network"])]
        if not len(some):
            continue
        series = []
        colours = style.layer_colours(len(study.exits) - 1)
        for layer, colour in zip(range(len(study.exits) - 1), colours, strict=True):
            table = some[some["layer"] == layer].pivot(index="epoch", columns="network", values="value")
            label = f"exit {layer + 1}"
            series.append(_range(label, table.index.to_numpy(float), table.to_numpy(float), colour))
        panels.append(Panel(loss, "epoch", "mean best correlation", tuple(series), limits=(0.0, 1.02)))
    if not panels:
        return ()
    caption = (
        "Mean correlation of the channels of the last exit's features with the best matching channel of each earlier "
        f"exit, over images for model selection: median and range over seeds, {study.images_name(study.images[0])}."
    )
    ramp = ("exit 1", f"exit {len(study.exits) - 1}") if len(study.exits) > 5 else None
    kind = Curves(tuple(panels), note=_seeds(study), share="axes", band="range", ramp=ramp)
    return (
        Figure("channels", "Channels of early exits that match the last exit's", caption, "", kind),
        *_matched_channels(study, run),
    )


def _matched_channels(study: MultiExitStudy, run: Run) -> tuple[Figure, ...]:
    """Correlations of all channels of the first exit with all of the last, at the end."""
    nodes = run.nodes.to_pandas()
    pairs = nodes[nodes["role"] == "pair"]
    if not len(pairs):
        return ()
    network = _representative(study, run, set(pairs["network"]))
    table = pairs[pairs["network"] == network].pivot(index="teacher", columns="student", values="correlation")
    kind = CorrelationMatrix((f"exit 1 of {len(study.exits)}",), (table.to_numpy(float),), network)
    caption = (
        f"Channels of the last exit's features (rows) and of the first exit's (columns), after training, network "
        f"{network} ({_setting(run, network)})."
    )
    return (Figure("matched-channels", "Which channel of exit 1 matches which of the last exit", caption, "", kind),)


def _times(study: MultiExitStudy, run: Run) -> Figure:
    """Time of each exit on this machine, beside the thesis'."""
    times = run.table("times").to_pandas()
    colours = {"budget": style.BLUE, "anytime": style.ORANGE}
    published_times = {"cifar": CIFAR_TIMES, "imagenet": IMAGENET_TIMES}
    panels = []
    for (architecture, device), rows in times.groupby(["architecture", "device"], sort=False):
        series = []
        for mode in MODES:
            some = rows[rows["mode"] == mode].sort_values("exit")
            exits, middle = some["exit"].to_numpy(float), some["median"].to_numpy(float)
            series.append(Series(_MODE_TITLES[mode], exits, middle, colour=colours[mode]))
            theirs = published_times.get(architecture, {}).get((device, mode), ())
            if len(theirs) == len(exits) and (architecture == "imagenet" or study.architecture_of_the_paper):
                values = np.array([each.value for each in theirs])
                series.append(
                    Series(_MODE_TITLES[mode], exits, values, dashed=True, colour=colours[mode], part=_THESIS)
                )
        panels.append(
            Panel(f"{_TRAINED_ON[architecture]}, {device.upper().replace('CUDA', 'GPU')}", "exit", "ms", tuple(series))
        )
    dashed = any(series.dashed for panel in panels for series in panel.series)
    caption = (
        f"Median time until the prediction of one image, of {counted(study.repeats, 'run')} on this machine"
        f"{'; dashed: mean times in the thesis' if dashed else ''}."
    )
    kind = Curves(tuple(panels), columns=2)
    return Figure("times", "What each exit costs", caption, "S3 tables E.1, E.2", kind)
