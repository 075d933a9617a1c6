"""Figures and headline of `ten-labels` (Phuong 2021, figs. 4.2, 4.3b, theorem 4.2)."""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np
import pandas as pd

from understudy._numbers import number
from understudy.papers.autoencoder.figures import numbers, remedy_figures, target_figures, training_figure
from understudy.papers.autoencoder.results import results, rows_of, values_of
from understudy.papers.autoencoder.ten_labels.study import TenLabels
from understudy.report import style
from understudy.report.figures import Areas, Curves, Panel, Series
from understudy.report.story import Figure, Story, counted
from understudy.store import Run

_ENCODERS = ("Gaussian", "resampling")
_ENCODER_COLOURS = (style.VERMILLION, style.BLUE)
_ESTIMATORS = {
    "no baseline": style.VERMILLION,
    "baseline": style.BLUE,
    "best constant": style.GREEN,
}


def story(study: TenLabels, run: Run) -> Story:
    """Labels along the code, encoders, the gap, then targets, remedies, estimators, and the course of training."""
    figures = (
        *_patches(study, run),
        *_encoders(study, run),
        *_compared(study, run),
        *_gap(study, run),
        *target_figures(study, run, "S3 fig. 4.3b"),
        *remedy_figures(study, run, -math.log(study.labels)),
        *_estimators(study, run),
        training_figure(study, run),
    )
    return Story(_headline(study, run), numbers(study, run), figures)


def _headline(study: TenLabels, run: Run) -> str:
    found, parts = results(run), []
    if found["diverged_at"].notna().all():
        return "All networks diverged; lower --rate or --table-rate."
    entropy = math.log(study.labels)
    below = [setting for setting in study.mutual() if setting.strength < entropy - 1e-6]
    off = [np.abs(values_of(found, setting, "information") - setting.strength) for setting in below]
    if kept := [each for each in np.concatenate([np.zeros(0), *off]) if math.isfinite(each)]:
        parts.append(
            f"below the entropy of the labels, mutual autoencoders have the information they are asked for within "
            f"{number(max(kept), '.2f')} nats"
        )
    if study.mutual() and study.resamples > 1:
        divergences = [
            np.nanmedian(values) if np.isfinite(values).any() else math.nan
            for k in (1, study.resamples)
            for values in [values_of(found, study.compared(k), "posterior_kl")]
        ]
        if all(map(math.isfinite, divergences)):
            gaussian, several = (number(each, ".2g") for each in divergences)
            parts.append(
                f"at M = {number(study.largest, '.4g')} a resampling encoder is {several} nats from the posterior, a "
                f"Gaussian one {gaussian}"
            )
    words = "; ".join(parts) or f"{counted(len(found), 'network')} trained on {counted(study.labels, 'label')}"
    return f"{words[:1].upper()}{words[1:]}. {counted(study.seeds, 'seed')}, {study.steps:,} steps."


