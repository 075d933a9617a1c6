"""Figures of studies of codes of one coordinate: information against its target, other remedies, training."""

from __future__ import annotations

import numpy as np
import pandas as pd

from understudy._numbers import number
from understudy.claims import range_words
from understudy.papers.autoencoder.results import curves_of, results, values_of
from understudy.papers.autoencoder.settings import ANNEALING, BETA, FREE_BITS, METHOD_NAMES, MUTUAL, CodeSetting
from understudy.papers.autoencoder.shared import CodeStudy
from understudy.report import style
from understudy.report.figures import Curves, Dots, Panel, Series
from understudy.report.story import Figure, Number, counted
from understudy.store import Run

_COLOURS = {MUTUAL: style.BLUE, ANNEALING: style.ORANGE, FREE_BITS: style.GREEN, BETA: style.VERMILLION}


def numbers(study: CodeStudy, run: Run) -> tuple[Number, ...]:
    """Networks, those that diverged, and how near the mutual autoencoder comes to its targets.

    Args:
        study: The study.
        run: The run.
    """
    found = results(run)
    shown = [Number(f"{len(found):,}", "networks")]
    if lost := int(found["diverged_at"].notna().sum()):
        shown.append(Number(f"{lost:,} of {len(found):,}", "diverged"))
    for setting in (study.mutual()[:1] or ()) + (study.mutual()[-1:] if len(study.mutual()) > 1 else ()):
        values = values_of(found, setting, "information")
        shown.append(Number(f"{range_words(values, '.2f')}", f"nats of information at {setting.label}"))
    return tuple(shown)


def target_figures(study: CodeStudy, run: Run, source: str) -> tuple[Figure, ...]:
    """Information against its target, for each penalty.

    Args:
        study: The study.
        run: The run.
        source: The figure of the thesis that it belongs to.
    """
    if not study.mutual():
        return ()
    found = results(run)
    absolute: list[Series] = []
    relative: list[Series] = []
    for penalty, colour in zip(study.penalties, style.categories(len(study.penalties)), strict=True):
        rows = [(setting, found[found["setting"] == setting.label]) for setting in study.mutual(penalty)]
        rows.sort(key=lambda row: row[0].strength)
        targets = np.array([setting.strength for setting, _ in rows])
        for series, base in ((absolute, 0.0 * targets), (relative, targets)):
            series.append(_spread(f"C = {penalty:g}", targets, [own for _, own in rows], base, colour))
    ends = np.array([min(study.targets), max(study.targets)])
    asked = Series("asked for", ends, ends, dashed=True, colour=style.HAIRLINE)
    panels = (
        Panel("information", "M, nats", "information, nats", (*absolute, asked)),
        Panel(
            "difference from M", "M, nats", "information − M, nats", tuple(relative), bound=0.0, bound_words="as asked"
        ),
    )
    caption = (
        f"Information of the trained mutual autoencoders by quadrature against the information that was asked for, M, "
        f"for each weight C of the penalty: median and range over {counted(study.seeds, 'seed')}."
    )
    kind = Curves(panels, note=f"n = {counted(study.seeds, 'seed')}", columns=2, band="range")
    return (Figure("targets", "Information against its target", caption, source, kind),)


def remedy_figures(study: CodeStudy, run: Run, optimum: float) -> tuple[Figure, ...]:
    """Which information every method reaches, at which likelihood and lower bound.

    Args:
        study: The study.
        run: The run.
        optimum: Greatest mean log-likelihood of the data, in nats.
    """
    if not study.remedies():
        return ()
    found = results(run)
    usual = [*study.mutual(), *study.remedies()]
    panels = []
    for title, values in (
        ("log-likelihood", optimum - found["likelihood"]),
        ("evidence lower bound", found["gap"]),
    ):
        series = []
        for method in study.methods:
            labels = [setting.label for setting in usual if setting.method == method]
            rows = found[found["setting"].isin(labels)].assign(value=values)
            x, y = rows["information"].to_numpy(float), rows["value"].to_numpy(float)
            ids = rows["network"].to_numpy(int)
            series.append(Series(METHOD_NAMES[method], x, y, points=True, colour=_COLOURS[method], network=ids))
        panels.append(Panel(title, "information, nats", "nats below its optimum", tuple(series), log_y=True))
    caption = (
        "Each point is a trained model: its information, and how far its mean log-likelihood and its lower bound are "
        f"below the greatest possible value, {number(optimum, '.3f')} nats: lower is better. All values are exact."
    )
    points = Curves(tuple(panels), note=f"n = {counted(study.seeds, 'seed')} of each setting", columns=2)
    columns = {}
    for setting in study.remedies():
        rows = found[found["setting"] == setting.label]
        columns[setting.label] = rows["information"].to_numpy(float), rows["network"].to_numpy(int)
    colours = tuple(_COLOURS[setting.method] for setting in study.remedies())
    reached = Dots.from_columns(columns, "information, nats", colours=colours)
    words = "Information of models trained by KL annealing, free bits of λ nats, and with a weight β of the KL term."
    return (
        Figure("remedies", "Remedies: information and likelihood", caption, "", points),
        Figure("reached", "What other remedies reach", words, "", reached),
    )


def training_figure(study: CodeStudy, run: Run) -> Figure:
    """Bound of the information during training.

    Args:
        study: The study.
        run: The run.
    """
    series, targets = [], sorted(study.mutual(), key=lambda setting: setting.strength)
    for setting, colour in zip(targets, style.layer_colours(len(targets)), strict=True):
        series.append(_history(run, setting, f"M = {number(setting.strength, '.3g')}", colour))
    for setting in study.remedies():
        if setting.method == BETA and setting.strength == 1:
            series.append(_history(run, setting, "β = 1", style.VERMILLION))
    caption = (
        "Estimate H(z) + E log r(z|x) of the information, a lower bound on average: means over the steps between "
        "probes, median and range over seeds. The weight of the penalty is the first that was given."
    )
    panel = Panel("", "step", "information bound, nats", tuple(series))
    kind = Curves((panel,), note=f"n = {counted(study.seeds, 'seed')}", band="range", columns=1)
    return Figure("training", "Information during training", caption, "", kind)


def _history(run: Run, setting: CodeSetting, label: str, colour: str) -> Series:
    found = curves_of(run, setting, "training information")
    values, step = found.to_numpy(float), found.index.to_numpy(float)
    low, middle, high = _summary(list(values))
    return Series(label, step, middle, low, high, colour=colour)


def _spread(label: str, x: np.ndarray, rows: list[pd.DataFrame], base: np.ndarray, colour: str) -> Series:
    """Information minus a base: median and range over the networks of each x."""
    values = [own["information"].to_numpy(float) - at for own, at in zip(rows, base, strict=True)]
    low, middle, high = _summary(values)
    most = max(map(len, values), default=0)
    network, each = np.full((most, len(x)), -1), np.full((most, len(x)), np.nan)
    for at, (own, found) in enumerate(zip(rows, values, strict=True)):
        network[: len(own), at], each[: len(own), at] = own["network"], found
    return Series(label, x, middle, low, high, colour=colour, network=network, network_y=each)


def _summary(values: list[np.ndarray]) -> np.ndarray:
    """Least, median and greatest of the finite values of each row; NaN where there is none."""
    found = np.full((3, len(values)), np.nan)
    for at, row in enumerate(values):
        if len(there := row[np.isfinite(row)]):
            found[:, at] = there.min(), np.median(there), there.max()
    return found