def _grid(rows: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes, and a column of the table `densities` as [label, code]."""
    table = rows.pivot(index="label", columns="z", values=column)
    return table.columns.to_numpy(float), table.to_numpy(float)


def _label_colours(count: int) -> tuple[str, ...]:
    """Colours of labels, of which neighbours along the code differ clearly."""
    colours, half = style.categories(count), -(-count // 2)
    return tuple(colour for pair in zip_longest(colours[:half], colours[half:]) for colour in pair if colour)


def _patches(study: TenLabels, run: Run) -> tuple[Figure, ...]:
    settings = study.mutual()
    rows = [
        (setting, own) for setting, own in zip(settings, rows_of(run, "densities", settings), strict=True) if len(own)
    ]
    if not rows:
        return ()
    z = _grid(rows[0][1], "probability")[0]
    kind = Areas(
        tuple(f"M = {number(setting.strength, '.3g')}" for setting, _ in rows),
        z,
        np.array([_in_order(_grid(own, "probability")[1], z) for _, own in rows]),
        tuple(f"label {label}" for label in range(1, study.labels + 1)),
        "z",
        "p(x|z)",
        stacked=True,
        note=f"seed {study.first_seed}, C = {study.penalties[0]:g}",
        colours=_label_colours(study.labels),
    )
    caption = (
        "Each colour is a label, and its height at z the probability p(x|z). At M = 0 the code says nothing about the "
        "label; the more information was asked for, the more it determines the label. Labels are numbered by their "
        "places along the code."
    )
    return (Figure("patches", "Labels along the code", caption, "S3 fig. 4.3b", kind),)


def _in_order(values: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Rows of labels in the order of their mean codes under the prior."""
    prior = np.exp(-(z**2) / 2)
    return values[np.argsort((values * prior) @ z / np.maximum((values * prior).sum(1), 1e-300))]


def _encoders(study: TenLabels, run: Run) -> tuple[Figure, ...]:
    """True posteriors above, encoders below; Gaussian on the left, resampling on the right."""
    if study.resamples == 1 or not study.mutual():
        return ()
    pair = rows_of(run, "densities", [study.compared(1), study.compared(study.resamples)])
    if not all(map(len, pair)):
        return ()
    panels = []
    names = {"posterior": "p(z|x)", "encoder": "q(z|x)"}
    for column, name in names.items():
        for encoder, rows in zip(_ENCODERS, pair, strict=True):
            z, values = _grid(rows, column)
            colours = _label_colours(study.labels)
            series = [
                Series(f"label {i}", z, own, colour=colours[i - 1]) for i, own in enumerate(_in_order(values, z), 1)
            ]
            panels.append(Panel(f"{name}, {encoder} encoder", "z", "density", tuple(series)))
    caption = (
        f"The model's posterior p(z|x) of each label, and the encoder's distribution q(z|x), with a "
        f"Gaussian encoder and with one that keeps one of {study.resamples} codes, at M = {study.largest:.4g}."
    )
    kind = Curves(tuple(panels), columns=2, share="names", note=f"seed {study.first_seed}")
    return (Figure("encoders", "Gaussian and resampling encoders", caption, "S3 fig. 4.2", kind),)


def _compared(study: TenLabels, run: Run) -> tuple[Figure, ...]:
    """Divergence and entropy of posteriors with both encoders, one point for each seed."""
    if study.resamples == 1 or not study.mutual():
        return ()
    found, variants = results(run), study.variants()
    panels = []
    for column, title, log in (
        ("posterior_kl", "KL(q(z|x) ‖ p(z|x))", True),
        ("posterior_entropy", "entropy of p(z|x)", False),
    ):
        series, every = [], []
        for (words, pair), colour in zip(variants.items(), style.categories(len(variants)), strict=True):
            x, y = (values_of(found, setting, column) for setting in pair)
            ids = values_of(found, pair[1], "network").astype(int)
            series.append(Series(words, x, y, points=True, colour=colour, network=ids))
            every += [x, y]
        known = np.concatenate(every)
        known = known[np.isfinite(known)]
        ends = np.array([known.min(), known.max()]) if len(known) else np.zeros(2)
        series.append(Series("equal", ends, ends, dashed=True, colour=style.HAIRLINE))
        names = f"{_ENCODERS[0]}, nats", f"{_ENCODERS[1]}, nats"
        panels.append(Panel(title, *names, tuple(series), log_x=log, log_y=log))
    caption = (
        f"Encoders and posteriors, averaged over labels, at M = {study.largest:.4g}. Each point is a seed, with the "
        "Gaussian encoder along x and the resampling encoder along y: under the dashed line resampling is lower."
    )
    kind = Curves(tuple(panels), columns=2, note=f"n = {counted(study.seeds, 'seed')} of each setting")
    return (Figure("comparison", "What resampling changes", caption, "S3 fig. 4.2", kind),)


def _gap(study: TenLabels, run: Run) -> tuple[Figure, ...]:
    found = results(run)
    panels = []
    for column, title in (("gap", "from the optimum of the bound"), ("aggregate", "that no decoder removes")):
        series = []
        for encoder, colour in zip(_ENCODERS, _ENCODER_COLOURS, strict=True):
            rows = found[(found["resamples"] > 1) == (encoder == "resampling")]
            if len(rows):
                x, y = rows["information"].to_numpy(float), rows[column].to_numpy(float)
                ids = rows["network"].to_numpy(int)
                series.append(Series(encoder, x, y, points=True, colour=colour, network=ids))
        panels.append(Panel(title, "information, nats", "nats", tuple(series), log_y=True))
    caption = (
        "Left: how far the lower bound is below its optimum, KL(q(x)q(z|x) ‖ p(z)p(x|z)); right: the part of it "
        "that no decoder removes, KL(q(z) ‖ p(z)), which is positive wherever a Gaussian encoder depends on the label. "
        "Exact values of all trained networks."
    )
    kind = Curves(tuple(panels), columns=2, note=f"n = {counted(len(found), 'network')}")
    return (Figure("gap", "What a Gaussian encoder costs", caption, "S3 theorem 4.2", kind),)


def _estimators(study: TenLabels, run: Run) -> tuple[Figure, ...]:
    found = results(run)
    settings = sorted(study.mutual(), key=lambda setting: setting.strength)
    if not settings or "variance, baseline" not in found:
        return ()
    targets = np.array([setting.strength for setting in settings])
    series = []
    for name, colour in _ESTIMATORS.items():
        values = np.stack([values_of(found, setting, f"variance, {name}") for setting in settings])
        there = np.isfinite(values).any(1)
        low, middle, high = (np.full(len(targets), np.nan) for _ in range(3))
        for function, into in ((np.nanmin, low), (np.nanmedian, middle), (np.nanmax, high)):
            into[there] = function(values[there], axis=1)
        series.append(Series(name, targets, middle, low, high, colour=colour))
    panel = Panel("", "M, nats", "variance of the gradient", tuple(series), log_y=True)
    caption = (
        f"Variance of the estimated gradient of the information, summed over the decoder's parameters, with "
        f"{study.samples:,} samples: without baseline, with the mean of the other samples as the baseline, and with "
        "the best constant. Exact values of the trained networks: median and range over seeds."
    )
    kind = Curves((panel,), columns=1, band="range", note=f"n = {counted(study.seeds, 'seed')}")
    return (Figure("estimators", "Variance of gradients with and without a baseline", caption, "S3 app. C.3", kind),)
